//! Kills of a cache on flash at random points, and what is back after each. Not damage to what is on the device.

use std::time::Duration;

use anyhow::bail;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::Scene;
use super::replay::{Cache, Checked};
use crate::show::finding::{Finding, median};

const BACK_MIN: f64 = 0.95;
/// A life serves at most so long.
const LIFE_MS_MAX: u64 = 900;
/// Every so many kills come while the cache is opened.
const OPENING_EVERY: u64 = 4;

/// What all kills of one cache have shown.
#[derive(Default)]
struct Kills {
    /// Sealed bytes that were back, of those that the last line before the kill told of.
    shares: Vec<f64>,
    opening: u64,
    served: u64,
    unread: u64,
    open_s: Vec<f64>,
    wrong: Vec<String>,
}

pub(super) fn show(scene: &Scene<'_>, times: u64, finding: &mut Finding) -> anyhow::Result<()> {
    let caches = [("ripq", "slru:3"), ("ripq", "gdsf:3"), ("sipq", "slru:3"), ("sipq", "gdsf:3")];
    for (number, (engine, policy)) in caches.into_iter().enumerate() {
        let number = number as u64;
        let cache = scene.cache(engine, policy);
        let kills = kill(&cache, number, times / 4 + u64::from(number < times % 4))?;
        std::fs::remove_file(&cache.file)?;
        kills.judge(engine, policy, finding);
    }
    Ok(())
}

/// Each life goes on with what the one before left.
fn kill(cache: &Cache<'_>, seed: u64, times: u64) -> anyhow::Result<Kills> {
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut kills, mut before) = (Kills::default(), 0);
    for number in 0..times {
        let mut life = cache.start()?;
        let opening = number % OPENING_EVERY == OPENING_EVERY - 1;
        let wait = if opening {
            life.wait_opening(&cache.file)?;
            random.random_range(0.0..=median(&kills.open_s))
        } else {
            life.wait_served()?;
            random.random_range(0..LIFE_MS_MAX) as f64 / 1e3
        };
        std::thread::sleep(Duration::from_secs_f64(wait));
        let told = life.kill()?;
        kills.opening += u64::from(told.is_none());
        let check = match cache.check()? {
            Checked::Served(check) => check,
            Checked::Refused(error) => bail!("{} after a kill: {error}", cache.engine),
            Checked::Wrong(error) => {
                kills.wrong.push(error);
                continue;
            }
        };
        let sealed = told.unwrap_or(before);
        kills.shares.push(if sealed > 0 { check.durable_bytes as f64 / sealed as f64 } else { 1.0 });
        kills.served += check.found;
        kills.unread += check.durable_objects.saturating_sub(check.found);
        kills.open_s.push(check.open_s);
        before = check.durable_bytes;
        if (number + 1).is_multiple_of(10) {
            eprintln!("{} {}: {} of {times} kills", cache.engine, cache.policy, number + 1);
        }
    }
    Ok(kills)
}

impl Kills {
    fn judge(&self, engine: &str, policy: &str, finding: &mut Finding) {
        let least = self.shares.iter().copied().fold(f64::INFINITY, f64::min);
        let times = self.shares.len() + self.wrong.len();
        finding.bound(
            self.wrong.is_empty() && self.unread == 0 && least >= BACK_MIN,
            format!(
                "{engine} {policy}: {times} kills, {} of them while it opened; {} wrong values among {} served, {} lost \
                 later; of the sealed bytes {:.2} % are back (median), {:.2} % (least), at least 95 %",
                self.opening,
                self.wrong.len(),
                self.served,
                self.unread,
                100.0 * median(&self.shares),
                100.0 * least
            ),
        );
        finding.figure(
            &format!("kills_{engine}_{policy}"),
            json!({
                "kills": times, "while_opening": self.opening, "values_served": self.served, "wrong": self.wrong,
                "known_and_not_served": self.unread, "share_back_median": median(&self.shares),
                "share_back_min": least, "open_s_median": median(&self.open_s),
            }),
        );
    }
}

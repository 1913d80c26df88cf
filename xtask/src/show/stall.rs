//! `show stall`: how long writes wait when a node is killed, leaves in order, or renews and never acknowledges.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;

use super::Stage;
use super::finding::{Finding, largest, median};
use super::load::ShownLoad;
use super::writers::Writers;
use crate::cluster::proxy::{MessageFate, Weather, WeatherKind, WeatherRule};
use crate::cluster::{Folder, Layer, Layout, ProcessCluster};

const REPETITIONS: u64 = 12;
/// All are cached by both nodes, and each has a writer of its own.
const KEYS: usize = 16;
const LEASE_MS: f64 = 1000.0;
/// What the protocol allows on top: 1 % of the lease, and `lease_guard_ms`.
const GUARD_MS: f64 = 20.0;
/// What timers and scheduling may add on a real machine.
const KILLED_MS_MAX: f64 = LEASE_MS + 60.0;
const LEFT_MS_MAX: f64 = 15.0;
/// Long enough for a write that begins right after the trouble to outlive a lease.
const WATCH: Duration = Duration::from_millis(1300);
/// Long enough for three leases in a row.
const WATCH_UNACKNOWLEDGED: Duration = Duration::from_millis(3300);
const CALM: Duration = Duration::from_millis(700);
const READY_MAX: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(20);
/// Leases are renewed every quarter: trouble comes at another time after that in each repetition.
const RENEW_MS: u64 = 250;

/// The node in trouble, the one before which all keys of the rack are cached.
const NODE: &str = "leaf-0";
const SHIM: &str = "shim-0";

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    let killed = repeat(stage, false, WATCH, |cluster| cluster.kill(NODE))?;
    judge(&mut finding, "killed with -9", "killed", &killed, KILLED_MS_MAX);
    let left = repeat(stage, false, WATCH, |cluster| cluster.terminate(NODE))?;
    judge(&mut finding, "left in order", "left", &left, LEFT_MS_MAX);
    let silent = repeat(stage, true, WATCH_UNACKNOWLEDGED, |cluster| {
        let rules = vec![WeatherRule { kind: Some(WeatherKind::Ack), chance: 1.0, fate: MessageFate::Drop }];
        cluster.proxy()?.weather(Some(NODE), Some(SHIM), Weather { rules, ..Weather::default() })
    })?;
    judge(&mut finding, "never acknowledges", "unacknowledged", &silent, KILLED_MS_MAX);
    finding.figure("lease_ms", LEASE_MS);
    finding.figure("guard_ms", GUARD_MS);
    Ok(finding)
}

/// Milliseconds of the longest write, repetition by repetition: with all well, and with the trouble.
struct Stalls {
    calm: Vec<f64>,
    trouble: Vec<f64>,
    errors: u64,
}

fn judge(finding: &mut Finding, text: &str, name: &str, stalls: &Stalls, bound_ms: f64) {
    let (median, worst) = (median(&stalls.trouble), largest(&stalls.trouble));
    finding.bound(
        worst <= bound_ms && stalls.errors == 0,
        format!(
            "{text}: longest write {median:.1} ms (median of {}), {worst:.1} ms (largest), at most {bound_ms:.0} ms; \
             with all well {:.1} ms (largest); {} errors",
            stalls.trouble.len(),
            largest(&stalls.calm),
            stalls.errors
        ),
    );
    finding.figure(
        name,
        json!({
            "stall_ms": stalls.trouble, "median_ms": median, "max_ms": worst, "bound_ms": bound_ms,
            "calm_ms": stalls.calm, "write_errors": stalls.errors,
        }),
    );
}

fn repeat(
    stage: &Stage<'_>,
    proxied: bool,
    watch: Duration,
    trouble: impl Fn(&mut ProcessCluster) -> anyhow::Result<()>,
) -> anyhow::Result<Stalls> {
    let layout =
        Layout { racks: 1, layers: vec![Layer::leaves(1), Layer::spines(1)], proxied, ..Layout::default() };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let folder = Folder::new("stall")?;
    let (keys, hot) = (KEYS.to_string(), format!("adversary:{KEYS}"));
    // Enough reads that no key counts as write-hot, from the start to the end.
    let reads = ["--keys", &keys, "--dist", &hot, "--rate", "4000", "--pipeline", "64", "--seconds", "3600"];
    let _reads = ShownLoad::start(stage.binary, cluster.router(0), folder.path(), "reads", &reads)?;
    wait_cached(&cluster)?;
    let writers = Writers::start(cluster.router(0), KEYS)?;
    let mut stalls = Stalls { calm: Vec::new(), trouble: Vec::new(), errors: 0 };
    for repetition in 0..REPETITIONS {
        wait_cached(&cluster)?;
        let calm_from = Instant::now();
        std::thread::sleep(CALM + Duration::from_millis(repetition * RENEW_MS / REPETITIONS));
        let begun = Instant::now();
        stalls.calm.push(writers.longest_ms(calm_from, begun)?);
        trouble(&mut cluster)?;
        std::thread::sleep(watch.saturating_sub(begun.elapsed()));
        writers.wait_for_each_after(Instant::now())?;
        stalls.trouble.push(writers.longest_ms(begun, begun + watch)?);
        if proxied {
            cluster.proxy()?.clear()?;
        } else {
            cluster.run(NODE)?;
            cluster.wait_linked()?;
        }
        eprintln!("{} of {REPETITIONS}: {:.1} ms", repetition + 1, stalls.trouble.last().unwrap_or(&0.0));
    }
    stalls.errors = writers.errors();
    Ok(stalls)
}

/// Until both nodes hold every key under a lease, so that each write has to wait for both.
fn wait_cached(cluster: &ProcessCluster) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_MAX;
    let holds_all = |id: &str| -> anyhow::Result<bool> {
        let status = cluster.member_status(id)?;
        Ok(status["objects"] == KEYS && status["leases"][0]["held"] == true)
    };
    while !(holds_all(NODE)? && holds_all("spine-0")?) {
        if Instant::now() > deadline {
            let status = cluster.status().context("and the controller is silent")?;
            bail!("the nodes do not hold all keys: {status}");
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

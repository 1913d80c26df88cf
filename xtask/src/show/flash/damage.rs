//! Damage to the file of a cache that was killed, before it is opened again. Not what a device does while it is in use.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

use super::replay::{Cache, Checked};
use super::{BLOCK_BYTES, Scene};
use crate::show::finding::Finding;

const SECTOR: u64 = 4096;
/// Superblock and journal lie in it.
const HEAD_BYTES: u64 = 384 << 10;
const PLACES_MAX: u64 = 64;
const LIFE_MS_MAX: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Garbage,
    Zeros,
    /// Two sectors have changed places.
    Swapped,
    /// What was there before the last life.
    OldSectors,
    OldBlocks,
    Truncated,
}

const DAMAGES: [(Damage, &str); 6] = [
    (Damage::Garbage, "garbage"),
    (Damage::Zeros, "zeros"),
    (Damage::Swapped, "swapped_sectors"),
    (Damage::OldSectors, "old_sectors"),
    (Damage::OldBlocks, "old_blocks"),
    (Damage::Truncated, "truncated"),
];

/// Rounds of one kind.
#[derive(Clone, Debug, Default)]
struct DamageRounds {
    opened: u64,
    /// Opened ones with nothing in them: of a damaged journal, all is dropped.
    empty: u64,
    served: u64,
    /// Known to the cache when it was opened, and found to be damaged when they were read.
    missed: u64,
    refused: Vec<String>,
    wrong: Vec<String>,
}

pub(super) fn show(scene: &Scene<'_>, times: u64, finding: &mut Finding) -> anyhow::Result<()> {
    let mut kinds = vec![DamageRounds::default(); DAMAGES.len()];
    for (seed, (engine, policy)) in [("ripq", "slru:3"), ("sipq", "slru:3")].into_iter().enumerate() {
        let cache = scene.cache(engine, policy);
        damage(&cache, seed as u64, times / 2, &mut kinds)?;
        std::fs::remove_file(&cache.file)?;
    }
    for ((damage, name), rounds) in DAMAGES.into_iter().zip(kinds) {
        // Of a file that was cut, nothing can be sound.
        let refused_as_due = damage != Damage::Truncated || rounds.opened == 0;
        let refusals = rounds.refused.len();
        finding.bound(
            rounds.wrong.is_empty() && refused_as_due,
            format!(
                "{name}: {} wrong values; opened {} times ({} empty) with {} values served and {} damaged ones missed, refused {refusals} times{}",
                rounds.wrong.len(),
                rounds.opened,
                rounds.empty,
                rounds.served,
                rounds.missed,
                rounds.refused.last().map_or(String::new(), |error| format!(": {error:?}"))
            ),
        );
        let figures = json!({
            "opened": rounds.opened, "opened_empty": rounds.empty, "values_served": rounds.served, "damaged_missed": rounds.missed,
            "refused": refusals, "wrong": rounds.wrong, "last_refusal": rounds.refused.last(),
        });
        finding.figure(&format!("damage_{name}"), figures);
    }
    Ok(())
}

fn damage(cache: &Cache<'_>, seed: u64, times: u64, kinds: &mut [DamageRounds]) -> anyhow::Result<()> {
    let mut random = SmallRng::seed_from_u64(seed);
    let folder = cache.file.parent().map_or(String::new(), |folder| format!("{}/", folder.display()));
    let (older, sound) = (cache.file.with_extension("older"), cache.file.with_extension("sound"));
    live(cache, &mut random)?;
    std::fs::copy(&cache.file, &sound)?;
    for number in 0..times {
        live(cache, &mut random)?;
        std::fs::rename(&sound, &older)?;
        std::fs::copy(&cache.file, &sound)?;
        let kind = number as usize % DAMAGES.len();
        let head_only = random.random_bool(0.5);
        apply(DAMAGES[kind].0, head_only, &cache.file, &older, &mut random)?;
        let rounds = &mut kinds[kind];
        match cache.check()? {
            Checked::Served(check) => {
                rounds.opened += 1;
                rounds.empty += u64::from(check.durable_objects == 0);
                rounds.served += check.found;
                rounds.missed += check.durable_objects.saturating_sub(check.found);
                continue;
            }
            // The folder says nothing elsewhere.
            Checked::Refused(error) => rounds.refused.push(error.replace(&folder, "")),
            Checked::Wrong(error) => rounds.wrong.push(error),
        }
        std::fs::copy(&sound, &cache.file)?;
    }
    std::fs::remove_file(&older)?;
    Ok(std::fs::remove_file(&sound)?)
}

/// Serves, damage or not, for a random time. It compares every value as a check does.
fn live(cache: &Cache<'_>, random: &mut SmallRng) -> anyhow::Result<()> {
    let mut life = cache.start()?;
    life.wait_served()?;
    std::thread::sleep(Duration::from_millis(random.random_range(0..LIFE_MS_MAX)));
    life.kill()?;
    Ok(())
}

fn apply(
    damage: Damage,
    head_only: bool,
    file: &Path,
    older: &Path,
    random: &mut SmallRng,
) -> io::Result<()> {
    let (file, older) = (OpenOptions::new().read(true).write(true).open(file)?, File::open(older)?);
    let bytes = file.metadata()?.len();
    if damage == Damage::Truncated {
        let length = random.random_range(0..bytes);
        return file.set_len(if head_only { length / SECTOR * SECTOR } else { length });
    }
    let unit = if damage == Damage::OldBlocks { BLOCK_BYTES } else { SECTOR };
    let units = if head_only { HEAD_BYTES } else { bytes } / unit;
    for _ in 0..random.random_range(1..=PLACES_MAX) {
        let [here, there] = [(); 2].map(|()| random.random_range(0..units) * unit);
        let mut new = vec![0; unit as usize];
        match damage {
            Damage::Garbage => random.fill(&mut new[..]),
            Damage::Zeros | Damage::Truncated => {}
            Damage::OldSectors | Damage::OldBlocks => older.read_exact_at(&mut new, here)?,
            Damage::Swapped => {
                let mut old = new.clone();
                file.read_exact_at(&mut new, there)?;
                file.read_exact_at(&mut old, here)?;
                file.write_all_at(&old, there)?;
            }
        }
        file.write_all_at(&new, here)?;
    }
    file.sync_all()
}

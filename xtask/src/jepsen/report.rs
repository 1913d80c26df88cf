//! What a run has seen, added up over its rounds, and whether it counts. Not how it is measured.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;

use crate::cluster::proxy::Harm;

use super::client::ClientCounts;
use super::judge::{Findings, JepsenViolation};
use super::meter::MeterReading;
use super::resharding::ReshardingCounts;

/// Rounds with fewer near hits than this, each, do not try near copies.
const NEAR_HITS_MIN: u64 = 100;
/// A server is added and removed, at least, in every round in which keys change theirs.
const RESHARDINGS_MIN: u64 = 2;
/// A run with fewer hits among its reads tests storage, not the cache.
const HIT_RATIO_MIN: f64 = 0.3;
/// Every member begins anew with the next file after each change of servers, and copies of what has moved are called back.
const HIT_RATIO_RESHARDING_MIN: f64 = 0.1;
/// A run with fewer writes to cached keys while something was wrong tests little of coherence.
const CACHED_WRITES_MIN: u64 = 1000;

#[derive(Default, Serialize)]
pub(super) struct JepsenReport {
    pub(super) seed: u64,
    pub(super) rounds: u64,
    /// Rounds over each kind of storage.
    pub(super) storages: BTreeMap<&'static str, u64>,
    pub(super) seconds: f64,
    pub(super) operations: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Writes that took effect as transactions, of those behind WATCH, and of scripts.
    pub(super) transactions: u64,
    pub(super) swaps: u64,
    pub(super) scripts: u64,
    pub(super) unknown: u64,
    pub(super) refused: u64,
    pub(super) operations_per_second: f64,
    pub(super) hit_ratio: f64,
    /// At least so many writes invalidated copies while a fault lasted.
    pub(super) cached_writes_during_faults: u64,
    pub(super) longest_write_ms: f64,
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) messages_dropped: u64,
    pub(super) messages_duplicated: u64,
    pub(super) messages_held: u64,
    pub(super) histories: u64,
    pub(super) histories_undecided: u64,
    pub(super) operations_checked: u64,
    pub(super) violations: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// Why the run does not count, if it does not.
    pub(super) not_counted: Vec<String>,
    #[serde(skip)]
    pub(super) found: Vec<JepsenViolation>,
    #[serde(skip)]
    pub(super) disagreements: Vec<String>,
    /// Rounds in which keys were to be too hot for their nodes, and how often keys got more places than they had.
    rounds_hot: u64,
    raises: u64,
    /// Rounds in which routers held copies themselves, and reads that these have answered.
    rounds_near: u64,
    near_hits: u64,
    /// Rounds in which keys changed their storage servers, how often they came to rest, and how many movers were killed.
    rounds_resharding: u64,
    reshardings: u64,
    movers_killed: u64,
    #[serde(skip)]
    hits: u64,
}

impl JepsenReport {
    pub(super) fn new(seed: u64) -> JepsenReport {
        JepsenReport { seed, ..JepsenReport::default() }
    }

    pub(super) fn add(
        &mut self,
        took: Duration,
        layers: usize,
        counts: &ClientCounts,
        reading: &MeterReading,
        findings: Findings,
    ) {
        self.rounds += 1;
        self.seconds += took.as_secs_f64();
        self.reads += counts.reads.load(Relaxed);
        self.writes += counts.writes.load(Relaxed);
        self.operations = self.reads + self.writes;
        self.transactions += counts.transactions.load(Relaxed);
        self.swaps += counts.swaps.load(Relaxed);
        self.scripts += counts.scripts.load(Relaxed);
        self.unknown += counts.unknown.load(Relaxed);
        self.refused += counts.void.load(Relaxed);
        self.hits += reading.hits;
        // One write invalidates at most one copy in each layer.
        self.cached_writes_during_faults += reading.copies_during_faults / layers as u64;
        let longest = Duration::from_micros(counts.longest_write_us.load(Relaxed));
        self.longest_write_ms = self.longest_write_ms.max(longest.as_secs_f64() * 1e3);
        for (text, count) in counts.errors.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *self.errors.entry(text.clone()).or_default() += count;
        }
        self.histories += findings.histories;
        self.histories_undecided += findings.undecided;
        self.operations_checked += findings.operations;
        self.violations += findings.violations.len() as u64;
        self.found.extend(findings.violations);
        self.disagreements.extend(findings.disagreements);
    }

    /// A round is over, in which keys should have become too hot for their nodes or not.
    pub(super) fn add_heat(&mut self, hot: bool, raises: u64) {
        self.rounds_hot += u64::from(hot);
        self.raises += raises;
    }

    pub(super) fn add_near(&mut self, near: bool, hits: u64) {
        self.rounds_near += u64::from(near);
        self.near_hits += hits;
    }

    pub(super) fn add_resharding(&mut self, counts: ReshardingCounts) {
        self.rounds_resharding += 1;
        self.reshardings += counts.finished;
        self.movers_killed += counts.movers_killed;
    }

    pub(super) fn add_faults(&mut self, counts: &BTreeMap<&'static str, u64>, harm: Harm) {
        for (name, count) in counts {
            *self.faults.entry(name).or_default() += count;
        }
        self.messages_dropped += harm.dropped;
        self.messages_duplicated += harm.duplicated;
        self.messages_held += harm.held;
    }

    /// Works out the ratios, and whether the run counts.
    pub(super) fn close(&mut self, with_faults: bool) {
        self.operations_per_second = self.operations as f64 / self.seconds.max(1e-9);
        self.hit_ratio = (self.hits + self.near_hits) as f64 / self.reads.max(1) as f64;
        let least = if self.rounds_resharding > 0 { HIT_RATIO_RESHARDING_MIN } else { HIT_RATIO_MIN };
        if self.hit_ratio < least {
            let ratio = self.hit_ratio;
            self.not_counted.push(format!("only {ratio:.2} of the reads were hits; {least} are needed"));
        }
        if with_faults && self.cached_writes_during_faults < CACHED_WRITES_MIN {
            let writes = self.cached_writes_during_faults;
            let text =
                format!("only {writes} writes met cached keys during faults; {CACHED_WRITES_MIN} are needed");
            self.not_counted.push(text);
        }
        let knows_all = self.storages.keys().any(|storage| ["redis", "durable", "cluster"].contains(storage));
        if knows_all && [self.transactions, self.swaps, self.scripts].contains(&0) {
            self.not_counted
                .push("no transaction, none behind WATCH or no script was among the writes".to_owned());
        }
        if self.rounds_hot > 0 && self.raises == 0 {
            self.not_counted.push("no key ever had more places than one per layer".to_owned());
        }
        if self.rounds_near > 0 && self.near_hits < NEAR_HITS_MIN * self.rounds_near {
            let near_hits = self.near_hits;
            self.not_counted.push(format!("only {near_hits} reads were answered by copies of routers"));
        }
        if self.reshardings < RESHARDINGS_MIN * self.rounds_resharding {
            self.not_counted.push(format!("only {} changes of servers came to their end", self.reshardings));
        }
        if self.histories_undecided * 100 > self.histories {
            let undecided = self.histories_undecided;
            self.not_counted.push(format!("{undecided} histories were too entangled to be checked"));
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} operations in {:.0} s, {:.0} a second, {} rounds: {} reads, {} writes, {} unknown, {} refused\n\
             among the writes: {} transactions, {} behind WATCH, {} scripts\n\
             {:.1} % of the reads were hits; {} writes met cached keys during faults; longest write {:.0} ms\n\
             keys got further places {} times, in {} rounds with hot keys; {} near hits in {} rounds with near copies\n\
             servers were added or removed {} times in {} rounds; {} movers were killed\n\
             {} histories with {} operations checked twice: {} violations, {} undecided\n",
            self.operations,
            self.seconds,
            self.operations_per_second,
            self.rounds,
            self.reads,
            self.writes,
            self.unknown,
            self.refused,
            self.transactions,
            self.swaps,
            self.scripts,
            self.hit_ratio * 100.0,
            self.cached_writes_during_faults,
            self.longest_write_ms,
            self.raises,
            self.rounds_hot,
            self.near_hits,
            self.rounds_near,
            self.reshardings,
            self.rounds_resharding,
            self.movers_killed,
            self.histories,
            self.operations_checked,
            self.violations,
            self.histories_undecided,
        );
        let storages: Vec<String> =
            self.storages.iter().map(|(name, rounds)| format!("{rounds} over {name}")).collect();
        text.push_str(&format!("rounds: {}\n", storages.join(", ")));
        let faults: Vec<String> = self.faults.iter().map(|(name, count)| format!("{count} {name}")).collect();
        text.push_str(&format!("faults: {}\n", faults.join(", ")));
        text.push_str(&format!(
            "control messages: {} dropped, {} duplicated, {} held back\n",
            self.messages_dropped, self.messages_duplicated, self.messages_held
        ));
        for (error, count) in &self.errors {
            text.push_str(&format!("{count:>8} x {error}\n"));
        }
        text
    }
}

//! Whether a run counts: how many reads were hits and how many writes met cached keys while something was wrong.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::ask;

/// Members report every half second.
const PERIOD: Duration = Duration::from_millis(250);

#[derive(Default)]
struct MeterTotals {
    hits: AtomicU64,
    near_hits: AtomicU64,
    raises: AtomicU64,
    copies_during_faults: AtomicU64,
    fault: AtomicBool,
    stop: AtomicBool,
}

/// Adds up counters that begin again at zero when a member does.
pub(super) struct Meter {
    totals: Arc<MeterTotals>,
    thread: JoinHandle<()>,
}

pub(super) struct MeterReading {
    /// Reads that copies at nodes have answered, and copies at routers.
    pub(super) hits: u64,
    pub(super) near_hits: u64,
    /// How often keys got more places than they had.
    pub(super) raises: u64,
    /// Copies that writes invalidated while something was wrong.
    pub(super) copies_during_faults: u64,
}

impl Meter {
    pub(super) fn start(controller: SocketAddr) -> Meter {
        let totals = Arc::new(MeterTotals::default());
        let shared = Arc::clone(&totals);
        let thread = std::thread::spawn(move || {
            let mut counters = MeterCounters::default();
            let mut during = false;
            while !shared.stop.load(Relaxed) {
                std::thread::sleep(PERIOD);
                let Ok(status) = ask::json(controller, "/v1/status") else { continue };
                shared.hits.fetch_add(counters.growth(&status["nodes"], "hits_total"), Relaxed);
                let near_hits = counters.growth(&status["routers"], "near_hits_total");
                shared.near_hits.fetch_add(near_hits, Relaxed);
                shared.raises.fetch_add(counters.growth(&status["shims"], "raises_total"), Relaxed);
                let copies = counters.growth(&status["shims"], "invalidated_copies_total");
                // Only what certainly lies within a fault.
                let still = shared.fault.load(Relaxed);
                if std::mem::replace(&mut during, still) && still {
                    shared.copies_during_faults.fetch_add(copies, Relaxed);
                }
            }
        });
        Meter { totals, thread }
    }

    /// Whether something is wrong from now on.
    pub(super) fn fault(&self, active: bool) {
        self.totals.fault.store(active, Relaxed);
    }

    pub(super) fn finish(self) -> MeterReading {
        self.totals.stop.store(true, Relaxed);
        let _ = self.thread.join();
        MeterReading {
            hits: self.totals.hits.load(Relaxed),
            near_hits: self.totals.near_hits.load(Relaxed),
            raises: self.totals.raises.load(Relaxed),
            copies_during_faults: self.totals.copies_during_faults.load(Relaxed),
        }
    }
}

/// The last value of each member's counter.
#[derive(Default)]
struct MeterCounters(HashMap<(String, &'static str), u64>);

impl MeterCounters {
    fn growth(&mut self, members: &Value, name: &'static str) -> u64 {
        let members = members.as_array().map_or(&[][..], Vec::as_slice);
        members
            .iter()
            .filter_map(|member| {
                let (id, now) = (member["id"].as_str()?, member[name].as_u64()?);
                let before = self.0.insert((id.to_owned(), name), now).unwrap_or(0);
                Some(if now >= before { now - before } else { now })
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::MeterCounters;
    use serde_json::json;

    #[test]
    fn a_member_that_began_again_counts_on() {
        let mut counters = MeterCounters::default();
        let status = |count: u64| json!([{ "id": "a", "n": count }, { "id": "b", "n": 1 }]);
        assert_eq!(counters.growth(&status(10), "n"), 11);
        assert_eq!(counters.growth(&status(15), "n"), 5);
        assert_eq!(counters.growth(&status(2), "n"), 2);
        assert_eq!(counters.growth(&json!(null), "n"), 0);
    }
}

//! What each phase came to: rates from the members' counters, and what clients met. Not when the phases were.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::bench::{RequestEnd, RequestFate};

use super::PhaseKind;
use super::sample::{Passed, Sample, max_over_avg};
use super::script::PhaseWindow;

/// A reply that comes later than this is late.
pub(crate) const LATE: Duration = Duration::from_millis(100);
const DIGITS: u8 = 3;
/// Latencies above a minute count as a minute.
const LATENCY_US_MAX: u64 = 60_000_000;

/// One half of the summary, as `--json` prints it. Throughput is in requests per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PhaseSummary {
    pub(crate) throughput: f64,
    pub(crate) storage_max_over_avg: Option<f64>,
    pub(crate) node_max_over_avg: Option<f64>,
    pub(crate) hit_ratio: f64,
    /// Requests per second at the busiest storage server.
    pub(crate) busiest_storage_per_s: f64,
    #[serde(skip)]
    pub(crate) p50_us: u64,
    /// From when a request was due to its reply, or as long as it has waited; without those that failed.
    pub(crate) p99_us: u64,
    /// Not answered within 100 ms.
    pub(crate) late: u64,
    /// Refused, or lost with their connections.
    pub(crate) errors: u64,
    /// Threads that were ready and waited for a core, on average: what else this machine had to do made them late.
    pub(crate) cpu_wait: Option<f64>,
    /// Due in the phase.
    #[serde(skip)]
    pub(crate) requests: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct DemoSummary {
    pub(crate) without_cache: PhaseSummary,
    pub(crate) with_cache: PhaseSummary,
}

pub(crate) struct Figures {
    without: PhaseFigures,
    with: PhaseFigures,
    last: Option<Sample>,
}

struct PhaseFigures {
    passed: Passed,
    latency_us: Histogram<u64>,
    requests: u64,
    late: u64,
    errors: u64,
}

impl Figures {
    pub(crate) fn new() -> Figures {
        Figures { without: PhaseFigures::new(), with: PhaseFigures::new(), last: None }
    }

    /// The counters now.
    pub(crate) fn look(&mut self, windows: &[PhaseWindow], sample: &Sample) {
        if let Some(last) = self.last.replace(sample.clone()) {
            // What lies between the samples belongs to one phase or to none.
            let whole = |window: &&PhaseWindow| window.has(last.at) && sample.at <= window.to;
            if let Some(window) = windows.iter().find(whole) {
                self.phase(window.kind).passed.add(&last, sample);
            }
        }
    }

    /// Requests that have ended since the last time.
    pub(crate) fn take(&mut self, windows: &[PhaseWindow], fates: &[RequestFate]) {
        for fate in fates {
            if let Some(window) = windows.iter().find(|window| window.has(fate.since)) {
                self.phase(window.kind).take(fate);
            }
        }
    }

    pub(crate) fn summary(&self) -> DemoSummary {
        DemoSummary { without_cache: self.without.summary(), with_cache: self.with.summary() }
    }

    fn phase(&mut self, kind: PhaseKind) -> &mut PhaseFigures {
        match kind {
            PhaseKind::WithoutCache => &mut self.without,
            PhaseKind::WithCache => &mut self.with,
        }
    }
}

impl PhaseFigures {
    fn new() -> PhaseFigures {
        let latency_us =
            Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are constants that fit");
        PhaseFigures { passed: Passed::default(), latency_us, requests: 0, late: 0, errors: 0 }
    }

    fn take(&mut self, fate: &RequestFate) {
        // Nobody knows yet what would have become of one that has not waited for long.
        if fate.end == RequestEnd::Unanswered && fate.waited <= LATE {
            return;
        }
        self.requests += 1;
        if fate.end == RequestEnd::Failed {
            self.errors += 1;
            return;
        }
        self.late += u64::from(fate.waited > LATE);
        self.latency_us.saturating_record(fate.waited.as_micros() as u64);
    }

    fn summary(&self) -> PhaseSummary {
        let rates = self.passed.rates();
        let at = |quantile: f64| self.latency_us.value_at_quantile(quantile).min(self.latency_us.max());
        PhaseSummary {
            throughput: rates.throughput,
            storage_max_over_avg: max_over_avg(&rates.servers),
            node_max_over_avg: max_over_avg(&rates.nodes),
            hit_ratio: rates.hit_ratio,
            busiest_storage_per_s: rates.busiest_server(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            late: self.late,
            errors: self.errors,
            cpu_wait: rates.cpu_wait,
            requests: self.requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::time::Time;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn windows() -> [PhaseWindow; 2] {
        [
            PhaseWindow { kind: PhaseKind::WithoutCache, from: Time(SECOND), to: Time(5 * SECOND) },
            PhaseWindow { kind: PhaseKind::WithCache, from: Time(8 * SECOND), to: Time(u64::MAX) },
        ]
    }

    fn fate(since_us: u64, waited_us: u64, end: RequestEnd) -> RequestFate {
        RequestFate { key: None, since: Time(since_us), waited: Duration::from_micros(waited_us), end }
    }

    #[test]
    fn a_request_counts_in_the_phase_in_which_it_was_due() {
        let mut figures = Figures::new();
        let fates = [
            fate(0, 1, RequestEnd::Failed),
            fate(2 * SECOND, 7 * SECOND, RequestEnd::Answered),
            fate(3 * SECOND, 1_000, RequestEnd::Answered),
            fate(4 * SECOND, 200_000, RequestEnd::Failed),
            fate(6 * SECOND, 1, RequestEnd::Failed),
            fate(9 * SECOND, 100_000, RequestEnd::Answered),
            fate(9 * SECOND, 100_001, RequestEnd::Unanswered),
            fate(9 * SECOND, 50_000, RequestEnd::Unanswered),
        ];
        figures.take(&windows(), &fates);
        let DemoSummary { without_cache, with_cache } = figures.summary();
        assert_eq!((without_cache.requests, without_cache.late, without_cache.errors), (3, 1, 1));
        assert!(without_cache.p99_us >= 6_900_000 && without_cache.p50_us < 1_010, "{without_cache:?}");
        assert_eq!((with_cache.requests, with_cache.late, with_cache.errors), (2, 1, 0));
    }

    #[test]
    fn counters_count_between_samples_of_one_phase() {
        let mut figures = Figures::new();
        for second in 0..=10 {
            // 100 requests/s without the cache, 400 with it, and a burst in between.
            let answered = if second <= 5 { 1_000 + second * 100 } else { 100_000 + second * 400 };
            let servers = vec![answered, 0];
            let sample = Sample { at: Time(second * SECOND), answered, servers, ..Sample::default() };
            figures.look(&windows(), &sample);
        }
        let DemoSummary { without_cache, with_cache } = figures.summary();
        assert_eq!((without_cache.throughput, with_cache.throughput), (100.0, 400.0));
        assert_eq!(without_cache.storage_max_over_avg, Some(2.0));
        assert_eq!(with_cache.busiest_storage_per_s, 400.0);
    }

    #[test]
    fn the_json_has_exactly_the_promised_fields() {
        let figures = Figures::new();
        let phase = serde_json::json!({
            "throughput": 0.0, "storage_max_over_avg": null, "node_max_over_avg": null, "hit_ratio": 0.0,
            "busiest_storage_per_s": 0.0, "p99_us": 0, "late": 0, "errors": 0,
            "cpu_wait": null,
        });
        let expected = serde_json::json!({"without_cache": phase.clone(), "with_cache": phase});
        assert_eq!(serde_json::to_value(figures.summary()).expect("plain data"), expected);
    }
}

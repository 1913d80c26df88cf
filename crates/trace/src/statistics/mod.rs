//! What a trace is like: counts, sizes, popularity, ages, reuse. Needs memory per object, not per request.

mod quantiles;
mod reuse;
mod zipf_fit;

use rustc_hash::FxHashMap;

use crate::access::{Access, AccessOperation};
use crate::permutation::mix;
pub use quantiles::Quantiles;
use quantiles::ValueCounts;
use reuse::ReuseDistances;
use zipf_fit::zipf_alpha;

/// Collects over one pass. About 40 bytes for each object, and at most a few MiB besides.
#[derive(Default)]
pub struct TraceStatistics {
    objects: FxHashMap<u64, SeenObject>,
    requests: u64,
    writes: u64,
    deletes: u64,
    bytes: u64,
    working_set_bytes: u64,
    first_time: Option<u64>,
    last_time: u64,
    sizes: ValueCounts,
    ages: ValueCounts,
    reuse: ReuseDistances,
}

struct SeenObject {
    /// Requests of either half of the trace, for the fit of Zipf's law.
    halves: [u32; 2],
    first_time: u64,
}

impl SeenObject {
    fn requests(&self) -> u64 {
        self.halves.iter().map(|count| u64::from(*count)).sum()
    }
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSummary {
    pub requests: u64,
    pub objects: u64,
    pub bytes: u64,
    /// The sizes of all objects, each as its first request has it.
    pub working_set_bytes: u64,
    /// Exponent of Zipf's law as fitted; `None` for fewer than two objects.
    pub zipf_alpha: Option<f64>,
    pub writes: u64,
    pub deletes: u64,
    /// Objects that were requested once.
    pub one_hit_wonders: u64,
    /// Requests for the most popular object, and for the most popular hundredth of all.
    pub hottest_requests: u64,
    pub hottest_hundredth_requests: u64,
    /// From the first to the last request; None if all times are 0, as where the format has none.
    pub duration_s: Option<u64>,
    /// Over objects.
    pub object_bytes: Quantiles,
    /// Over requests that are not the first of their object: seconds since that.
    pub age_s: Option<Quantiles>,
    /// Over the same: other objects requested since the last request, estimated from a sample.
    pub reuse_distance: Quantiles,
}

impl TraceStatistics {
    pub fn record(&mut self, access: &Access) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(access.bytes);
        match access.operation {
            AccessOperation::Read => {}
            AccessOperation::Write => self.writes += 1,
            AccessOperation::Delete => self.deletes += 1,
        }
        self.first_time.get_or_insert(access.time);
        self.last_time = self.last_time.max(access.time);
        let fresh = SeenObject { halves: [0; 2], first_time: access.time };
        let seen = self.objects.entry(access.object).or_insert(fresh);
        // By a hash, because requests may come in pairs.
        let half = &mut seen.halves[mix(self.requests) as usize & 1];
        *half = half.saturating_add(1);
        if seen.requests() == 1 {
            self.working_set_bytes = self.working_set_bytes.saturating_add(access.bytes);
            self.sizes.record(access.bytes, 1);
        } else {
            self.ages.record(access.time.saturating_sub(seen.first_time), 1);
        }
        self.reuse.record(access.object);
    }

    pub fn summary(&self) -> TraceSummary {
        let mut counts: Vec<u64> = self.objects.values().map(SeenObject::requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let halves: Vec<[u32; 2]> = self.objects.values().map(|seen| seen.halves).collect();
        let timed = self.last_time > 0;
        let hundredth = counts.len().div_ceil(100);
        TraceSummary {
            requests: self.requests,
            objects: counts.len() as u64,
            bytes: self.bytes,
            working_set_bytes: self.working_set_bytes,
            zipf_alpha: zipf_alpha(&halves),
            writes: self.writes,
            deletes: self.deletes,
            one_hit_wonders: counts.iter().rev().take_while(|count| **count == 1).count() as u64,
            hottest_requests: counts.first().copied().unwrap_or(0),
            hottest_hundredth_requests: counts[..hundredth].iter().sum(),
            duration_s: timed.then(|| self.last_time.saturating_sub(self.first_time.unwrap_or(0))),
            object_bytes: self.sizes.quantiles(),
            age_s: timed.then(|| self.ages.quantiles()),
            reuse_distance: self.reuse.spread().quantiles(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::NextAccess;

    #[test]
    fn everything_is_counted_as_it_is_defined() {
        let mut statistics = TraceStatistics::default();
        for (time, object, bytes, operation) in [
            (100, 1, 10, AccessOperation::Read),
            (101, 2, 500, AccessOperation::Write),
            (105, 1, 12, AccessOperation::Write),
            (103, 3, 7, AccessOperation::Delete),
            (110, 1, 10, AccessOperation::Read),
        ] {
            statistics.record(&Access { time, object, bytes, next: NextAccess::Unknown, operation });
        }
        let summary = statistics.summary();
        assert_eq!((summary.requests, summary.objects, summary.bytes), (5, 3, 539));
        assert_eq!(summary.working_set_bytes, 10 + 500 + 7, "the first size of each object");
        assert_eq!((summary.writes, summary.deletes, summary.one_hit_wonders), (2, 1, 2));
        assert_eq!((summary.hottest_requests, summary.hottest_hundredth_requests), (3, 3));
        assert_eq!(summary.duration_s, Some(10));
        let sizes = summary.object_bytes;
        assert_eq!((sizes.min, sizes.p50, sizes.max), (7, 10, 500));
        assert_eq!(summary.age_s.map(|age| (age.min, age.max)), Some((5, 10)));
        // Object 1 comes back after one other object each time.
        assert_eq!(
            summary.reuse_distance,
            Quantiles { mean: 1.0, min: 1, p10: 1, p50: 1, p90: 1, p99: 1, max: 1 }
        );
    }

    #[test]
    fn nothing_is_no_trouble() {
        let summary = TraceStatistics::default().summary();
        assert_eq!((summary.requests, summary.zipf_alpha, summary.duration_s), (0, None, None));
        assert_eq!(summary.reuse_distance, Quantiles::default());
    }
}

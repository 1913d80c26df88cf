//! The members' counters at one moment, and the rates between two moments. Not how they are read or drawn.

use serde::Serialize;

/// Totals since start, read at about the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at_us: u64,
    /// Replies that the load generator got.
    pub(crate) answered: u64,
    pub(crate) router_requests: u64,
    pub(crate) router_hits: u64,
    /// Requests that reached storage, by storage server.
    pub(crate) servers: Vec<u64>,
    /// Requests by cache node; zeros while they do not run.
    pub(crate) nodes: Vec<u64>,
}

/// What happened between two samples, per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) throughput: f64,
    /// Share of all requests that never reached storage, 0 to 1.
    pub(crate) hit_ratio: f64,
    pub(crate) servers: Vec<f64>,
    pub(crate) nodes: Vec<f64>,
}

/// One half of the summary, as `--json` prints it. Throughput is in requests per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PhaseSummary {
    pub(crate) throughput: f64,
    pub(crate) storage_max_over_avg: Option<f64>,
    pub(crate) node_max_over_avg: Option<f64>,
    pub(crate) hit_ratio: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) without_cache: PhaseSummary,
    pub(crate) with_cache: PhaseSummary,
}

impl Rates {
    pub(crate) fn between(earlier: &Sample, later: &Sample) -> Rates {
        let seconds = later.at_us.saturating_sub(earlier.at_us) as f64 / 1e6;
        let rate = |before: u64, after: u64| {
            if seconds > 0.0 { after.saturating_sub(before) as f64 / seconds } else { 0.0 }
        };
        let rates = |before: &[u64], after: &[u64]| {
            after
                .iter()
                .enumerate()
                // A member that has only just started counts from zero.
                .map(|(index, total)| rate(before.get(index).copied().unwrap_or(0), *total))
                .collect()
        };
        let requests = later.router_requests.saturating_sub(earlier.router_requests);
        let hits = later.router_hits.saturating_sub(earlier.router_hits);
        Rates {
            throughput: rate(earlier.answered, later.answered),
            hit_ratio: if requests > 0 { (hits as f64 / requests as f64).min(1.0) } else { 0.0 },
            servers: rates(&earlier.servers, &later.servers),
            nodes: rates(&earlier.nodes, &later.nodes),
        }
    }

    pub(crate) fn summary(&self) -> PhaseSummary {
        PhaseSummary {
            throughput: self.throughput,
            storage_max_over_avg: max_over_avg(&self.servers),
            node_max_over_avg: max_over_avg(&self.nodes),
            hit_ratio: self.hit_ratio,
        }
    }
}

/// The imbalance of loads: 1 is perfect. Nothing if there is no load at all.
pub(crate) fn max_over_avg(loads: &[f64]) -> Option<f64> {
    let sum: f64 = loads.iter().sum();
    let max = loads.iter().copied().fold(0.0, f64::max);
    (sum > 0.0).then(|| max * loads.len() as f64 / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_per_second() {
        let earlier = Sample {
            at_us: 1_000_000,
            answered: 100,
            router_requests: 100,
            router_hits: 0,
            servers: vec![10, 20],
            nodes: Vec::new(),
        };
        let later = Sample {
            at_us: 3_000_000,
            answered: 500,
            router_requests: 500,
            router_hits: 300,
            servers: vec![50, 80],
            nodes: vec![100, 200],
        };
        let rates = Rates::between(&earlier, &later);
        assert_eq!(rates.throughput, 200.0);
        assert_eq!(rates.hit_ratio, 0.75);
        assert_eq!(rates.servers, [20.0, 30.0]);
        assert_eq!(rates.nodes, [50.0, 100.0]);
        assert_eq!(rates.summary().storage_max_over_avg, Some(1.2));
    }

    #[test]
    fn no_time_and_no_load_give_no_infinities() {
        let sample = Sample { servers: vec![5], ..Sample::default() };
        let rates = Rates::between(&sample, &sample);
        assert_eq!((rates.throughput, rates.hit_ratio), (0.0, 0.0));
        assert_eq!(max_over_avg(&[0.0, 0.0]), None);
        assert_eq!(max_over_avg(&[]), None);
    }

    #[test]
    fn the_json_has_exactly_the_promised_fields() {
        let rates = |nodes| Rates { throughput: 10.0, hit_ratio: 0.0, servers: vec![1.0, 3.0], nodes };
        let summary = Summary {
            without_cache: rates(vec![0.0, 0.0]).summary(),
            with_cache: rates(vec![1.0, 1.0]).summary(),
        };
        let expected = serde_json::json!({
            "without_cache":
                {"throughput": 10.0, "storage_max_over_avg": 1.5, "node_max_over_avg": null, "hit_ratio": 0.0},
            "with_cache":
                {"throughput": 10.0, "storage_max_over_avg": 1.5, "node_max_over_avg": 1.0, "hit_ratio": 0.0},
        });
        assert_eq!(serde_json::to_value(&summary).expect("plain data"), expected);
    }
}

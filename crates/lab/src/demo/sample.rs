//! The members' counters at one moment, and the rates between two moments. Not how they are read or drawn.

use std::time::Duration;

use protocol::time::Time;

/// Totals since start, read at about the same time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Time,
    /// Replies other than errors that the load generator got.
    pub(crate) answered: u64,
    pub(crate) router_replies: u64,
    pub(crate) router_hits: u64,
    /// How long this process' threads waited for a core.
    pub(crate) waited: Option<Duration>,
    /// Requests that reached storage, by storage server.
    pub(crate) servers: Vec<u64>,
    /// Requests by cache node; zero of one that does not run.
    pub(crate) nodes: Vec<u64>,
}

/// What happened between samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Passed {
    time: Duration,
    answered: u64,
    router_replies: u64,
    router_hits: u64,
    waited: Option<Duration>,
    servers: Vec<u64>,
    nodes: Vec<u64>,
}

/// The same per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) throughput: f64,
    /// Share of all requests that never reached storage, 0 to 1.
    pub(crate) hit_ratio: f64,
    /// Threads that were ready and waited for a core, on average; nothing where it is not known.
    pub(crate) cpu_wait: Option<f64>,
    pub(crate) servers: Vec<f64>,
    pub(crate) nodes: Vec<f64>,
}

impl Passed {
    pub(crate) fn add(&mut self, earlier: &Sample, later: &Sample) {
        self.time += later.at.since(earlier.at);
        self.answered += later.answered.saturating_sub(earlier.answered);
        self.router_replies += later.router_replies.saturating_sub(earlier.router_replies);
        self.router_hits += later.router_hits.saturating_sub(earlier.router_hits);
        if let (Some(before), Some(after)) = (earlier.waited, later.waited) {
            *self.waited.get_or_insert_default() += after.saturating_sub(before);
        }
        add_each(&mut self.servers, &earlier.servers, &later.servers);
        add_each(&mut self.nodes, &earlier.nodes, &later.nodes);
    }

    pub(crate) fn rates(&self) -> Rates {
        let seconds = self.time.as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let rates = |counts: &[u64]| counts.iter().map(|count| rate(*count)).collect();
        let share = self.router_hits as f64 / (self.router_replies as f64).max(1.0);
        Rates {
            throughput: rate(self.answered),
            hit_ratio: share.min(1.0),
            cpu_wait: self.waited.filter(|_| seconds > 0.0).map(|waited| waited.div_duration_f64(self.time)),
            servers: rates(&self.servers),
            nodes: rates(&self.nodes),
        }
    }
}

impl Rates {
    pub(crate) fn between(earlier: &Sample, later: &Sample) -> Rates {
        let mut passed = Passed::default();
        passed.add(earlier, later);
        passed.rates()
    }

    pub(crate) fn busiest_server(&self) -> f64 {
        self.servers.iter().copied().fold(0.0, f64::max)
    }
}

fn add_each(sums: &mut Vec<u64>, before: &[u64], after: &[u64]) {
    sums.resize(after.len(), 0);
    for (index, (sum, total)) in sums.iter_mut().zip(after).enumerate() {
        // A member that has only just started counts from zero.
        *sum += total.saturating_sub(before.get(index).copied().unwrap_or(0));
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
            at: Time(1_000_000),
            answered: 100,
            router_replies: 100,
            router_hits: 0,
            waited: Some(Duration::from_micros(500)),
            servers: vec![10, 20],
            nodes: Vec::new(),
        };
        let later = Sample {
            at: Time(3_000_000),
            answered: 500,
            router_replies: 500,
            router_hits: 300,
            waited: Some(Duration::from_micros(600_500)),
            servers: vec![50, 80],
            nodes: vec![100, 200],
        };
        let rates = Rates::between(&earlier, &later);
        assert_eq!(rates.throughput, 200.0);
        assert_eq!((rates.hit_ratio, rates.cpu_wait), (0.75, Some(0.3)));
        assert_eq!(rates.servers, [20.0, 30.0]);
        assert_eq!(rates.nodes, [50.0, 100.0]);
        assert_eq!((rates.busiest_server(), max_over_avg(&rates.servers)), (30.0, Some(1.2)));
    }

    #[test]
    fn times_apart_add_up() {
        let at = |at, served| Sample { at: Time(at), servers: vec![served], ..Sample::default() };
        let mut passed = Passed::default();
        passed.add(&at(0, 0), &at(1_000_000, 10));
        passed.add(&at(9_000_000, 500), &at(10_000_000, 520));
        assert_eq!(passed.rates().servers, [15.0]);
    }

    #[test]
    fn no_time_and_no_load_give_no_infinities() {
        let sample = Sample { servers: vec![5], ..Sample::default() };
        let rates = Rates::between(&sample, &sample);
        assert_eq!((rates.throughput, rates.hit_ratio, rates.cpu_wait), (0.0, 0.0, None));
        assert_eq!(max_over_avg(&[0.0, 0.0]), None);
        assert_eq!(max_over_avg(&[]), None);
    }
}

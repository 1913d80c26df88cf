//! What clients met within the last second: latencies, failures, and who waits for which server. Not over a phase.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::time::Time;

use crate::bench::{RequestEnd, RequestFate};

use super::figures::LATE;

const SPAN: Duration = Duration::from_secs(1);

/// What clients saw of the requests that ended within the last second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RecentClients {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) late: u64,
    pub(crate) errors: u64,
    /// Due and not answered now, wherever they wait.
    pub(crate) waiting: u64,
    /// Waiting requests that have been sent, by the storage server of their key.
    pub(crate) queues: Vec<u64>,
}

pub(crate) struct Recent {
    fates: VecDeque<(Time, RequestFate)>,
    ended: u64,
    server_of_key: Vec<usize>,
    servers: usize,
    ended_by_key: Vec<u32>,
}

impl Recent {
    pub(crate) fn new(server_of_key: Vec<usize>, servers: usize) -> Recent {
        let ended_by_key = vec![0; server_of_key.len()];
        Recent { fates: VecDeque::new(), ended: 0, server_of_key, servers, ended_by_key }
    }

    /// Takes note of what has ended. `due` and `sent`, by key, were read before that was asked for.
    pub(crate) fn frame(
        &mut self,
        now: Time,
        due: u64,
        sent: &[u32],
        fates: &[RequestFate],
    ) -> RecentClients {
        self.ended += fates.len() as u64;
        self.fates.extend(fates.iter().map(|fate| (fate.since.after(fate.waited), *fate)));
        for key in fates.iter().filter_map(|fate| fate.key) {
            if let Some(count) = self.ended_by_key.get_mut(key as usize) {
                *count = count.wrapping_add(1);
            }
        }
        while self.fates.front().is_some_and(|(at, _)| at.after(SPAN) < now) {
            self.fates.pop_front();
        }
        let mut queues = vec![0; self.servers];
        for ((sent, ended), server) in sent.iter().zip(&self.ended_by_key).zip(&self.server_of_key) {
            // One that has been answered meanwhile has been sent meanwhile, too.
            queues[*server] += u64::from(sent.saturating_sub(*ended));
        }
        let count = |wanted: fn(&RequestFate) -> bool| {
            self.fates.iter().filter(|(_, fate)| wanted(fate)).count() as u64
        };
        let mut latencies: Vec<Duration> = self.answered().map(|fate| fate.waited).collect();
        latencies.sort_unstable();
        RecentClients {
            p50: rank(&latencies, 50),
            p99: rank(&latencies, 99),
            late: count(|fate| fate.end != RequestEnd::Failed && fate.waited > LATE),
            errors: count(|fate| fate.end == RequestEnd::Failed),
            waiting: due.saturating_sub(self.ended),
            queues,
        }
    }

    fn answered(&self) -> impl Iterator<Item = &RequestFate> {
        self.fates.iter().map(|(_, fate)| fate).filter(|fate| fate.end != RequestEnd::Failed)
    }
}

fn rank(sorted: &[Duration], percent: usize) -> Duration {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_counts_and_queues_are_those_of_the_keys_servers() {
        let mut recent = Recent::new(vec![0, 1, 0], 2);
        let ended = |since, waited_us, end| {
            let waited = Duration::from_micros(waited_us);
            RequestFate { key: Some(0), since: Time(since), waited, end }
        };
        let old = [ended(0, 900_000, RequestEnd::Answered)];
        assert_eq!(recent.frame(Time(900_000), 5, &[3, 2, 0], &old).queues, [2, 2]);
        let fates = [
            ended(1_000_000, 900_000, RequestEnd::Answered),
            ended(1_900_000, 1_000, RequestEnd::Answered),
            ended(1_950_000, 1_000, RequestEnd::Failed),
        ];
        let clients = recent.frame(Time(2_000_000), 8, &[4, 2, 1], &fates);
        let queues = vec![1, 2];
        let expected = RecentClients {
            p50: Duration::from_millis(1),
            p99: Duration::from_millis(900),
            late: 1,
            errors: 1,
            waiting: 4,
            queues,
        };
        assert_eq!(clients, expected);
        assert_eq!(recent.frame(Time(4_000_000), 8, &[4, 2, 1], &[]).p99, Duration::ZERO);
    }
}

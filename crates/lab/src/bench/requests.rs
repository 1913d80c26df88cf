//! Which request comes next: given keys once while loading, a workload's mix or a trace while measuring. Not when it is sent.

use super::frames::Frames;
use super::replay::Replay;

/// Where the requests of a run come from.
pub(crate) enum Requests {
    /// SET of each of these keys, once. Those that fail are listed in the outcome.
    Keys(Box<dyn Iterator<Item = u64> + Send>),
    /// GET and SET as the workload draws them, without end.
    Mix(trace::WorkloadRequests),
    /// The same with MGET of so many keys for each read.
    Batches(trace::WorkloadRequests, usize),
    /// The first so many of a workload's requests, over and over.
    Rounds(WorkloadRounds),
    /// GET and SET as a trace has them, without end.
    Replay(Replay),
}

/// Rounds of a workload that are all alike.
pub(crate) struct WorkloadRounds {
    first: trace::WorkloadRequests,
    now: trace::WorkloadRequests,
    count: u64,
    drawn: u64,
}

impl WorkloadRounds {
    /// Each of `count` requests.
    pub(crate) fn new(requests: trace::WorkloadRequests, count: u64) -> WorkloadRounds {
        WorkloadRounds { first: requests.clone(), now: requests, count, drawn: 0 }
    }

    fn next_request(&mut self) -> trace::WorkloadRequest {
        if self.drawn == self.count {
            (self.now, self.drawn) = (self.first.clone(), 0);
        }
        self.drawn += 1;
        self.now.next_request()
    }
}

/// Keys to be written before a measurement, each of them once.
pub(crate) struct LoadedKeys {
    pub(crate) count: u64,
    pub(crate) each: Box<dyn Iterator<Item = u64> + Send>,
}

impl LoadedKeys {
    /// The keys below this number.
    pub(crate) fn below(count: u64) -> LoadedKeys {
        LoadedKeys { count, each: Box::new(0..count) }
    }
}

impl Requests {
    /// Appends the next request to `out` and says which key it is about; nothing when there are no more.
    pub(crate) fn next(&mut self, frames: &Frames, out: &mut Vec<u8>) -> Option<u64> {
        let (key, write) = match self {
            Requests::Keys(keys) => (keys.next()?, true),
            Requests::Mix(requests) => {
                let request = requests.next_request();
                (request.key, request.write)
            }
            Requests::Batches(requests, count) => {
                let first = requests.next_request();
                if !first.write {
                    let others = (1..*count).map(|_| requests.next_request().key);
                    frames.mget(std::iter::once(first.key).chain(others), *count, out);
                    return Some(first.key);
                }
                (first.key, true)
            }
            Requests::Rounds(rounds) => {
                let request = rounds.next_request();
                (request.key, request.write)
            }
            Requests::Replay(replay) => {
                let request = replay.next_request();
                (request.key, request.write)
            }
        };
        if write {
            frames.set(key, out);
        } else {
            frames.get(key, out);
        }
        Some(key)
    }

    pub(crate) fn is_load(&self) -> bool {
        matches!(self, Requests::Keys(_))
    }
}

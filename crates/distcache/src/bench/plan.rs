//! What a run shall do and how it ended: plain data between the engine and those who start it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::tally::Tally;
use super::target::Target;

/// How to load a server. Times are in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) connections: usize,
    /// Most requests in flight per connection.
    pub(crate) pipeline: usize,
    /// Requests per second in total: an open loop. `None`: a closed one.
    pub(crate) rate: Option<f64>,
    pub(crate) warmup_us: u64,
    pub(crate) length: Length,
    /// To count by slices of this time, too.
    pub(crate) slice_us: Option<u64>,
}

/// How long to measure, after the warm-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    Time(u64),
    Requests(u64),
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    /// The stop flag was set.
    Stopped,
    /// The server was asked and said nothing for too long.
    Silent,
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) ending: Ending,
    /// Keys whose request got an error or no reply; only while loading, when each has to be repeated.
    pub(crate) failed: Vec<u64>,
}

/// Counters of a run that other threads may watch; warm-up included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    answered: AtomicU64,
    errors: AtomicU64,
    /// Requests by key; empty where nobody wants to know.
    by_key: Vec<AtomicU32>,
}

impl Live {
    /// Counts also how often each of `keys` keys is asked for.
    pub(crate) fn by_key(keys: usize) -> Live {
        let by_key = (0..keys).map(|_| AtomicU32::new(0)).collect();
        Live(Arc::new(Counters { by_key, ..Counters::default() }))
    }

    pub(crate) fn sent(&self, key: u64) {
        if let Some(count) = self.0.by_key.get(key as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests sent so far, by key.
    pub(crate) fn counts(&self) -> Vec<u32> {
        self.0.by_key.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn add(&self, answered: u64, errors: u64) {
        self.0.answered.fetch_add(answered, Ordering::Relaxed);
        self.0.errors.fetch_add(errors, Ordering::Relaxed);
    }

    pub(crate) fn answered(&self) -> u64 {
        self.0.answered.load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.0.errors.load(Ordering::Relaxed)
    }
}

//! What a run shall do and how it ended: plain data between the engine and those who start it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::time::Time;

use super::arrivals::Arrivals;
use super::tally::BenchTally;
use super::target::BenchTarget;

/// How to load a server.
#[derive(Clone, Debug)]
pub(crate) struct BenchPlan {
    pub(crate) target: BenchTarget,
    pub(crate) connections: usize,
    /// Most requests in flight per connection.
    pub(crate) pipeline: usize,
    pub(crate) pace: Pace,
    pub(crate) warmup: Duration,
    pub(crate) length: BenchLength,
    /// To count by slices of this time, too.
    pub(crate) slice: Option<Duration>,
}

/// When requests leave.
#[derive(Clone, Debug)]
pub(crate) enum Pace {
    /// Closed loop: the next one when a reply arrives.
    Closed,
    /// Open loop: so many per second in total, evenly spaced and dealt round the connections.
    Even(f64),
    /// Open loop: at random times, each on whichever connection has room, as of a pool.
    Random(Arrivals),
}

impl Pace {
    /// Requests per second of an open loop.
    pub(crate) fn rate(&self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Even(rate) => Some(*rate),
            Pace::Random(arrivals) => Some(arrivals.rate()),
        }
    }
}

/// How long to measure, after the warm-up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BenchLength {
    Time(Duration),
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
pub(crate) struct BenchOutcome {
    pub(crate) tally: BenchTally,
    pub(crate) ending: Ending,
    /// Keys whose request got an error or no reply; only while loading, when each has to be repeated.
    pub(crate) failed: Vec<u64>,
}

/// Counters of a run that other threads may watch; warm-up included.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<LiveCounters>);

#[derive(Debug, Default)]
struct LiveCounters {
    answered: AtomicU64,
    errors: AtomicU64,
    /// Requests by key; empty where nobody wants to know.
    by_key: Vec<AtomicU32>,
    /// Open loop: requests that have become due.
    due: AtomicU64,
    /// Ended requests that nobody has taken yet; `None` where nobody wants to know.
    fates: Option<Mutex<Vec<RequestFate>>>,
}

/// One request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestFate {
    /// Nothing of one that was never sent.
    pub(crate) key: Option<u64>,
    /// When it was sent (closed loop) or due (open loop), on the engine's clock.
    pub(crate) since: Time,
    pub(crate) waited: Duration,
    pub(crate) end: RequestEnd,
}

impl RequestFate {
    pub(crate) fn new(key: Option<u64>, since: Time, now: Time, end: RequestEnd) -> RequestFate {
        RequestFate { key, since, waited: now.since(since), end }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Answered,
    /// With an error, or its connection broke.
    Failed,
    /// It still waited when the run ended.
    Unanswered,
}

impl Live {
    /// Counts also how often each of `keys` keys is asked for, and keeps what becomes of each request until somebody
    /// takes it.
    pub(crate) fn watched(keys: usize) -> Live {
        let by_key = (0..keys).map(|_| AtomicU32::new(0)).collect();
        Live(Arc::new(LiveCounters { by_key, fates: Some(Mutex::default()), ..LiveCounters::default() }))
    }

    /// What became of the requests that have ended since this was asked last.
    pub(crate) fn take_fates(&self) -> Vec<RequestFate> {
        let fates = self.0.fates.as_ref();
        fates.map_or_else(Vec::new, |fates| {
            std::mem::take(&mut *fates.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    pub(crate) fn ended(&self, fate: RequestFate) {
        if let Some(fates) = &self.0.fates {
            fates.lock().unwrap_or_else(PoisonError::into_inner).push(fate);
        }
    }

    pub(crate) fn due(&self) -> u64 {
        self.0.due.load(Ordering::Relaxed)
    }

    pub(crate) fn became_due(&self) {
        self.0.due.fetch_add(1, Ordering::Relaxed);
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

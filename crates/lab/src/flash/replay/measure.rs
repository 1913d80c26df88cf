//! A trace through a cache, request by request: hits, bytes, time. Not how the cache is made.

use std::time::Instant;

use anyhow::{Context, ensure};
use flash::device::DeviceCounts;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use trace::Access;

use super::cache::{CacheMemory, ReplayCache};
use super::values::Values;

/// Three digits of up to a minute, in nanoseconds.
const READ_NS_MAX: u64 = 60_000_000_000;

/// What was seen after the warm-up.
pub(super) struct ReplayFigures {
    pub(super) requests: u64,
    pub(super) hits: u64,
    pub(super) bytes: u64,
    pub(super) hit_bytes: u64,
    /// Bytes of the objects that were missed and inserted.
    pub(super) inserted_bytes: u64,
    /// Missed, and not taken because they are too large.
    pub(super) refused: u64,
    pub(super) device: DeviceCounts,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) read_ns: Histogram<u64>,
    pub(super) memory: CacheMemory,
    pub(super) stored_bytes: u64,
}

/// Serves every request, and inserts what it misses. `tell` hears of each request's number.
pub(super) fn measure(
    accesses: impl Iterator<Item = anyhow::Result<Access>>,
    cache: &dyn ReplayCache,
    values: &Values,
    warmup: u64,
    mut tell: impl FnMut(u64, &dyn ReplayCache),
) -> anyhow::Result<ReplayFigures> {
    let mut measured = ReplayFigures::new(cache)?;
    let (mut begun, mut cpu) = (Instant::now(), cpu_seconds());
    for (number, access) in accesses.enumerate() {
        let (number, access) = (number as u64, access?);
        if number == warmup && warmup > 0 {
            measured = ReplayFigures::new(cache)?;
            (begun, cpu) = (Instant::now(), cpu_seconds());
        }
        measured.request(&access, cache, values).with_context(|| format!("request {}", number + 1))?;
        tell(number + 1, cache);
    }
    measured.seconds = begun.elapsed().as_secs_f64();
    measured.cpu_seconds = cpu_seconds() - cpu;
    measured.device = cache.device().since(&measured.device);
    measured.memory = cache.memory();
    measured.stored_bytes = cache.stored_bytes();
    ensure!(measured.requests > 0, "the trace has no requests after the warm-up");
    Ok(measured)
}

impl ReplayFigures {
    fn new(cache: &dyn ReplayCache) -> anyhow::Result<ReplayFigures> {
        Ok(ReplayFigures {
            requests: 0,
            hits: 0,
            bytes: 0,
            hit_bytes: 0,
            inserted_bytes: 0,
            refused: 0,
            device: cache.device(),
            seconds: 0.0,
            cpu_seconds: 0.0,
            read_ns: Histogram::new_with_bounds(1, READ_NS_MAX, 3)?,
            memory: CacheMemory::default(),
            stored_bytes: 0,
        })
    }

    fn request(&mut self, access: &Access, cache: &dyn ReplayCache, values: &Values) -> anyhow::Result<()> {
        let key = access.object.to_le_bytes();
        self.requests += 1;
        self.bytes += access.bytes;
        let begun = Instant::now();
        if let Some(value) = cache.get(&key)? {
            let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(READ_NS_MAX);
            self.read_ns.saturating_record(took);
            // An object keeps its first size while it is cached.
            ensure!(
                values.is(access.object, &value),
                "object {}: the cache returned what was never put into it",
                access.object
            );
            self.hits += 1;
            self.hit_bytes += access.bytes;
            return Ok(());
        }
        match values.value(access.object, access.bytes) {
            Some(value) if cache.insert(&key, value)? => self.inserted_bytes += access.bytes,
            _ => self.refused += 1,
        }
        Ok(())
    }
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

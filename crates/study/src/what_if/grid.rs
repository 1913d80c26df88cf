//! Every policy at every size over one pass of a trace, on several threads. It decides nothing that a policy decides.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use policies::{Misses, ObjectRequest, PolicySpec, Simulation};
use rustix::time::{ClockId, clock_gettime};
use trace::{Access, NextAccess, TraceError};

use super::decode::RequestDecoder;
use super::survey::Survey;
use super::{Size, WhatIfError};

#[derive(Clone, Debug)]
pub struct GridSetting {
    pub policies: Vec<PolicySpec>,
    pub sizes: Vec<Size>,
    /// Every object has size 1.
    pub ignore_size: bool,
    /// The share of the requests that come first and are not counted.
    pub warmup: f64,
    pub threads: usize,
}

/// One policy at one size.
#[derive(Clone, Copy, Debug)]
pub struct GridOutcome {
    pub policy: PolicySpec,
    /// In bytes, or objects where sizes are ignored.
    pub size: u64,
    /// Requests that are counted, and what they asked for; the warm-up is not among them.
    pub requests: u64,
    pub bytes: u64,
    pub misses: Misses,
    /// Different objects in the whole trace.
    pub objects: u64,
    /// Rate over the whole trace, by the processor's time that this policy alone took.
    pub requests_per_s: f64,
}

impl GridOutcome {
    pub fn miss_ratio(&self) -> f64 {
        self.misses.requests as f64 / self.requests as f64
    }

    pub fn byte_miss_ratio(&self) -> f64 {
        self.misses.bytes as f64 / self.bytes as f64
    }
}

struct GridRun {
    policy: PolicySpec,
    size: u64,
    simulation: Box<dyn Simulation>,
    misses: Misses,
    busy_s: f64,
}

/// Requests of which the first are warm-up, and how many objects are known with the last of them.
struct RequestChunk<'a> {
    warmup: &'a [ObjectRequest],
    counted: &'a [ObjectRequest],
    objects: usize,
}

impl GridRun {
    fn advance(&mut self, chunk: &RequestChunk<'_>) {
        let begun = processor_s();
        self.simulation.reserve(chunk.objects);
        self.simulation.run(chunk.warmup);
        self.misses += self.simulation.run(chunk.counted);
        self.busy_s += processor_s() - begun;
    }
}

impl GridSetting {
    /// One outcome for each policy and size, the sizes of a policy together. The trace is opened once more where
    /// something must be known before the simulation: for sizes in shares of the working set, for a warm-up, and for
    /// the clairvoyant where the trace does not say what comes next.
    pub fn simulate<I>(
        &self,
        open: impl Fn() -> Result<I, TraceError>,
    ) -> Result<Vec<GridOutcome>, WhatIfError>
    where
        I: Iterator<Item = Result<Access, TraceError>> + Send,
    {
        if !(0.0..1.0).contains(&self.warmup) {
            return Err(WhatIfError::Warmup(self.warmup));
        }
        let survey = self.survey(&open)?;
        let expected = survey.as_ref().map(|survey| survey.requests);
        let Survey { requests, working_set, objects, future, .. } = survey.unwrap_or_default();
        let runs = self.runs(working_set);
        let mut decoder = RequestDecoder::new(open()?, self.ignore_size, objects, future);
        if self.needs_future() {
            decoder.check_next();
        }
        let mut warmup = (requests as f64 * self.warmup) as u64;
        let (mut chunk, mut coming) = (Vec::new(), Vec::new());
        let (mut counted, mut bytes) = (0, 0);
        decoder.fill(&mut chunk)?;
        while !chunk.is_empty() {
            let (first, rest) = chunk.split_at(warmup.min(chunk.len() as u64) as usize);
            warmup -= first.len() as u64;
            counted += rest.len() as u64;
            bytes += rest.iter().map(|request| u64::from(request.bytes)).sum::<u64>();
            let shared = RequestChunk { warmup: first, counted: rest, objects: decoder.objects() };
            self.advance(&runs, &shared, || decoder.fill(&mut coming))?;
            std::mem::swap(&mut chunk, &mut coming);
        }
        let after = decoder.requests();
        if counted == 0 {
            return Err(WhatIfError::Empty);
        }
        if let Some(before) = expected.filter(|before| *before != after) {
            return Err(WhatIfError::Changed { before, after });
        }
        let objects = decoder.objects() as u64;
        let outcome = |run: Mutex<GridRun>| {
            let GridRun { policy, size, misses, busy_s, .. } =
                run.into_inner().unwrap_or_else(PoisonError::into_inner);
            let requests_per_s = after as f64 / busy_s.max(1e-9);
            GridOutcome { policy, size, requests: counted, bytes, misses, objects, requests_per_s }
        };
        Ok(runs.into_iter().map(outcome).collect())
    }

    /// Whether the trace is opened more than once, if only to look whether that is needed.
    pub fn opens_twice(&self) -> bool {
        self.needs_totals() || self.needs_future()
    }

    fn needs_totals(&self) -> bool {
        self.warmup > 0.0 || self.sizes.iter().any(|size| matches!(size, Size::WorkingSet(_)))
    }

    fn needs_future(&self) -> bool {
        self.policies.iter().any(|policy| policy.needs_future())
    }

    fn survey<I>(&self, open: impl Fn() -> Result<I, TraceError>) -> Result<Option<Survey>, WhatIfError>
    where
        I: Iterator<Item = Result<Access, TraceError>>,
    {
        let blind = || -> Result<bool, TraceError> {
            let first = open()?.next().transpose()?;
            Ok(first.is_some_and(|access| access.next == NextAccess::Unknown))
        };
        if self.needs_totals() || (self.needs_future() && blind()?) {
            return Survey::of(open()?, self.ignore_size, self.needs_future()).map(Some);
        }
        Ok(None)
    }

    fn runs(&self, working_set: u64) -> Vec<Mutex<GridRun>> {
        let pairs =
            self.policies.iter().flat_map(|policy| self.sizes.iter().map(move |size| (*policy, *size)));
        let run = |(policy, size): (PolicySpec, Size)| {
            let size = size.resolve(working_set);
            let simulation = policy.simulation(size);
            Mutex::new(GridRun { policy, size, simulation, misses: Misses::default(), busy_s: 0.0 })
        };
        pairs.map(run).collect()
    }

    /// Simulates a chunk in every run, while the next one is decoded.
    fn advance(
        &self,
        runs: &[Mutex<GridRun>],
        chunk: &RequestChunk<'_>,
        decode: impl FnOnce() -> Result<(), WhatIfError>,
    ) -> Result<(), WhatIfError> {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                run.lock().unwrap_or_else(PoisonError::into_inner).advance(chunk);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(runs.len() + 1) {
                scope.spawn(work);
            }
            let decoded = decode();
            work();
            decoded
        })
    }
}

/// What this thread has had of a processor: what else runs on the machine is not the policy's time.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

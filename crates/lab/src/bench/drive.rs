//! Runs an engine on a reactor from the first connection to the last reply. Not the counting itself.

use anyhow::{Result, bail};
use runtime::reactor::{Io, Reactor};
use runtime::stop::Stop;

use super::engine::BenchDriver;
use super::frames::Frames;
use super::pacer::Pacer;
use super::plan::{BenchOutcome, BenchPlan, Ending, Live};
use super::requests::Requests;
use super::tally::BenchTally;

/// How long all connections together may take to open.
const CONNECT_US_MAX: u64 = 10_000_000;
const PROGRESS_US: u64 = 1_000_000;

/// How far a run is, about once a second.
pub(crate) struct BenchProgress<'a> {
    /// Microseconds of measurement so far; nothing during the warm-up.
    pub(crate) measured_us: Option<u64>,
    /// Requests per second since the last progress.
    pub(crate) throughput: f64,
    pub(crate) tally: &'a BenchTally,
}

/// Runs `plan` to its end, or until `stop` is set. Fails if the server cannot be reached or does not speak RESP.
pub(crate) fn drive(
    plan: &BenchPlan,
    requests: Requests,
    frames: &Frames,
    live: &Live,
    stop: &Stop,
    progress: &mut dyn FnMut(&BenchProgress<'_>),
) -> Result<BenchOutcome> {
    let mut io = Io::new()?;
    let waker = io.waker();
    let started_us = io.now().0;
    let mut engine = BenchDriver::new(plan, requests, frames, live.clone(), &mut io);
    let mut reactor = Reactor::new(io);
    let mut pacer = None;
    let (mut shown_us, mut shown) = (started_us, live.answered());
    loop {
        reactor.turn(&mut engine, None)?;
        let now_us = reactor.io().now().0;
        if let Some(error) = engine.fatal.take() {
            return Err(error);
        }
        if !engine.has_started() {
            if engine.is_open() {
                engine.start(reactor.io(), now_us);
                pacer = plan.pace.rate().map(|rate| Pacer::start(rate, waker.clone())).transpose()?;
            } else if now_us > started_us + CONNECT_US_MAX {
                bail!("cannot open {} connections to {} within 10 s", plan.connections, plan.target);
            }
        }
        engine.release(reactor.io(), now_us);
        if now_us >= shown_us + PROGRESS_US {
            let answered = live.answered();
            let throughput = (answered - shown) as f64 * 1e6 / (now_us - shown_us) as f64;
            progress(&BenchProgress {
                measured_us: engine.measured_us(now_us),
                throughput,
                tally: engine.tally(),
            });
            (shown_us, shown) = (now_us, answered);
        }
        let ending = if stop.is_set() { Some(Ending::Stopped) } else { engine.ending(now_us) };
        if let Some(ending) = ending {
            drop(pacer);
            return Ok(engine.finish(ending, now_us));
        }
    }
}

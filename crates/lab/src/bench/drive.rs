//! Runs an engine on a reactor from the first connection to the last reply. Not the counting itself.

use std::time::Duration;

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
const CONNECT_MAX: Duration = Duration::from_secs(10);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How far a run is, about once a second.
pub(crate) struct BenchProgress<'a> {
    /// Time of measurement so far; nothing during the warm-up.
    pub(crate) measured: Option<Duration>,
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
    let started = io.now();
    let mut engine = BenchDriver::new(plan, requests, frames, live.clone(), &mut io);
    let mut reactor = Reactor::new(io);
    let mut pacer = None;
    let (mut shown_at, mut shown) = (started, live.answered());
    loop {
        reactor.turn(&mut engine, None)?;
        let now = reactor.io().now();
        if let Some(error) = engine.fatal.take() {
            return Err(error);
        }
        if !engine.has_started() {
            if engine.is_open() {
                engine.start(reactor.io(), now);
                pacer = plan.pace.rate().map(|rate| Pacer::start(rate, waker.clone())).transpose()?;
            } else if now > started.after(CONNECT_MAX) {
                bail!("cannot open {} connections to {} within 10 s", plan.connections, plan.target);
            }
        }
        engine.release(reactor.io(), now);
        if now >= shown_at.after(PROGRESS_INTERVAL) {
            let answered = live.answered();
            let throughput = (answered - shown) as f64 / now.since(shown_at).as_secs_f64();
            progress(&BenchProgress { measured: engine.measured(now), throughput, tally: engine.tally() });
            (shown_at, shown) = (now, answered);
        }
        let ending = if stop.is_set() { Some(Ending::Stopped) } else { engine.ending(now) };
        if let Some(ending) = ending {
            drop(pacer);
            return Ok(engine.finish(ending, now));
        }
    }
}

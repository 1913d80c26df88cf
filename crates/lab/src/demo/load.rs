//! The load of the demonstration: writes the keys, then asks for them at its rate until stopped. Not what it shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use config::Address;
use runtime::stop::Stop;
use trace::{Distribution, Workload};

use crate::bench::{
    Arrivals, BenchLength, BenchPlan, BenchTarget, Frames, Live, LoadedKeys, Pace, Requests, WorkloadRounds,
    drive, load, open_files,
};

/// So few that the caches have met most of them within seconds, at a rate that any machine carries.
pub(crate) const KEYS: u64 = 500;
/// As skewed as what a few celebrities get in a social network: one request in five is about the hottest key.
pub(crate) const EXPONENT: f64 = 1.2;
const VALUE_BYTES: usize = 64;
/// Decides which keys are hot and so whose server burns.
const SEED: u64 = 2;
/// A pool so large that requests wait at the server and not for a connection.
const CONNECTIONS: usize = 1_024;
/// The router has the other end of each connection.
const FILES_PER_CONNECTION: usize = 2;
/// Files of the members' links to each other: both ends of 32 servers' to 64 nodes and a router.
const LINKS_MAX: usize = 8_192;
/// The run ends by the stop flag, not by this.
const TIME: Duration = Duration::from_micros(1 << 40);

pub(crate) struct DemoLoad {
    pub(crate) live: Live,
    ready: Arc<AtomicBool>,
    stop: Stop,
    thread: JoinHandle<Result<Vec<String>>>,
}

/// How much is asked for, and after which time the same is asked for again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Requests per second.
    pub(crate) rate: u64,
    pub(crate) round: Duration,
}

/// Lets this process open as many files as load and members need.
pub(crate) fn allow_files() -> Result<()> {
    open_files::allow(CONNECTIONS * FILES_PER_CONNECTION + LINKS_MAX)
}

impl DemoLoad {
    pub(crate) fn start(address: &Address, demand: Demand) -> Result<DemoLoad> {
        let (live, ready, stop) =
            (Live::watched(KEYS as usize), Arc::new(AtomicBool::new(false)), Stop::new());
        let run = LoadRun {
            address: address.clone(),
            demand,
            live: live.clone(),
            ready: Arc::clone(&ready),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || run.run())?;
        Ok(DemoLoad { live, ready, stop, thread })
    }

    /// Whether all keys are written and the reading has begun.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// It runs until it is stopped; if it does not, `stop` says why.
    pub(crate) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends the load; the texts of the first errors that it met.
    pub(crate) fn stop(self) -> Result<Vec<String>> {
        self.stop.stop();
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => bail!("the load generator crashed; this is a bug"),
        }
    }
}

struct LoadRun {
    address: Address,
    demand: Demand,
    live: Live,
    ready: Arc<AtomicBool>,
    stop: Stop,
}

impl LoadRun {
    fn run(self) -> Result<Vec<String>> {
        let count = (self.demand.rate * self.demand.round.as_micros() as u64 / 1_000_000).max(1);
        let plan = BenchPlan {
            target: BenchTarget::plain(self.address),
            connections: CONNECTIONS,
            pipeline: 1,
            pace: Pace::Random(Arrivals::new(count, self.demand.round, SEED)),
            warmup: Duration::ZERO,
            length: BenchLength::Time(TIME),
            slice: None,
        };
        let frames = Frames::new(VALUE_BYTES, SEED);
        load(&plan, LoadedKeys::below(KEYS), &frames, &self.stop, &mut |_| {})
            .context("cannot write the keys")?;
        self.ready.store(true, Ordering::Release);
        let workload = Workload {
            keys: KEYS,
            distribution: Distribution::Zipf(EXPONENT),
            write_ratio: 0.0,
            value_bytes: VALUE_BYTES,
            seed: SEED,
        };
        let requests = Requests::Rounds(WorkloadRounds::new(workload.requests(0)?, count));
        let outcome = drive(&plan, requests, &frames, &self.live, &self.stop, &mut |_| {})?;
        Ok(outcome.tally.texts)
    }
}

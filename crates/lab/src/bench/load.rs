//! Writes every key before a measurement, as fast as the server takes them. Not part of any result.

use std::time::Duration;

use anyhow::{Result, bail};
use runtime::stop::Stop;

use super::drive::drive;
use super::frames::Frames;
use super::plan::{BenchLength, BenchPlan, Ending, Live, Pace};
use super::requests::{LoadedKeys, Requests};

/// Few connections with deep pipelines are the fastest and the easiest way for both sides.
const CONNECTIONS_MAX: usize = 16;
const PIPELINE: usize = 64;
/// So many bytes in flight per connection at most: with large values the pipeline is shallower.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;
/// How often keys are tried again that the server had no room for.
const ROUNDS_MAX: u32 = 100;
const ROUND_WAIT: Duration = Duration::from_millis(50);
/// Errors that go away by waiting.
const TRANSIENT: [&str; 4] = ["-BUSY", "-LOADING", "-TRYAGAIN", "-CLUSTERDOWN"];

/// Sets these keys on the plan's target, each of them once. `progress` hears about once a second how many are written.
pub(crate) fn load(
    plan: &BenchPlan,
    keys: LoadedKeys,
    frames: &Frames,
    stop: &Stop,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let LoadedKeys { count: keys, each: mut missing } = keys;
    let mut count = keys;
    for _ in 0..ROUNDS_MAX {
        let load_plan = BenchPlan {
            connections: plan.connections.min(CONNECTIONS_MAX),
            pipeline: (IN_FLIGHT_BYTES_MAX / frames.set_bytes()).clamp(1, PIPELINE),
            pace: Pace::Closed,
            warmup: Duration::ZERO,
            length: BenchLength::Requests(count),
            slice: None,
            ..plan.clone()
        };
        let live = Live::default();
        let before = keys - count;
        let outcome = drive(&load_plan, Requests::Keys(missing), frames, &live, stop, &mut |_| {
            progress(before + live.answered() - live.errors());
        })?;
        let why = outcome.tally.texts.join("; ");
        match outcome.ending {
            Ending::Stopped => bail!("stopped while writing the keys"),
            Ending::Silent => bail!("{} has not answered for 30 s while the keys were written", plan.target),
            Ending::Done if outcome.failed.is_empty() => return Ok(()),
            Ending::Done => {}
        }
        let transient = |text: &String| TRANSIENT.iter().any(|prefix| text.starts_with(prefix));
        if !outcome.tally.texts.iter().all(transient) {
            bail!(
                "{} of {keys} keys could not be written to {}: {why}; --no-load measures without writing them",
                outcome.failed.len(),
                plan.target
            );
        }
        count = outcome.failed.len() as u64;
        missing = Box::new(outcome.failed.into_iter());
        if stop.wait_timeout(ROUND_WAIT) {
            bail!("stopped while writing the keys");
        }
    }
    bail!("{count} of {keys} keys could not be written to {}: it stays busy", plan.target)
}

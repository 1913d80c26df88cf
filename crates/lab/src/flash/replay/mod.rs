//! `distcache flash replay`: a trace through a cache on flash: what it hits, how faithful it is to its policy, what it
//! writes and costs. It decides nothing that a cache decides.

#[cfg(any(feature = "rocksdb", feature = "foyer"))]
mod baseline;
mod cache;
mod check;
mod engines;
#[cfg(feature = "foyer")]
mod foyer;
mod measure;
mod plan;
mod report;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod values;

use std::str::FromStr;
use std::time::Instant;

use anyhow::Context;
use config::ByteSize;
use flash::FlashPolicy;
use policies::PolicySpec;
use study::what_if::{GridSetting, Size, Survey, WhatIfError};
use trace::Access;

use super::target::DeviceTarget;
use crate::terminal::{BadInput, print};
use crate::trace::{SourceArguments, StepProgress};
use engines::{OpenedCache, ReplayEngine};
use report::{Exact, ReplayReport};
use values::Values;

/// Run a trace through a cache on flash, and measure it
///
/// Every request reads an object, and what is missed is inserted. Every value that the cache returns is compared with what
/// was put into it. The same policy, exact and without a device, gets as many bytes as the cache held for comparison:
/// slru-borrow:L for slru:L, as no room stays empty.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    #[command(flatten)]
    source: SourceArguments,

    /// The cache: ripq, sipq, fifo; rocksdb and foyer where they were built in
    #[arg(long, value_enum, default_value = "ripq")]
    engine: ReplayEngine,

    /// Order of eviction: slru:L with L up to 15, lru, gdsf:L with L up to 254, gdsf, which counts requests to 255, or fifo
    #[arg(long, value_name = "POLICY", default_value = "slru:3")]
    policy: FlashPolicy,

    /// ftl (simulated flash in memory), mem, or PATH: a new file, or a block device; for rocksdb a directory
    #[arg(long, value_name = "PATH|mem|ftl", default_value = "ftl")]
    device: DeviceTarget,

    /// Size of the cache: bytes, as 64MiB, or a share of the working set, as 0.1ws [default: 0.1ws; with --reopen as it is]
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,

    /// Size of a block, the unit of writing and evicting
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = ByteSize::from_str)]
    block_size: ByteSize,

    /// RIPQ: average share of a section of the queue; about 1 / alpha insertion points, each with a buffer of a block
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    alpha: f64,

    /// RIPQ: share of the queue, at its end, whose requested objects are not written again when they are evicted
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    skip: f64,

    /// SIPQ: share of the cache that the policy orders; the rest is there until it is overwritten. RocksDB: share that is
    /// filled; the rest is for what it has not yet compacted
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    theta: f64,

    /// Simulated flash: share of it that the cache uses
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    utilisation: f64,

    /// Simulated flash: erase block, over all its chips
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = ByteSize::from_str)]
    erase_block: ByteSize,

    /// Share of the requests that come first and are not counted
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    warmup: f64,

    /// Allow PATH to be there, and to lose what it holds
    #[arg(long, conflicts_with = "reopen")]
    overwrite: bool,

    /// Go on with the cache that is at PATH
    #[arg(long)]
    reopen: bool,

    /// Insert nothing: read every object of the trace once, and tell what is there; with --reopen
    #[arg(long, requires = "reopen")]
    check: bool,

    /// Print a line of JSON with what would survive a loss of power, every so many requests
    #[arg(long, value_name = "REQUESTS", value_parser = clap::value_parser!(u64).range(1..))]
    tell_every: Option<u64>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ReplayArguments) -> anyhow::Result<()> {
    arguments.check()?;
    let survey = arguments
        .source
        .shown()
        .map_err(WhatIfError::from)
        .and_then(|accesses| Survey::of(accesses, false, false))
        .map_err(BadInput::of)?;
    // The exact policy comes last, and the whole run would have been for nothing.
    if !arguments.check && survey.bytes_max > u64::from(u32::MAX) {
        let (trace, bytes) = (arguments.source.trace.display(), survey.bytes_max);
        let why = format!("an object of {bytes} bytes; the exact policy takes at most {}", u32::MAX);
        return Err(BadInput(format!("--trace {trace}: {why}")).into());
    }
    let capacity = arguments.size().resolve(survey.working_set);
    let warmup = (survey.requests as f64 * arguments.warmup) as u64;
    let values = Values::new(survey.bytes_max);
    let begun = Instant::now();
    let OpenedCache { cache, bytes, device } = engines::open(arguments, capacity)?;
    if arguments.check {
        return check::run(arguments, &*cache, &values, begun.elapsed());
    }
    let mut progress = StepProgress::requests(survey.requests);
    let measured = measure::measure(arguments.accesses()?, &*cache, &values, warmup, |number, cache| {
        progress.step(|| number);
        if arguments.tell_every.is_some_and(|every| number.is_multiple_of(every)) {
            print(&serde_json::json!({ "requests": number, "durable": cache.durable() }).to_string());
        }
    })?;
    drop(progress);
    cache.close()?;
    let exact = (!arguments.reopen).then(|| exact(arguments, measured.stored_bytes)).transpose()?;
    let report = ReplayReport::new(arguments, bytes, device, &measured, exact.as_ref());
    if arguments.json {
        print(&serde_json::to_string(&report)?)
    } else {
        report.print()
    }
    Ok(())
}

/// The policy itself, in so many bytes and with nothing else to store. RIPQ leaves no room empty while the upper segments of
/// SLRU are not yet full, and so its exact policy leaves none; the strict form does.
fn exact(arguments: &ReplayArguments, capacity: u64) -> anyhow::Result<Exact> {
    let policies = match arguments.policy() {
        FlashPolicy::SegmentedLru { segments: 1 } => vec![PolicySpec::SlruBorrow { segments: 1 }],
        FlashPolicy::SegmentedLru { segments } => {
            let segments = segments.into();
            vec![PolicySpec::SlruBorrow { segments }, PolicySpec::Slru { segments }]
        }
        policy => vec![policy.to_string().parse()?],
    };
    let setting = GridSetting {
        policies,
        sizes: vec![Size::Bytes(capacity)],
        ignore_size: false,
        warmup: arguments.warmup,
        threads: 1,
    };
    let outcomes = setting.simulate(|| arguments.source.open()).map_err(BadInput::of)?;
    let policy = *outcomes.first().context("one policy at one size has an outcome")?;
    Ok(Exact { policy, strict: outcomes.get(1).copied() })
}

impl ReplayArguments {
    /// The trace from its beginning.
    fn accesses(&self) -> anyhow::Result<impl Iterator<Item = anyhow::Result<Access>> + use<>> {
        let reader = self.source.open().map_err(BadInput::of)?;
        Ok(reader.map(|access| access.map_err(BadInput::of)))
    }

    fn size(&self) -> Size {
        self.size.unwrap_or(Size::WorkingSet(0.1))
    }

    fn engine_name(&self) -> String {
        clap::ValueEnum::to_possible_value(&self.engine)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn policy(&self) -> FlashPolicy {
        if matches!(self.engine, ReplayEngine::Fifo | ReplayEngine::Foyer) {
            FlashPolicy::Fifo
        } else {
            self.policy
        }
    }

    fn check(&self) -> Result<(), BadInput> {
        if self.engine.is_baseline() && (self.reopen || self.tell_every.is_some()) {
            let engine = self.engine_name();
            let why = "a replay cannot go on with its cache; leave out --reopen, --check and --tell-every";
            return Err(BadInput(format!("--engine {engine}: {why}")));
        }
        let share = |name: &str, value: f64, allowed: bool, range: &str| match allowed {
            true => Ok(()),
            false => Err(BadInput(format!("{name} {value}: write a share {range}"))),
        };
        let ReplayArguments { warmup, utilisation, .. } = *self;
        share("--warmup", warmup, (0.0..1.0).contains(&warmup), "from 0 to less than 1")?;
        let is_part = utilisation > 0.0 && utilisation < 1.0;
        share("--utilisation", utilisation, is_part, "above 0 and below 1")?;
        engines::check_settings(self)?;
        engines::check_device(self)
    }
}

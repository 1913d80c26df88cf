//! `distcache trace generate`: a synthetic trace, by its popularity, sizes, rate and what changes in it.

use trace::{Churn, FlashCrowd, SizeDistribution, Synthetic, TraceFormat, TracePopularity};

use super::output::Output;
use super::{BadInput, StepProgress};

/// Make a synthetic trace; the same flags give the same trace on every machine
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(super) struct GenerateArguments {
    #[command(flatten)]
    output: Output,

    /// Requests in all
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,

    /// Objects that may be asked for; a CacheBench file has its own number
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    objects: u64,

    /// Popularity: uniform, zipf:A, adversary:X (X objects equally), or cachebench:FILE (a pop.json)
    #[arg(long, value_name = "DIST", default_value = "zipf:0.99")]
    dist: String,

    /// Bytes of each object: B (4096, 4KiB), uniform:MIN:MAX, lognormal:MEDIAN:SIGMA, pareto:MIN:ALPHA, or cachebench:FILE (a
    /// sizes.json)
    #[arg(long, value_name = "SIZES", default_value = "1")]
    sizes: SizeDistribution,

    /// Share of requests that write, 0 to 1; above 0 for CSV only
    #[arg(long, value_name = "W", default_value_t = 0.0)]
    write_ratio: f64,

    /// Requests per second of the trace's own time
    #[arg(long, value_name = "R", default_value_t = 1000.0)]
    rate: f64,

    /// Changing popularity, as SHARE/REQUESTS: after so many requests each, this share of the ranks goes to new objects
    #[arg(long, value_name = "SHARE/REQUESTS")]
    churn: Option<Churn>,

    /// A crowd, as `START:REQUESTS:SHARE[:OBJECTS]`: from that request on, for so many, this share of all requests goes to
    /// so many new objects (1); may be given several times
    #[arg(long, value_name = "CROWD")]
    flash_crowd: Vec<FlashCrowd>,

    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(arguments: &GenerateArguments) -> anyhow::Result<()> {
    arguments.check()?;
    let popularity = TracePopularity::parse(&arguments.dist, arguments.objects);
    let synthetic = Synthetic {
        popularity: popularity.map_err(|error| BadInput::of(format!("--dist: {error}")))?,
        sizes: arguments.sizes.clone(),
        write_ratio: arguments.write_ratio,
        rate: arguments.rate,
        churn: arguments.churn,
        flash_crowds: arguments.flash_crowd.clone(),
        seed: arguments.seed,
    };
    let accesses = synthetic.accesses().map_err(BadInput::of)?;
    let mut writer = arguments.output.create()?;
    let mut progress = StepProgress::requests(arguments.requests);
    for (access, number) in accesses.zip(0..arguments.requests) {
        writer.write(&access)?;
        progress.step(|| number);
    }
    drop(progress);
    writer.finish(|requests, file| format!("{requests} requests, {}, in {file}", synthetic.popularity))
}

impl GenerateArguments {
    /// What makes sense alone, but not together.
    fn check(&self) -> Result<(), BadInput> {
        if self.write_ratio > 0.0 && self.output.format() == TraceFormat::OracleGeneral {
            return Err(BadInput("--write-ratio: oracle-general has no operations; write CSV".to_owned()));
        }
        match self.flash_crowd.iter().find(|crowd| crowd.start >= self.requests) {
            Some(crowd) => Err(BadInput(format!(
                "--flash-crowd: it starts at request {}, and the trace has {} in all",
                crowd.start, self.requests
            ))),
            None => Ok(()),
        }
    }
}

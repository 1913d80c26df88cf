//! `distcache trace sample`: all accesses of some objects.

use trace::{Access, NextAccess, ObjectSample};

use super::output::Output;
use super::{BadInput, InputArguments, for_each};

/// Keep all requests of some objects, chosen by a hash of their ids
///
/// The same objects are kept on every machine. A cache of a share R of the size sees about the same miss ratio on a
/// sample at rate R.
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(super) struct SampleArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    output: Output,

    /// Share of the objects that are kept, above 0 and at most 1
    #[arg(long, value_name = "R")]
    rate: f64,

    /// Another seed keeps other objects
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

pub(super) fn run(arguments: &SampleArguments) -> anyhow::Result<()> {
    let sample = ObjectSample::new(arguments.rate, arguments.seed)
        .map_err(|error| BadInput::of(format!("--rate: {error}")))?;
    let reader = arguments.input.open()?;
    let mut writer = arguments.output.create()?;
    let mut whole = 0u64;
    for_each(reader, |access| {
        whole += 1;
        if !sample.keeps(access.object) {
            return Ok(());
        }
        // The number of the next access was that in the whole trace.
        writer.write(&Access { next: NextAccess::Unknown, ..access })
    })?;
    writer.finish(|requests, file| format!("{requests} of {whole} requests in {file}"))
}

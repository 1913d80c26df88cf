//! `distcache trace`: reads, describes, makes and rewrites traces; each file is one verb. The work is in crate `trace`.

mod convert;
mod generate;
mod head;
mod info;
mod output;
mod progress;
mod sample;
mod source;

use std::path::PathBuf;

use trace::{Access, TraceFormat, TraceReader};

use crate::terminal::BadInput;
pub(crate) use progress::StepProgress;
pub(crate) use source::SourceArguments;

/// Read, describe, convert, sample and make request traces
///
/// Formats: oracle-general, vscsi, csv, text, keys-be32, keys-be64, twitter, meta, lcs; any of them plain, gzip, zstd or
/// xz. docs/traces.md describes them.
#[derive(Debug, clap::Args)]
pub struct TraceArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Info(info::InfoArguments),
    Convert(convert::ConvertArguments),
    Generate(generate::GenerateArguments),
    Sample(sample::SampleArguments),
    Head(head::HeadArguments),
}

pub fn run(arguments: &TraceArguments) -> anyhow::Result<()> {
    match &arguments.verb {
        Verb::Info(arguments) => info::run(arguments),
        Verb::Convert(arguments) => convert::run(arguments),
        Verb::Generate(arguments) => generate::run(arguments),
        Verb::Sample(arguments) => sample::run(arguments),
        Verb::Head(arguments) => head::run(arguments),
    }
}

/// The trace to read.
#[derive(Debug, clap::Args)]
struct InputArguments {
    /// Trace to read; compression is found out by looking
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Its format, if the beginning does not tell: oracle-general, vscsi, csv, text, keys-be32, keys-be64, twitter, meta
    /// or lcs
    #[arg(long, value_name = "FORMAT")]
    format: Option<TraceFormat>,
}

impl InputArguments {
    fn open(&self) -> anyhow::Result<TraceReader> {
        trace::open(&self.file, self.format).map_err(BadInput::of)
    }
}

/// Hands every access on and shows how far the file is read.
fn for_each(
    mut reader: TraceReader,
    mut use_access: impl FnMut(Access) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut progress = StepProgress::bytes(reader.progress().1);
    while let Some(access) = reader.next() {
        use_access(access.map_err(BadInput::of)?)?;
        progress.step(|| reader.progress().0);
    }
    Ok(())
}

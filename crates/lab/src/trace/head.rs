//! `distcache trace head`: the first accesses, as CSV for people or as a trace of their own.

use std::path::{Path, PathBuf};

use trace::{Access, NextAccess, TraceFormat, TraceReader};

use super::output::{CleanedWriter, by_name};
use super::{BadInput, InputArguments};

/// Show the first requests of a trace as CSV
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(super) struct HeadArguments {
    #[command(flatten)]
    input: InputArguments,

    /// How many requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    requests: u64,

    /// Write them to this file instead, as `trace convert` would
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &HeadArguments) -> anyhow::Result<()> {
    let mut reader = arguments.input.open()?;
    let mut writer = match &arguments.out {
        Some(_) if arguments.requests == 0 => return Err(BadInput::of("-n 0: a trace has requests")),
        Some(out) => CleanedWriter::create(out, by_name(out), None)?,
        None => CleanedWriter::create(Path::new("-"), TraceFormat::Csv, None)?,
    };
    for access in first(&mut reader, arguments.requests) {
        writer.write(&access?)?;
    }
    writer.finish(|requests, file| format!("{requests} requests in {file}"))
}

/// What comes after them is no longer a next access.
fn first(reader: &mut TraceReader, requests: u64) -> impl Iterator<Item = anyhow::Result<Access>> {
    let cut = move |access: Access| match access.next {
        NextAccess::Known(number) if number > requests => Access { next: NextAccess::Never, ..access },
        _ => access,
    };
    reader.take(requests as usize).map(move |access| access.map(cut).map_err(BadInput::of))
}

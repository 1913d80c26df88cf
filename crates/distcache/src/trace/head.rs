//! `distcache trace head`: the first accesses, as CSV for people or as a trace of their own.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use trace::{Access, Csv, Next, Reader};

use super::{BadInput, Input};

/// Show the first requests of a trace as CSV
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,

    /// How many requests
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    requests: u64,

    /// Write them to this file instead, as `trace convert` would
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut reader = arguments.input.open()?;
    let first = first(&mut reader, arguments.requests);
    if let Some(out) = &arguments.out {
        let mut writer = super::output::create(out, None, None)?;
        for access in first {
            writer.write(&access?).map_err(BadInput::of)?;
        }
        return super::output::finish(writer).map(drop);
    }
    let mut csv = Csv::new(BufWriter::new(io::stdout().lock()))?;
    for access in first {
        if let Err(error) = csv.write(&access?) {
            // Who reads has seen enough.
            return if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error.into()) };
        }
    }
    csv.into_inner().flush()?;
    Ok(())
}

/// What comes after them is no longer a next access.
fn first(reader: &mut Reader, requests: u64) -> impl Iterator<Item = anyhow::Result<Access>> {
    let cut = move |access: Access| match access.next {
        Next::Known(number) if number > requests => Access { next: Next::Never, ..access },
        _ => access,
    };
    reader.take(requests as usize).map(move |access| access.map(cut).map_err(BadInput::of))
}

//! `distcache trace convert`: the same accesses in another format.

use super::output::Output;
use super::{Input, for_each};

/// Write a trace as oracleGeneral or CSV
///
/// oracleGeneral gets the next access of each object in a second pass, backwards over the new file.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let reader = arguments.input.open()?;
    let mut writer = arguments.output.create()?;
    for_each(reader, |access| writer.write(&access))?;
    writer.finish(|requests, file| format!("{requests} requests in {file}"))
}

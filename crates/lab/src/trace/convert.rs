//! `distcache trace convert`: the same accesses in another format.

use super::output::Output;
use super::{InputArguments, for_each};

/// Write a trace as oracleGeneral or CSV
///
/// oracleGeneral gets the next access of each object in a second pass, backwards over the new file.
#[derive(Debug, clap::Args)]
pub(super) struct ConvertArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    output: Output,
}

pub(super) fn run(arguments: &ConvertArguments) -> anyhow::Result<()> {
    let reader = arguments.input.open()?;
    let mut writer = arguments.output.create()?;
    for_each(reader, |access| writer.write(&access))?;
    writer.finish(|requests, file| format!("{requests} requests in {file}"))
}

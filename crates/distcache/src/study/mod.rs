//! `distcache study`: the papers' analyses from the command line; each file is one of them. It computes nothing itself.

mod capacity;
mod popularity;

/// Compute what the papers analyse: how much caches of a given shape can serve, and why
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, clap::Subcommand)]
enum Study {
    Capacity(capacity::Arguments),
    Popularity(popularity::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.study {
        Study::Capacity(arguments) => capacity::run(arguments),
        Study::Popularity(arguments) => popularity::run(arguments),
    }
}

/// What a library says about numbers that make no sense together, as exit code 2.
fn bad_input(error: impl std::fmt::Display) -> anyhow::Error {
    crate::commands::BadInput(error.to_string()).into()
}

/// Prints a result as JSON, on one line.
fn print_json(result: &impl serde::Serialize) -> anyhow::Result<()> {
    crate::commands::print(&serde_json::to_string(result)?);
    Ok(())
}

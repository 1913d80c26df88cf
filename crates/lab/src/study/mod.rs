//! `distcache study`: the papers' analyses from the command line; each file is one of them. It computes nothing itself.

mod capacity;
mod hot_keys;
mod machines;
mod matching;
mod model;
mod popularity;
mod small_cache;
mod stability;

/// Compute what the papers analyse: how much caches of a given shape can serve, and why
#[derive(Debug, clap::Args)]
pub struct StudyArguments {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, clap::Subcommand)]
enum Study {
    Capacity(capacity::CapacityArguments),
    HotKeys(hot_keys::HotKeysArguments),
    Machines(Box<machines::MachinesArguments>),
    Matching(matching::MatchingArguments),
    Popularity(popularity::PopularityArguments),
    SmallCache(small_cache::SmallCacheArguments),
    Stability(stability::StabilityArguments),
}

pub fn run(arguments: &StudyArguments) -> anyhow::Result<()> {
    match &arguments.study {
        Study::Capacity(arguments) => capacity::run(arguments),
        Study::HotKeys(arguments) => hot_keys::run(arguments),
        Study::Machines(arguments) => machines::run(arguments),
        Study::Matching(arguments) => matching::run(arguments),
        Study::Popularity(arguments) => popularity::run(arguments),
        Study::SmallCache(arguments) => small_cache::run(arguments),
        Study::Stability(arguments) => stability::run(arguments),
    }
}

/// What a library says about numbers that make no sense together, as exit code 2.
fn bad_input(error: impl std::fmt::Display) -> anyhow::Error {
    crate::terminal::BadInput(error.to_string()).into()
}

/// A number above 0, as clap parses it.
fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "write a number above 0".to_owned())
}

/// Prints a result as JSON, on one line.
fn print_json(result: &impl serde::Serialize) -> anyhow::Result<()> {
    crate::terminal::print(&serde_json::to_string(result)?);
    Ok(())
}

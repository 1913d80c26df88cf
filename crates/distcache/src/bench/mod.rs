//! `distcache bench`: a load generator for anything that speaks RESP. Not a correctness checker.

mod arguments;

pub(crate) use arguments::Arguments;

/// Runs the benchmark and prints its result.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.check()?;
    anyhow::bail!("not built yet")
}

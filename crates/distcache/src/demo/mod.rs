//! `distcache demo`: a whole cluster in this process, under load, drawn live. Not a benchmark of the machine.

mod arguments;

pub(crate) use arguments::Arguments;

/// Runs the demonstration and prints its summary.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.check()?;
    anyhow::bail!("not built yet")
}

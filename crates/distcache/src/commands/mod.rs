//! The subcommands that run or ask a cluster, and what they share: the configuration flags and where output goes.

pub(crate) mod ask;
pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod drain;
pub(crate) mod generate;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod purge;
pub(crate) mod reload;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod up;

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use runtime::config::{Config, Override};

/// Flags of every command that reads a configuration.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConfigArguments {
    /// The cluster's configuration file (TOML)
    #[arg(long, env = "DISTCACHE_CONFIG", value_name = "FILE")]
    pub(crate) config: PathBuf,

    /// Change one field of the file, for example cluster.routing=on-path; may be given several times.
    /// The variable DISTCACHE_CLUSTER_ROUTING does the same, with less precedence
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

impl ConfigArguments {
    /// For a command that starts members.
    pub(crate) fn load(&self) -> anyhow::Result<Arc<Config>> {
        let config = self.with_filter(Config::load_to_start(&self.config, &self.flags()?)?)?;
        for assumed in config.assumed() {
            tracing::info!(assumed, "the configuration leaves it out");
        }
        Ok(Arc::new(config))
    }

    /// For a command that starts nothing.
    pub(crate) fn look(&self) -> anyhow::Result<Config> {
        self.with_filter(Config::load_to_check(&self.config, &self.flags()?)?)
    }

    fn flags(&self) -> anyhow::Result<Vec<Override>> {
        let flags: Result<_, _> = self.set.iter().map(|text| Override::from_flag(text)).collect();
        Ok(flags?)
    }

    /// The configuration, if its log filter is one.
    fn with_filter(&self, config: Config) -> anyhow::Result<Config> {
        if let Some(Err(error)) = config.log.filter.as_deref().map(crate::logging::parse) {
            let file = self.config.display();
            let filter = config.log.filter.as_deref().unwrap_or_default();
            return Err(BadInput::of(format!("{file}: [log] filter = {filter:?}: {error}")));
        }
        Ok(config)
    }
}

/// What was asked for makes no sense: exit code 2, as for flags that do not parse.
#[derive(Debug)]
pub(crate) struct BadInput(pub(crate) String);

impl BadInput {
    /// Why something cannot be done as asked for.
    pub(crate) fn of(error: impl std::fmt::Display) -> anyhow::Error {
        BadInput(error.to_string()).into()
    }
}

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// An error about what somebody asked for, with all that it says.
pub(crate) fn mistake(error: anyhow::Error) -> anyhow::Error {
    BadInput(format!("{error:#}")).into()
}

/// The answer is complete, and members are lost: exit code 3, for scripts.
#[derive(Debug)]
pub(crate) struct MembersLost;

impl std::fmt::Display for MembersLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("members are lost")
    }
}

impl std::error::Error for MembersLost {}

/// Who reads what this command writes has seen enough: the end of the command, and no error.
#[derive(Debug)]
pub(crate) struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the reader of standard output has gone")
    }
}

impl std::error::Error for ReaderGone {}

/// Why not all that was printed is there.
static PRINTING: OnceLock<io::Error> = OnceLock::new();

/// Writes one line to stdout at once. A reader that has gone away is not an error worth dying for; for any other,
/// `printed` tells.
pub(crate) fn print(line: &str) {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => drop(PRINTING.set(error)),
        _ => {}
    }
}

/// Whether everything has been printed so far.
pub(crate) fn printed() -> anyhow::Result<()> {
    PRINTING.get().map_or(Ok(()), |error| Err(anyhow::anyhow!("standard output: {error}")))
}

/// Writes one line to stderr.
pub(crate) fn say(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

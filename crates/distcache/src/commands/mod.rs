//! The subcommands that run or ask a cluster, and what they share: the configuration flags.

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
pub(crate) mod storage;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod up;

use std::path::PathBuf;

use crate::launch::Loaded;
use config::{Config, Override};
use lab::terminal::BadInput;

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

/// Flags of the commands that start members.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StartArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArguments,

    /// Take storage over as it is: whatever its marks say, wherever its keys lie, whoever else serves it. Where no record of
    /// earlier shims' leases is found there, do not hold reads and writes for the minute that one may run
    #[arg(long)]
    adopt: bool,
}

impl StartArguments {
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        let ConfigArguments { config: path, .. } = &self.config;
        let mut config = self.config.with_filter(Config::load_to_start(path, &self.config.flags()?)?)?;
        config.first_life |= self.adopt;
        config.adopts |= self.adopt;
        let loaded = Loaded::new(config)?;
        for assumed in loaded.config.assumed() {
            tracing::info!(assumed, "the configuration leaves it out");
        }
        Ok(loaded)
    }
}

impl ConfigArguments {
    /// For a command that starts nothing.
    pub(crate) fn look(&self) -> anyhow::Result<Loaded> {
        let config = self.with_filter(Config::load_to_check(&self.config, &self.flags()?)?)?;
        Ok(Loaded::new(config)?)
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

/// The answer is complete, and members are lost: exit code 3, for scripts.
#[derive(Debug)]
pub(crate) struct MembersLost;

impl std::fmt::Display for MembersLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("members are lost")
    }
}

impl std::error::Error for MembersLost {}

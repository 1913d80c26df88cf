//! The flags of `distcache demo`, checked. Not what is done with them.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, ensure};

/// Start a small cluster in this process, put a skewed load on it, and show what the cache does to it.
///
/// In a terminal: space switches the cache on and off, k kills a cache node and brings it back, q ends.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArguments {
    /// What stores the data: embedded (in this process) or redis (starts redis-server processes)
    #[arg(long, value_enum, value_name = "STORAGE", default_value = "embedded")]
    pub(crate) storage: DemoStorage,

    /// Racks of storage servers; each has one leaf cache node
    #[arg(long, value_name = "R", default_value_t = 4)]
    pub(crate) racks: usize,

    /// Storage servers in each rack
    #[arg(long, value_name = "S", default_value_t = 2)]
    pub(crate) servers_per_rack: usize,

    /// Spine cache nodes
    #[arg(long, value_name = "M", default_value_t = 4)]
    pub(crate) spines: usize,

    /// Seconds for both phases together
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) seconds: u64,

    /// Address for Redis clients while the demonstration runs
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    pub(crate) listen: SocketAddr,

    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write each picture to this file, one line of JSON for each
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) record: Option<PathBuf>,
}

/// Who keeps the data during the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DemoStorage {
    Embedded,
    Redis,
}

/// Every member is a thread of this process, and a picture of more than this fits no terminal.
const MEMBERS_MAX: usize = 32;
/// Half a phase is needed to fill the caches before there is anything to measure.
const SECONDS_MIN: u64 = 4;

impl DemoArguments {
    /// In all racks.
    pub(crate) fn servers(&self) -> usize {
        self.racks * self.servers_per_rack
    }

    /// Names the first flag that makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!((1..=MEMBERS_MAX).contains(&self.racks), "--racks must be between 1 and {MEMBERS_MAX}");
        ensure!((1..=MEMBERS_MAX).contains(&self.spines), "--spines must be between 1 and {MEMBERS_MAX}");
        ensure!(
            (1..=MEMBERS_MAX).contains(&self.servers_per_rack) && self.servers() <= MEMBERS_MAX,
            "--servers-per-rack must be at least 1, and there can be at most {MEMBERS_MAX} servers in all racks"
        );
        ensure!(
            (SECONDS_MIN..=86_400).contains(&self.seconds),
            "--seconds must be between {SECONDS_MIN} and 86400"
        );
        Ok(())
    }
}

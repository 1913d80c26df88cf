//! The caches that a replay can drive, each opened as the arguments say. Not what is measured of them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use engine::device::{
    AlignedBuffer, Device, FileDevice, FileOptions, FtlDevice, FtlOptions, MemoryDevice, SECTOR,
};
use engine::flash;
use engine::ripq::{Ripq, Settings};

use super::Arguments;
use super::cache::{Cache, OnRipq};
use crate::commands::BadInput;
use crate::flash::target::{Target, bad_input, check_overwrite};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Engine {
    /// A few insertion points, each with a buffer of a block
    Ripq,
    /// One insertion point, and a logical queue in memory
    Sipq,
    /// One insertion point, and nothing is written again
    Fifo,
    /// An LSM store with the policy in memory; the cargo feature `rocksdb`
    Rocksdb,
    /// The hybrid cache of that name, first in, first out; the cargo feature `foyer`
    Foyer,
}

impl Engine {
    /// Whose cache is gone with the process.
    pub(super) fn is_baseline(self) -> bool {
        matches!(self, Engine::Rocksdb | Engine::Foyer)
    }
}

/// A cache of so many bytes, and what it is on.
pub(super) fn open(arguments: &Arguments, capacity: u64) -> anyhow::Result<(Box<dyn Cache>, String)> {
    let sector = SECTOR as u64;
    let bytes = (capacity / sector).max(1) * sector;
    let theta = match arguments.engine {
        Engine::Ripq => None,
        Engine::Sipq => Some(arguments.theta),
        Engine::Fifo => Some(0.0),
        #[cfg(feature = "rocksdb")]
        Engine::Rocksdb => return super::rocksdb::open(arguments, bytes),
        #[cfg(feature = "foyer")]
        Engine::Foyer => return super::foyer::open(arguments, bytes),
        #[cfg(not(all(feature = "rocksdb", feature = "foyer")))]
        _ => return Err(not_built(&arguments.engine_name()).into()),
    };
    let device = device(arguments, bytes)?;
    let description = device.description();
    Ok((Box::new(OnRipq { ripq: ripq(arguments, theta, &device)?, device }), description))
}

#[cfg(not(all(feature = "rocksdb", feature = "foyer")))]
fn not_built(engine: &str) -> BadInput {
    let command = format!("cargo build --release -p distcache --features {engine}");
    BadInput(format!(
        "--engine {engine}: not in this program; build one with it by `{command}` (docs/flash.md says what that needs)"
    ))
}

fn device(arguments: &Arguments, bytes: u64) -> anyhow::Result<Arc<dyn Device>> {
    Ok(match &arguments.device {
        Target::Memory => Arc::new(MemoryDevice::new(bytes).map_err(bad_input)?),
        Target::Ftl => {
            let memory = MemoryDevice::new(bytes).map_err(bad_input)?;
            Arc::new(FtlDevice::new(memory, &ftl(arguments)?).map_err(bad_input)?)
        }
        Target::Path(path) => Arc::new(file(arguments, path, bytes)?),
    })
}

fn ftl(arguments: &Arguments) -> anyhow::Result<FtlOptions> {
    let default = FtlOptions::default();
    let page = u64::from(default.page_bytes);
    let pages = arguments.erase_block.0 / page;
    let block_pages = u32::try_from(pages).ok().filter(|pages| *pages > 0);
    let block_pages = block_pages.ok_or_else(|| {
        BadInput(format!("--erase-block {}: write a size of at least {page} bytes", arguments.erase_block.0))
    })?;
    Ok(FtlOptions { block_pages, over_provisioning: 1.0 / arguments.utilisation - 1.0, ..default })
}

fn file(arguments: &Arguments, path: &Path, bytes: u64) -> anyhow::Result<FileDevice> {
    make_way(arguments, path)?;
    let bytes = (!arguments.reopen).then_some(bytes);
    let device =
        FileDevice::open(path, &FileOptions { bytes, ..FileOptions::default() }).map_err(bad_input)?;
    if arguments.overwrite {
        // A cache is only made where the first sectors hold nothing.
        device.write(0, &AlignedBuffer::new(16 * SECTOR)).map_err(bad_input)?;
    }
    Ok(device)
}

/// Whether the device is what it has to be: there or not, and nothing that must not be destroyed.
pub(super) fn check_device(arguments: &Arguments) -> Result<(), BadInput> {
    let Target::Path(path) = &arguments.device else {
        let why = "--reopen: give --device the path of a cache; memory and simulated flash end with the run";
        return if arguments.reopen { Err(BadInput(why.to_owned())) } else { Ok(()) };
    };
    let Ok(found) = path.metadata() else {
        let why = format!("--reopen: there is no {}", path.display());
        return if arguments.reopen { Err(BadInput(why)) } else { Ok(()) };
    };
    // RocksDB's is a directory, and only a database in it is destroyed.
    if arguments.engine == Engine::Rocksdb {
        return Ok(());
    }
    let refuse = |why: &str| Err(BadInput(format!("--device {}: {why}", path.display())));
    let identity = |of: &Metadata| (of.dev(), of.ino());
    if found.is_dir() {
        return refuse("is a directory; give the path of a new file, or a block device");
    }
    if arguments.source.trace.metadata().is_ok_and(|trace| identity(&trace) == identity(&found)) {
        return refuse("is the trace itself");
    }
    let who = "replay destroy what it holds, --reopen goes on with its cache";
    check_overwrite(path, &found, arguments.overwrite || arguments.reopen, who)
}

/// Destroys a file if that was allowed.
pub(super) fn make_way(arguments: &Arguments, path: &Path) -> anyhow::Result<()> {
    if arguments.overwrite && path.is_file() {
        std::fs::remove_file(path).with_context(|| format!("{}: cannot be removed", path.display()))?;
    }
    Ok(())
}

fn ripq(arguments: &Arguments, theta: Option<f64>, device: &Arc<dyn Device>) -> anyhow::Result<Ripq> {
    let settings = Settings {
        policy: arguments.policy(),
        block_bytes: arguments.block_size.0,
        alpha: arguments.alpha,
        skip: arguments.skip,
        theta,
        identity: rand::random(),
        ..Settings::default()
    };
    let device = Arc::clone(device);
    let opened = if arguments.reopen { Ripq::open(device, settings) } else { Ripq::create(device, settings) };
    opened.map_err(|error| match (error, &arguments.device) {
        (error @ flash::Error::Device { .. }, _) => error.into(),
        (error @ flash::Error::Settings(_), _) => BadInput(error.to_string()).into(),
        (error, Target::Path(path)) => BadInput(format!("--device {}: {error}", path.display())).into(),
        (error, _) => BadInput(error.to_string()).into(),
    })
}

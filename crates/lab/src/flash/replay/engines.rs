//! The caches that a replay can drive, each opened as the arguments say. Not what is measured of them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use config::ByteSize;
use flash::device::{AlignedBuffer, Device, FileDevice, FileOptions, FtlDevice, MemoryDevice, SECTOR};
use flash::ripq::{Ripq, RipqSettings};
use flash::{self, layout::DeviceLayout};

use super::cache::{OnRipq, ReplayCache};
use super::{ReplayArguments, plan};
use crate::flash::target::{DeviceTarget, bad_input, check_overwrite};
use crate::terminal::BadInput;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ReplayEngine {
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

impl ReplayEngine {
    /// Whose cache is gone with the process.
    pub(super) fn is_baseline(self) -> bool {
        matches!(self, ReplayEngine::Rocksdb | ReplayEngine::Foyer)
    }
}

pub(super) struct OpenedCache {
    pub(super) cache: Box<dyn ReplayCache>,
    pub(super) bytes: u64,
    /// For people.
    pub(super) device: String,
}

/// A cache of so many bytes, or the one that is there.
pub(super) fn open(arguments: &ReplayArguments, capacity: u64) -> anyhow::Result<OpenedCache> {
    let bytes = plan::device_bytes(arguments, capacity)?;
    let theta = match arguments.engine {
        ReplayEngine::Ripq => None,
        ReplayEngine::Sipq => Some(arguments.theta),
        ReplayEngine::Fifo => Some(0.0),
        #[cfg(feature = "rocksdb")]
        ReplayEngine::Rocksdb => {
            return super::rocksdb::open(arguments, bytes).map(|(cache, device)| OpenedCache {
                cache,
                bytes,
                device,
            });
        }
        #[cfg(feature = "foyer")]
        ReplayEngine::Foyer => {
            return super::foyer::open(arguments, bytes).map(|(cache, device)| OpenedCache {
                cache,
                bytes,
                device,
            });
        }
        #[cfg(not(all(feature = "rocksdb", feature = "foyer")))]
        _ => return Err(not_built(&arguments.engine_name()).into()),
    };
    let device = device(arguments, bytes)?;
    let ripq = ripq(arguments, theta, &device, bytes)?;
    let (bytes, description) = (device.bytes(), device.description());
    Ok(OpenedCache { cache: Box::new(OnRipq { ripq, device }), bytes, device: description })
}

#[cfg(not(all(feature = "rocksdb", feature = "foyer")))]
fn not_built(engine: &str) -> BadInput {
    let command = format!("cargo build --release -p distcache --features {engine}");
    BadInput(format!(
        "--engine {engine}: not in this program; build one with it by `{command}` (docs/flash.md says what that needs)"
    ))
}

fn device(arguments: &ReplayArguments, bytes: u64) -> anyhow::Result<Arc<dyn Device>> {
    Ok(match &arguments.device {
        DeviceTarget::Memory => Arc::new(MemoryDevice::new(bytes).map_err(bad_input)?),
        DeviceTarget::Ftl => {
            let memory = MemoryDevice::new(bytes).map_err(bad_input)?;
            Arc::new(FtlDevice::new(memory, &plan::ftl(arguments)?).map_err(bad_input)?)
        }
        DeviceTarget::Path(path) => Arc::new(file(arguments, path, bytes)?),
    })
}

fn file(arguments: &ReplayArguments, path: &Path, bytes: u64) -> anyhow::Result<FileDevice> {
    make_way(arguments, path)?;
    // A file has the size of its cache; a block device may be larger.
    let asked = if arguments.reopen { arguments.size.is_some() && !path.is_file() } else { true };
    let bytes = asked.then_some(bytes);
    let device =
        FileDevice::open(path, &FileOptions { bytes, ..FileOptions::default() }).map_err(bad_input)?;
    if arguments.overwrite {
        // A cache is only made where the first sectors hold nothing.
        device.write(0, &AlignedBuffer::new(16 * SECTOR)).map_err(bad_input)?;
    }
    Ok(device)
}

/// Whether the device is what it has to be: there or not, and nothing that must not be destroyed.
pub(super) fn check_device(arguments: &ReplayArguments) -> Result<(), BadInput> {
    let DeviceTarget::Path(path) = &arguments.device else {
        let why = "--reopen: give --device the path of a cache; memory and simulated flash end with the run";
        return if arguments.reopen { Err(BadInput(why.to_owned())) } else { Ok(()) };
    };
    let Ok(found) = path.metadata() else {
        let why = format!("--reopen: there is no {}", path.display());
        return if arguments.reopen { Err(BadInput(why)) } else { Ok(()) };
    };
    // RocksDB's is a directory, and only a database in it is destroyed.
    if arguments.engine == ReplayEngine::Rocksdb {
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
pub(super) fn make_way(arguments: &ReplayArguments, path: &Path) -> anyhow::Result<()> {
    if arguments.overwrite && path.is_file() {
        std::fs::remove_file(path).with_context(|| format!("{}: cannot be removed", path.display()))?;
    }
    Ok(())
}

fn ripq(
    arguments: &ReplayArguments,
    theta: Option<f64>,
    device: &Arc<dyn Device>,
    bytes: u64,
) -> anyhow::Result<Ripq> {
    let settings = RipqSettings { theta, identity: identity(arguments), ..settings(arguments) };
    let opened = if arguments.reopen {
        check_size(arguments, &**device, bytes).and_then(|()| Ripq::open(Arc::clone(device), settings))
    } else {
        Ripq::create(Arc::clone(device), settings)
    };
    opened.map_err(|error| match (error, &arguments.device) {
        (error @ flash::FlashError::Device { .. }, _) => error.into(),
        (error @ flash::FlashError::Settings(_), _) => BadInput(as_flags(&error)).into(),
        (error, DeviceTarget::Path(path)) => BadInput(format!("--device {}: {error}", path.display())).into(),
        (error, _) => BadInput(error.to_string()).into(),
    })
}

/// That a size that was given is the one that the cache on the device was made with.
fn check_size(arguments: &ReplayArguments, device: &dyn Device, bytes: u64) -> Result<(), flash::FlashError> {
    if arguments.size.is_none() {
        return Ok(());
    }
    let found = DeviceLayout::open(device)?;
    if DeviceLayout::plan(bytes, found.block_bytes, found.identity)? == found {
        return Ok(());
    }
    let (size, last) = (plan::asked(arguments), ByteSize(found.block(found.blocks as u32)));
    Err(flash::FlashError::Settings(format!(
        "--size {size}: the cache on this device was made with another, and ends at {last}; leave it out to go on with that"
    )))
}

/// Fixed, so that a replay can be repeated; but a block device may still have blocks of a cache that was on it before.
fn identity(arguments: &ReplayArguments) -> u64 {
    match &arguments.device {
        DeviceTarget::Path(path) if !path.is_file() => rand::random(),
        DeviceTarget::Path(_) | DeviceTarget::Memory | DeviceTarget::Ftl => 0x7265_706c_6179,
    }
}

fn settings(arguments: &ReplayArguments) -> RipqSettings {
    RipqSettings {
        policy: arguments.policy(),
        block_bytes: arguments.block_size.0,
        alpha: arguments.alpha,
        skip: arguments.skip,
        theta: Some(arguments.theta),
        ..RipqSettings::default()
    }
}

/// The parameters by themselves, whether the engine uses them or not.
pub(super) fn check_settings(arguments: &ReplayArguments) -> Result<(), BadInput> {
    let settings = settings(arguments);
    let of_block = || DeviceLayout::plan(0, settings.block_bytes, 0).map(drop);
    settings.check().and_then(|()| of_block()).map_err(|error| BadInput(as_flags(&error)))
}

/// What the engine says of its parameters, in the words of the command line.
pub(super) fn as_flags(error: &flash::FlashError) -> String {
    let text = error.to_string();
    let flags = [
        ("block_bytes = ", "--block-size "),
        ("alpha = ", "--alpha "),
        ("skip = ", "--skip "),
        ("theta = ", "--theta "),
    ];
    let renamed = |(name, flag): &(&str, &str)| Some(format!("{flag}{}", text.strip_prefix(name)?));
    flags.iter().find_map(renamed).unwrap_or(text)
}

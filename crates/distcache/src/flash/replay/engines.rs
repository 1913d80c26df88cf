//! The caches that a replay can drive, each opened as the arguments say. Not what is measured of them.

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
use crate::flash::target::{Target, bad_input};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Engine {
    /// A few insertion points, each with a buffer of a block
    Ripq,
    /// One insertion point, and a logical queue in memory
    Sipq,
    /// One insertion point, and nothing is written again
    Fifo,
}

/// A cache of so many bytes, and what it is on.
pub(super) fn open(arguments: &Arguments, capacity: u64) -> anyhow::Result<(Box<dyn Cache>, String)> {
    let sector = SECTOR as u64;
    let bytes = (capacity / sector).max(1) * sector;
    let device = device(arguments, bytes)?;
    let description = device.description();
    let cache: Box<dyn Cache> = match arguments.engine {
        Engine::Ripq => Box::new(OnRipq { ripq: ripq(arguments, None, &device)?, device }),
        Engine::Sipq => Box::new(OnRipq { ripq: ripq(arguments, Some(arguments.theta), &device)?, device }),
        Engine::Fifo => Box::new(OnRipq { ripq: ripq(arguments, Some(0.0), &device)?, device }),
    };
    Ok((cache, description))
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
    let is_there = path.exists();
    if arguments.reopen && !is_there {
        return Err(BadInput(format!("--reopen: there is no {}", path.display())).into());
    }
    if is_there && !arguments.overwrite && !arguments.reopen {
        let why =
            "is there; --overwrite lets the replay destroy what it holds, --reopen goes on with its cache";
        return Err(BadInput(format!("--device {}: {why}", path.display())).into());
    }
    if arguments.overwrite && path.is_file() {
        std::fs::remove_file(path).with_context(|| format!("{}: cannot be removed", path.display()))?;
    }
    let bytes = (!arguments.reopen).then_some(bytes);
    let device =
        FileDevice::open(path, &FileOptions { bytes, ..FileOptions::default() }).map_err(bad_input)?;
    if arguments.overwrite {
        // A cache is only made where the first sectors hold nothing.
        device.write(0, &AlignedBuffer::new(16 * SECTOR)).map_err(bad_input)?;
    }
    Ok(device)
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

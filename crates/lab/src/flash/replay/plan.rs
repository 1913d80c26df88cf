//! Whether a cache of some size can be, by numbers alone: whole sectors, blocks, simulated flash, memory. It makes nothing.

use config::ByteSize;
use flash::device::{FtlOptions, SECTOR};
use flash::layout::{BLOCKS_COUNT_MIN, DeviceLayout};
use study::what_if::Size;

use super::ReplayArguments;
use super::engines::as_flags;
use crate::flash::memory;
use crate::flash::target::DeviceTarget;
use crate::terminal::BadInput;

/// How many sizes are tried for one that is large enough: more than a cache may have blocks.
const TRIED: usize = 1 << 18;

/// What a cache of this capacity asks of its device.
pub(super) fn device_bytes(arguments: &ReplayArguments, capacity: u64) -> Result<u64, BadInput> {
    let sector = SECTOR as u64;
    let bytes = (capacity / sector).max(1) * sector;
    if arguments.engine.is_baseline() || arguments.reopen {
        return Ok(bytes);
    }
    let block_bytes = arguments.block_size.0;
    let blocks = |bytes| DeviceLayout::plan(bytes, block_bytes, 0).map(|layout| layout.blocks);
    blocks(bytes)
        .map_err(|error| BadInput(format!("--size {} with {}", asked(arguments), as_flags(&error))))?;
    let ftl = matches!(arguments.device, DeviceTarget::Ftl).then(|| ftl(arguments)).transpose()?;
    check_memory(arguments, bytes, ftl.as_ref())?;
    let is_enough = |bytes: &u64| {
        blocks(*bytes).is_ok_and(|blocks| blocks >= BLOCKS_COUNT_MIN)
            && ftl.is_none_or(|ftl| ftl.blocks(*bytes).is_ok())
    };
    if is_enough(&bytes) {
        return Ok(bytes);
    }
    let larger = (bytes.div_ceil(block_bytes)..).take(TRIED).map(|blocks| blocks * block_bytes);
    Err(too_small(arguments, bytes, larger.into_iter().find(is_enough)))
}

fn check_memory(arguments: &ReplayArguments, bytes: u64, ftl: Option<&FtlOptions>) -> Result<(), BadInput> {
    let needed = match arguments.device {
        DeviceTarget::Path(_) => return Ok(()),
        DeviceTarget::Memory | DeviceTarget::Ftl => {
            bytes.saturating_add(ftl.map_or(0, |ftl| ftl.memory_bytes(bytes)))
        }
    };
    memory::check(&format!("--size {}", asked(arguments)), needed)
}

fn too_small(arguments: &ReplayArguments, bytes: u64, least: Option<u64>) -> BadInput {
    let erase_block = format!(" and --erase-block {}", arguments.erase_block);
    let with = format!(
        "--block-size {}{}",
        arguments.block_size,
        if matches!(arguments.device, DeviceTarget::Ftl) { &erase_block } else { "" }
    );
    let what = format!("--size {}: a cache of {} is too small", asked(arguments), ByteSize(bytes));
    BadInput(match least {
        Some(least) => {
            format!("{what} for {with}: give at least {}, or make those smaller", ByteSize(least))
        }
        None => format!("{what}, and so is every other for {with}: make those smaller"),
    })
}

/// The size as people write it.
pub(super) fn asked(arguments: &ReplayArguments) -> String {
    match arguments.size() {
        Size::Units(bytes) | Size::Bytes(bytes) => ByteSize(bytes).to_string(),
        share @ Size::WorkingSet(_) => share.to_string(),
    }
}

/// The simulated flash of which the cache uses a share.
pub(super) fn ftl(arguments: &ReplayArguments) -> Result<FtlOptions, BadInput> {
    let default = FtlOptions::default();
    let page = u64::from(default.page_bytes);
    let pages = arguments.erase_block.0 / page;
    let block_pages = u32::try_from(pages).ok().filter(|pages| *pages > 0);
    let block_pages = block_pages.ok_or_else(|| {
        BadInput(format!(
            "--erase-block {}: write a size from {} to 8TiB",
            arguments.erase_block,
            ByteSize(page)
        ))
    })?;
    Ok(FtlOptions { block_pages, over_provisioning: 1.0 / arguments.utilisation - 1.0, ..default })
}

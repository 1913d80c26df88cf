//! foyer's hybrid cache on one file, driven one request at a time. Not in the order of `--policy`: on the device it is FIFO.

use std::cell::Cell;

use ::foyer::{
    BlockEngineConfig, DeviceBuilder, FileDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    PsyncIoEngineConfig, RecoverMode,
};
use bytes::Bytes;
use flash::device::DeviceCounts;
use tokio::runtime::{Builder, Runtime};

use super::Arguments;
use super::baseline::{buffer_bytes, path};
use super::cache::{Cache, Durable, Memory};
use super::engines::make_way;

/// What an object takes on the device is a multiple of this.
const PAGE: u64 = 4096;

struct OnFoyer {
    runtime: Runtime,
    cache: HybridCache<Vec<u8>, Bytes>,
    capacity: u64,
    block_bytes: u64,
    buffer_bytes: u64,
    /// Since the flusher was last waited for.
    pending_bytes: Cell<u64>,
}

pub(super) fn open(arguments: &Arguments, capacity: u64) -> anyhow::Result<(Box<dyn Cache>, String)> {
    let path = path(arguments, "a new file")?;
    make_way(arguments, path)?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let block_bytes = arguments.block_size.0;
    let buffer_bytes = buffer_bytes(arguments);
    let device = {
        let _guard = runtime.enter();
        FileDeviceBuilder::new(path).with_capacity(capacity as usize).with_direct(true).build()?
    };
    // Half of the memory holds objects; a quarter each is filled and written at a time.
    let engine = BlockEngineConfig::new(device)
        .with_block_size(block_bytes as usize)
        .with_buffer_pool_size((buffer_bytes / 4) as usize)
        .with_submit_queue_size_threshold((buffer_bytes / 2) as usize);
    let cache = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .with_flush_on_close(false)
        .memory((buffer_bytes / 2) as usize)
        .with_shards(1)
        .with_weighter(|key: &Vec<u8>, value: &Bytes| key.len() + value.len())
        .storage()
        .with_io_engine_config(PsyncIoEngineConfig::new())
        .with_engine_config(engine)
        .with_recover_mode(RecoverMode::None);
    let cache = runtime.block_on(cache.build())?;
    let pending_bytes = Cell::new(0);
    let cache = OnFoyer { runtime, cache, capacity, block_bytes, buffer_bytes, pending_bytes };
    Ok((Box::new(cache), format!("the file {}", path.display())))
}

impl Cache for OnFoyer {
    fn get(&self, key: &[u8]) -> anyhow::Result<Option<Bytes>> {
        let object = self.runtime.block_on(self.cache.get(key))?;
        Ok(object.map(|object| object.value().clone()))
    }

    /// foyer drops what its buffers cannot take, so they are waited for before they are full.
    fn insert(&self, key: &[u8], value: &[u8]) -> anyhow::Result<bool> {
        // A page is foyer's index of a block, and a page more is for its headers.
        let bytes = (value.len() as u64 + PAGE).next_multiple_of(PAGE);
        if bytes + PAGE > self.block_bytes {
            return Ok(false);
        }
        if self.pending_bytes.get() + bytes > self.buffer_bytes / 8 {
            self.runtime.block_on(self.cache.storage().wait());
            self.pending_bytes.set(0);
        }
        self.pending_bytes.set(self.pending_bytes.get() + bytes);
        self.cache.insert(key.to_vec(), Bytes::copy_from_slice(value));
        Ok(true)
    }

    fn device(&self) -> DeviceCounts {
        let statistics = self.cache.statistics();
        DeviceCounts {
            reads: statistics.disk_read_ios() as u64,
            read_bytes: statistics.disk_read_bytes() as u64,
            writes: statistics.disk_write_ios() as u64,
            written_bytes: statistics.disk_write_bytes() as u64,
            ..DeviceCounts::default()
        }
    }

    /// foyer does not tell how large its index is.
    fn memory(&self) -> Memory {
        Memory { index: 0, buffers: self.buffer_bytes as usize, queue: 0 }
    }

    /// The device's bytes: foyer does not tell what is in it.
    fn stored_bytes(&self) -> u64 {
        self.capacity
    }

    fn durable(&self) -> Durable {
        Durable::default()
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.cache.close())?)
    }
}

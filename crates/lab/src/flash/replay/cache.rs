//! What a replay needs of a cache on flash, and the caches of this project as that. Not a cache of its own.

use std::sync::Arc;

use anyhow::bail;
use bytes::Bytes;
use flash::device::{Device, DeviceCounts};
use flash::ripq::Ripq;

/// A cache under test.
pub(super) trait ReplayCache {
    fn get(&self, key: &[u8]) -> anyhow::Result<Option<Bytes>>;

    /// Whether it was taken: an object may be too large.
    fn insert(&self, key: &[u8], value: &[u8]) -> anyhow::Result<bool>;

    /// What its device was asked to do since it was opened.
    fn device(&self) -> DeviceCounts;

    fn memory(&self) -> CacheMemory;

    /// Bytes of the objects in it, headers and keys included.
    fn stored_bytes(&self) -> u64;

    /// Objects in it that would be there after a loss of power, and their bytes.
    fn durable(&self) -> Durable;

    fn close(self: Box<Self>) -> anyhow::Result<()>;
}

/// Bytes of memory that a cache takes, by what they are for.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct CacheMemory {
    pub(super) index: usize,
    pub(super) buffers: usize,
    pub(super) queue: usize,
}

#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub(super) struct Durable {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

pub(super) struct OnRipq {
    pub(super) ripq: Ripq,
    pub(super) device: Arc<dyn Device>,
}

impl ReplayCache for OnRipq {
    fn get(&self, key: &[u8]) -> anyhow::Result<Option<Bytes>> {
        Ok(self.ripq.get(key)?)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> anyhow::Result<bool> {
        match self.ripq.insert(key, value) {
            Ok(()) => Ok(true),
            Err(flash::FlashError::TooLarge { .. }) => Ok(false),
            Err(error) => bail!(error),
        }
    }

    fn device(&self) -> DeviceCounts {
        self.device.counts()
    }

    fn memory(&self) -> CacheMemory {
        let memory = self.ripq.contents().memory;
        CacheMemory { index: memory.index_bytes, buffers: memory.buffers_bytes, queue: memory.queue_bytes }
    }

    fn stored_bytes(&self) -> u64 {
        self.ripq.contents().bytes
    }

    fn durable(&self) -> Durable {
        let contents = self.ripq.contents();
        Durable { objects: contents.objects as u64, bytes: contents.bytes - contents.buffered_bytes }
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        Ok(self.ripq.close()?)
    }
}

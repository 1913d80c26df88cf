//! What a cache has done since it was opened, and the memory it takes. Not what it is about to do.

/// Bytes of objects are those of their records: key, value and 16 bytes, rounded up to 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RipqStatistics {
    pub hits: u64,
    pub misses: u64,
    pub inserted: u64,
    pub inserted_bytes: u64,
    /// Written once more, because they were requested while they were in the cache (section 4.3.4).
    pub reinserted: u64,
    pub reinserted_bytes: u64,
    pub evicted: u64,
    pub removed: u64,
    /// Requested, yet not written again: in the last part of the queue, or no block was free.
    pub skipped: u64,
    pub blocks_written: u64,
    /// In blocks and in the journal.
    pub written_bytes: u64,
    pub blocks_reclaimed: u64,
    /// Blocks rewritten because the journal had no room for all their dead objects.
    pub blocks_compacted: u64,
    pub splits: u64,
    pub merges: u64,
    pub checkpoints: u64,
    /// Reads that answered other bytes than were written; their objects are gone.
    pub damaged: u64,
    /// Reads that found another key with the same 40 bits of digest.
    pub collisions: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    pub discard_errors: u64,
    pub recovered: u64,
    /// Found at opening with a header or table that was not whole.
    pub blocks_unreadable: u64,
}

impl RipqStatistics {
    /// Bytes written per byte inserted (dissertation, section 4.2); none before the first insertion.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.inserted_bytes > 0).then(|| self.written_bytes as f64 / self.inserted_bytes as f64)
    }
}

/// What is in the cache now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub objects: usize,
    /// Bytes of the objects' records.
    pub bytes: u64,
    pub sections: usize,
    pub blocks_on_device: usize,
    /// What buffered blocks hold, which counts as capacity.
    pub buffered_bytes: u64,
    pub memory: MemoryBytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryBytes {
    pub index_bytes: usize,
    pub buffers_bytes: usize,
    pub queue_bytes: usize,
}

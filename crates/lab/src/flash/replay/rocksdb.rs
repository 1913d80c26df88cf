//! RocksDB as the dissertation's baseline (section 4.5.1): an exact policy in memory says what stays, and what it evicts is
//! deleted. Not a cache that can be opened again: the order is gone with the process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;

use ::rocksdb::{BlockBasedOptions, Cache as BlockCache, DB, DBCompressionType, Options, WriteOptions};
use anyhow::Context;
use bytes::Bytes;
use flash::device::DeviceCounts;
use flash::sipq::Logical;
use flash::{Policy, record};

use super::Arguments;
use super::baseline::{buffer_bytes, path};
use super::cache::{Cache, Durable, Memory};
use crate::terminal::BadInput;

/// All that RocksDB writes: sorted files from memory, sorted files from sorted files, and the log, which is not in use.
const WRITTEN: [&str; 3] = ["rocksdb.flush.write.bytes", "rocksdb.compact.write.bytes", "rocksdb.wal.bytes"];

struct OnRocksDb {
    db: DB,
    /// Asked for the statistics.
    options: Options,
    write: WriteOptions,
    object_bytes_max: u64,
    residents: RefCell<Residents>,
}

/// The objects that are in the database.
struct Residents {
    order: Logical,
    keys: HashMap<u64, Box<[u8]>>,
    bytes: u64,
}

pub(super) fn open(arguments: &Arguments, capacity: u64) -> anyhow::Result<(Box<dyn Cache>, String)> {
    let path = path(arguments, "a directory")?;
    clear(path, arguments.overwrite)?;
    let options = options(buffer_bytes(arguments), capacity)?;
    let db = DB::open(&options, path).map_err(BadInput::of)?;
    let mut write = WriteOptions::new();
    write.disable_wal(true);
    let capacity = (capacity as f64 * arguments.theta) as u64;
    let policy = arguments.policy();
    let object_bytes_max = match policy {
        Policy::Fifo => {
            return Err(BadInput("--policy fifo: give RocksDB slru:L or gdsf:L".to_owned()).into());
        }
        Policy::SegmentedLru { segments } => capacity / u64::from(segments),
        Policy::Gdsf { .. } => capacity,
    };
    let residents = Residents { order: Logical::new(policy, capacity), keys: HashMap::new(), bytes: 0 };
    let cache = OnRocksDb { db, options, write, object_bytes_max, residents: RefCell::new(residents) };
    Ok((Box::new(cache), format!("the directory {}", path.display())))
}

fn clear(path: &Path, overwrite: bool) -> anyhow::Result<()> {
    let is_empty = !path.exists() || path.read_dir().map_err(BadInput::of)?.next().is_none();
    if is_empty {
        return Ok(());
    }
    if !overwrite {
        let why = "holds something; --overwrite lets the replay destroy a database there";
        return Err(BadInput(format!("--device {}: {why}", path.display())).into());
    }
    DB::destroy(&Options::default(), path)
        .with_context(|| format!("{}: the database cannot be removed", path.display()))
}

/// Half of the memory for two tables of what is written next, half for blocks, indexes and filters.
fn options(buffer_bytes: u64, capacity: u64) -> anyhow::Result<Options> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&BlockCache::new_lru_cache((buffer_bytes / 2) as usize)?);
    table.set_cache_index_and_filter_blocks(true);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.enable_statistics();
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::None);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_write_buffer_size((buffer_bytes / 4) as usize);
    options.set_max_write_buffer_number(2);
    options.set_max_background_jobs(2);
    options.set_level_compaction_dynamic_level_bytes(true);
    // The levels and files of a database of 64 GiB, scaled down to this one.
    options.set_max_bytes_for_level_base((capacity / 256).max(buffer_bytes));
    options.set_target_file_size_base((capacity / 1024).max(buffer_bytes / 4));
    Ok(options)
}

impl OnRocksDb {
    /// Orders a request, and deletes what has to leave for it. Whether the object may stay.
    fn request(&self, digest: u64, bytes: usize) -> anyhow::Result<bool> {
        let mut residents = self.residents.borrow_mut();
        let Residents { order, keys, bytes: resident } = &mut *residents;
        let mut deleted = Ok(());
        order.request(digest, bytes as u32, |gone, bytes| {
            *resident -= u64::from(bytes);
            if let Some(key) = keys.remove(&gone) {
                let one = self.db.delete_opt(key, &self.write);
                deleted = std::mem::replace(&mut deleted, Ok(())).and(one);
            }
        });
        deleted?;
        Ok(order.contains(digest))
    }
}

impl Cache for OnRocksDb {
    fn get(&self, key: &[u8]) -> anyhow::Result<Option<Bytes>> {
        let digest = record::digest(key, 0);
        if !self.residents.borrow().order.contains(digest) {
            return Ok(None);
        }
        let value = self.db.get(key)?.context("RocksDB has lost an object that was not deleted")?;
        self.request(digest, value.len())?;
        Ok(Some(value.into()))
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> anyhow::Result<bool> {
        if value.len() as u64 > self.object_bytes_max.min(u64::from(u32::MAX)) {
            return Ok(false);
        }
        let digest = record::digest(key, 0);
        let mut residents = self.residents.borrow_mut();
        residents.keys.insert(digest, key.into());
        residents.bytes += value.len() as u64;
        drop(residents);
        if !self.request(digest, value.len())? {
            return Ok(false);
        }
        self.db.put_opt(key, value, &self.write)?;
        Ok(true)
    }

    fn device(&self) -> DeviceCounts {
        let statistics = self.options.get_statistics().unwrap_or_default();
        let ticker = |name: &&str| {
            let count =
                statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" COUNT : "));
            count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        DeviceCounts { written_bytes: WRITTEN.iter().map(ticker).sum(), ..DeviceCounts::default() }
    }

    fn memory(&self) -> Memory {
        let property = |name: &str| self.db.property_int_value(name).ok().flatten().unwrap_or(0) as usize;
        let residents = self.residents.borrow();
        let key_bytes = size_of::<u64>() + size_of::<Box<[u8]>>() + size_of::<u64>();
        Memory {
            // Within the block cache.
            index: property("rocksdb.estimate-table-readers-mem"),
            buffers: property("rocksdb.block-cache-capacity") + property("rocksdb.size-all-mem-tables"),
            queue: residents.order.memory_bytes() + residents.keys.capacity() * key_bytes,
        }
    }

    fn stored_bytes(&self) -> u64 {
        self.residents.borrow().bytes
    }

    fn durable(&self) -> Durable {
        Durable::default()
    }

    fn close(self: Box<Self>) -> anyhow::Result<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

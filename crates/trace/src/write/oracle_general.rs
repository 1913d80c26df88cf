//! oracleGeneral in two passes: forwards without next accesses, then backwards to fill them in. Keeps no requests.
//!
//! Memory is one map entry per object, disk 24 bytes per request, in a file without a name if they are then compressed.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::access::Access;
use crate::read::Compression;
use crate::write::output::{Encoder, OutputTarget, Partial};
use crate::write::{copy, too_large};

const RECORD_BYTES: usize = 24;
const NEXT_AT: usize = 16;
/// Records that the backward pass has in memory at once.
const RECORDS_AT_ONCE: u64 = 1 << 16;

pub(super) struct OracleGeneral {
    partial: Partial,
    file: BufWriter<File>,
    compressed: Option<(File, Compression)>,
    records: u64,
}

impl OracleGeneral {
    pub(super) fn create(target: OutputTarget, compression: Compression) -> io::Result<OracleGeneral> {
        let (partial, file) = target.create()?;
        let (file, compressed) = match compression {
            Compression::None => (file, None),
            _ => (partial.scratch()?, Some((file, compression))),
        };
        Ok(OracleGeneral { partial, file: BufWriter::with_capacity(1 << 20, file), compressed, records: 0 })
    }

    /// Where the file is until it is complete.
    pub(super) fn path(&self) -> Option<&Path> {
        self.partial.path()
    }

    /// What the access says of its next one is not taken over: it may be about another trace than this.
    pub(super) fn write(&mut self, access: &Access) -> io::Result<()> {
        let narrow = |what, value: u64| u32::try_from(value).map_err(|_| too_large(what, value));
        let mut record = [0xff; RECORD_BYTES];
        record[0..4].copy_from_slice(&narrow("time", access.time)?.to_le_bytes());
        record[4..12].copy_from_slice(&access.object.to_le_bytes());
        record[12..16].copy_from_slice(&narrow("size", access.bytes)?.to_le_bytes());
        self.records += 1;
        self.file.write_all(&record)
    }

    pub(super) fn finish(self, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
        let OracleGeneral { partial, file, compressed, records } = self;
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fill_in_next(&mut file, records, progress)?;
        let Some((compressed, compression)) = compressed else { return partial.keep(&file) };
        let mut encoder = Encoder::new(compressed, compression)?;
        file.seek(SeekFrom::Start(0))?;
        copy(&mut file, &mut encoder)?;
        partial.keep(&encoder.finish()?)
    }
}

/// From the last record to the first: the next access of an object is the one that was met before.
fn fill_in_next(file: &mut File, records: u64, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut later: FxHashMap<u64, u64> = FxHashMap::default();
    let mut block = Vec::new();
    let mut end = records;
    while end > 0 {
        let start = end.saturating_sub(RECORDS_AT_ONCE);
        block.resize((end - start) as usize * RECORD_BYTES, 0);
        let place = SeekFrom::Start(start * RECORD_BYTES as u64);
        file.seek(place)?;
        file.read_exact(&mut block)?;
        for (record, number) in block.chunks_exact_mut(RECORD_BYTES).rev().zip((start..end).rev()) {
            let object = u64::from_le_bytes(record[4..12].try_into().expect("eight bytes"));
            if let Some(next) = later.insert(object, number + 1) {
                record[NEXT_AT..].copy_from_slice(&next.to_le_bytes());
            }
        }
        file.seek(place)?;
        file.write_all(&block)?;
        end = start;
        progress(records - end);
    }
    Ok(())
}

//! libCacheSim's lcs: a header of 8 KiB, then records of the layout that its version names. Older headers are refused.

use crate::access::{Access, AccessOperation};
use crate::read::records::{LCS, Records, next, u32_at, u64_at};

pub(super) const HEADER_BYTES: usize = 8192;
/// At both ends of the header.
const MAGIC: u64 = 0x1234_5678_9abc_def0;

pub(super) fn is_magic(head: &[u8]) -> bool {
    head.starts_with(&MAGIC.to_le_bytes())
}

/// The layout of the records, and how many there are if the header knows.
pub(super) fn header(header: &[u8]) -> Result<(Records, Option<u64>), String> {
    if !is_magic(header) {
        return Err("this is no lcs: its first eight bytes are others".to_owned());
    }
    if header.len() < HEADER_BYTES {
        return Err(format!("its header is cut off: {} of {HEADER_BYTES} bytes", header.len()));
    }
    // Before there were versions, the header was shorter and held a format string.
    if u64_at(header, HEADER_BYTES - 8) != MAGIC {
        return Err("its header does not end as that of lcs versions 1 to 8; convert it with libCacheSim's \
                    traceConv first"
            .to_owned());
    }
    let version = u64_at(header, 8);
    let records = usize::try_from(version).ok().and_then(|version| LCS.get(version.checked_sub(1)?));
    let records = records.ok_or_else(|| format!("lcs version {version} is not known; 1 to 8 are"))?;
    // After the version of the statistics: how many requests there are.
    let requests = u64_at(header, 24);
    Ok((*records, (requests > 0).then_some(requests)))
}

/// u32 time, u64 object, u32 bytes, u8 operation, u24 tenant, i64 next access.
pub(super) fn version_2(record: &[u8], number: u64) -> Result<Access, String> {
    access(record, u64::from(u32_at(record, 12)), record[16], u64_at(record, 20), number)
}

/// u32 time, u64 object, i64 bytes, u8 operation, u24 tenant, u32 time to live, i64 next access; then features.
pub(super) fn version_3(record: &[u8], number: u64) -> Result<Access, String> {
    let bytes = u64_at(record, 12);
    if bytes > i64::MAX as u64 {
        return Err(format!("a size of {} bytes", bytes as i64));
    }
    access(record, bytes, record[20], u64_at(record, 28), number)
}

fn access(record: &[u8], bytes: u64, operation: u8, later: u64, number: u64) -> Result<Access, String> {
    Ok(Access {
        time: u64::from(u32_at(record, 0)),
        object: u64_at(record, 4),
        bytes: bytes.max(1),
        next: next(later, number)?,
        // The numbers of libCacheSim: set, add, cas, replace, append, prepend; delete; incr, decr; write, update.
        operation: match operation {
            3..=8 | 10 | 11 | 13 | 14 => AccessOperation::Write,
            9 => AccessOperation::Delete,
            _ => AccessOperation::Read,
        },
    })
}

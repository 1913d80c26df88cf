//! Formats of records that all have one length: oracleGeneral, vscsi, lcs and bare keys. One record in, one access out.

use crate::access::{Access, AccessOperation, NextAccess};
use crate::read::lcs;

/// How long each record is and what it says.
#[derive(Clone, Copy)]
pub(super) struct Records {
    pub(super) bytes: usize,
    /// Gets exactly one record and its number.
    pub(super) decode: fn(&[u8], u64) -> Result<Access, String>,
}

pub(super) const ORACLE_GENERAL: Records = Records { bytes: 24, decode: oracle_general };
pub(super) const VSCSI_1: Records = Records { bytes: 32, decode: vscsi_1 };
pub(super) const VSCSI_2: Records = Records { bytes: 40, decode: vscsi_2 };
pub(super) const KEYS_BE32: Records =
    Records { bytes: 4, decode: |record, _| Ok(key(u64::from(u32::from_be_bytes(array(record, 0))))) };
pub(super) const KEYS_BE64: Records =
    Records { bytes: 8, decode: |record, _| Ok(key(u64::from_be_bytes(array(record, 0)))) };

/// Records of lcs by version, from 1: 2 adds operation and tenant, 3 wider sizes and a time to live, 4 to 8 features.
pub(super) const LCS: [Records; 8] = [
    ORACLE_GENERAL,
    Records { bytes: 28, decode: lcs::version_2 },
    Records { bytes: 36, decode: lcs::version_3 },
    Records { bytes: 40, decode: lcs::version_3 },
    Records { bytes: 44, decode: lcs::version_3 },
    Records { bytes: 52, decode: lcs::version_3 },
    Records { bytes: 68, decode: lcs::version_3 },
    Records { bytes: 100, decode: lcs::version_3 },
];

/// Records are little-endian but for bare keys.
pub(super) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(record, at))
}

pub(super) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(record, at))
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(record, at))
}

fn array<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    record[at..at + N].try_into().expect("the slice has that length")
}

/// The number of a later access, or one of the two ways to write that there is none.
pub(super) fn next(written: u64, number: u64) -> Result<NextAccess, String> {
    match written {
        later if later > number && later < i64::MAX as u64 => Ok(NextAccess::Known(later)),
        u64::MAX | 0x7fff_ffff_ffff_ffff => Ok(NextAccess::Never),
        _ => Err(format!("its next access is {}, which is not a later one", written as i64)),
    }
}

/// u32 time, u64 object, u32 bytes, i64 next access.
fn oracle_general(record: &[u8], number: u64) -> Result<Access, String> {
    Ok(Access {
        time: u64::from(u32_at(record, 0)),
        object: u64_at(record, 4),
        bytes: u64::from(u32_at(record, 12)).max(1),
        next: next(u64_at(record, 16), number)?,
        operation: AccessOperation::Read,
    })
}

/// u32 serial number, u32 bytes, u32 scatter-gather entries, u16 command, u16 version, u64 block, u64 time (us).
fn vscsi_1(record: &[u8], _number: u64) -> Result<Access, String> {
    vscsi(record, 1, [4, 12, 14])
}

/// u16 command, u16 version, u32 serial number, u32 bytes, u32 scatter-gather entries, u64 block, u64 time (us),
/// u64 response time.
fn vscsi_2(record: &[u8], _number: u64) -> Result<Access, String> {
    vscsi(record, 2, [8, 0, 2])
}

fn vscsi(record: &[u8], expected: u16, [bytes, command, version]: [usize; 3]) -> Result<Access, String> {
    let version = u16_at(record, version) >> 8;
    if version != expected {
        return Err(format!("it is of vscsi version {version}, and those before it of version {expected}"));
    }
    Ok(Access {
        time: u64_at(record, 24) / 1_000_000,
        object: u64_at(record, 16),
        bytes: u64::from(u32_at(record, bytes)).max(1),
        next: NextAccess::Unknown,
        operation: match u16_at(record, command) {
            // WRITE of 6, 10, 12 and 16 bytes; everything else reads or does neither.
            0x0a | 0x2a | 0xaa | 0x8a => AccessOperation::Write,
            _ => AccessOperation::Read,
        },
    })
}

fn key(object: u64) -> Access {
    Access { time: 0, object, bytes: 1, next: NextAccess::Unknown, operation: AccessOperation::Read }
}

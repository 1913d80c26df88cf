//! Which format the beginning of a trace has, by what many of its records say. Where several fit, it does not guess.

use std::collections::BTreeSet;
use std::path::Path;

use crate::access::{Access, NextAccess};
use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::read::records::{ORACLE_GENERAL, Records, VSCSI_1, VSCSI_2};
use crate::read::rows::{CsvColumns, meta_columns, split, twitter_fields};
use crate::read::{columns, lcs};

/// Enough for thousands of records, and for the header of lcs.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// Fewer keys have no shape.
const KEYS_MIN: usize = 8;
/// So many records or lines are of a format by no accident, even if a later one is not.
const BY_NO_ACCIDENT: usize = 8;

/// The one format that fits. The name of the file only breaks ties.
pub(super) fn detect(path: &Path, head: &[u8]) -> Result<TraceFormat, TraceError> {
    let candidates = if is_text(head) || has_header(head) {
        of_text(head)
    } else {
        of_bytes(head).map_err(|problem| TraceError::content(path, problem))?
    };
    match candidates[..] {
        [format] => Ok(format),
        [] => Err(TraceError::content(path, "no known format fits; name it with --format if it has one")),
        _ => match hint(path).filter(|format| candidates.contains(format)) {
            Some(format) => Ok(format),
            None if candidates.contains(&TraceFormat::Csv) => Err(TraceError::content(path, HEADLESS)),
            None => Err(TraceError::ambiguous(path, &candidates)),
        },
    }
}

const HEADLESS: &str = "its lines have columns, and the first does not say which is the object; write a header such as \
                        time,object,bytes, or name it with --format (text: each whole line is a key)";

/// What the name says: `x.vscsi`, `x.oracleGeneral.bin.zst`, `x.keys-be64`, `x.be32.gz`.
fn hint(path: &Path) -> Option<TraceFormat> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    name.split('.').skip(1).find_map(|part| match part {
        "oraclegeneral" => Some(TraceFormat::OracleGeneral),
        "be32" => Some(TraceFormat::KeysBe32),
        "be64" => Some(TraceFormat::KeysBe64),
        _ => part.parse().ok(),
    })
}

/// Text has no control characters but tabs and line ends. A character may be cut in two at the end.
fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    };
    valid && head.iter().all(|byte| !byte.is_ascii_control() || matches!(byte, b'\t' | b'\r' | b'\n'))
}

/// Whether the first line names columns, so that what is no text later is damage.
fn has_header(head: &[u8]) -> bool {
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or(head).trim_ascii_end();
    is_text(first) && CsvColumns::new(first).is_some()
}

fn of_text(head: &[u8]) -> Vec<TraceFormat> {
    let whole = head.len() < HEAD_BYTES;
    let end = if whole { head.len() } else { head.iter().rposition(|byte| *byte == b'\n').unwrap_or(0) };
    let mut lines = head[..end].split(|byte| *byte == b'\n').map(|line| line.trim_ascii_end());
    let lines: Vec<&[u8]> = lines.by_ref().filter(|line| !line.is_empty()).collect();
    let Some(first) = lines.first() else { return Vec::new() };
    let twitter =
        |line: &&[u8]| twitter_fields(line).is_some_and(|fields| columns::TWITTER.access(&fields, 1).is_ok());
    if meta_columns(first).is_some() {
        return vec![TraceFormat::Meta];
    }
    if lines.iter().take(BY_NO_ACCIDENT).all(twitter) {
        return vec![TraceFormat::Twitter];
    }
    if CsvColumns::new(first).is_some() {
        return vec![TraceFormat::Csv];
    }
    // Columns without a header might be anything; a key per line has none.
    let columns = |line: &&[u8]| b",;|\t ".iter().any(|d| split(line, *d, |fields| fields.len()) > 1);
    if lines.iter().any(columns) {
        vec![TraceFormat::Csv, TraceFormat::Text]
    } else {
        vec![TraceFormat::Text]
    }
}

/// Bytes that begin as a format with structure and go on otherwise are not taken for keys.
fn of_bytes(head: &[u8]) -> Result<Vec<TraceFormat>, String> {
    if lcs::is_magic(head) {
        return Ok(vec![TraceFormat::Lcs]);
    }
    let checked = [
        (TraceFormat::Vscsi, VSCSI_2, all_decode(VSCSI_2, head)),
        (TraceFormat::Vscsi, VSCSI_1, all_decode(VSCSI_1, head)),
        (TraceFormat::OracleGeneral, ORACLE_GENERAL, is_oracle_general(head)),
    ];
    let fits = checked.iter().filter(|(.., check)| *check == Ok(())).map(|(format, ..)| *format);
    let fits: Vec<TraceFormat> = fits.collect();
    for (format, records, check) in checked {
        match check {
            Err((number, problem)) if fits.is_empty() && number > BY_NO_ACCIDENT => {
                let offset = (number - 1) * records.bytes;
                return Err(format!(
                    "no known format fits; {format} is nearest, but record {number} at byte {offset}: {problem}"
                ));
            }
            _ => {}
        }
    }
    Ok(if fits.is_empty() { of_keys(head) } else { fits })
}

/// The first record that makes no sense, counted from 1, and why.
type Wrong = (usize, String);

fn all_decode(records: Records, head: &[u8]) -> Result<(), Wrong> {
    all_make_sense(records, head, |_| Ok(()))
}

/// Whether the whole records in the head make sense; there must be one.
fn all_make_sense(
    records: Records,
    head: &[u8],
    mut check: impl FnMut(&Access) -> Result<(), String>,
) -> Result<(), Wrong> {
    if head.len() < records.bytes {
        return Err((1, "it is cut off".to_owned()));
    }
    (1..).zip(head.chunks_exact(records.bytes)).try_for_each(|(number, record)| {
        let decoded = (records.decode)(record, number as u64);
        decoded.and_then(|access| check(&access)).map_err(|problem| (number, problem))
    })
}

/// The layout of the version that all records of these bytes have.
pub(super) fn vscsi(bytes: &[u8]) -> Option<Records> {
    [VSCSI_2, VSCSI_1].into_iter().find(|records| all_decode(*records, bytes).is_ok())
}

/// Time does not run backwards, and the next access of each object lies ahead, within what a disk can hold.
fn is_oracle_general(head: &[u8]) -> Result<(), Wrong> {
    const REQUESTS_MAX: u64 = 1 << 48;
    let mut last = 0;
    all_make_sense(ORACLE_GENERAL, head, |access| match access {
        Access { time, .. } if *time < last => Err(format!("its time {time} is before the last one, {last}")),
        Access { next: NextAccess::Known(next), .. } if *next > REQUESTS_MAX => {
            Err(format!("its next access is {next}, farther than any trace goes"))
        }
        Access { time, .. } => {
            last = *time;
            Ok(())
        }
    })
}

/// Bare keys have no structure but their width. It shows when the words of 32 bits are compared in even and in odd
/// places: those of narrow keys are alike and independent, those of wide keys are upper halves that come with lower ones.
fn of_keys(head: &[u8]) -> Vec<TraceFormat> {
    if !head.len().is_multiple_of(4) {
        return Vec::new();
    }
    let word = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let pairs: Vec<(u32, u32)> = head.chunks_exact(8).map(|pair| (word(pair), word(&pair[4..]))).collect();
    let distinct: BTreeSet<(u32, u32)> = pairs.iter().copied().collect();
    let even: BTreeSet<u32> = distinct.iter().map(|pair| pair.0).collect();
    let odd: BTreeSet<u32> = distinct.iter().map(|pair| pair.1).collect();
    let shared = pairs.iter().filter(|pair| even.contains(&pair.1)).count();
    let few_uppers = even.len() * 8 <= odd.len() || even.iter().eq(&[0]) && odd.len() > 1;
    let small = |words: &BTreeSet<u32>| words.iter().all(|word| *word < 1 << 28);
    if pairs.len() < KEYS_MIN {
        vec![TraceFormat::KeysBe32, TraceFormat::KeysBe64]
    } else if few_uppers && head.len().is_multiple_of(8) {
        vec![TraceFormat::KeysBe64]
    } else if shared * 20 >= pairs.len() || small(&even) && small(&odd) {
        vec![TraceFormat::KeysBe32]
    } else if even.len() * 10 <= pairs.len() * 9 {
        // Upper halves are asked for again: wide keys come again whole, narrow ones with other neighbours.
        let whole = distinct.len() * 10 <= even.len() * 11;
        vec![if whole { TraceFormat::KeysBe64 } else { TraceFormat::KeysBe32 }]
    } else {
        vec![TraceFormat::KeysBe32, TraceFormat::KeysBe64]
    }
}

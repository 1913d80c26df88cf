//! Which column of a line is what: from a header to the access that a row is. Not how lines are cut into fields.

use crate::access::{Access, AccessOperation, NextAccess};
use crate::key::{number, object_id};

/// Positions of the columns that count, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) object: usize,
    pub(super) time: Option<usize>,
    pub(super) bytes: Option<usize>,
    /// Taken where `bytes` is 0, as Meta's CDN writes it for what it does not know.
    pub(super) bytes_else: Option<usize>,
    /// Added to `bytes`: a key takes room too.
    pub(super) key_bytes: Option<usize>,
    pub(super) next: Option<usize>,
    pub(super) operation: Option<usize>,
    /// How often the access happened in a row.
    pub(super) repeats: Option<usize>,
}

/// The columns of twitter/cache-trace: time, key, key bytes, value bytes, client, operation, time to live.
pub(super) const TWITTER: Columns = Columns {
    object: 1,
    time: Some(0),
    bytes: Some(3),
    bytes_else: None,
    key_bytes: Some(2),
    next: None,
    operation: Some(5),
    repeats: None,
};
pub(super) const TWITTER_FIELDS: usize = 7;

/// Meta's key-value traces of 2022, which came without a header, too.
pub(super) const META_2022: Columns = Columns {
    object: 0,
    time: None,
    bytes: Some(2),
    bytes_else: None,
    key_bytes: Some(4),
    next: None,
    operation: Some(1),
    repeats: Some(3),
};

/// The largest in Meta's traces is in the hundreds; a corrupt one must not go on for ever.
const REPEATS_MAX: u64 = 1 << 20;
/// Later than any trace in seconds, and earlier than any in milliseconds since 1970.
const SECONDS_MAX: u64 = 100_000_000_000;

impl Columns {
    /// Columns by the header of a CSV file; `None` if no column is the object's.
    pub(super) fn csv(header: &[&[u8]]) -> Option<Columns> {
        Some(Columns {
            object: position(header, &["object", "obj_id", "object_id", "obj", "id", "key", "lba", "lbn"])?,
            time: position(header, &["time", "timestamp", "ts", "clock_time", "real_time"]),
            bytes: position(header, &["bytes", "size", "obj_size", "object_size"]),
            next: position(header, &["next", "next_access", "next_access_vtime"]),
            operation: position(header, &["operation", "op"]),
            ..Columns::default()
        })
    }

    /// Columns of Meta's key-value traces of 2022 to 2024 and of its CDN traces; `None` if the header is of neither.
    pub(super) fn meta(header: &[&[u8]]) -> Option<Columns> {
        let at = |name| position(header, &[name]);
        if let (Some(object), Some(bytes)) = (at("cacheKey"), at("objectSize")) {
            return Some(Columns {
                object,
                time: at("timestamp"),
                bytes: Some(bytes),
                bytes_else: at("responseSize"),
                operation: at("OpType"),
                ..Columns::default()
            });
        }
        Some(Columns {
            object: at("key")?,
            time: at("op_time"),
            bytes: Some(at("size")?),
            key_bytes: Some(at("key_size")?),
            operation: Some(at("op")?),
            repeats: Some(at("op_count")?),
            ..Columns::default()
        })
    }

    /// What a row says, and how often.
    pub(super) fn access(&self, fields: &[&[u8]], row: u64) -> Result<(Access, u64), String> {
        let field = |at: usize| {
            let short = || format!("it has {} columns, and column {} is missing", fields.len(), at + 1);
            fields.get(at).copied().ok_or_else(short)
        };
        let bytes = self.bytes(&field)?;
        let repeats = self.repeats.map_or(Ok(1), |at| count(field(at)?, "op_count"))?;
        if !(1..=REPEATS_MAX).contains(&repeats) {
            return Err(format!("an op_count of {repeats}; it must be 1 to {REPEATS_MAX}"));
        }
        let access = Access {
            time: self.time.map_or(Ok(0), |at| seconds(field(at)?))?,
            object: object_id(field(self.object)?.trim_ascii()),
            bytes: bytes.max(1),
            next: self.next.map_or(Ok(NextAccess::Unknown), |at| next(field(at)?, row))?,
            operation: self.operation.map_or(Ok(AccessOperation::Read), |at| operation(field(at)?))?,
        };
        Ok((access, repeats))
    }

    fn bytes<'a>(&self, field: &impl Fn(usize) -> Result<&'a [u8], String>) -> Result<u64, String> {
        let mut bytes = self.bytes.map_or(Ok(1), |at| count(field(at)?, "size"))?;
        if let (0, Some(at)) = (bytes, self.bytes_else) {
            bytes = count(field(at)?, "responseSize")?;
        }
        let key_bytes = self.key_bytes.map_or(Ok(0), |at| count(field(at)?, "key size"))?;
        bytes.checked_add(key_bytes).ok_or_else(|| "its size is over 2^64 bytes".to_owned())
    }
}

/// Where one of these names stands in the header, in whatever case.
fn position(header: &[&[u8]], names: &[&str]) -> Option<usize> {
    let named = |name: &&str| {
        header.iter().position(|field| field.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
    };
    names.iter().find_map(named)
}

fn count(field: &[u8], name: &str) -> Result<u64, String> {
    number(field.trim_ascii()).ok_or_else(|| wrong(field, name, "a number from 0"))
}

/// Whole seconds; fractions are cut off, and what cannot be seconds is taken for milliseconds.
fn seconds(field: &[u8]) -> Result<u64, String> {
    let field = field.trim_ascii();
    let whole = field.split(|byte| *byte == b'.').next().unwrap_or(field);
    let fraction = field.get(whole.len() + 1..).unwrap_or(b"");
    let time = number(whole).filter(|_| fraction.iter().all(u8::is_ascii_digit));
    let time = time.ok_or_else(|| wrong(field, "time", "a time in seconds"))?;
    Ok(if time > SECONDS_MAX { time / 1000 } else { time })
}

fn next(field: &[u8], row: u64) -> Result<NextAccess, String> {
    match field.trim_ascii() {
        b"" => Ok(NextAccess::Unknown),
        b"-1" => Ok(NextAccess::Never),
        digits => match number(digits) {
            Some(later) if later > row => Ok(NextAccess::Known(later)),
            _ => Err(wrong(field, "next access", "-1 or the number of a later one")),
        },
    }
}

fn operation(field: &[u8]) -> Result<AccessOperation, String> {
    match field.trim_ascii() {
        b"" => Ok(AccessOperation::Read),
        // Meta's CDN numbers them; all that its files hold are kinds of reads.
        digits if number(digits).is_some() => Ok(AccessOperation::Read),
        name => AccessOperation::from_name(name).ok_or_else(|| wrong(field, "operation", "an operation")),
    }
}

fn wrong(field: &[u8], name: &str, expected: &str) -> String {
    let text = String::from_utf8_lossy(&field[..field.len().min(40)]);
    format!("{name} {text:?} is not {expected}")
}

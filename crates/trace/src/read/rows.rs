//! Formats of lines: keys alone, CSV, Twitter's and Meta's. How a line is cut into fields; not what the fields mean.

use csv_core::ReadRecordResult;

use crate::access::{Access, AccessOperation, NextAccess};
use crate::key::object_id;
use crate::read::columns::{Columns, META_2022, TWITTER, TWITTER_FIELDS};

/// More columns than any layout has; a line with more is not of them.
const FIELDS_MAX: usize = 64;

/// How lines become accesses.
pub(super) enum RowFormat {
    Text,
    Twitter,
    Meta { columns: Columns },
    Csv(Box<CsvColumns>),
}

impl RowFormat {
    /// The access of one line and how often it is to be repeated; None for lines that hold none. Gets the number that
    /// the access will have.
    pub(super) fn access(&mut self, line: &[u8], number: u64) -> Result<Option<(Access, u64)>, String> {
        let key_line = line.trim_ascii();
        if key_line.is_empty() {
            return Ok(None);
        }
        match self {
            RowFormat::Text => Ok(Some((key(key_line), 1))),
            RowFormat::Twitter => {
                let fields =
                    twitter_fields(line).ok_or("it has fewer than the seven columns of Twitter's traces")?;
                TWITTER.access(&fields, number).map(Some)
            }
            RowFormat::Meta { columns } => meta(columns, line, number),
            RowFormat::Csv(csv) => csv.access(line, number).map(Some),
        }
    }
}

fn key(line: &[u8]) -> Access {
    Access {
        time: 0,
        object: object_id(line),
        bytes: 1,
        next: NextAccess::Unknown,
        operation: AccessOperation::Read,
    }
}

/// Keys may hold commas, the other columns cannot; so the last five are cut off from the end.
pub(super) fn twitter_fields(line: &[u8]) -> Option<[&[u8]; TWITTER_FIELDS]> {
    let mut fields = [&b""[..]; TWITTER_FIELDS];
    let comma = line.iter().position(|byte| *byte == b',')?;
    fields[0] = &line[..comma];
    let mut rest = &line[comma + 1..];
    for field in fields[2..].iter_mut().rev() {
        let comma = rest.iter().rposition(|byte| *byte == b',')?;
        (*field, rest) = (&rest[comma + 1..], &rest[..comma]);
    }
    fields[1] = rest;
    Some(fields)
}

/// Files that were put together repeat their header.
fn meta(columns: &mut Columns, line: &[u8], number: u64) -> Result<Option<(Access, u64)>, String> {
    split(line, b',', |fields| match columns.access(fields, number) {
        Ok(access) => Ok(Some(access)),
        Err(problem) => {
            *columns = Columns::meta(fields).ok_or(problem)?;
            Ok(None)
        }
    })
}

/// How a first line of Meta's traces is to be read: as a header, or as a row of those that have none.
pub(super) fn meta_columns(first: &[u8]) -> Option<Columns> {
    split(first.trim_ascii(), b',', |fields| {
        let bare = fields.len() >= 5 && META_2022.access(fields, 1).is_ok();
        Columns::meta(fields).or(bare.then_some(META_2022))
    })
}

/// Cuts a line at a delimiter, without quotes, and lends out the fields.
pub(super) fn split<T>(line: &[u8], delimiter: u8, use_fields: impl FnOnce(&[&[u8]]) -> T) -> T {
    let mut fields = [&b""[..]; FIELDS_MAX];
    let mut length = 0;
    for (field, place) in line.split(|byte| *byte == delimiter).zip(&mut fields) {
        *place = field;
        length += 1;
    }
    use_fields(&fields[..length])
}

/// Lines whose columns a header names, with quotes as RFC 4180 has them but without line ends inside.
pub(super) struct CsvColumns {
    columns: Columns,
    parser: csv_core::Reader,
    unquoted: Vec<u8>,
    ends: [usize; FIELDS_MAX],
}

impl CsvColumns {
    const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

    /// From the header line, which says the delimiter too.
    pub(super) fn new(header: &[u8]) -> Option<CsvColumns> {
        let header = header.strip_prefix("\u{feff}".as_bytes()).unwrap_or(header);
        CsvColumns::DELIMITERS.iter().find_map(|&delimiter| {
            let mut csv = CsvColumns {
                columns: Columns::default(),
                parser: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
                unquoted: Vec::new(),
                ends: [0; FIELDS_MAX],
            };
            csv.columns = csv.fields(header, Columns::csv).ok()??;
            Some(csv)
        })
    }

    fn access(&mut self, line: &[u8], number: u64) -> Result<(Access, u64), String> {
        let columns = self.columns;
        self.fields(line, |fields| columns.access(fields, number))?
    }

    /// Cuts a line into its fields and lends them out.
    fn fields<T>(&mut self, line: &[u8], use_fields: impl FnOnce(&[&[u8]]) -> T) -> Result<T, String> {
        // Unquoting never makes a line longer.
        self.unquoted.resize(line.len() + 1, 0);
        self.parser.reset();
        let (first, read, written, ended) = self.parser.read_record(line, &mut self.unquoted, &mut self.ends);
        let mut count = ended;
        // Without its line end a record ends only when the parser is told that nothing follows.
        if first == ReadRecordResult::InputEmpty {
            let (last, _, _, ended) =
                self.parser.read_record(&[], &mut self.unquoted[written..], &mut self.ends[count..]);
            debug_assert!(last != ReadRecordResult::InputEmpty, "an empty input ends the record");
            count += ended;
        }
        if read < line.len() || first == ReadRecordResult::OutputEndsFull {
            return Err(format!("it has more than {FIELDS_MAX} columns"));
        }
        let mut fields = [&b""[..]; FIELDS_MAX];
        let mut start = 0;
        for (field, end) in fields.iter_mut().zip(&self.ends[..count]) {
            *field = &self.unquoted[start..*end];
            start = *end;
        }
        Ok(use_fields(&fields[..count]))
    }
}

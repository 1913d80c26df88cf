//! Reading a trace from a file, whatever its format and compression, in one stream. Nothing is kept of what was read.

mod columns;
mod compression;
mod detect;
mod lcs;
mod records;
mod rows;
mod source;

#[cfg(test)]
mod tests;

use std::fs::{File, Metadata};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::Access;
use crate::error::{TraceError, TracePlace};
use crate::format::TraceFormat;
pub use compression::Compression;
use compression::{Counted, MAGIC_BYTES};
use detect::HEAD_BYTES;
use records::Records;
use rows::{CsvColumns, RowFormat};
use source::ByteSource;

/// Opens a trace. Without a format it is found by looking at the beginning.
pub fn open(path: impl AsRef<Path>, format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
    let (path, (file, metadata)) = (path.as_ref(), look(path.as_ref())?);
    let bytes_read = Arc::new(AtomicU64::new(0));
    let input = Counted { file, bytes: Arc::clone(&bytes_read) };
    let mut reader = TraceReader::new(path, Box::new(input), format)?;
    (reader.bytes_read, reader.file_bytes) = (bytes_read, metadata.len());
    Ok(reader)
}

/// As `open`, for a trace that is opened again: what has no beginning any more by then is refused.
pub fn open_file(path: impl AsRef<Path>, format: Option<TraceFormat>) -> Result<TraceReader, TraceError> {
    if look(path.as_ref())?.1.is_file() {
        return open(path, format);
    }
    let problem = "this is not a file, and cannot be read twice; save it to a file first";
    Err(TraceError::content(path.as_ref(), problem))
}

fn look(path: &Path) -> Result<(File, Metadata), TraceError> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (metadata, file) = opened.map_err(|error| TraceError::file(path, error))?;
    if metadata.is_dir() {
        return Err(TraceError::content(path, "this is a folder; name one file in it"));
    }
    Ok((file, metadata))
}

/// The accesses of a trace, one after the other. After an error there are no more.
pub struct TraceReader {
    path: PathBuf,
    format: TraceFormat,
    compression: Compression,
    source: ByteSource,
    decoder: FormatDecoder,
    /// Records or lines that were read, and accesses that were given out.
    units: u64,
    accesses: u64,
    /// The access to give out again, so many times.
    repeated: Option<(Access, u64)>,
    ended: bool,
    bytes_read: Arc<AtomicU64>,
    file_bytes: u64,
}

enum FormatDecoder {
    /// And how many records there are, if a header says so.
    Records(Records, Option<u64>),
    Rows(RowFormat),
}

impl TraceReader {
    /// From any bytes; `path` is what errors call them.
    pub fn new(
        path: &Path,
        mut input: Box<dyn Read + Send>,
        format: Option<TraceFormat>,
    ) -> Result<TraceReader, TraceError> {
        let fail = |error| TraceError::file(path, error);
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        (&mut input).take(MAGIC_BYTES as u64).read_to_end(&mut magic).map_err(fail)?;
        let compression = Compression::of(&magic).map_err(|name| {
            TraceError::content(path, format!("{name} is not read here; decompress it first"))
        })?;
        let input = Box::new(Cursor::new(magic).chain(input));
        let mut source = ByteSource::new(compression.undo(input).map_err(fail)?);
        let head = source.head(HEAD_BYTES).map_err(fail)?;
        if head.is_empty() {
            return Err(TraceError::content(path, "this trace is empty"));
        }
        let format = match format {
            Some(format) => format,
            None if compression != Compression::None && Compression::of(head) != Ok(Compression::None) => {
                return Err(TraceError::content(path, "this is compressed twice; decompress it first"));
            }
            None => detect::detect(path, head)?,
        };
        let (decoder, header_bytes, units) =
            decoder(format, head).map_err(|p| TraceError::content(path, p))?;
        source.consume(header_bytes);
        Ok(TraceReader {
            path: path.to_owned(),
            format,
            compression,
            source,
            decoder,
            units,
            accesses: 0,
            repeated: None,
            ended: false,
            bytes_read: Arc::default(),
            file_bytes: 0,
        })
    }

    pub fn format(&self) -> TraceFormat {
        self.format
    }

    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How much of the file has been read, and how long it is; both in bytes as they lie on disk.
    pub fn progress(&self) -> (u64, u64) {
        (self.bytes_read.load(Ordering::Relaxed), self.file_bytes)
    }

    fn read(&mut self) -> Result<Option<Access>, TraceError> {
        match &mut self.decoder {
            FormatDecoder::Records(records, expected) => {
                let (records, expected) = (*records, *expected);
                self.read_record(records, expected)
            }
            FormatDecoder::Rows(_) => self.read_row(),
        }
    }

    fn read_record(&mut self, records: Records, expected: Option<u64>) -> Result<Option<Access>, TraceError> {
        let number = self.units + 1;
        let seen = match self.source.peek(records.bytes) {
            Ok(seen) => seen,
            Err(error) => return Err(self.wrong(error.to_string())),
        };
        if let Some(record) = seen.get(..records.bytes) {
            let decoded = (records.decode)(record, number);
            let access = decoded.map_err(|problem| self.wrong(problem))?;
            self.source.consume(records.bytes);
            self.units = number;
            return Ok(Some(access));
        }
        let left = seen.len();
        match expected {
            _ if left > 0 => Err(self.wrong(format!("it is cut off: {left} of {} bytes", records.bytes))),
            Some(expected) if self.units < expected => {
                Err(self.wrong(format!("the file ends here, but its header promises {expected} records")))
            }
            _ => Ok(None),
        }
    }

    fn read_row(&mut self) -> Result<Option<Access>, TraceError> {
        let FormatDecoder::Rows(rows) = &mut self.decoder else { return Ok(None) };
        loop {
            let found = match self.source.line() {
                Ok(None) => return Ok(None),
                Ok(Some((line, bytes))) => rows.access(line, self.accesses + 1).map(|access| (access, bytes)),
                Err(error) => Err(error.to_string()),
            };
            let (access, bytes) = match found {
                Ok(found) => found,
                Err(problem) => return Err(self.wrong(problem)),
            };
            self.source.consume(bytes);
            self.units += 1;
            if let Some((access, repeats)) = access {
                self.repeated = (repeats > 1).then_some((access, repeats - 1));
                return Ok(Some(access));
            }
        }
    }

    /// An error about the record or line that would come next.
    fn wrong(&self, problem: String) -> TraceError {
        let unit = if matches!(self.decoder, FormatDecoder::Rows(_)) { "line" } else { "record" };
        let place = TracePlace { unit, number: self.units + 1, offset: self.source.offset() };
        TraceError::place(&self.path, place, problem)
    }
}

impl Iterator for TraceReader {
    type Item = Result<Access, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some((access, left)) = self.repeated {
            self.repeated = (left > 1).then_some((access, left - 1));
            self.accesses += 1;
            return Some(Ok(access));
        }
        if self.ended {
            return None;
        }
        let read = self.read().transpose();
        match read {
            Some(Ok(_)) => self.accesses += 1,
            _ => self.ended = true,
        }
        read
    }
}

/// What reads this format, how many bytes its header takes, and how many lines those are.
fn decoder(format: TraceFormat, head: &[u8]) -> Result<(FormatDecoder, usize, u64), String> {
    let plain = |records| Ok((FormatDecoder::Records(records, None), 0, 0));
    let first_bytes = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
    let first = head[..first_bytes].trim_ascii_end();
    match format {
        TraceFormat::OracleGeneral => plain(records::ORACLE_GENERAL),
        TraceFormat::KeysBe32 => plain(records::KEYS_BE32),
        TraceFormat::KeysBe64 => plain(records::KEYS_BE64),
        TraceFormat::Vscsi => {
            match detect::vscsi(head).or_else(|| detect::vscsi(&head[..head.len().min(40)])) {
                Some(records) => plain(records),
                None => Err("its first record is neither of vscsi version 1 nor of version 2".to_owned()),
            }
        }
        TraceFormat::Lcs => {
            let (records, expected) = lcs::header(head)?;
            Ok((FormatDecoder::Records(records, expected), lcs::HEADER_BYTES, 0))
        }
        TraceFormat::Text => Ok((FormatDecoder::Rows(RowFormat::Text), 0, 0)),
        TraceFormat::Twitter => Ok((FormatDecoder::Rows(RowFormat::Twitter), 0, 0)),
        TraceFormat::Meta => match rows::meta_columns(first) {
            // A header that is read again as a row changes nothing.
            Some(columns) => Ok((FormatDecoder::Rows(RowFormat::Meta { columns }), 0, 0)),
            None => Err("its first line is neither a header nor a row of Meta's traces; see docs/traces.md"
                .to_owned()),
        },
        TraceFormat::Csv => {
            match CsvColumns::new(first) {
                Some(csv) => Ok((FormatDecoder::Rows(RowFormat::Csv(Box::new(csv))), first_bytes, 1)),
                None => Err("its first line names no column object (or obj_id, id, key); see docs/traces.md"
                    .to_owned()),
            }
        }
    }
}

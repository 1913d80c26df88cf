//! Writing a trace, as oracleGeneral or CSV, compressed or not. A file appears when it is complete; CSV may go to a pipe.

mod csv;
mod oracle_general;
mod output;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::access::{Access, AccessOperation};
use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::read::Compression;
pub use csv::CsvWriter;
use oracle_general::OracleGeneral;
use output::{Encoder, OutputTarget, Partial};

/// A trace that is being written.
pub struct TraceWriter {
    path: PathBuf,
    accesses: u64,
    operations_lost: u64,
    encoding: TraceEncoding,
}

enum TraceEncoding {
    /// The next accesses are filled in at the end, in a file of plain records.
    OracleGeneral(OracleGeneral),
    Csv(CsvWriter<Encoder>, Partial),
}

/// Starts a trace; `finish` puts it in its place. `-` is standard output. Compression follows from the ending, .gz or
/// .zst, if none is given.
pub fn create(
    path: impl AsRef<Path>,
    format: TraceFormat,
    compression: Option<Compression>,
) -> Result<TraceWriter, TraceError> {
    let path = path.as_ref();
    let compression = compression.unwrap_or_else(|| by_ending(path));
    if compression == Compression::Xz {
        return Err(TraceError::content(path, "xz is read but not written; use .zst or .gz"));
    }
    let target = OutputTarget::of(path).map_err(|error| TraceError::file(path, error))?;
    let path = if matches!(target, OutputTarget::Stdout) { Path::new("standard output") } else { path };
    let encoding = match (format, &target) {
        (TraceFormat::OracleGeneral, OutputTarget::File(_)) => {
            OracleGeneral::create(target, compression).map(TraceEncoding::OracleGeneral)
        }
        (TraceFormat::OracleGeneral, _) => {
            let problem = "oracle-general is completed backwards, which only a file allows; use csv";
            return Err(TraceError::content(path, problem));
        }
        (TraceFormat::Csv, _) => target.create().and_then(|(partial, file)| {
            let csv = Encoder::new(file, compression).and_then(CsvWriter::new)?;
            Ok(TraceEncoding::Csv(csv, partial))
        }),
        (other, _) => {
            let problem = format!("{other} is read but not written; use oracle-general or csv");
            return Err(TraceError::content(path, problem));
        }
    };
    let encoding = encoding.map_err(|error| TraceError::file(path, error))?;
    Ok(TraceWriter { path: path.to_owned(), accesses: 0, operations_lost: 0, encoding })
}

fn by_ending(path: &Path) -> Compression {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        Some("xz") => Compression::Xz,
        _ => Compression::None,
    }
}

impl TraceWriter {
    pub fn write(&mut self, access: &Access) -> Result<(), TraceError> {
        self.accesses += 1;
        let written = match &mut self.encoding {
            TraceEncoding::OracleGeneral(records) => {
                self.operations_lost += u64::from(access.operation != AccessOperation::Read);
                records.write(access)
            }
            TraceEncoding::Csv(csv, _) => csv.write(access),
        };
        written.map_err(|error| TraceError::file(&self.path, error))
    }

    /// How many were written so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// How many of them were writes and deletes, in a format that has only reads.
    pub fn operations_lost(&self) -> u64 {
        self.operations_lost
    }

    /// The file that is removed if the trace is not finished; none for a stream.
    pub fn unfinished(&self) -> Option<&Path> {
        match &self.encoding {
            TraceEncoding::OracleGeneral(records) => records.path(),
            TraceEncoding::Csv(_, partial) => partial.path(),
        }
    }

    /// Completes the file and says how many accesses it has. Until then, nothing is at its place. `progress` hears how
    /// many of them the second pass has done, where there is one.
    pub fn finish(self, progress: &mut dyn FnMut(u64)) -> Result<u64, TraceError> {
        let TraceWriter { path, accesses, encoding, .. } = self;
        let finished = match encoding {
            TraceEncoding::OracleGeneral(records) => records.finish(progress),
            TraceEncoding::Csv(csv, partial) => {
                csv.into_inner().finish().and_then(|file| partial.keep(&file))
            }
        };
        finished.map_err(|error| TraceError::file(&path, error)).map(|()| accesses)
    }
}

/// A value that the format has no room for.
fn too_large(what: &str, value: u64) -> io::Error {
    let problem = format!("{what} {value} is over 32 bits, which oracle-general cannot hold; use csv");
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Copies to the end and flushes.
fn copy(from: &mut impl io::Read, to: &mut impl Write) -> io::Result<()> {
    io::copy(from, to)?;
    to.flush()
}

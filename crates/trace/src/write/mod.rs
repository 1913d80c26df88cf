//! Writing a trace to a file, as oracleGeneral or CSV, compressed or not. The file appears when it is complete.

mod csv;
mod oracle_general;
mod output;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::access::Access;
use crate::error::TraceError;
use crate::format::Format;
use crate::read::Compression;
pub use csv::Csv;
use oracle_general::OracleGeneral;
use output::{Encoder, Partial};

/// A trace that is being written.
pub struct Writer {
    path: PathBuf,
    accesses: u64,
    encoding: Encoding,
}

enum Encoding {
    /// The next accesses are filled in at the end, in a file of plain records.
    OracleGeneral(OracleGeneral, Compression),
    Csv(Csv<Encoder>, Partial),
}

/// Starts a trace; `finish` puts it in its place. Compression follows from the ending, .gz or .zst, if none is given.
pub fn create(
    path: impl AsRef<Path>,
    format: Format,
    compression: Option<Compression>,
) -> Result<Writer, TraceError> {
    let path = path.as_ref();
    let compression = compression.unwrap_or_else(|| by_ending(path));
    if compression == Compression::Xz {
        return Err(TraceError::content(path, "xz is read but not written; use .zst or .gz"));
    }
    let fail = |error| TraceError::file(path, error);
    let encoding = match format {
        Format::OracleGeneral => {
            Encoding::OracleGeneral(OracleGeneral::create(path).map_err(fail)?, compression)
        }
        Format::Csv => {
            let (partial, file) = Partial::create(path).map_err(fail)?;
            let csv = Encoder::new(file, compression).and_then(Csv::new).map_err(fail)?;
            Encoding::Csv(csv, partial)
        }
        other => {
            return Err(TraceError::content(
                path,
                format!("{other} is read but not written; use oracle-general or csv"),
            ));
        }
    };
    Ok(Writer { path: path.to_owned(), accesses: 0, encoding })
}

fn by_ending(path: &Path) -> Compression {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => Compression::Gzip,
        Some("zst") => Compression::Zstd,
        Some("xz") => Compression::Xz,
        _ => Compression::None,
    }
}

impl Writer {
    pub fn write(&mut self, access: &Access) -> Result<(), TraceError> {
        self.accesses += 1;
        let written = match &mut self.encoding {
            Encoding::OracleGeneral(records, _) => records.write(access),
            Encoding::Csv(csv, _) => csv.write(access),
        };
        written.map_err(|error| TraceError::file(&self.path, error))
    }

    /// How many were written so far.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Completes the file and says how many accesses it has. Until then, nothing is at its place. `progress` hears how
    /// many of them the second pass has done, where there is one.
    pub fn finish(self, progress: &mut dyn FnMut(u64)) -> Result<u64, TraceError> {
        let Writer { path, accesses, encoding } = self;
        let finished = match encoding {
            Encoding::OracleGeneral(records, compression) => records.finish(compression, progress),
            Encoding::Csv(csv, partial) => {
                csv.into_inner().finish().and_then(|file| file.sync_data()).and_then(|()| partial.keep())
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

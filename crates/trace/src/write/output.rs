//! The file that a trace is written to: under another name until it is complete, compressed on the way. No formats.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::read::Compression;

const BUFFER_BYTES: usize = 1 << 20;
/// zstd's own default, and gzip's.
const ZSTD_LEVEL: i32 = 3;

/// A file that is removed unless it is kept, so that what was interrupted leaves nothing that looks complete.
pub(super) struct Partial {
    place: PathBuf,
    path: PathBuf,
}

impl Partial {
    /// Readable and writable, empty.
    pub(super) fn create(place: &Path) -> io::Result<(Partial, File)> {
        Partial::named(place, ".partial")
    }

    /// Another file for the same place.
    pub(super) fn beside(&self, ending: &str) -> io::Result<(Partial, File)> {
        Partial::named(&self.place, ending)
    }

    fn named(place: &Path, ending: &str) -> io::Result<(Partial, File)> {
        let mut name = place.as_os_str().to_owned();
        name.push(ending);
        let path = PathBuf::from(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok((Partial { place: place.to_owned(), path }, file))
    }

    /// Puts the file in its place.
    pub(super) fn keep(mut self) -> io::Result<()> {
        let path = std::mem::take(&mut self.path);
        fs::rename(&path, &self.place).inspect_err(|_| self.path = path)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // Best effort: the error that led here says more.
            drop(fs::remove_file(&self.path));
        }
    }
}

pub(super) enum Encoder {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl Encoder {
    pub(super) fn new(file: File, compression: Compression) -> io::Result<Encoder> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(match compression {
            Compression::Gzip => {
                Encoder::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default()))
            }
            Compression::Zstd => Encoder::Zstd(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?),
            Compression::None | Compression::Xz => Encoder::Plain(file),
        })
    }

    pub(super) fn finish(self) -> io::Result<File> {
        let file = match self {
            Encoder::Plain(file) => file,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Plain(file) => file.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}

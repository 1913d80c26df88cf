//! Which compression a file has, by its first bytes, and what undoes it. Not what is inside.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
}

/// The longest of the magic numbers.
pub(super) const MAGIC_BYTES: usize = 6;

/// As `zstd --long=31` writes large traces; the default limit refuses them.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

impl Compression {
    pub(super) fn of(head: &[u8]) -> Compression {
        match head {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // A frame to be skipped, as seekable and parallel zstd write it first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            _ => Compression::None,
        }
    }

    /// Undoes it for all frames, members or streams that follow each other.
    pub(super) fn undo(self, input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Compression::None => input,
            Compression::Gzip => Box::new(MultiGzDecoder::new(BufReader::new(input))),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            Compression::Xz => Box::new(XzReader::new(BufReader::new(input), true)),
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Xz => "xz",
        })
    }
}

/// A file that tells others how much of it has been read.
pub(super) struct Counted {
    pub(super) file: File,
    pub(super) bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

//! Which compression a file has, by its first bytes, what undoes it, and what is wrong with it. Not what is inside.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
}

/// The longest of the magic numbers: lzma has none, but thirteen bytes that say little else.
pub(super) const MAGIC_BYTES: usize = 13;

/// As `zstd --long=31` writes large traces; the default limit refuses them.
const ZSTD_WINDOW_LOG_MAX: u32 = 31;

impl Compression {
    /// Or the name of one that cannot be undone.
    pub(super) fn of(head: &[u8]) -> Result<Compression, &'static str> {
        Ok(match head {
            [0x1f, 0x8b, 8, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // A frame to be skipped, as seekable and parallel zstd write it first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', b'&', b'S', b'Y', ..] => return Err("bzip2"),
            [4, 0x22, 0x4d, 0x18, ..] | [2, 0x21, 0x4c, 0x18, ..] => return Err("lz4"),
            [0x5d, 0, 0, _, _, 255, 255, 255, 255, 255, 255, 255, 255, ..] => return Err("lzma"),
            [b'P', b'K', 3, 4, ..] => return Err("zip"),
            [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => return Err("7z"),
            _ => Compression::None,
        })
    }

    /// Undoes it for all frames, members or streams that follow each other.
    pub(super) fn undo(self, input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
        let decoder: Box<dyn Read + Send> = match self {
            Compression::None => return Ok(input),
            Compression::Gzip => Box::new(GzipMembers(Some(GzDecoder::new(BufReader::new(input))))),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            Compression::Xz => Box::new(XzReader::new(BufReader::new(input), true)),
        };
        Ok(Box::new(Undone { decoder, compression: self }))
    }
}

/// The members of a gzip file. Each decoder ends where its member does; nothing but another may follow.
struct GzipMembers(Option<GzDecoder<BufReader<Box<dyn Read + Send>>>>);

impl Read for GzipMembers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let bytes = member.read(buffer)?;
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
            match member.get_mut().fill_buf()?.first() {
                Some(0x1f) => self.0 = self.0.take().map(|member| GzDecoder::new(member.into_inner())),
                Some(_) => return Err(io::Error::new(ErrorKind::InvalidData, "other bytes follow its end")),
                None => self.0 = None,
            }
        }
        Ok(0)
    }
}

/// What a decoder gives out, with errors that say what is wrong in words of their own.
struct Undone {
    decoder: Box<dyn Read + Send>,
    compression: Compression,
}

impl Read for Undone {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buffer).map_err(|error| match error.kind() {
            // Of the file, not of what is in it.
            _ if error.raw_os_error().is_some() => error,
            ErrorKind::Interrupted => error,
            kind @ ErrorKind::UnexpectedEof => {
                io::Error::new(kind, format!("the {} stream is cut off", self.compression))
            }
            kind => io::Error::new(kind, format!("the {} stream is damaged: {error}", self.compression)),
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

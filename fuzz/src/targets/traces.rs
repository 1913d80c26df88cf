//! Traces of every format: damaged ones end in an error, and where the bytes are cut in reading changes nothing.

use std::io::{self, Cursor, Read};
use std::path::Path;

use trace::{Access, Compression, TraceFormat, TraceReader};

/// Meta's rows may stand for up to a million accesses each.
const ACCESSES_MAX: usize = 10_000;

pub(crate) fn run(data: &[u8]) {
    let [choice, piece, bytes @ ..] = data else { return };
    let format = TraceFormat::ALL.get(usize::from(*choice)).copied();
    let piece = usize::from(*piece) % 61 + 1;
    let whole = read(Box::new(Cursor::new(bytes.to_vec())), format);
    let pieces = read(Box::new(Pieces { bytes: Cursor::new(bytes.to_vec()), length: piece }), format);
    // How much a decompressor gives out before it finds damage is its own affair.
    if whole.compression == Some(Compression::None) {
        assert_eq!(whole, pieces, "in pieces of {piece}");
    }
}

#[derive(Debug, PartialEq)]
struct Outcome {
    compression: Option<Compression>,
    accesses: Vec<Access>,
    /// After the accesses.
    error: Option<String>,
}

fn read(input: Box<dyn Read + Send>, format: Option<TraceFormat>) -> Outcome {
    let mut reader = match TraceReader::new(Path::new("trace"), input, format) {
        Ok(reader) => reader,
        Err(error) => {
            return Outcome { compression: None, accesses: Vec::new(), error: Some(error.to_string()) };
        }
    };
    let (compression, mut accesses) = (Some(reader.compression()), Vec::new());
    for read in reader.by_ref().take(ACCESSES_MAX) {
        match read {
            Ok(access) => {
                assert!(access.bytes > 0, "an object without size");
                accesses.push(access);
            }
            Err(error) => {
                assert!(reader.next().is_none(), "more after an error");
                return Outcome { compression, accesses, error: Some(error.to_string()) };
            }
        }
    }
    Outcome { compression, accesses, error: None }
}

struct Pieces {
    bytes: Cursor<Vec<u8>>,
    length: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.length.min(buffer.len());
        self.bytes.read(&mut buffer[..length])
    }
}

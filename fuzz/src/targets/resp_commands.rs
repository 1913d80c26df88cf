//! Commands as clients send them: the same ones come out however the stream is cut, each in its one canonical form.

use bytes::Bytes;
use wire::resp::{Command, ProtocolError, RespLimits, RespTaken, next_command};

/// What a whole stream turned out to be.
#[derive(Debug, PartialEq)]
struct Read {
    commands: Vec<Command>,
    error: Option<ProtocolError>,
}

pub(crate) fn run(data: &[u8]) {
    let Some((&[shape, piece], stream)) = data.split_first_chunk::<2>() else { return };
    let limits = limits(shape);
    let whole = read(stream, stream.len(), false, &limits);
    let piece = usize::from(piece) % 61 + 1;
    for patient in [false, true] {
        assert_eq!(read(stream, piece, patient, &limits), whole, "in pieces of {piece}");
    }
    for command in &whole.commands {
        let args: Vec<&[u8]> = command.args().collect();
        assert_eq!(&Command::from_args(&args), command, "another way to write the same command");
        assert_eq!(Command::parse(command.frame().clone()).as_ref(), Ok(command));
        for index in 0..command.len() {
            assert_eq!(command.get(index), Some(&command.arg_bytes(index)[..]));
            assert!(command.bulk(index).ends_with(b"\r\n"));
        }
    }
}

/// The defaults, or limits that a short input can reach.
fn limits(shape: u8) -> RespLimits {
    let mut limits = RespLimits { authenticated: shape & 1 == 0, ..RespLimits::default() };
    if shape & 2 != 0 {
        limits = RespLimits {
            arguments_max: 3,
            bulk_bytes_max: 40,
            line_bytes_max: 24,
            frame_bytes_max: 64,
            ..limits
        };
    }
    limits
}

/// Reads a stream that arrives in pieces. Who is patient asks again only when there are as many bytes as were said to
/// be needed.
fn read(stream: &[u8], piece: usize, patient: bool, limits: &RespLimits) -> Read {
    let mut found = Read { commands: Vec::new(), error: None };
    let (mut rest, mut needed) = (Bytes::new(), 1);
    let mut end = 0;
    while end < stream.len() {
        let taken = end - rest.len();
        end = (end + piece).min(stream.len());
        rest = Bytes::copy_from_slice(&stream[taken..end]);
        if patient && rest.len() < needed {
            continue;
        }
        loop {
            let before = rest.len();
            match next_command(&mut rest, limits) {
                Ok(RespTaken::Command(command)) => {
                    assert!(before >= needed, "a whole command before the {needed} bytes that it needs");
                    needed = 1;
                    found.commands.push(command);
                }
                Ok(RespTaken::Needs(bytes)) => {
                    assert!(bytes > rest.len(), "{bytes} bytes are needed, {} are there", rest.len());
                    needed = bytes;
                    break;
                }
                Err(error) => {
                    found.error = Some(error);
                    return found;
                }
            }
        }
    }
    found
}

//! Messages between roles: whatever can be decoded says the same after it was encoded, however the stream is cut.

use bytes::Bytes;
use wire::codec::message_bytes;
use wire::header::HEADER_BYTES;
use wire::{DecodeError, Message, decode, encode};

pub(crate) fn run(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let piece = usize::from(piece) % 199 + 1;
    let whole = read(stream, stream.len());
    assert_eq!(read(stream, piece), whole, "in pieces of {piece}");
    for message in whole.0 {
        let mut once = Vec::new();
        encode(&message, &mut once);
        assert_eq!(message_bytes(&once), Ok(Some(once.len())));
        let mut rest = Bytes::from(once.clone());
        assert_eq!(decode(&mut rest).as_ref(), Ok(&Some(message)));
        assert!(rest.is_empty());
    }
}

fn read(stream: &[u8], piece: usize) -> (Vec<Message>, Option<DecodeError>) {
    let mut messages = Vec::new();
    let (mut rest, mut end) = (Bytes::new(), 0);
    while end < stream.len() {
        let taken = end - rest.len();
        end = (end + piece).min(stream.len());
        rest = Bytes::copy_from_slice(&stream[taken..end]);
        loop {
            let (length, before) = (message_bytes(&rest), rest.len());
            match decode(&mut rest) {
                Ok(Some(message)) => {
                    assert_eq!(length, Ok(Some(before - rest.len())), "{message:?}");
                    messages.push(message);
                }
                Ok(None) => {
                    let whole = length.expect("what decodes has a length");
                    assert!(whole.unwrap_or(HEADER_BYTES) > before, "the message is there");
                    break;
                }
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

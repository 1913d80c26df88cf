//! Replies as storage servers send them: their ends are found however the stream is cut, and those that can be read
//! mean the same after they were written again.

use bytes::Bytes;
use wire::resp::{PartScanner, ProtocolError, ReplyScanner, Value};

pub(crate) fn run(data: &[u8]) {
    let Some((&piece, stream)) = data.split_first() else { return };
    let piece = usize::from(piece) % 61 + 1;
    let (ends, error) = scan(stream, stream.len());
    assert_eq!(scan(stream, piece), (ends.clone(), error), "in pieces of {piece}");
    let mut start = 0;
    for end in ends {
        hand_on(&stream[start..], piece, end - start);
        check(Bytes::copy_from_slice(&stream[start..end]));
        start = end;
    }
    if let Ok(value) = Value::parse(&Bytes::copy_from_slice(stream)) {
        assert_eq!(scan(stream, stream.len()).0, [stream.len()], "{value:?} does not end where it ends");
    }
}

/// Where each reply of a stream ends.
fn scan(stream: &[u8], piece: usize) -> (Vec<usize>, Option<ProtocolError>) {
    let (mut ends, mut scanner) = (Vec::new(), ReplyScanner::new());
    let (mut start, mut arrived) = (0, 0);
    while arrived < stream.len() {
        arrived = (arrived + piece).min(stream.len());
        loop {
            let bytes = &stream[start..arrived];
            match scanner.scan(bytes) {
                Ok(Some(length)) => {
                    assert!((3..=bytes.len()).contains(&length), "a reply of {length} bytes");
                    start += length;
                    ends.push(start);
                }
                Ok(None) => {
                    assert!(scanner.needed() > bytes.len(), "nothing more is needed, yet there is no reply");
                    break;
                }
                Err(error) => return (ends, Some(error)),
            }
        }
    }
    (ends, None)
}

/// A reply that is never whole anywhere ends where the whole one does.
fn hand_on(stream: &[u8], piece: usize, length: usize) {
    let (mut scanner, mut taken, mut arrived) = (PartScanner::default(), 0, 0);
    while !scanner.is_ended() {
        arrived = (arrived + piece).min(stream.len());
        taken += scanner.take(&stream[taken..arrived]).expect("what is a reply as a whole is one in pieces");
    }
    assert_eq!(taken, length, "in pieces of {piece}");
}

fn check(frame: Bytes) {
    let Ok(value) = Value::parse(&frame) else { return };
    for resp3 in [true, false] {
        let once = write(&value, resp3);
        let again = Value::parse(&once).expect("what was written can be read");
        assert_eq!(scan(&once, once.len()).0, [once.len()], "it ends somewhere else");
        assert_eq!(write(&again, resp3), once, "{value:?} changes when it is written again");
    }
}

fn write(value: &Value, resp3: bool) -> Bytes {
    let mut out = Vec::new();
    value.write(resp3, &mut out);
    out.into()
}

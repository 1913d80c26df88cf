//! memcached's text as clients and servers send it: the same comes out however the stream is cut, and no limit is passed.

use bytes::Bytes;
use wire::memcached::{MemcachedLimits, MemcachedRequest, MemcachedTaken, RequestReader, next_reply};

pub(crate) fn run(data: &[u8]) {
    let Some((&[piece], stream)) = data.split_first_chunk::<1>() else { return };
    let piece = usize::from(piece) % 61 + 1;
    let limits = MemcachedLimits { line_bytes_max: 2500, value_bytes_max: 64 };
    let whole = read(stream, stream.len().max(1), &limits);
    assert_eq!(read(stream, piece, &limits), whole, "in pieces of {piece}");
    for taken in &whole {
        if let MemcachedTaken::Request(MemcachedRequest::Store(store)) = taken {
            assert!(store.key.len() <= wire::memcached::KEY_BYTES_MAX && store.value.len() <= 64);
        }
    }
    let mut buffer = Bytes::copy_from_slice(stream);
    let mut before = buffer.len();
    while let Ok(Some((_, reply))) = next_reply(&mut buffer, 64) {
        assert!(reply.len() + 2 + buffer.len() == before, "a reply is what it takes off the buffer");
        before = buffer.len();
    }
}

fn read(stream: &[u8], piece: usize, limits: &MemcachedLimits) -> Vec<MemcachedTaken> {
    let (mut reader, mut found, mut rest, mut end) = (RequestReader::default(), Vec::new(), Bytes::new(), 0);
    while end < stream.len() {
        let taken = end - rest.len();
        end = (end + piece).min(stream.len());
        rest = Bytes::copy_from_slice(&stream[taken..end]);
        loop {
            match reader.next(&mut rest, limits) {
                MemcachedTaken::Needs(bytes) => {
                    assert!(bytes > rest.len(), "{bytes} bytes are needed, {} are there", rest.len());
                    break;
                }
                last @ MemcachedTaken::Hangup(_) => {
                    found.push(last);
                    return found;
                }
                request => found.push(request),
            }
        }
    }
    found
}

//! memcached's text as it is cut into requests and replies. What requests come to is tested where they are carried out.

use bytes::{Bytes, BytesMut};
use wire::memcached::{
    MemcachedLimits, MemcachedRequest, MemcachedTaken, ReplyHead, RequestReader, StoreRequest, StoreVerb,
    next_reply, write_key,
};

const LIMITS: MemcachedLimits = MemcachedLimits { line_bytes_max: 10_000, value_bytes_max: 100 };

/// The requests of a stream that comes in pieces of this size.
fn read(stream: &[u8], piece: usize) -> Vec<MemcachedTaken> {
    let (mut reader, mut found, mut buffer) = (RequestReader::default(), Vec::new(), BytesMut::new());
    for piece in stream.chunks(piece) {
        buffer.extend_from_slice(piece);
        let mut rest = buffer.split().freeze();
        loop {
            match reader.next(&mut rest, &LIMITS) {
                MemcachedTaken::Needs(bytes) => {
                    assert!(bytes > rest.len(), "{bytes} are needed, {} are there", rest.len());
                    break;
                }
                last @ MemcachedTaken::Hangup(_) => {
                    found.push(last);
                    return found;
                }
                request => found.push(request),
            }
        }
        buffer.extend_from_slice(&rest);
    }
    found
}

fn requests(stream: &str) -> Vec<MemcachedRequest> {
    let whole = read(stream.as_bytes(), stream.len().max(1));
    for piece in [1, 2, 7] {
        assert_eq!(read(stream.as_bytes(), piece), whole, "in pieces of {piece}");
    }
    let request = |taken| match taken {
        MemcachedTaken::Request(request) => request,
        other => panic!("{other:?}"),
    };
    whole.into_iter().map(request).collect()
}

fn error(line: &str) -> String {
    match requests(line).first() {
        Some(MemcachedRequest::Failed { error, noreply, .. }) => {
            format!("{error}{}", if *noreply { " (silent)" } else { "" })
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn a_store_has_its_block_whatever_is_in_it() {
    let found = requests("set k 5 -1 6 noreply\r\n\r\nget \r\ncas k 0 0 0 77\n\r\n");
    let store = StoreRequest {
        verb: StoreVerb::Set,
        key: "k".into(),
        flags: 5,
        exptime: -1,
        value: "\r\nget ".into(),
        noreply: true,
    };
    let cas = StoreRequest {
        verb: StoreVerb::Cas(77),
        flags: 0,
        exptime: 0,
        value: "".into(),
        noreply: false,
        ..store.clone()
    };
    assert_eq!(found, [MemcachedRequest::Store(store), MemcachedRequest::Store(cas)]);
}

#[test]
fn errors_are_those_of_memcached() {
    for (line, expected) in [
        ("\r\n", "ERROR"),
        ("x\r\n", "ERROR"),
        ("get\r\n", "ERROR"),
        ("set k 0 0\r\n", "ERROR"),
        ("set k x 0 1\r\n", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 -1 noreply\r\n", "CLIENT_ERROR bad command line format (silent)"),
        ("set k 0 0 1\r\nab\r\n", "CLIENT_ERROR bad data chunk"),
        ("incr k x\r\n", "CLIENT_ERROR invalid numeric delta argument"),
        ("touch k x\r\n", "CLIENT_ERROR invalid exptime argument"),
        ("delete k 5\r\n", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("mg\r\n", "ERROR"),
        ("mz k\r\n", "ERROR"),
        ("mg k y\r\n", "CLIENT_ERROR invalid flag"),
        ("mg k v v\r\n", "CLIENT_ERROR duplicate flag"),
        ("mg k Tx\r\n", "CLIENT_ERROR bad token in command line format"),
        ("md k y\r\n", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k MX\r\n", "CLIENT_ERROR invalid mode for ma M token"),
        ("ms k 1 MX\r\na\r\n", "CLIENT_ERROR invalid mode for ms M token"),
        ("mg k O12345678901234567890123456789012\r\n", "CLIENT_ERROR opaque token too long"),
    ] {
        assert_eq!(error(line), expected, "{line:?}");
    }
    assert_eq!(error(&format!("get a {}\r\n", "k".repeat(251))), "CLIENT_ERROR bad command line format");
}

#[test]
fn a_block_over_the_limit_is_passed_over_and_takes_the_old_value_along() {
    let block = "x".repeat(101);
    let found = requests(&format!("set k 0 0 101\r\n{block}\r\nadd k 0 0 101\r\n{block}\r\nmn\r\n"));
    let stale =
        |request: &MemcachedRequest| matches!(request, MemcachedRequest::Failed { stale: Some(_), .. });
    assert_eq!(found.iter().map(stale).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(found[2], MemcachedRequest::Noop);
}

#[test]
fn keys_in_base64_are_decoded_and_answered_as_they_came() {
    let found = requests("mg Zm8g b v k\r\n");
    let [MemcachedRequest::Meta(meta)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&meta.key[..], meta.base64), (&b"fo "[..], true));
    let mut echoed = Vec::new();
    meta.write_key(&mut echoed);
    assert_eq!(echoed, b"Zm8g b");
    let mut written = Vec::new();
    assert!(write_key(b"fo ", &mut written));
    assert_eq!(written, b"Zm8g");
}

#[test]
fn what_is_no_text_ends_the_connection() {
    let binary = b"\x80\x0a\0\0\0\0\0\0\0\0\0\0mark\0\0\0\0\0\0\0\0";
    assert!(read(&binary[..23], 1).is_empty(), "a header is answered when it is whole");
    for piece in [1, 24] {
        let found = read(binary, piece);
        let [MemcachedTaken::Hangup(told)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(told[..8], *b"\x81\x0a\0\0\0\0\0\x81");
        assert_eq!(told[8..12], (told.len() as u32 - 24).to_be_bytes());
        assert_eq!(told[12..24], *b"mark\0\0\0\0\0\0\0\0");
        assert!(told[24..].starts_with(b"DistCache: the binary protocol is not carried"), "{told:?}");
    }
    let found = read(b"get a\r\nPOST / HTTP/1.1\r\nset k 0 0 1\r\nv\r\n", 100);
    let [MemcachedTaken::Request(_), MemcachedTaken::Hangup(told)] = &found[..] else { panic!("{found:?}") };
    assert!(told.ends_with(b"not HTTP\r\n"), "nothing of a browser is taken after that");
    assert_eq!(read(&[b'x'; 2100], 100), [MemcachedTaken::Hangup(Bytes::new())]);
    // A retrieval with many keys is long, and no memory for ever.
    let long = [b"get ".to_vec(), b"key ".repeat(1000), b"\r\n".to_vec()].concat();
    assert!(
        matches!(&read(&long, 500)[..], [MemcachedTaken::Request(MemcachedRequest::Get { keys, .. })] if keys.len() == 1000)
    );
    assert_eq!(
        read(&[b"get ".to_vec(), b"key ".repeat(3000)].concat(), 500),
        [MemcachedTaken::Hangup(Bytes::new())]
    );
}

#[test]
fn replies_end_where_they_say() {
    let stream = b"VA 5 f1\r\nhe\r\no\r\nHD c7\r\nSTAT a b\r\nEND\r\nCLIENT_ERROR x\r\nMN\r\nVA 3 W\r\nab";
    let mut buffer = Bytes::from_static(stream);
    let mut found = Vec::new();
    while let Some((head, reply)) = next_reply(&mut buffer, 100).expect("well formed") {
        found.push((head, String::from_utf8_lossy(&reply).into_owned()));
    }
    let expected = [
        (ReplyHead::Value, "VA 5 f1\r\nhe\r\no"),
        (ReplyHead::Status, "HD c7"),
        (ReplyHead::Stat, "STAT a b"),
        (ReplyHead::End, "END"),
        (ReplyHead::Error, "CLIENT_ERROR x"),
        (ReplyHead::Noop, "MN"),
    ];
    assert_eq!(found, expected.map(|(head, text)| (head, text.to_owned())));
    assert_eq!(buffer, "VA 3 W\r\nab");
    for wrong in ["VA x\r\n", "VA 101\r\n", "VA 1\r\nabc", "HD\n", &"x".repeat(9000)] {
        let mut buffer = Bytes::copy_from_slice(wrong.as_bytes());
        assert!(next_reply(&mut buffer, 100).is_err(), "{wrong}");
    }
}

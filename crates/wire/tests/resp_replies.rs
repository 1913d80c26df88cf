//! Replies of both protocol versions: where they end, what they say.

use bytes::Bytes;
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop, prop_oneof, proptest};
use wire::resp::{PartScanner, ProtocolError, ReplyScanner, Value};

/// The lengths of the replies in `stream`, scanned as it grows by `step` bytes at a time.
fn scanned(stream: &[u8], step: usize) -> Result<Vec<usize>, ProtocolError> {
    let mut scanner = ReplyScanner::new();
    let (mut lengths, mut start, mut arrived) = (Vec::new(), 0, 0);
    loop {
        match scanner.scan(&stream[start..arrived])? {
            Some(length) => {
                lengths.push(length);
                start += length;
            }
            None if arrived == stream.len() => return Ok(lengths),
            None => {
                assert!(scanner.needed() > arrived - start, "it would never end");
                arrived = (arrived + step).min(stream.len());
            }
        }
    }
}

/// Where the reply at the start of `stream` ends, handed on as it arrives `step` bytes at a time; what was not taken comes
/// again.
fn handed_on(stream: &[u8], step: usize) -> Result<Option<usize>, ProtocolError> {
    let (mut scanner, mut taken, mut arrived) = (PartScanner::default(), 0, 0);
    while !scanner.is_ended() && arrived < stream.len() {
        arrived = (arrived + step).min(stream.len());
        taken += scanner.take(&stream[taken..arrived])?;
    }
    Ok(scanner.is_ended().then_some(taken))
}

fn parsed(frame: &str) -> Result<Value, ProtocolError> {
    Value::parse(&Bytes::copy_from_slice(frame.as_bytes()))
}

const REPLIES: [&str; 27] = [
    "+OK\r\n",
    "-ERR no\r\n",
    ":-12\r\n",
    "$5\r\nhe\r\no\r\n",
    "$0\r\n\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*0\r\n",
    "*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n",
    "_\r\n",
    "#t\r\n",
    "#f\r\n",
    ",1.5\r\n",
    ",inf\r\n",
    ",-inf\r\n",
    ",nan\r\n",
    "(3492890328409238509324850943850943825024385\r\n",
    "=8\r\ntxt:some\r\n",
    "!8\r\nERR a\r\nb\r\n",
    "%0\r\n",
    "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
    "~2\r\n+a\r\n+b\r\n",
    ">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
    "|1\r\n+ttl\r\n:5\r\n$1\r\nv\r\n",
    "*2\r\n|1\r\n+ttl\r\n:5\r\n$1\r\nv\r\n|0\r\n*1\r\n:3\r\n",
    "*3\r\n%1\r\n~1\r\n:1\r\n>0\r\n$-1\r\n!0\r\n\r\n",
    "|1\r\n|1\r\n+x\r\n+y\r\n+z\r\n+w\r\n:7\r\n",
];

#[test]
fn replies_end_where_they_end_however_they_arrive() {
    let stream = REPLIES.concat();
    let expected: Vec<usize> = REPLIES.iter().map(|reply| reply.len()).collect();
    for step in [1, 2, 3, 5, 7, 11, 64, stream.len()] {
        assert_eq!(scanned(stream.as_bytes(), step), Ok(expected.clone()), "step {step}");
    }
    for reply in REPLIES {
        for step in [1, 2, 3, 7, stream.len()] {
            let more = [reply.as_bytes(), b"+more\r\n"].concat();
            assert_eq!(handed_on(&more, step), Ok(Some(reply.len())), "{reply:?} by {step}");
        }
        for cut in 0..reply.len() {
            assert_eq!(handed_on(&reply.as_bytes()[..cut], 3), Ok(None), "{reply:?} cut at {cut}");
            assert_eq!(
                ReplyScanner::new().scan(&reply.as_bytes()[..cut]),
                Ok(None),
                "{reply:?} cut at {cut}"
            );
        }
        parsed(reply).unwrap_or_else(|error| panic!("{reply:?}: {error}"));
    }
}

#[test]
fn replies_are_understood() {
    let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
    let simple = |text: &'static str| Value::Simple(Bytes::from_static(text.as_bytes()));
    for (frame, expected) in [
        ("$5\r\nhe\r\no\r\n", bulk("he\r\no")),
        ("$-1\r\n", Value::Null),
        ("*-1\r\n", Value::Null),
        ("_\r\n", Value::Null),
        (",-1.5e3\r\n", Value::Double(-1500.0)),
        ("#f\r\n", Value::Boolean(false)),
        ("!5\r\nERR a\r\n", Value::Error(Bytes::from_static(b"ERR a"))),
        ("=8\r\ntxt:some\r\n", Value::Verbatim(Bytes::from_static(b"txt:some"))),
        ("%1\r\n+a\r\n:1\r\n", Value::Map(vec![(simple("a"), Value::Integer(1))])),
        ("|1\r\n+a\r\n:1\r\n~1\r\n+b\r\n", Value::Set(vec![simple("b")])),
    ] {
        assert_eq!(parsed(frame), Ok(expected), "{frame:?}");
    }
}

#[test]
fn a_reader_of_resp2_gets_the_same_in_its_own_words() {
    let value =
        parsed("*5\r\n%1\r\n+a\r\n,2.5\r\n~1\r\n#t\r\n_\r\n=6\r\ntxt:hi\r\n(12345678901234567890\r\n");
    let mut out = Vec::new();
    value.expect("well formed").write(false, &mut out);
    let expected =
        "*5\r\n*2\r\n+a\r\n$3\r\n2.5\r\n*1\r\n:1\r\n$-1\r\n$2\r\nhi\r\n$20\r\n12345678901234567890\r\n";
    assert_eq!(out.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
}

#[test]
fn malformed_replies_are_refused() {
    for reply in [
        "x\r\n",
        "\r\n",
        "$x\r\n",
        "$-2\r\n",
        "$99999999999\r\n",
        "*4294967296\r\n",
        "*x\r\n",
        "+a\n",
        "+\n",
        "\n",
        "$1\r\nabc\r\n",
        "$?\r\n",
    ] {
        assert!(ReplyScanner::new().scan(reply.as_bytes()).is_err(), "{reply:?}");
        assert!(parsed(reply).is_err(), "{reply:?}");
    }
    for reply in
        ["_x\r\n", "#x\r\n", ":x\r\n", ",x\r\n", "=2\r\nab\r\n", "+a\r\n+b\r\n", "", "*1\r\n", "*3\r\n:1\r\n"]
    {
        assert!(parsed(reply).is_err(), "{reply:?}");
    }
}

#[test]
fn deep_nesting_ends_the_reading_not_the_stack() {
    let deep = "*1\r\n".repeat(100_000) + ":1\r\n";
    assert_eq!(ReplyScanner::new().scan(deep.as_bytes()), Ok(Some(deep.len())));
    assert_eq!(parsed(&deep), Err(ProtocolError::ReplyDepth(128)));
    let attributes = "|0\r\n".repeat(100_000) + ":1\r\n";
    assert_eq!(parsed(&attributes), Err(ProtocolError::ReplyDepth(128)));
    assert!(parsed(&("*1\r\n".repeat(100) + ":1\r\n")).is_ok());
}

#[test]
fn counts_are_only_promises() {
    assert_eq!(ReplyScanner::new().scan(b"*2147483647\r\n"), Ok(None));
    assert_eq!(parsed("*2147483647\r\n"), Err(ProtocolError::FrameEnd));
    assert_eq!(parsed("%9223372036854775807\r\n"), Err(ProtocolError::FrameEnd));
    let promises = "%2147483647\r\n".repeat(1000);
    assert_eq!(ReplyScanner::new().scan(promises.as_bytes()), Ok(None));
}

fn line() -> impl Strategy<Value = Bytes> {
    "[ -~]{0,20}".prop_map(|text| Bytes::from(text.into_bytes()))
}

fn value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        line().prop_map(Value::Simple),
        line().prop_map(Value::Error),
        any::<i64>().prop_map(Value::Integer),
        prop::collection::vec(any::<u8>(), 0..30).prop_map(|bytes| Value::Bulk(bytes.into())),
        Just(Value::Null),
        (-1.0e6..1.0e6).prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        "-?[1-9][0-9]{20,40}".prop_map(|digits: String| Value::Big(digits.into())),
        line().prop_map(|text| Value::Verbatim([b"txt:", &text[..]].concat().into())),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let values = prop::collection::vec(inner.clone(), 0..6);
        prop_oneof![
            values.clone().prop_map(Value::Array),
            values.clone().prop_map(Value::Set),
            values.prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
    .boxed()
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn values_are_read_as_they_were_written(value in value(), step in 1usize..40) {
        let mut frame = Vec::new();
        value.write(true, &mut frame);
        assert_eq!(scanned(&frame, step), Ok(vec![frame.len()]));
        assert_eq!(handed_on(&frame, step), Ok(Some(frame.len())));
        assert_eq!(Value::parse(&frame.clone().into()), Ok(value.clone()));
        let mut resp2 = Vec::new();
        value.write(false, &mut resp2);
        assert_eq!(scanned(&resp2, step), Ok(vec![resp2.len()]));
        Value::parse(&resp2.into()).expect("well formed");
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(prop::sample::select(b"*$%~>|!=+-:,(_#\r\n0123tf.e".to_vec()), 0..200),
        step in 1usize..16,
    ) {
        let whole = scanned(&bytes, bytes.len().max(1));
        assert_eq!(scanned(&bytes, step).is_err(), whole.is_err());
        if let (Ok(ended), Ok(lengths)) = (handed_on(&bytes, step), &whole) {
            assert_eq!(ended, lengths.first().copied());
        }
        for length in 0..bytes.len() {
            let _ = Value::parse(&Bytes::copy_from_slice(&bytes[..length]));
        }
    }

    #[test]
    fn what_parses_scans_to_the_same_end(
        bytes in prop::collection::vec(prop::sample::select(b"*$%~>|:_\r\n012".to_vec()), 0..40),
    ) {
        if Value::parse(&Bytes::from(bytes.clone())).is_ok() {
            assert_eq!(ReplyScanner::new().scan(&bytes), Ok(Some(bytes.len())));
        }
    }
}

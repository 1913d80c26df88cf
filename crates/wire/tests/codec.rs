//! The byte layout: golden vectors, and decoders that take anything.

use bytes::Bytes;
use proptest::prelude::*;
use wire::header::HEADER_BYTES;
use wire::message::{
    Ack, Cancel, Changed, Commit, Credit, Deliver, EarlyValue, Evict, Execute, Fetch, Fill, Follow, Follows,
    Grant, Handover, HandoverAck, Heat, Hello, Invalidate, Leave, Offer, Part, Read, Refuse, Reject, Renew,
    Reply, Revoke, Revoked, SetDegree, Subscribe, Subscribers, Tenure, Track, Welcome, Window,
};
use wire::{
    DecodeError, Degree, Digest, Key, LayerSet, LoadStamp, Message, Status, TopicKind, View, decode, encode,
};

fn key() -> Key {
    let digest = Digest(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    Key { digest, database: 3, bytes: Bytes::from_static(b"key") }
}

/// One of each data message, with every field different from its neighbours.
fn samples() -> Vec<Message> {
    let command = Bytes::from_static(b"*2\r\n$4\r\nTYPE\r\n$3\r\nkey\r\n");
    let value = Bytes::from_static(b"$1\r\nv\r\n");
    let stamp = |node, load| LoadStamp { node_plus_one: node, load };
    let (key, view) = (key(), View(0x0102_0304_0506_0708));
    vec![
        Message::Read(Read {
            request: 1,
            key: key.clone(),
            view,
            resp3: true,
            ordered: true,
            streams: false,
            waited_ms: 0,
            degree: Degree::BASE,
            command: command.clone(),
        }),
        Message::Reply(Reply {
            request: 2,
            status: Status::Ok,
            hit: true,
            cached: LayerSet(0b1010),
            degree: Degree::BASE,
            loads: [stamp(1, 10), stamp(0, 0), stamp(3, 30), stamp(4, u32::MAX)],
            more: false,
            value: value.clone(),
        }),
        Message::Execute(Execute {
            request: 3,
            key: key.clone(),
            resp3: false,
            ordered: true,
            watch: None,
            waited_ms: 0,
            command: command.clone(),
        }),
        Message::Cancel(Cancel { request: 4 }),
        Message::Fetch(Fetch {
            session: 5,
            fill: 6,
            key: key.clone(),
            view,
            resp3: true,
            command: command.clone(),
        }),
        Message::Fill(Fill {
            session: 7,
            fill: 8,
            key: key.clone(),
            view,
            version: 9,
            granted: true,
            status: Status::Nil,
            cached: LayerSet(1),
            degree: Degree::BASE,
            ttl_ms: Some(1234),
            stale_ms: 0,
            value: value.clone(),
        }),
        Message::Offer(Offer { key: key.clone(), view, resp3: false, heat: 77, command }),
    ]
}

fn topic_samples() -> Vec<Message> {
    let push = Bytes::from_static(b">3\r\n$7\r\nmessage\r\n$3\r\nkey\r\n$1\r\nv\r\n");
    let name = key();
    vec![
        Message::Subscribe(Subscribe {
            request: 36,
            kind: TopicKind::Pattern,
            name: name.clone(),
            clients: 37,
        }),
        Message::Subscribers(Subscribers {
            kind: TopicKind::ShardChannel,
            name: name.clone(),
            clients: u32::MAX,
        }),
        Message::Deliver(Deliver { kind: TopicKind::Channel, name, push }),
    ]
}

fn control_samples() -> Vec<Message> {
    let value = Bytes::from_static(b"$1\r\nv\r\n");
    let key = key();
    vec![
        Message::Hello(Hello { number: 10, nonce: 11, process: 12 }),
        Message::Welcome(Welcome { session: 12, nonce: 13, lease: 14, guard: 15 }),
        Message::Reject(Reject { last: 14, nonce: 15 }),
        Message::Renew(Renew { session: 16, sent: 17, heat_floor: 18 }),
        Message::Grant(Grant { session: 19, sent: 20, duration: 21, guard: 22, leave: None }),
        Message::Refuse(Refuse { session: 22 }),
        Message::Invalidate(Invalidate {
            session: 23,
            key: key.clone(),
            version: 24,
            value: Some(EarlyValue { ttl_ms: None, value }),
        }),
        Message::Invalidate(Invalidate { session: 23, key: key.clone(), version: 24, value: None }),
        Message::Ack(Ack { session: 25, key: key.clone(), version: 26, nothing_held: Some(27) }),
        Message::Commit(Commit { session: 28, key: key.clone(), version: 29 }),
        Message::Evict(Evict { session: 30, key: key.clone(), fill: 31 }),
        Message::Revoke(Revoke { session: 32, number: 33, spares: false }),
        Message::Revoked(Revoked { session: 34, number: 35 }),
        Message::Window(Window { requests: 45 }),
        Message::Heat(Heat {
            session: 46,
            key: key.clone(),
            degree: Degree(4),
            permille: 47,
            hits: 48,
            invalidations: 49,
        }),
        Message::SetDegree(SetDegree { key, degree: Degree(3) }),
        Message::Handover(Handover { number: 50 }),
        Message::HandoverAck(HandoverAck { number: 51 }),
        Message::Tenure(Tenure { age: Some(52), routers: None }),
        Message::Tenure(Tenure { age: None, routers: None }),
    ]
}

fn tracking_samples() -> Vec<Message> {
    let words = Bytes::from_static(b"*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    vec![
        Message::Follow(Follow { request: Some(38), follows: true, writers: false, prefixes: words.clone() }),
        Message::Follow(Follow { request: None, follows: false, writers: true, prefixes: Bytes::new() }),
        Message::Track(Track { key: key() }),
        Message::Changed(Changed { writer: Some(39), keys: words }),
        Message::Changed(Changed { writer: None, keys: Bytes::new() }),
    ]
}

fn part_samples() -> Vec<Message> {
    let (command, value) = (Bytes::new(), Bytes::from_static(b"$9\r\nbeg"));
    let part = |follows, value: &'static [u8]| {
        Message::Part(Part { request: 42, follows, value: Bytes::from_static(value) })
    };
    vec![
        Message::Read(Read {
            request: 40,
            key: key(),
            view: View::GET,
            resp3: false,
            ordered: false,
            streams: true,
            waited_ms: 0,
            degree: Degree(5),
            command,
        }),
        Message::Reply(Reply { request: 41, more: true, value, degree: Degree(254), ..Reply::default() }),
        part(Follows::More, b"inn"),
        part(Follows::Nothing, b"ing\r\n"),
        part(Follows::Lost, b""),
        Message::Credit(Credit { request: 43, bytes: 44 }),
        Message::Tenure(Tenure { age: None, routers: Some(53) }),
    ]
}

fn all_samples() -> Vec<Message> {
    [samples(), control_samples(), topic_samples(), tracking_samples(), part_samples()].concat()
}

fn encoded(message: &Message) -> Bytes {
    let mut out = Vec::new();
    encode(message, &mut out);
    Bytes::from(out)
}

#[test]
fn the_layout_is_that_of_the_golden_vectors() {
    // A file for each release: those of releases that are out stay as they are.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/", env!("CARGO_PKG_VERSION"), ".txt");
    let lines: Vec<String> = all_samples().iter().map(|message| hex(&encoded(message))).collect();
    let text = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).expect("the vectors can be written");
    }
    let golden = std::fs::read_to_string(path)
        .expect("the vectors of this release are there: UPDATE_GOLDEN=1 writes them");
    for (index, (golden, line)) in golden.lines().zip(text.lines()).enumerate() {
        assert_eq!(golden, line, "message {index}: other releases would not understand it");
    }
    assert_eq!(golden.lines().count(), text.lines().count());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a release before this one has sent is understood, and would be sent just so.
#[test]
fn messages_of_every_release_are_understood() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let mut releases = 0;
    for file in std::fs::read_dir(folder).expect("the vectors are there") {
        let path = file.expect("an entry").path();
        releases += 1;
        for (index, line) in std::fs::read_to_string(&path).expect("vectors").lines().enumerate() {
            let digits = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
            let bytes: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect();
            let message = decode(&mut Bytes::from(bytes));
            let message =
                message.unwrap_or_else(|error| panic!("{}: message {index}: {error}", path.display()));
            let again = encoded(&message.expect("a whole message"));
            assert_eq!(hex(&again), line, "{}: message {index}", path.display());
        }
    }
    assert!(releases > 0);
}

#[test]
fn every_message_comes_back_and_leaves_what_follows_it() {
    let mut stream = Vec::new();
    all_samples().iter().for_each(|message| encode(message, &mut stream));
    let mut stream = Bytes::from(stream);
    for sample in all_samples() {
        assert_eq!(decode(&mut stream), Ok(Some(sample)));
    }
    assert_eq!(decode(&mut stream), Ok(None));
    assert!(stream.is_empty());
}

#[test]
fn a_part_of_a_message_is_not_a_message_and_stays() {
    for sample in all_samples() {
        let whole = encoded(&sample);
        for length in 0..whole.len() {
            let mut part = whole.slice(..length);
            assert_eq!(decode(&mut part), Ok(None), "{length} bytes of {sample:?}");
            assert_eq!(part.len(), length);
        }
    }
}

#[test]
fn strangers_and_other_versions_are_named() {
    let decode_changed = |offset: usize, byte: u8| {
        let mut bytes = encoded(&samples()[0]).to_vec();
        bytes[offset] = byte;
        decode(&mut Bytes::from(bytes)).unwrap_err()
    };
    assert!(decode_changed(0, b'G').to_string().contains("not a DistCache message"));
    assert!(decode_changed(2, 9).to_string().contains("protocol version 9 is not spoken here"));
    assert_eq!(decode_changed(3, 200), DecodeError::Operation(200));
    let mut topic = encoded(&topic_samples()[0]).to_vec();
    topic[71] = 3;
    assert_eq!(decode(&mut Bytes::from(topic)), Err(DecodeError::Topic(3)));
    let mut part = encoded(&part_samples()[2]).to_vec();
    part[6] = 3;
    assert_eq!(decode(&mut Bytes::from(part)), Err(DecodeError::Part(3)));
    assert!(
        matches!(decode_changed(44, 0xff), DecodeError::KeyBytes(_)),
        "checked before the bytes are there"
    );
    assert!(matches!(decode_changed(48, 0xff), DecodeError::ValueBytes(_)));
    let mut reply = encoded(&samples()[1]).to_vec();
    reply[6] = 9;
    assert_eq!(decode(&mut Bytes::from(reply)), Err(DecodeError::Status(9)));
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn random_bytes_are_refused_or_waited_for(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&mut Bytes::from(bytes));
    }

    #[test]
    fn a_damaged_header_is_a_message_or_an_error(
        sample in 0..all_samples().len(),
        offset in 0..HEADER_BYTES,
        byte in any::<u8>(),
    ) {
        let mut bytes = encoded(&all_samples()[sample]).to_vec();
        bytes[offset] = byte;
        let mut bytes = Bytes::from(bytes);
        if let Ok(Some(message)) = decode(&mut bytes) {
            let mut again = encoded(&message);
            prop_assert_eq!(decode(&mut again), Ok(Some(message)));
        }
    }
}

/// What releases before it do not know is where they look for nothing.
#[test]
fn what_may_be_stale_comes_back() {
    let fill = |stale_ms| match &samples()[5] {
        Message::Fill(fill) => Message::Fill(Fill { stale_ms, ..fill.clone() }),
        other => panic!("{other:?}"),
    };
    let grant = |leave| Message::Grant(Grant { session: 19, sent: 20, duration: 21, guard: 22, leave });
    let leave = Leave { duration: 60, unheard: 61 };
    let revoke = Message::Revoke(Revoke { session: 32, number: 33, spares: true });
    for sent in [fill(u64::MAX), grant(Some(leave)), revoke] {
        assert_eq!(decode(&mut encoded(&sent)), Ok(Some(sent)));
    }
}

#[test]
fn a_command_says_which_watch_it_belongs_to() {
    for watch in [None, Some(0), Some(7), Some(u64::MAX)] {
        let (request, key, command) = (7, Key::default(), Bytes::from_static(b"*1\r\n$4\r\nEXEC\r\n"));
        let sent = Message::Execute(Execute {
            request,
            key,
            resp3: false,
            ordered: false,
            watch,
            waited_ms: 0,
            command,
        });
        let mut out = Vec::new();
        encode(&sent, &mut out);
        assert_eq!(decode(&mut Bytes::from(out)), Ok(Some(sent)));
    }
}

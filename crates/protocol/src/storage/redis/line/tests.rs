//! What a line makes of replies that are large or small. Not how lines are made.

use super::*;

fn waiting_for(ticket: u64) -> Line {
    let mut line = Line {
        resp3: false,
        has_user: true,
        listens: None,
        phase: Phase::Open,
        client: None,
        scanner: ReplyScanner::new(),
        flow: Flow::Whole { told: false },
        awaited: VecDeque::new(),
        waiting: VecDeque::new(),
        written: 0,
        heard: Time(0),
        suspicion: false,
        retired: None,
        runs_scripts: false,
        watch: None,
        reports_to: None,
    };
    let commands = [Bytes::from_static(b"*1\r\n$4\r\nPING\r\n")].into_iter().collect();
    let lane = Lane::Shared { resp3: false };
    line.store(Time(0), Store { ticket, lane, reach: Reach::Whole, commands }, &mut Vec::new());
    line
}

fn bulk(bytes: usize) -> Vec<u8> {
    [format!("${bytes}\r\n").as_bytes(), &vec![b'v'; bytes], b"\r\n"].concat()
}

fn data(line: &mut Line, bytes: &mut Bytes) -> Vec<StorageEvent> {
    let mut events = Vec::new();
    line.data(Time(0), bytes, &mut Vec::new(), &mut events).expect("a healthy line");
    events
}

#[test]
fn a_large_reply_is_told_of_even_if_it_comes_at_once() {
    let large = bulk(LARGE_REPLY_BYTES);
    let told = |line: &mut Line, bytes: &mut Bytes| {
        assert_eq!(data(line, bytes), [StorageEvent::Large { ticket: 7 }]);
        assert_eq!(bytes.len(), large.len(), "nothing is taken before it is decided what becomes of it");
    };
    // Nobody wants anything else: it is whole.
    let (mut line, mut bytes) = (waiting_for(7), Bytes::from(large.clone()));
    told(&mut line, &mut bytes);
    let replies = [Bytes::from(large.clone())].into_iter().collect();
    assert_eq!(data(&mut line, &mut bytes), [StorageEvent::Replies { ticket: 7, replies }]);
    // Skipped.
    let (mut line, mut bytes) = (waiting_for(7), Bytes::from(large.clone()));
    told(&mut line, &mut bytes);
    assert!(line.skip(7));
    assert_eq!((data(&mut line, &mut bytes), bytes.len(), line.is_idle()), (vec![], 0, true));
}

#[test]
fn parts_are_no_larger_than_what_was_asked_for() {
    let (mut line, mut bytes) = (waiting_for(7), Bytes::from(bulk(LARGE_REPLY_BYTES)));
    let whole = bytes.len();
    data(&mut line, &mut bytes);
    assert!(line.take(7, 1000));
    let events = data(&mut line, &mut bytes);
    assert!(matches!(&events[..], [StorageEvent::Part { bytes, last: false, .. }] if bytes.len() == 1000));
    assert!(line.is_full() && data(&mut line, &mut bytes).is_empty());
    assert!(line.take(7, 1 << 30) && !line.is_full());
    let events = data(&mut line, &mut bytes);
    let rest = whole - 1000;
    assert!(matches!(&events[..], [StorageEvent::Part { bytes, last: true, .. }] if bytes.len() == rest));
    assert!(line.is_idle());
}

/// Else it would be read on without bound, and nothing would begin it again once all had come.
#[test]
fn it_is_full_where_the_next_length_does_not_fit_the_window() {
    let element = "$5\r\n12345\r\n";
    let list = format!("*{}\r\n{}", 1 << 17, element.repeat(1 << 17));
    let header = list.len() - (element.len() << 17);
    for rest in 0..4 {
        let (mut line, mut bytes) = (waiting_for(7), Bytes::from(list.clone()));
        data(&mut line, &mut bytes);
        let window = header + element.len() + rest;
        assert!(line.take(7, window as u64));
        let events = data(&mut line, &mut bytes);
        let handed = |bytes: usize| matches!(&events[..], [StorageEvent::Part { bytes: part, .. }] if part.len() == bytes);
        assert!(handed(window - rest), "{rest}: {events:?}");
        assert!(line.is_full() && data(&mut line, &mut bytes).is_empty(), "{rest}");
        assert!(line.take(7, element.len() as u64) && !line.is_full(), "{rest}");
        assert_eq!(data(&mut line, &mut bytes).len(), 1, "{rest}: it goes on");
    }
}

#[test]
fn a_small_reply_is_just_given() {
    let (mut line, mut bytes) = (waiting_for(7), Bytes::from(bulk(LARGE_REPLY_BYTES - 12)));
    assert_eq!(bytes.len(), LARGE_REPLY_BYTES);
    let replies = [bytes.clone()].into_iter().collect();
    assert_eq!(data(&mut line, &mut bytes), [StorageEvent::Replies { ticket: 7, replies }]);
}

//! Commands as they arrive: in pieces, pipelined, malformed, hostile.

use bytes::Bytes;
use proptest::prelude::{Strategy, any, prop, proptest};
use wire::resp::{Command, ProtocolError, RespLimits, RespTaken, next_command, take_command};

fn taken(mut buffer: Bytes, limits: &RespLimits) -> (Vec<Command>, Result<usize, ProtocolError>) {
    let mut commands = Vec::new();
    loop {
        match take_command(&mut buffer, limits) {
            Ok(Some(command)) => commands.push(command),
            Ok(None) => return (commands, Ok(buffer.len())),
            Err(error) => return (commands, Err(error)),
        }
    }
}

/// Feeds `stream` in pieces of `step` bytes, as a connection would.
fn taken_in_pieces(stream: &[u8], step: usize, limits: &RespLimits) -> Result<Vec<Command>, ProtocolError> {
    let mut commands = Vec::new();
    let mut held = Vec::new();
    for piece in stream.chunks(step) {
        held.extend_from_slice(piece);
        let mut buffer = Bytes::from(held);
        while let Some(command) = take_command(&mut buffer, limits)? {
            commands.push(command);
        }
        held = buffer.to_vec();
    }
    Ok(commands)
}

const STREAM: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n\r\n  \n*0\r\n*-1\r\nSET k \"a b\"\n\
    *3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n";

/// As the router reads: it asks again only when there are as many bytes as were said to be needed.
fn error_of_a_patient_reader(stream: &[u8], step: usize) -> Option<ProtocolError> {
    let (mut held, mut needed) = (Vec::new(), 1);
    for piece in stream.chunks(step) {
        held.extend_from_slice(piece);
        if held.len() < needed {
            continue;
        }
        let mut buffer = Bytes::from(held);
        loop {
            match next_command(&mut buffer, &RespLimits::default()) {
                Ok(RespTaken::Command(_)) => {}
                Ok(RespTaken::Needs(bytes)) => break needed = bytes,
                Err(error) => return Some(error),
            }
        }
        held = buffer.to_vec();
    }
    None
}

#[test]
fn a_mistake_is_told_although_the_client_sends_no_more() {
    let cases: [(&[u8], ProtocolError); 5] = [
        (b"*3\r\n$3\r\nSET\r\n:", ProtocolError::BulkExpected(b':')),
        (b"*3\r\n$3\r\nSET\r\n$x\r\n", ProtocolError::BulkLength),
        (b"*5\r\n$-1\r\n", ProtocolError::BulkLength),
        (b"*5\r\n$3\r\nGETxx", ProtocolError::LineEnd),
        (b"PING\r\n*x\r\n", ProtocolError::MultibulkLength),
    ];
    for (stream, error) in cases {
        for step in 1..=stream.len() {
            let told = error_of_a_patient_reader(stream, step);
            assert_eq!(told, Some(error), "{} by {step}", stream.escape_ascii());
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_so_however_it_is_cut() {
    let limits = RespLimits { line_bytes_max: 24, ..RespLimits::default() };
    let nines = "9".repeat(30);
    for (stream, error) in [
        (format!("*{nines}\r\n"), ProtocolError::MultibulkLine),
        (format!("*1\r\n${nines}\r\n"), ProtocolError::BulkLine),
        (format!("{nines}\r\n"), ProtocolError::InlineLine),
        (format!("*{}\r\n", &nines[..20]), ProtocolError::MultibulkLength),
    ] {
        for step in 1..=stream.len() {
            assert_eq!(taken_in_pieces(stream.as_bytes(), step, &limits), Err(error), "{stream:?} by {step}");
        }
    }
}

#[test]
fn a_stream_gives_the_same_commands_however_it_is_cut() {
    let expected: Vec<Command> = vec![
        Command::from_args(&["GET", "k"]),
        Command::from_args(&["PING"]),
        Command::from_args(&["SET", "k", "a b"]),
        Command::from_args(&["SET", "", "*1\r\n$4\r\nPING"]),
        Command::from_args(&["QUIT"]),
    ];
    for step in 1..=STREAM.len() {
        assert_eq!(
            taken_in_pieces(STREAM, step, &RespLimits::default()).as_ref(),
            Ok(&expected),
            "step {step}"
        );
    }
    for cut in 0..STREAM.len() {
        let mut buffer = Bytes::from_static(&STREAM[..cut]);
        let mut commands = Vec::new();
        while let Some(command) = take_command(&mut buffer, &RespLimits::default()).expect("well formed") {
            commands.push(command);
        }
        let mut rest = Bytes::from([&buffer[..], &STREAM[cut..]].concat());
        while let Some(command) = take_command(&mut rest, &RespLimits::default()).expect("well formed") {
            commands.push(command);
        }
        assert_eq!(commands, expected, "cut at {cut}");
    }
}

#[test]
fn malformed_streams_get_the_texts_of_redis() {
    let long_line = [b"*".as_slice(), &vec![b'1'; 70_000]].concat();
    let long_bulk_line = [b"*1\r\n$".as_slice(), &vec![b'1'; 70_000]].concat();
    for (stream, text) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n\n", "expected '$', got ' '"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$1x\r\n", "invalid bulk length"),
        (b"*1\r\n$1\r\nab\r\n", "expected CRLF after bulk"),
        (b"SET k \"v\r\n", "unbalanced quotes in request"),
        (&[b'a'; 70_000], "too big inline request"),
        (&long_line, "too big mbulk count string"),
        (&long_bulk_line, "too big bulk count string"),
    ] {
        let (commands, end) = taken(Bytes::copy_from_slice(stream), &RespLimits::default());
        assert!(commands.is_empty());
        let shown = stream[..stream.len().min(40)].escape_ascii();
        assert_eq!(end.map_err(|error| error.to_string()), Err(format!("Protocol error: {text}")), "{shown}");
    }
}

#[test]
fn commands_before_an_error_are_taken() {
    let (commands, end) =
        taken(Bytes::from_static(b"PING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n+"), &RespLimits::default());
    assert_eq!(commands, [Command::from_args(&["PING"]), Command::from_args(&["QUIT"])]);
    assert_eq!(end, Err(ProtocolError::BulkExpected(b'+')));
}

#[test]
fn the_largest_lengths_are_only_promises() {
    let limits = RespLimits::default();
    for (header, needed) in [
        ("*1\r\n$536870912\r\n", 16 + 536_870_912 + 2),
        ("*2\r\n$3\r\nGET\r\n$536870912\r\n", 25 + 536_870_912 + 2),
        // The next byte may show a mistake.
        ("*1048576\r\n", 10 + 1),
    ] {
        let taken = next_command(&mut Bytes::copy_from_slice(header.as_bytes()), &limits);
        assert_eq!(taken, Ok(RespTaken::Needs(needed)), "{header:?}");
    }
    let two = b"*2\r\n$536870912\r\n";
    assert_eq!(taken(Bytes::from_static(two), &limits).1, Ok(two.len()));
    let small = RespLimits { frame_bytes_max: 1000, ..limits };
    assert_eq!(taken(Bytes::from_static(b"*2\r\n$990\r\n"), &small).1, Err(ProtocolError::FrameBytes(1000)));
}

#[test]
fn strangers_get_little() {
    let stranger = RespLimits { authenticated: false, ..RespLimits::default() };
    for (stream, error) in [
        (&b"*11\r\n"[..], ProtocolError::UnauthenticatedMultibulkLength),
        (b"*1\r\n$16385\r\n", ProtocolError::UnauthenticatedBulkLength),
    ] {
        assert_eq!(taken(Bytes::copy_from_slice(stream), &stranger).1, Err(error));
        assert_eq!(taken(Bytes::copy_from_slice(stream), &RespLimits::default()).1, Ok(stream.len()));
    }
    assert_eq!(taken(Bytes::from_static(b"*10\r\n$16384\r\n"), &stranger).1, Ok(13));
}

#[test]
fn a_caller_that_waits_for_what_is_needed_reads_in_few_attempts() {
    let args: Vec<String> = (0..100_000).map(|index| format!("argument-{index}")).collect();
    let whole = Command::from_args(&args);
    let frame = whole.frame();
    let (mut needed, mut attempts) = (1, 0);
    for packet in 1.. {
        let arrived = (packet * 1460).min(frame.len());
        if arrived < needed {
            continue;
        }
        attempts += 1;
        match next_command(&mut frame.slice(..arrived), &RespLimits::default()).expect("well formed") {
            RespTaken::Command(command) => {
                assert_eq!(command, whole);
                break;
            }
            RespTaken::Needs(bytes) => {
                assert!(arrived < bytes && bytes <= frame.len(), "{arrived} < {bytes} <= {}", frame.len());
                needed = bytes;
            }
        }
    }
    assert!(attempts < 60, "{attempts} attempts");
}

fn arguments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12)
}

/// Bytes that look enough like RESP to get past the first checks.
fn nearly_resp() -> impl Strategy<Value = Vec<u8>> {
    let alphabet = prop::sample::select(b"*$\r\n0123456789-:+_#,(=%~>|!tfab\"'\\x ".to_vec());
    prop::collection::vec(alphabet, 0..200)
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn commands_are_read_as_they_were_written(commands in prop::collection::vec(arguments(), 1..6), step in 1usize..64) {
        let commands: Vec<Command> = commands.iter().map(|args| Command::from_args(args)).collect();
        let stream: Vec<u8> = commands.iter().flat_map(|command| command.frame().to_vec()).collect();
        assert_eq!(taken(Bytes::from(stream.clone()), &RespLimits::default()), (commands.clone(), Ok(0)));
        assert_eq!(taken_in_pieces(&stream, step, &RespLimits::default()), Ok(commands));
    }

    #[test]
    fn what_is_needed_is_never_more_than_the_command_has(args in arguments()) {
        let frame = Command::from_args(&args).frame().clone();
        for cut in 0..frame.len() {
            match next_command(&mut frame.slice(..cut), &RespLimits::default()) {
                Ok(RespTaken::Needs(bytes)) => assert!(cut < bytes && bytes <= frame.len(), "cut at {cut}"),
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn random_bytes_never_panic_and_read_the_same_in_pieces(bytes in nearly_resp(), step in 1usize..16) {
        let (commands, end) = taken(Bytes::from(bytes.clone()), &RespLimits::default());
        for command in &commands {
            assert_eq!(Command::parse(command.frame().clone()).as_ref(), Ok(command));
        }
        // The commands before an error are the same too, but the error ends the other reading.
        if end.is_ok() {
            assert_eq!(taken_in_pieces(&bytes, step, &RespLimits::default()), Ok(commands));
        } else {
            assert_eq!(taken_in_pieces(&bytes, step, &RespLimits::default()).err(), end.err());
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = taken(Bytes::from(bytes.clone()), &RespLimits::default());
        let _ = Command::parse(Bytes::from([b"*2\r\n$", &bytes[..]].concat()));
    }
}

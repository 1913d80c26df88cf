//! The front door over real sockets: framing, limits, backpressure, the end of connections and of the router.

use std::io::{ErrorKind, Read, Write};

use runtime::status::RouterStatus;

use crate::stage::Stage;

#[test]
fn pipelined_commands_are_answered_in_order_however_they_are_cut() {
    let stage = Stage::new(|_| {});
    let mut client = stage.connect();
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\nGET a\r\nPING\r\nGET b\r\nINCR n\r\nGET n\r\n";
    let expected = "+OK\r\n$5\r\nhello\r\n+PONG\r\n$-1\r\n:1\r\n$1\r\n1\r\n";
    client.send(bytes);
    client.expect(expected);
    for byte in bytes {
        client.send(&[*byte]);
    }
    client.expect("+OK\r\n$5\r\nhello\r\n+PONG\r\n$-1\r\n:2\r\n$1\r\n2\r\n");
}

#[test]
fn resp3_is_per_connection() {
    let stage = Stage::new(|_| {});
    let (mut two, mut three) = (stage.connect(), stage.connect());
    three.send(b"HELLO 3\r\nGET nothing\r\n");
    assert_eq!(three.line(), "%7");
    (0..24).for_each(|_| drop(three.line()));
    two.send(b"GET nothing\r\n");
    two.expect("$-1\r\n");
    let mut rest = String::new();
    while !rest.ends_with('_') {
        rest = three.line();
    }
}

#[test]
fn nonsense_is_told_after_the_earlier_replies_and_ends_the_connection() {
    let stage = Stage::new(|_| {});
    let mut client = stage.connect();
    client.send(b"SET k 1\r\nGET k\r\n*1\r\n:3\r\nGET k\r\n");
    client.expect("+OK\r\n$1\r\n1\r\n-ERR Protocol error: expected '$', got ':'\r\n");
    client.expect_end();
    let mut client = stage.connect();
    client.send(b"GET k\r\nQUIT\r\nGET k\r\n");
    client.expect("$1\r\n1\r\n+OK\r\n");
    client.expect_end();
}

#[test]
fn frames_and_keys_beyond_the_limits_are_refused() {
    let stage = Stage::new(|config| {
        config.limits.command_bytes_max = config::ByteSize(4096);
        config.limits.key_bytes_max = config::ByteSize(16);
    });
    let mut client = stage.connect();
    client.send(b"GET a-key-of-more-than-16-bytes\r\nPING\r\n");
    client.expect("-ERR DistCache: a key of 27 bytes is over the limit of 16\r\n+PONG\r\n");
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5000\r\n");
    assert!(client.line().starts_with("-ERR Protocol error: "));
    client.expect_end();
}

#[test]
fn clients_beyond_the_maximum_are_told_so() {
    let stage = Stage::new(|config| config.limits.clients_max = 2);
    let (mut first, mut second) = (stage.connect_raw(), stage.connect_raw());
    first.send(b"PING\r\n");
    first.expect("+PONG\r\n");
    second.send(b"PING\r\n");
    second.expect("+PONG\r\n");
    let mut third = stage.connect_raw();
    third.expect("-ERR max number of clients reached\r\n");
    third.expect_end();
    drop(second);
    stage.status(|status| status.clients == 1 && status.clients_refused_total == 1);
    let mut third = stage.connect_raw();
    third.send(b"PING\r\n");
    third.expect("+PONG\r\n");
}

/// A client that waits for something is not idle.
#[test]
fn silent_clients_are_closed_and_those_that_block_are_not() {
    let stage = Stage::new(|config| config.limits.client_idle_ms_max = 100);
    let mut blocked = stage.connect();
    blocked.send(b"BLPOP queue 0\r\n");
    stage.status(|status| status.statistics.queue_depth == 1);
    let mut idle = stage.connect();
    idle.expect_end();
    stage.status(|status| status.clients == 1 && status.statistics.queue_depth == 1);
}

#[test]
fn a_client_that_sends_and_does_not_read_is_held_back_and_loses_nothing() {
    let stage = Stage::new(|config| config.limits.pipeline_max = 64);
    let mut client = stage.connect();
    let value = "v".repeat(100_000);
    client.send(format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n{value}\r\n", value.len()).as_bytes());
    client.expect("+OK\r\n");
    // 400 MB of replies: far more than the router may pile up for one client.
    let count = 4_000;
    let mut sender = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        (0..count).for_each(|_| sender.write_all(b"GET big\r\nPING\r\n").unwrap());
    });
    stage.status(|status| status.statistics.requests > 50);
    let expected = format!("${}\r\n{value}\r\n+PONG\r\n", value.len());
    for _ in 0..count {
        client.expect(&expected);
    }
    sending.join().unwrap();
    assert_eq!(stage.status(|_| true).sheds_total["slow_client"], 0);
}

/// A client whose commands and replies are more than sockets and the router's output hold.
struct Flood {
    commands: Vec<u8>,
    replies: Vec<u8>,
}

impl Flood {
    const COMMANDS: usize = 40_000;

    fn new() -> Flood {
        let (mut commands, mut replies) = (Vec::new(), Vec::new());
        let mut value = String::new();
        for index in 0..Flood::COMMANDS {
            // Longer than their replies at times, and shorter at others.
            let key = format!("{:0200}", index / 100);
            if index % 100 == 0 {
                let width = 500 + index % 1000;
                value = format!("{index:0width$}");
                let bytes = value.len();
                let set = format!("*3\r\n$3\r\nSET\r\n$200\r\n{key}\r\n${bytes}\r\n{value}\r\n");
                commands.extend_from_slice(set.as_bytes());
                replies.extend_from_slice(b"+OK\r\n");
            } else {
                commands.extend_from_slice(format!("GET {key}\r\n").as_bytes());
                replies.extend_from_slice(format!("${}\r\n{value}\r\n", value.len()).as_bytes());
            }
        }
        Flood { commands, replies }
    }
}

#[test]
fn a_client_may_send_everything_before_it_reads_anything() {
    let stage = Stage::new(|_| {});
    let flood = Flood::new();
    let (mut half, mut client) = (stage.connect(), stage.connect());
    half.send(b"*2\r\n$3\r\nGET\r\n$1");
    client.send(&flood.commands);
    // The next are not behind it.
    half.send(b"\r\nk\r\n");
    half.expect("$-1\r\n");
    // It may say at once that nothing more comes.
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut replies = vec![0; flood.replies.len()];
    client.stream.read_exact(&mut replies).unwrap();
    assert!(replies == flood.replies, "a byte is wrong");
    client.expect_end();
    assert_eq!(stage.status(|status| status.clients == 1).sheds_total["slow_client"], 0);
}

/// While the members are what is waited for, a client is not read ahead of them: else many that write much at once would
/// be closed for what they hold.
#[test]
fn a_client_that_writes_faster_than_storage_waits_and_is_not_closed() {
    let bytes_max = config::ByteSize(8 << 20);
    let stage = Stage::new(|config| config.limits.client_buffers_bytes_max = bytes_max);
    let mut client = stage.connect();
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n{}\r\n", "v".repeat(1000));
    let count = 40_000;
    client.send(set.repeat(count).as_bytes());
    client.expect(&"+OK\r\n".repeat(count));
    let sheds = stage.status(|_| true).sheds_total;
    assert_eq!((sheds["client_memory"], sheds["slow_client"]), (0, 0));
}

#[test]
fn a_client_that_never_reads_is_told_so_and_closed() {
    let stage = Stage::new(|config| {
        config.limits.client_input_bytes_max = config::ByteSize(64 << 10);
    });
    let flood = Flood::new();
    let mut client = stage.connect();
    // It blocks until the router has given up on it, and throws away what else it sends.
    client.send(&flood.commands);
    client.send(&flood.commands);
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).unwrap();
    let told = rest.iter().rposition(|byte| *byte == b'-').unwrap();
    let (replies, told) = rest.split_at(told);
    let line = std::str::from_utf8(told).unwrap();
    assert!(
        line.starts_with("-ERR DistCache: closed: ") && line.ends_with("client_input_bytes_max)\r\n"),
        "{line}"
    );
    assert!(!replies.is_empty() && flood.replies.repeat(2).starts_with(replies), "a byte is wrong");
    let status = stage.status(|status| status.clients == 0);
    assert_eq!(status.sheds_total["slow_client"], 1);
    stage.connect().send(b"PING\r\n");
}

#[test]
fn what_is_kept_ends_with_its_client_or_with_the_router() {
    let mut stage = Stage::new(|_| {});
    let flood = Flood::new();
    let (mut gone, mut there) = (stage.connect(), stage.connect());
    gone.send(&flood.commands);
    drop(gone);
    stage.status(|status| status.clients == 1);
    there.send(&flood.commands);
    stage.stop.stop();
    let mut replies = Vec::new();
    match there.stream.read_to_end(&mut replies) {
        Ok(_) => {}
        // Commands that the router had not read when it stopped.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(flood.replies.starts_with(&replies), "a byte is wrong");
    assert!(stage.router.take().unwrap().join());
}

#[test]
fn the_clients_that_hold_the_most_memory_have_to_go() {
    let bytes_max = config::ByteSize(4 << 20);
    let stage = Stage::new(|config| config.limits.client_buffers_bytes_max = bytes_max);
    let mut good = stage.connect();
    let half = [b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$9000000\r\n".as_slice(), &vec![b'v'; 1 << 20]].concat();
    // Half a command each, of sizes that grow: the cap is passed by the last of them.
    let mut hoarders: Vec<_> = (0..3).map(|_| stage.connect()).collect();
    hoarders.iter_mut().for_each(|hoarder| hoarder.send(&half));
    let mut largest = stage.connect();
    largest.send(&[&half[..], &vec![b'v'; 6 << 20]].concat());
    stage.status(|status| status.sheds_total.get("client_memory").is_some_and(|count| *count >= 1));
    let told = largest.line();
    assert!(told.starts_with("-ERR DistCache: closed: all clients of the router held "), "{told}");
    assert!(told.contains("client_buffers_bytes_max is 4MiB"), "{told}");
    largest.expect_end();
    good.send(b"SET k 1\r\nGET k\r\n");
    good.expect("+OK\r\n$1\r\n1\r\n");
}

#[test]
fn stopping_answers_what_is_in_flight_and_gives_up_what_blocks() {
    let mut stage = Stage::new(|_| {});
    let (mut idle, mut blocked, mut busy) = (stage.connect(), stage.connect(), stage.connect());
    blocked.send(b"BLPOP queue 0\r\n");
    busy.send(b"SET k 1\r\nGET k\r\n");
    busy.expect("+OK\r\n$1\r\n1\r\n");
    stage.status(|status| status.statistics.queue_depth == 1);
    stage.stop.stop();
    idle.expect_end();
    blocked.expect_end();
    assert!(stage.router.take().unwrap().join());
}

#[test]
fn the_status_has_real_numbers() {
    let stage = Stage::new(|_| {});
    let mut client = stage.connect();
    client.send(b"SET k 1\r\nGET k\r\nNOSUCH\r\n");
    client.expect("+OK\r\n$1\r\n1\r\n-ERR unknown command 'NOSUCH'");
    // What was refused before the shim was linked counts as well.
    let all = |status: &RouterStatus| {
        status.statistics.errors >= 1 && status.latency.count >= 4 && status.statistics.reads_to_shims >= 1
    };
    let status = stage.status(all);
    assert_eq!(
        (status.statistics.reads_to_shims, status.statistics.reads_to_nodes, status.links.peers),
        (1, 0, 1)
    );
    assert!(status.statistics.requests >= 4 && status.latency.count >= 4 && status.clients == 1);
}

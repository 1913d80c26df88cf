//! The load generator against small servers that misbehave on purpose, and against a real one.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use runtime::reactor::Address;
use runtime::stop::Stop;
use trace::Workload;
use wire::resp::{Command, RespLimits, take_command};

use super::plan::{BenchLength, BenchOutcome, BenchPlan, Ending, Live, Pace, RequestEnd};
use super::requests::{LoadedKeys, Requests, WorkloadRounds};
use super::target::{self, BenchTarget};
use super::{Arrivals, Frames, drive, load};

/// What a server does with request number `n` (from 0): a reply, or nothing to close the connection.
type Answer = Box<dyn FnMut(u64, &Command) -> Option<Vec<u8>> + Send>;

/// Serves RESP on a free port until the test process ends.
fn server(answer: impl FnMut(u64, &Command) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let state: Arc<Mutex<(u64, Answer)>> = Arc::new(Mutex::new((0, Box::new(answer))));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = Arc::clone(&state);
            std::thread::spawn(move || serve(stream, &state));
        }
    });
    address
}

fn serve(mut stream: TcpStream, state: &Mutex<(u64, Answer)>) -> Option<()> {
    let mut buffer = BytesMut::new();
    let mut chunk = [0; 4096];
    loop {
        let mut frames = buffer.split().freeze();
        while let Some(command) = take_command(&mut frames, &RespLimits::default()).ok()? {
            let mut state = state.lock().ok()?;
            let number = state.0;
            state.0 += 1;
            let reply = (state.1)(number, &command)?;
            stream.write_all(&reply).ok()?;
        }
        buffer.extend_from_slice(&frames);
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
        buffer.extend_from_slice(&chunk[..count]);
    }
}

fn ok() -> Option<Vec<u8>> {
    Some(b"+OK\r\n".to_vec())
}

fn plan(address: SocketAddr, length: BenchLength) -> BenchPlan {
    BenchPlan {
        target: BenchTarget::plain(Address::Tcp(address)),
        connections: 1,
        pipeline: 1,
        pace: Pace::Closed,
        warmup: Duration::ZERO,
        length,
        slice: None,
    }
}

fn mix(keys: u64) -> Requests {
    let distribution = "uniform".parse().expect("a distribution");
    let workload = Workload { keys, distribution, write_ratio: 0.0, value_bytes: 8, seed: 1 };
    Requests::Mix(workload.requests(0).expect("a valid workload"))
}

fn run(plan: &BenchPlan) -> anyhow::Result<BenchOutcome> {
    drive(plan, mix(100), &Frames::new(8, 1), &Live::default(), &Stop::new(), &mut |_| {})
}

const STALL: Duration = Duration::from_millis(400);

fn stalling_server() -> SocketAddr {
    server(|number, _| {
        if number == 100 {
            let start = Instant::now();
            while start.elapsed() < STALL {
                std::thread::park_timeout(STALL);
            }
        }
        ok()
    })
}

/// 500 requests due in two seconds, 100 of them while the server stalls: each waits for the rest of the stall. So few that a busy
/// machine, too, catches up at once.
#[test]
fn an_open_loop_counts_a_stall_for_every_request_that_was_due_in_it() {
    for pipeline in [1, 500] {
        let plan = BenchPlan {
            pace: Pace::Even(250.0),
            pipeline,
            ..plan(stalling_server(), BenchLength::Requests(500))
        };
        let outcome = run(&plan).expect("the server is there");
        let summary = outcome.tally.summary();
        assert_eq!((summary.requests, outcome.ending), (500, Ending::Done));
        assert!(summary.latency_us.max >= 390_000, "{summary:?}");
        // A tenth of all requests became due in the first half of the stall.
        assert!(summary.latency_us.p90 >= 190_000, "{summary:?}");
        assert!(summary.latency_us.p50 < 190_000, "{summary:?}");
    }
}

#[test]
fn a_closed_loop_sees_the_same_stall_once() {
    let plan = plan(stalling_server(), BenchLength::Requests(1_000));
    let summary = run(&plan).expect("the server is there").tally.summary();
    assert_eq!(summary.requests, 1_000);
    assert!(summary.latency_us.max >= 390_000 && summary.latency_us.p90 < 250_000, "{summary:?}");
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let address = server(|_, _| ok());
    let plan = BenchPlan {
        pace: Pace::Even(2_000.0),
        connections: 7,
        ..plan(address, BenchLength::Time(Duration::from_millis(500)))
    };
    let outcome = run(&plan).expect("the server is there");
    // The first request is due at once, the last one just before the end.
    assert_eq!(outcome.tally.requests + outcome.tally.unanswered, 1_000);
}

#[test]
fn the_warmup_is_not_counted() {
    let seen = Arc::new(Mutex::new(0));
    let address = server({
        let seen = Arc::clone(&seen);
        move |number, _| {
            *seen.lock().expect("not poisoned") = number + 1;
            if number < 100 { Some(b"-ERR cold\r\n".to_vec()) } else { ok() }
        }
    });
    let plan = BenchPlan {
        pace: Pace::Even(1_000.0),
        warmup: Duration::from_millis(200),
        ..plan(address, BenchLength::Requests(100))
    };
    let tally = run(&plan).expect("the server is there").tally;
    assert_eq!((tally.requests, tally.errors), (100, 0));
    assert_eq!(*seen.lock().expect("not poisoned"), 300);
    assert!(tally.elapsed < Duration::from_millis(250), "{:?}", tally.elapsed);
}

#[test]
fn error_replies_are_counted_and_quoted() {
    let address = server(|number, _| match number % 10 {
        0 => Some(b"-ERR every tenth\r\n".to_vec()),
        _ => Some(b"$3\r\na-b\r\n".to_vec()),
    });
    let plan = BenchPlan { connections: 3, pipeline: 4, ..plan(address, BenchLength::Requests(1_000)) };
    let tally = run(&plan).expect("the server is there").tally;
    assert_eq!((tally.requests, tally.errors), (1_000, 100));
    assert_eq!(tally.texts, ["-ERR every tenth"]);
}

#[test]
fn broken_connections_are_counted_and_replaced() {
    let address = server(|number, _| if number == 50 { None } else { ok() });
    let plan = BenchPlan { pipeline: 4, ..plan(address, BenchLength::Requests(200)) };
    let outcome = run(&plan).expect("the server is there");
    let tally = outcome.tally;
    assert_eq!(outcome.ending, Ending::Done);
    assert!((1..=4).contains(&tally.lost), "{}", tally.lost);
    assert_eq!(tally.requests + tally.lost, 200);
    assert!(tally.texts[0].starts_with("connection lost"), "{:?}", tally.texts);
}

#[test]
fn requests_without_reply_are_counted_when_the_run_is_stopped() {
    let stop = Stop::new();
    let address = server({
        let stop = stop.clone();
        move |number, _| {
            if number < 10 {
                return ok();
            }
            if number == 13 {
                stop.stop();
            }
            Some(Vec::new())
        }
    });
    let plan = BenchPlan { pipeline: 4, ..plan(address, BenchLength::Time(Duration::from_secs(60))) };
    let outcome = drive(&plan, mix(10), &Frames::new(8, 1), &Live::default(), &stop, &mut |_| {});
    let outcome = outcome.expect("the server is there");
    assert_eq!(outcome.ending, Ending::Stopped);
    assert_eq!((outcome.tally.requests, outcome.tally.unanswered), (10, 4));
}

#[test]
fn a_server_that_is_not_there_is_one_clear_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let error = run(&plan(address, BenchLength::Requests(1))).err().expect("nobody listens").to_string();
    assert!(error.contains(&address.to_string()) && error.contains("is the server running"), "{error}");
    let error =
        run(&plan(server(|_, _| Some(b"HTTP/1.1 400 Bad Request\r\n".to_vec())), BenchLength::Requests(1)));
    assert!(format!("{:#}", error.err().expect("no RESP")).contains("this speaks HTTP"));
}

#[test]
fn loading_writes_every_key_and_repeats_those_for_which_the_server_was_busy() {
    let keys = Arc::new(Mutex::new(HashSet::<Bytes>::new()));
    let address = server({
        let keys = Arc::clone(&keys);
        move |number, command| {
            if number % 7 == 3 && number < 3_000 {
                return Some(b"-BUSY later\r\n".to_vec());
            }
            assert_eq!((command.name(), command.arg(2).len()), (&b"SET"[..], 8));
            keys.lock().expect("not poisoned").insert(command.arg_bytes(1));
            ok()
        }
    });
    let plan = BenchPlan { connections: 3, ..plan(address, BenchLength::Time(Duration::from_micros(1))) };
    load(&plan, LoadedKeys::below(5_000), &Frames::new(8, 1), &Stop::new(), &mut |_| {})
        .expect("all keys fit");
    let keys = keys.lock().expect("not poisoned");
    assert_eq!(keys.len(), 5_000);
    assert!(keys.contains(&b"key:000000004999"[..]));
}

#[test]
fn loading_stops_at_an_error_that_stays() {
    let address = server(|_, _| Some(b"-NOAUTH Authentication required.\r\n".to_vec()));
    let plan = plan(address, BenchLength::Time(Duration::from_micros(1)));
    let error = load(&plan, LoadedKeys::below(10), &Frames::new(8, 1), &Stop::new(), &mut |_| {})
        .expect_err("refused");
    assert!(error.to_string().contains("-NOAUTH"), "{error}");
}

struct Redis {
    process: Child,
    directory: PathBuf,
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

fn redis() -> (Redis, PathBuf) {
    let directory = std::env::temp_dir().join(format!("distcache-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let socket = directory.join("redis.sock");
    let process = Process::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed for tests");
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        std::thread::yield_now();
    }
    (Redis { process, directory }, socket)
}

#[test]
fn a_real_redis_holds_the_keys_and_answers_without_errors() {
    let (redis, socket) = redis();
    let plan = BenchPlan {
        target: BenchTarget::plain(Address::Unix(socket.clone())),
        connections: 10,
        pipeline: 8,
        pace: Pace::Closed,
        warmup: Duration::ZERO,
        length: BenchLength::Requests(20_000),
        slice: None,
    };
    let frames = Frames::new(100_000, 1);
    load(&plan, LoadedKeys::below(500), &frames, &Stop::new(), &mut |_| {}).expect("Redis takes every key");
    let distribution = "zipf:0.99".parse().expect("a distribution");
    let workload = Workload { keys: 500, distribution, write_ratio: 0.1, value_bytes: 100_000, seed: 1 };
    let requests = Requests::Mix(workload.requests(0).expect("a valid workload"));
    let outcome =
        drive(&plan, requests, &frames, &Live::default(), &Stop::new(), &mut |_| {}).expect("Redis is there");
    assert_eq!((outcome.tally.requests, outcome.tally.errors, outcome.tally.lost), (20_000, 0, 0));

    let mut client = std::os::unix::net::UnixStream::connect(&socket).expect("Redis is there");
    client.write_all(b"DBSIZE\r\n").expect("Redis reads");
    let mut reply = [0; 6];
    client.read_exact(&mut reply).expect("Redis answers");
    assert_eq!(&reply, b":500\r\n");
    drop(redis);
}

#[test]
fn each_connection_logs_in_first() {
    let mut logins = 0;
    let address = server(move |_, command| {
        if command.name() == b"AUTH" {
            logins += 1;
            let right = command.arg(1) == b"me" && command.arg(2) == b"secret";
            return if right { ok() } else { Some(b"-WRONGPASS no such user\r\n".to_vec()) };
        }
        if logins < 3 { Some(b"-NOAUTH log in first\r\n".to_vec()) } else { Some(b"$1\r\nx\r\n".to_vec()) }
    });
    let run = |url: &str| {
        let target = target::parse(url, None).expect("a target");
        let plan = BenchPlan { target, connections: 3, ..plan(address, BenchLength::Requests(30)) };
        let frames = Frames::new(8, 1);
        drive(&plan, mix(10), &frames, &Live::default(), &Stop::new(), &mut |_| {})
    };
    let outcome = run(&format!("redis://me:secret@{address}")).expect("a run");
    assert_eq!((outcome.tally.summary().requests, outcome.tally.summary().errors), (30, 0));
    let Err(error) = run(&format!("redis://me:wrong@{address}")) else { panic!("the login is wrong") };
    assert!(format!("{error:#}").contains("-WRONGPASS no such user"), "{error:#}");
}

/// One connection waits for ever; what becomes due meanwhile goes to the others, and nothing queues behind it.
#[test]
fn a_pool_asks_on_another_connection_while_one_waits() {
    let stop = Stop::new();
    let address = server({
        let stop = stop.clone();
        move |number, _| {
            if number == 300 {
                stop.stop();
            }
            if number == 10 { Some(Vec::new()) } else { ok() }
        }
    });
    let pace = Pace::Random(Arrivals::new(1_000, Duration::from_secs(1), 1));
    let plan =
        BenchPlan { connections: 4, pace, ..plan(address, BenchLength::Time(Duration::from_secs(60))) };
    let live = Live::watched(100);
    let outcome = drive(&plan, mix(100), &Frames::new(8, 1), &live, &stop, &mut |_| {});
    assert_eq!(outcome.expect("the server is there").ending, Ending::Stopped);
    let mut fates = live.take_fates();
    assert_eq!(fates.len() as u64, live.due());
    fates.sort_by_key(|fate| fate.since);
    let last = fates.iter().rposition(|fate| fate.end == RequestEnd::Answered).expect("most are answered");
    let waiting = fates[..last].iter().filter(|fate| fate.end == RequestEnd::Unanswered).count();
    assert!((1..=4).contains(&waiting), "{waiting} of {last}");
}

#[test]
fn every_round_asks_for_the_same_keys() {
    let Requests::Mix(requests) = mix(1_000) else { panic!("a mix") };
    let mut rounds = Requests::Rounds(WorkloadRounds::new(requests, 50));
    let (frames, mut out) = (Frames::new(8, 1), Vec::new());
    let keys: Vec<_> = (0..150).map(|_| rounds.next(&frames, &mut out)).collect();
    assert_eq!((&keys[..50], &keys[50..100]), (&keys[50..100], &keys[100..]));
    assert_ne!(keys[..25], keys[25..50]);
}

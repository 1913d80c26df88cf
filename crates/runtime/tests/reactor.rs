//! The reactor against plain sockets of the standard library, one turn at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Address;
use runtime::reactor::{ConnectionId, Dealer, Driver, Event, Io, OUT_LOW_BYTES, Reactor};
use runtime::stop::Stop;

const PATIENCE: Duration = Duration::from_secs(60);

/// Records what happens; echoes if told to.
#[derive(Default)]
struct Recorder {
    echo: bool,
    pause_after_data: bool,
    /// Answer other ends that send no more.
    goes_on: bool,
    ended: usize,
    /// Give everything back until there is this much.
    wanted: usize,
    accepted: Vec<ConnectionId>,
    connected: Vec<ConnectionId>,
    received: Vec<Bytes>,
    writable: usize,
    closed: Vec<(ConnectionId, Option<ErrorKind>)>,
    ticks: usize,
    woken: usize,
}

impl Recorder {
    fn bytes(&self) -> Vec<u8> {
        self.received.concat()
    }
}

impl Driver for Recorder {
    fn event(&mut self, io: &mut Io, event: Event) {
        match event {
            Event::Accepted { connection, .. } => self.accepted.push(connection),
            Event::Connected(connection) => self.connected.push(connection),
            Event::Data { connection, bytes, now } => {
                assert!(now <= io.now());
                if self.pause_after_data {
                    io.pause(connection);
                }
                if bytes.len() < self.wanted {
                    io.unread(connection, bytes);
                    return;
                }
                if self.echo {
                    io.out(connection).extend_from_slice(&bytes);
                }
                self.received.push(bytes);
            }
            Event::Writable(_) => self.writable += 1,
            Event::Closed { connection, error } => {
                self.closed.push((connection, error.map(|error| error.kind())));
            }
            Event::Tick => self.ticks += 1,
            Event::Woken => self.woken += 1,
        }
    }

    fn ended(&mut self, _: &mut Io, _: ConnectionId) -> bool {
        self.ended += 1;
        self.goes_on
    }
}

fn tcp(reactor: &mut Reactor) -> (runtime::reactor::ListenerId, std::net::SocketAddr) {
    let listener = reactor.io().listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    match reactor.io().local_address(listener) {
        Address::Tcp(address) => (listener, address),
        Address::Unix(_) => unreachable!(),
    }
}

fn reactor() -> Reactor {
    Reactor::new(Io::new().unwrap())
}

fn socket_path(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("distcache-reactor-{}-{name}.sock", std::process::id()));
    // Numbers of processes come again, and a socket outlives its process.
    drop(std::fs::remove_file(&path));
    path
}

/// Turns until `done`, at most ten seconds.
fn turn_until(reactor: &mut Reactor, recorder: &mut Recorder, mut done: impl FnMut(&Recorder) -> bool) {
    let start = Instant::now();
    while !done(recorder) {
        assert!(start.elapsed() < Duration::from_secs(60), "what was expected did not happen");
        reactor.turn(recorder, Some(Duration::from_millis(5))).unwrap();
    }
}

/// A few turns in which nothing more is expected.
fn settle(reactor: &mut Reactor, recorder: &mut Recorder) {
    for _ in 0..4 {
        reactor.turn(recorder, Some(Duration::ZERO)).unwrap();
    }
}

fn echo_through(mut client: impl Read + Write, reactor: &mut Reactor) {
    let mut recorder = Recorder { echo: true, ..Recorder::default() };
    for round in 1..=3 {
        client.write_all(b"hello").unwrap();
        turn_until(reactor, &mut recorder, |recorder| recorder.bytes().len() == 5 * round);
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"hello");
    }
    drop(client);
    turn_until(reactor, &mut recorder, |recorder| !recorder.closed.is_empty());
    assert_eq!(recorder.closed, [(recorder.accepted[0], None)]);
}

#[test]
fn echo_over_tcp_and_unix_sockets() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    echo_through(TcpStream::connect(address).unwrap(), &mut reactor);
    let path = socket_path("echo");
    reactor.io().listen(&Address::Unix(path.clone())).unwrap();
    echo_through(UnixStream::connect(&path).unwrap(), &mut reactor);
    drop(reactor);
    assert!(!path.exists(), "the socket file is removed with its listener");
}

fn read_slowly(mut client: impl Read, reactor: &mut Reactor, recorder: &mut Recorder, sent: &[u8]) {
    let mut received = Vec::new();
    let mut buffer = vec![0; 50_000];
    let start = Instant::now();
    while received.len() < sent.len() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} bytes", received.len());
        reactor.turn(recorder, Some(Duration::ZERO)).unwrap();
        match client.read(&mut buffer) {
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(received == sent);
}

#[test]
fn output_beyond_the_socket_waits_for_a_slow_reader() {
    let sent: Vec<u8> = (0..6_000_000_u32).map(|index| (index / 7) as u8).collect();
    let path = socket_path("slow");
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    reactor.io().listen(&Address::Unix(path.clone())).unwrap();
    let mut recorder = Recorder::default();
    let tcp = TcpStream::connect(address).unwrap();
    tcp.set_nonblocking(true).unwrap();
    let unix = UnixStream::connect(&path).unwrap();
    unix.set_nonblocking(true).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 2);
    // Events of one wait come in any order: tell the two apart by their peers.
    let is_unix = |io: &Io, id| matches!(io.peer_address(id), Some(Address::Unix(_)));
    recorder.accepted.sort_by_key(|&id| is_unix(reactor.io(), id));
    let [over_tcp, over_unix] = recorder.accepted[..] else { unreachable!() };
    for (index, connection) in [over_tcp, over_unix].into_iter().enumerate() {
        for piece in sent.chunks(1_000_000) {
            reactor.io().out(connection).extend_from_slice(piece);
            reactor.turn(&mut recorder, Some(Duration::ZERO)).unwrap();
        }
        assert!(reactor.io().out_bytes(connection) > OUT_LOW_BYTES, "the sockets are not that large");
        let drained = recorder.writable;
        match index {
            0 => read_slowly(&tcp, &mut reactor, &mut recorder, &sent),
            _ => read_slowly(&unix, &mut reactor, &mut recorder, &sent),
        }
        turn_until(&mut reactor, &mut recorder, |recorder| recorder.writable > drained);
        assert_eq!(reactor.io().out_bytes(connection), 0);
    }
    assert!(recorder.closed.is_empty());
}

#[test]
fn output_that_fits_still_reports_that_it_has_drained() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder::default();
    let _client = TcpStream::connect(address).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 1);
    reactor.io().out(recorder.accepted[0]).extend_from_slice(&vec![0; OUT_LOW_BYTES + 1]);
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.writable == 1);
}

#[test]
fn a_paused_connection_is_not_read_and_a_resumed_one_goes_on_without_new_input() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder { pause_after_data: true, wanted: 5, ..Recorder::default() };
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"123").unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 1);
    let connection = recorder.accepted[0];
    turn_until_paused(&mut reactor, &mut recorder, connection);
    client.write_all(b"456").unwrap();
    settle(&mut reactor, &mut recorder);
    assert!(recorder.received.is_empty());
    // What was given back comes first, then what the kernel has kept.
    recorder.wanted = 3;
    recorder.pause_after_data = false;
    reactor.io().resume(connection);
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.bytes() == b"123456");
    // Given back and resumed: it comes again although nothing follows.
    (recorder.wanted, recorder.pause_after_data) = (10, true);
    client.write_all(b"789").unwrap();
    turn_until_paused(&mut reactor, &mut recorder, connection);
    (recorder.wanted, recorder.pause_after_data) = (0, false);
    reactor.io().resume(connection);
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.bytes() == b"123456789");
}

fn turn_until_paused(reactor: &mut Reactor, recorder: &mut Recorder, connection: ConnectionId) {
    let start = Instant::now();
    while !reactor.io().is_paused(connection) {
        assert!(start.elapsed() < Duration::from_secs(60));
        reactor.turn(recorder, Some(Duration::from_millis(5))).unwrap();
    }
}

#[test]
fn the_end_of_a_paused_connection_is_told_once_its_input_is_read() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder { pause_after_data: true, ..Recorder::default() };
    let mut gone = TcpStream::connect(address).unwrap();
    gone.write_all(b"BLPOP").unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.received.len() == 1);
    drop(gone);
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.closed.len() == 1);

    let mut talkative = TcpStream::connect(address).unwrap();
    talkative.write_all(b"1").unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.received.len() == 2);
    talkative.write_all(b"2").unwrap();
    drop(talkative);
    settle(&mut reactor, &mut recorder);
    assert_eq!(recorder.closed.len(), 1);
    reactor.io().resume(recorder.accepted[1]);
    recorder.pause_after_data = false;
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.closed.len() == 2);
    assert_eq!(recorder.bytes(), b"BLPOP12");
}

#[test]
fn a_large_frame_in_many_reads_arrives_whole() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let sent: Vec<u8> = (0..5_000_000_u32).map(|index| (index / 3) as u8).collect();
    let mut recorder = Recorder { wanted: sent.len(), ..Recorder::default() };
    let mut client = TcpStream::connect(address).unwrap();
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || client.write_all(&sent).map(|()| client)
    });
    turn_until(&mut reactor, &mut recorder, |recorder| !recorder.received.is_empty());
    assert!(recorder.received[0] == sent);
    drop(writer.join());
}

#[test]
fn close_flushed_writes_everything_first_and_tells_nobody() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder::default();
    let mut client = TcpStream::connect(address).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 1);
    let connection = recorder.accepted[0];
    let sent = vec![7; 3_000_000];
    reactor.io().out(connection).extend_from_slice(&sent);
    reactor.io().close_flushed(connection);
    reactor.io().out(connection).extend_from_slice(b"too late");
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        client.read_to_end(&mut received).map(|_| received)
    });
    let start = Instant::now();
    while reactor.io().peer_address(connection).is_some() {
        assert!(start.elapsed() < Duration::from_secs(60));
        reactor.turn(&mut recorder, Some(Duration::from_millis(5))).unwrap();
    }
    assert!(reader.join().unwrap().unwrap() == sent);
    assert!(recorder.closed.is_empty());
}

/// What it says in the meantime, more than is read at once, does not become a reset that takes the last words from it.
#[test]
fn close_confirmed_is_heard_by_one_that_talks() {
    struct Leaving(bool);
    impl Driver for Leaving {
        fn event(&mut self, io: &mut Io, event: Event) {
            if let Event::Connected(connection) = event {
                io.out(connection).extend_from_slice(b"farewell");
                io.close_confirmed(connection);
                self.0 = true;
            }
        }
        fn stopping(&mut self, _io: &mut Io) -> bool {
            self.0
        }
    }
    let path = socket_path("confirmed");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&vec![0; 4 << 20]).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).map(|_| heard)
    });
    let mut io = Io::new().unwrap();
    io.dial(&Address::Unix(path));
    let stop = Stop::new();
    stop.stop();
    runtime::reactor::run(io, &mut Leaving(false), &stop).unwrap();
    assert_eq!(other.join().unwrap().unwrap(), "farewell");
}

/// Reads nothing before it has sent everything, and gets what was said before its input was thrown away.
#[test]
fn close_lingering_throws_input_away_until_the_other_end_has_read_why() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder::default();
    let mut client = TcpStream::connect(address).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 1);
    reactor.io().out(recorder.accepted[0]).extend_from_slice(b"go away");
    reactor.io().close_lingering(recorder.accepted[0]);
    let sender = std::thread::spawn(move || {
        // More than the sockets hold.
        client.write_all(&vec![0; 32 << 20]).unwrap();
        let mut told = Vec::new();
        client.read_to_end(&mut told).unwrap();
        told
    });
    turn_until(&mut reactor, &mut recorder, |_| sender.is_finished());
    assert_eq!(sender.join().unwrap(), b"go away");
    let start = Instant::now();
    while reactor.io().peer_address(recorder.accepted[0]).is_some() {
        assert!(start.elapsed() < Duration::from_secs(5), "it outlives the other end");
        reactor.turn(&mut recorder, Some(Duration::from_millis(5))).unwrap();
    }
    assert!(recorder.received.is_empty() && recorder.closed.is_empty(), "{:?}", recorder.closed);
}

#[test]
fn a_driver_is_called_again_once_for_each_time_it_asks_even_about_a_paused_connection() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder::default();
    let mut client = TcpStream::connect(address).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 1);
    let connection = recorder.accepted[0];
    for round in 1..=3 {
        reactor.io().call_again(connection);
        settle(&mut reactor, &mut recorder);
        assert_eq!(recorder.received, vec![Bytes::new(); round]);
        reactor.io().pause(connection);
    }
    client.write_all(b"hello").unwrap();
    reactor.io().resume(connection);
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.bytes() == b"hello");
    reactor.io().close(connection);
    reactor.io().call_again(connection);
    settle(&mut reactor, &mut recorder);
    assert_eq!(recorder.received.len(), 4);
}

#[test]
fn replies_reach_a_client_that_has_ended_its_side() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder { echo: true, ..Recorder::default() };
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"PING\r\n").unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.closed.len() == 1);
    settle(&mut reactor, &mut recorder);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "PING\r\n");
}

#[test]
fn a_driver_may_go_on_answering_after_the_other_end_has_ended() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder { goes_on: true, ..Recorder::default() };
    let mut clients = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 2);
    clients.iter().for_each(|client| client.shutdown(std::net::Shutdown::Write).unwrap());
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.ended == 2);
    settle(&mut reactor, &mut recorder);
    assert_eq!((recorder.ended, recorder.closed.len()), (2, 0), "it is asked once, and nothing is closed");

    let [reads, gone] = recorder.accepted[..] else { panic!("two connections") };
    reactor.io().out(reads).extend_from_slice(b"late");
    reactor.io().close_flushed(reads);
    settle(&mut reactor, &mut recorder);
    let mut reply = String::new();
    clients[0].read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "late");

    // The other one is gone altogether, which shows when it is written to.
    drop(clients);
    let start = Instant::now();
    while recorder.closed.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody noticed");
        reactor.io().out(gone).extend_from_slice(b"more");
        reactor.turn(&mut recorder, Some(Duration::from_millis(5))).unwrap();
    }
    assert_eq!(recorder.closed.len(), 1);
    assert_eq!(recorder.closed[0].0, gone);
}

#[test]
fn an_id_that_outlived_its_connection_does_nothing() {
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut recorder = Recorder::default();
    let _first = TcpStream::connect(address).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 1);
    let old = recorder.accepted[0];
    reactor.io().close(old);
    let mut second = TcpStream::connect(address).unwrap();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.accepted.len() == 2);
    let new = recorder.accepted[1];
    assert_eq!(new.index(), old.index());
    assert!(reactor.io().peer_address(new).is_some() && reactor.io().peer_address(old).is_none());
    let io = reactor.io();
    io.out(old).extend_from_slice(b"stray");
    io.pause(old);
    io.unread(old, Bytes::from_static(b"stray"));
    io.close_flushed(old);
    io.close(old);
    assert_eq!((io.out_bytes(old), io.out_bytes(new), io.is_paused(new)), (0, 0, false));
    io.out(new).extend_from_slice(b"mine");
    io.close_flushed(new);
    settle(&mut reactor, &mut recorder);
    let mut received = String::new();
    second.read_to_string(&mut received).unwrap();
    assert_eq!(received, "mine");
}

#[test]
fn dialling_ends_in_connected_or_closed() {
    let mut server = reactor();
    let (_, address) = tcp(&mut server);
    let mut client = reactor();
    let mut recorder = Recorder { echo: true, ..Recorder::default() };
    let connection = client.io().dial(&Address::Tcp(address));
    client.io().out(connection).extend_from_slice(b"early");
    turn_until(&mut client, &mut recorder, |recorder| recorder.connected == [connection]);
    let mut echo = Recorder { echo: true, ..Recorder::default() };
    turn_until(&mut server, &mut echo, |recorder| recorder.bytes() == b"early");
    turn_until(&mut client, &mut recorder, |recorder| recorder.bytes() == b"early");
    drop(server);
    turn_until(&mut client, &mut recorder, |recorder| recorder.closed.len() == 1);

    let refused = client.io().dial(&Address::Tcp(address));
    let missing = client.io().dial(&Address::Unix(socket_path("missing")));
    turn_until(&mut client, &mut recorder, |recorder| recorder.closed.len() == 3);
    assert!(recorder.closed.contains(&(refused, Some(ErrorKind::ConnectionRefused))));
    assert!(recorder.closed.contains(&(missing, Some(ErrorKind::NotFound))));
}

#[test]
fn a_stale_socket_file_is_replaced_and_a_live_one_is_not() {
    let path = socket_path("stale");
    let address = Address::Unix(path.clone());
    // The standard library leaves the file behind, as a crash does.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut first = Io::new().unwrap();
    let listener = first.listen(&address).unwrap();
    let error = Io::new().unwrap().listen(&address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    first.close_listener(listener);
    std::fs::write(&path, b"somebody's data").unwrap();
    assert!(Io::new().unwrap().listen(&address).is_err());
    assert!(path.exists(), "a file that is no socket stays");
    std::fs::remove_file(&path).unwrap();
}

struct UntilStopped {
    stop: Stop,
    ticks: usize,
    stopping: usize,
}

impl Driver for UntilStopped {
    fn event(&mut self, _: &mut Io, event: Event) {
        if matches!(event, Event::Tick) {
            self.ticks += 1;
            if self.ticks == 3 {
                self.stop.stop();
            }
        }
    }

    fn stopping(&mut self, _: &mut Io) -> bool {
        self.stopping += 1;
        self.stopping == 3
    }
}

#[test]
fn run_ticks_until_stopped_and_lets_the_driver_come_to_an_end() {
    let stop = Stop::new();
    let mut driver = UntilStopped { stop: stop.clone(), ticks: 0, stopping: 0 };
    let start = Instant::now();
    runtime::reactor::run(Io::new().unwrap(), &mut driver, &stop).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(24), "a tick takes 10 ms");
    assert_eq!(driver.stopping, 3);
}

/// Rests for `rest` until it is woken, and counts its ticks.
struct Resting {
    rest: Duration,
    ticks: u32,
}

impl Driver for Resting {
    fn event(&mut self, _: &mut Io, event: Event) {
        match event {
            Event::Tick => self.ticks += 1,
            Event::Woken => self.rest = Duration::ZERO,
            _ => {}
        }
    }

    fn rest(&mut self, _: protocol::time::Time) -> Duration {
        self.rest
    }
}

#[test]
fn one_that_rests_is_woken_for_nothing_and_ticks_again_once_time_matters() {
    let mut reactor = reactor();
    let waker = reactor.io().waker();
    let mut resting = Resting { rest: Duration::from_secs(3600), ticks: 0 };
    // The first one is due before anybody has asked.
    for _ in 0..8 {
        reactor.turn(&mut resting, Some(Duration::from_millis(15))).unwrap();
    }
    assert!(resting.ticks <= 1, "{} ticks", resting.ticks);
    waker.wake();
    let ticks = resting.ticks;
    while resting.ticks < ticks + 3 {
        reactor.turn(&mut resting, None).unwrap();
    }
}

#[test]
fn ticks_of_one_that_rests_are_as_far_apart_as_it_says() {
    let mut reactor = reactor();
    let rest = Duration::from_millis(40);
    let mut resting = Resting { rest, ticks: 0 };
    let start = Instant::now();
    while resting.ticks < 4 {
        reactor.turn(&mut resting, None).unwrap();
    }
    assert!(start.elapsed() >= 3 * rest);
}

#[test]
fn a_waker_ends_the_wait_from_another_thread() {
    let mut reactor = reactor();
    let waker = reactor.io().waker();
    let thread = std::thread::spawn(move || waker.wake());
    let mut recorder = Recorder::default();
    turn_until(&mut reactor, &mut recorder, |recorder| recorder.woken == 1);
    thread.join().unwrap();
}

/// Works for a while on whatever comes.
#[derive(Default)]
struct Busy {
    accepted: Vec<ConnectionId>,
    read: Vec<ConnectionId>,
    /// Has always something left for whom it has read before.
    insatiable: bool,
}

impl Driver for Busy {
    fn event(&mut self, io: &mut Io, event: Event) {
        match event {
            Event::Accepted { connection, .. } => self.accepted.push(connection),
            Event::Data { connection, .. } => {
                self.read.push(connection);
                if self.insatiable {
                    io.call_again(connection);
                }
                let start = io.now();
                while io.now() < start.after(Duration::from_millis(3)) {
                    std::hint::spin_loop();
                }
            }
            _ => {}
        }
    }
}

#[test]
fn what_is_urgent_is_read_first_and_a_turn_ends_in_time_for_it() {
    const FLOOD: usize = 20;
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let mut clients: Vec<TcpStream> = (0..=FLOOD).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut busy = Busy::default();
    while busy.accepted.len() <= FLOOD {
        reactor.turn(&mut busy, Some(Duration::from_millis(5))).unwrap();
    }
    let last = clients.last().unwrap().local_addr().unwrap();
    let is_last = |io: &Io, id| io.peer_address(id) == Some(Address::Tcp(last));
    let urgent = *busy.accepted.iter().find(|id| is_last(reactor.io(), **id)).unwrap();
    reactor.io().set_urgent(urgent);
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    let mut turns = 0;
    while busy.read.len() <= FLOOD {
        reactor.turn(&mut busy, Some(Duration::from_millis(5))).unwrap();
        turns += 1;
        assert!(turns < 1000, "nobody starves");
        if turns == 1 {
            assert_eq!(busy.read[0], urgent);
            assert!(busy.read.len() <= 4, "{} are read in the first turn", busy.read.len());
            // More of it is read before those that have waited since.
            clients.last_mut().unwrap().write_all(b"y").unwrap();
        }
    }
    let again = busy.read.iter().rposition(|id| *id == urgent).unwrap();
    assert!((1..=8).contains(&again), "{:?}", busy.read);
}

#[test]
fn who_has_always_more_takes_turns_and_who_has_something_new_comes_before() {
    const HOARDERS: usize = 12;
    // A turn has time for one of them.
    const NEWCOMERS: usize = 6;
    let mut reactor = reactor();
    let (_, address) = tcp(&mut reactor);
    let connect = |_| TcpStream::connect(address).unwrap();
    let mut clients: Vec<TcpStream> = (0..HOARDERS + NEWCOMERS).map(connect).collect();
    let mut busy = Busy { insatiable: true, ..Busy::default() };
    while busy.accepted.len() < HOARDERS + NEWCOMERS {
        reactor.turn(&mut busy, Some(Duration::from_millis(5))).unwrap();
    }
    let mut newcomers = clients.split_off(HOARDERS);
    let ports: Vec<u16> = newcomers.iter().map(|client| client.local_addr().unwrap().port()).collect();
    let is_new = |io: &Io, id: ConnectionId| matches!(io.peer_address(id), Some(Address::Tcp(peer)) if ports.contains(&peer.port()));
    let (new, old): (Vec<ConnectionId>, Vec<ConnectionId>) =
        busy.accepted.iter().partition(|id| is_new(reactor.io(), **id));
    let reads_of = |busy: &Busy, id: &ConnectionId| busy.read.iter().filter(|read| *read == id).count();

    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    while old.iter().any(|id| reads_of(&busy, id) == 0) {
        reactor.turn(&mut busy, Some(Duration::from_millis(5))).unwrap();
    }
    busy.read.clear();
    while busy.read.len() < 10 * HOARDERS {
        reactor.turn(&mut busy, Some(Duration::from_millis(5))).unwrap();
    }
    let reads: Vec<usize> = old.iter().map(|id| reads_of(&busy, id)).collect();
    let (fewest, most) = (*reads.iter().min().unwrap(), *reads.iter().max().unwrap());
    assert!(most - fewest <= 2, "{reads:?}");

    for client in &mut newcomers {
        client.write_all(b"x").unwrap();
    }
    busy.read.clear();
    while new.iter().any(|id| reads_of(&busy, id) == 0) {
        reactor.turn(&mut busy, Some(Duration::from_millis(5))).unwrap();
    }
    assert!(new.contains(&busy.read[0]), "before those who wait for another turn");
    let others: usize = old.iter().map(|id| reads_of(&busy, id)).sum();
    assert!(others > 0, "and these have theirs in the same turn: {:?}", busy.read);
    assert!(others < HOARDERS, "nobody is put off behind all of them: {:?}", busy.read);
}

#[test]
fn connections_are_dealt_out_to_whoever_has_the_fewest() {
    let mut first = Io::new().unwrap();
    let listener = first.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let Address::Tcp(address) = first.local_address(listener) else { panic!("it is TCP") };
    let mut second = Io::new().unwrap();
    assert_eq!(second.share_listener(&first), listener);
    let dealer = Dealer::join([&mut first, &mut second].into_iter());
    let mut reactors = [Reactor::new(first), Reactor::new(second)];
    let mut recorders = [Recorder { echo: true, ..Recorder::default() }, Recorder::default()];
    recorders[1].echo = true;
    let turn = |reactors: &mut [Reactor; 2], recorders: &mut [Recorder; 2]| {
        for (reactor, recorder) in reactors.iter_mut().zip(recorders) {
            reactor.turn(recorder, Some(Duration::ZERO)).unwrap();
        }
    };
    let mut clients: Vec<TcpStream> = Vec::new();
    for count in 1..=64 {
        clients.push(TcpStream::connect(address).unwrap());
        let all = |recorders: &[Recorder; 2]| recorders.iter().map(|one| one.accepted.len()).sum::<usize>();
        let deadline = Instant::now() + PATIENCE;
        while all(&recorders) < count {
            assert!(Instant::now() < deadline, "{count} connections");
            turn(&mut reactors, &mut recorders);
        }
    }
    assert_eq!(dealer.counts(), [32, 32]);
    // All that the first one has go, whoever closes them; the next ones come to it.
    let firsts = std::mem::take(&mut recorders[0].accepted);
    let (own, theirs) = firsts.split_at(16);
    own.iter().for_each(|connection| reactors[0].io().close(*connection));
    let theirs: Vec<Address> = theirs.iter().filter_map(|one| reactors[0].io().peer_address(*one)).collect();
    clients.retain(|client| !theirs.contains(&Address::Tcp(client.local_addr().unwrap())));
    let deadline = Instant::now() + PATIENCE;
    while dealer.counts() != [0, 32] {
        assert!(Instant::now() < deadline, "{:?}", dealer.counts());
        turn(&mut reactors, &mut recorders);
    }
    let mut late = TcpStream::connect(address).unwrap();
    late.write_all(b"hello").unwrap();
    late.set_nonblocking(true).unwrap();
    let (mut echoed, deadline) = ([0; 5], Instant::now() + PATIENCE);
    while late.read(&mut echoed).is_err() {
        assert!(Instant::now() < deadline, "no echo");
        turn(&mut reactors, &mut recorders);
    }
    assert_eq!((&echoed, dealer.counts()), (b"hello", vec![1, 32]));
}

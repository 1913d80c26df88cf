//! The same bytes to a redis-server and to a router before one: the same bytes must come back, or a difference that
//! is meant. A short run here; `cargo xtask fuzz differential` makes long ones.

mod commands;
mod intended;
mod streams;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use wire::resp::ReplyScanner;

use crate::cluster::{Client, Cluster, Layout, RedisServer, installed, shared};
use intended::{Difference, INTENDED, Intended};
use streams::{Stream, draw};

const CASES: u32 = 5000;
/// Enough to see what they have in common.
const FAILURES_MAX: usize = 10;
/// Bytes of a reply that a failed test shows.
const SHOWN_BYTES_MAX: usize = 300;
/// Set for long runs.
const SECONDS_VARIABLE: &str = "DISTCACHE_DIFFERENTIAL_SECONDS";
/// A connection that is still open by then will never end.
const END_MAX: Duration = Duration::from_secs(120);

/// One of the two that are compared.
struct Server {
    socket: PathBuf,
    /// Another connection, for what is to be done between the pieces of a stream.
    beside: Client,
}

impl Server {
    fn at(socket: &Path) -> Server {
        let beside = Client::unix(socket).expect("it accepts");
        Server { socket: socket.to_owned(), beside }
    }

    fn clear(&mut self) {
        assert_eq!(self.beside.ask(&["FLUSHALL"]).expect("a reply"), "+OK\r\n");
    }

    /// Everything that comes back for `stream` until the connection ends. With `ends` the client says that it has
    /// nothing more to send; without, the server has to end it.
    fn send(&mut self, stream: &Stream, ends: bool) -> Result<Vec<u8>, String> {
        let mut connection = UnixStream::connect(&self.socket).expect("it accepts");
        connection.set_read_timeout(Some(END_MAX)).expect("a timeout");
        for (index, piece) in stream.pieces().enumerate() {
            if index > 0 {
                // Once this is answered the piece before has been read, so that no two arrive as one.
                self.beside.ask(&["PING"]).expect("a reply");
            }
            // It may have closed already, which what it sent will show.
            let _ = connection.write_all(piece);
        }
        if ends {
            let _ = connection.shutdown(Shutdown::Write);
        }
        let mut received = Vec::new();
        let mut chunk = [0; 16 << 10];
        loop {
            match connection.read(&mut chunk) {
                Ok(0) => return Ok(received),
                Ok(count) => received.extend_from_slice(&chunk[..count]),
                // It closed without reading everything.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(received),
                Err(error) => return Err(format!("{error} after {}", received.escape_ascii())),
            }
        }
    }
}

struct Pair {
    redis: Server,
    ours: Server,
    /// How often each intended difference was seen.
    seen: [usize; INTENDED.len()],
}

impl Pair {
    fn check(&mut self, stream: &Stream) -> Result<(), String> {
        self.redis.clear();
        self.ours.clear();
        let redis = self.redis.send(stream, true)?;
        let ours = self.ours.send(stream, true).map_err(|error| format!("with its end: {error}"))?;
        self.compare(stream, &redis, &ours)?;
        if String::from_utf8_lossy(&redis)
            .lines()
            .next_back()
            .is_some_and(|line| line.starts_with("-ERR Protocol error"))
        {
            // Redis ends such a connection by itself.
            self.ours.clear();
            let ours = self.ours.send(stream, false).map_err(|error| format!("left open: {error}"))?;
            self.compare(stream, &redis, &ours).map_err(|error| format!("left open: {error}"))?;
        }
        Ok(())
    }

    fn compare(&mut self, stream: &Stream, redis: &[u8], ours: &[u8]) -> Result<(), String> {
        if redis == ours {
            return Ok(());
        }
        let commands = stream.commands();
        let (mut redis, mut ours) = (frames(redis)?, frames(ours)?);
        for index in 0.. {
            let (redis, ours) = (redis.next(), ours.next());
            if redis.is_none() && ours.is_none() {
                break;
            }
            let difference = Difference {
                command: commands.get(index).cloned(),
                redis,
                ours,
                stream: stream.bytes.clone(),
            };
            if difference.is_none() {
                continue;
            }
            let fits = |intended: &Intended| (intended.fits)(&difference);
            let Some(known) = INTENDED.iter().position(fits) else {
                let shown = |reply: &Option<Vec<u8>>| match reply.as_deref() {
                    Some(reply) => reply[..reply.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string(),
                    None => "nothing".to_owned(),
                };
                let (redis, ours) = (shown(&difference.redis), shown(&difference.ours));
                return Err(format!(
                    "reply {index}, to {:?}\n redis: {redis}\n  ours: {ours}",
                    difference.command
                ));
            };
            self.seen[known] += 1;
            if INTENDED[known].ends {
                break;
            }
        }
        Ok(())
    }

    /// The smallest part of a stream that is still answered differently.
    fn shrink(&mut self, mut stream: Stream) -> Stream {
        let mut length = stream.bytes.len().div_ceil(2);
        while length > 0 {
            let mut start = 0;
            while start < stream.bytes.len() {
                let smaller = stream.without(start, length);
                if !smaller.is_left_out() && self.check(&smaller).is_err() {
                    stream = smaller;
                } else {
                    start += length;
                }
            }
            length /= 2;
        }
        let uncut = Stream { cuts: Vec::new(), ..stream.clone() };
        if self.check(&uncut).is_err() { uncut } else { stream }
    }
}

/// The replies that some bytes are; a rest that is none is one too.
fn frames(bytes: &[u8]) -> Result<impl Iterator<Item = Vec<u8>>, String> {
    let (mut rest, mut frames) = (bytes, Vec::new());
    while !rest.is_empty() {
        let length =
            ReplyScanner::new().scan(rest).map_err(|error| format!("{error}: {}", rest.escape_ascii()))?;
        let (frame, after) = rest.split_at(length.unwrap_or(rest.len()));
        frames.push(frame.to_vec());
        rest = after;
    }
    Ok(frames.into_iter())
}

/// Streams of the fuzzer's corpus of commands; its first two bytes are the target's own.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/resp_commands");
    let mut paths: Vec<PathBuf> =
        folder.read_dir().expect("a corpus").map(|entry| entry.expect("an input").path()).collect();
    paths.sort();
    let read = |path: PathBuf| std::fs::read(path).expect("an input");
    paths.into_iter().map(|path| read(path).get(2..).unwrap_or_default().to_vec()).collect()
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

#[test]
fn a_router_answers_as_redis_does() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let (reference, storage) = (RedisServer::start(), [RedisServer::start()]);
    let cluster = Cluster::up(Layout::before(&storage));
    // CLIENT ID and HELLO differ by the number of the connection: never by chance the same for the examples.
    (0..500).for_each(|_| drop(reference.connect()));
    let (redis, ours) = (Server::at(&reference.socket()), Server::at(&cluster.unix_socket()));
    let mut pair = Pair { redis, ours, seen: [0; INTENDED.len()] };
    for (index, intended) in INTENDED.iter().enumerate() {
        pair.check(&Stream::whole(intended.example))
            .unwrap_or_else(|error| panic!("{}: {error}", intended.reason));
        assert!(pair.seen[index] > 0, "not seen any more: {}", intended.reason);
    }
    let (corpus, case, cases_max) = (corpus(), cases::one(), cases::times(CASES));
    let seed = case.seed;
    let mut random = SmallRng::seed_from_u64(seed);
    let end = number(SECONDS_VARIABLE).map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut cases, mut failures) = (0, Vec::new());
    while failures.len() < FAILURES_MAX && end.map_or(cases < cases_max, |end| Instant::now() < end) {
        let stream = draw(&mut random, &corpus);
        if stream.is_left_out() {
            continue;
        }
        cases += 1;
        let began = Instant::now();
        if let Err(error) = pair.check(&stream) {
            // Every smaller one might have to be waited for, too.
            let hangs = began.elapsed() > END_MAX;
            let small = if hangs { stream } else { pair.shrink(stream) };
            let again = match hangs {
                true => error,
                false => pair.check(&small).err().unwrap_or_else(|| format!("only sometimes: {error}")),
            };
            let pieces: Vec<String> = small.pieces().map(|piece| piece.escape_ascii().to_string()).collect();
            failures.push(format!("case {cases}: {pieces:?}\n{again}\n"));
        }
    }
    let meant: Vec<String> = INTENDED
        .iter()
        .zip(pair.seen)
        .map(|(intended, seen)| format!("{seen:8} {}", intended.reason))
        .collect();
    drop(writeln!(std::io::stderr().lock(), "seed {seed}: {cases} streams; meant:\n{}", meant.join("\n")));
    assert!(failures.is_empty(), "seed {seed}, {cases} cases\n{}", failures.join("\n"));
}

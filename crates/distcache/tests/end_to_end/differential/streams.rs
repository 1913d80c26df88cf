//! Streams of bytes as clients may send them: pipelines of commands in either form, broken here and there, cut into
//! pieces. Not what is expected of them: a redis-server says that.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use wire::resp::{Command, RespLimits, take_command};

/// `K` stands for a key, `V` for a value.
const LINES: &str = include_str!("commands.txt");
const KEYS: [&str; 4] = ["a", "b", "c", "{a}d"];
const VALUES: [&str; 14] = [
    "0",
    "1",
    "-1",
    "10",
    "1.5",
    "abc",
    "",
    "9223372036854775807",
    "-inf",
    "(1",
    "[a",
    "nx",
    "with space",
    "\u{0}\r\n",
];
/// What streams are broken with.
const SPLINTERS: [&[u8]; 16] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"*",
    b"$",
    b"*0\r\n",
    b"*-1\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"*1000000000\r\n",
    b"-",
    b"\"",
    b"'",
    b"\0",
    b" ",
    b"01",
];
/// Commands that would change the servers themselves, end them, or answer differently each time. Those that
/// DistCache refuses are among the intended differences.
const LEFT_OUT: [&str; 44] = [
    "acl",
    "bgrewriteaof",
    "caching",
    "cluster",
    "config",
    "debug",
    "failover",
    "function",
    "idletime",
    "info",
    "keys",
    "kill",
    "latency",
    "lastsave",
    "list",
    "lolwut",
    "memory",
    "migrate",
    "module",
    "monitor",
    "move",
    "multi",
    "object|freq",
    "pause",
    "publish",
    "rand",
    "redir",
    "replicaof",
    "reply",
    "role",
    "save",
    "scan",
    "script",
    "shutdown",
    "slaveof",
    "sleep",
    "slowlog",
    "spop",
    "subscribe",
    "swapdb",
    "sync",
    "time",
    "track",
    "wait",
];

/// What expires earlier may do so between two commands of a case at one server, and not at the other. `commands` lets keys
/// expire and waits for them.
const EXPIRY_MS_MIN: i64 = 5000;

/// Bytes and where they are cut.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    pub(crate) cuts: Vec<usize>,
}

impl Stream {
    pub(crate) fn whole(bytes: &[u8]) -> Stream {
        Stream { bytes: bytes.to_vec(), cuts: Vec::new() }
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain([self.bytes.len()]);
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }

    /// The commands that a server will see, up to the first error.
    pub(crate) fn commands(&self) -> Vec<Command> {
        let mut rest = self.bytes.clone().into();
        let mut commands = Vec::new();
        while let Ok(Some(command)) = take_command(&mut rest, &RespLimits::default()) {
            commands.push(command);
        }
        commands
    }

    pub(crate) fn is_left_out(&self) -> bool {
        let text = String::from_utf8_lossy(&self.bytes).to_lowercase();
        let is_timed = |command: &Command| expires_soon(command) || names_the_clock(command);
        LEFT_OUT.iter().any(|name| text.contains(name)) || self.commands().iter().any(is_timed)
    }

    /// Without a part of it, for finding the smallest stream that shows something.
    pub(crate) fn without(&self, start: usize, length: usize) -> Stream {
        let mut bytes = self.bytes.clone();
        let end = (start + length).min(bytes.len());
        bytes.drain(start..end);
        let moved = |cut: &usize| if *cut <= start { *cut } else { (*cut).max(end) - (end - start) };
        let mut cuts: Vec<usize> =
            self.cuts.iter().map(moved).filter(|cut| (1..bytes.len()).contains(cut)).collect();
        cuts.dedup();
        Stream { bytes, cuts }
    }
}

/// Whether what comes next depends on how fast a busy machine is.
fn expires_soon(command: &Command) -> bool {
    let soon = |word: Option<&[u8]>, unit_ms: i64| {
        let number = word.and_then(|word| std::str::from_utf8(word).ok()?.parse::<i64>().ok());
        number.is_some_and(|number| (1..=EXPIRY_MS_MIN).contains(&number.saturating_mul(unit_ms)))
    };
    let is =
        |word: &[u8], names: [&str; 3]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
    if is(command.name(), ["expire", "setex", "hexpire"]) {
        return soon(command.get(2), 1000);
    }
    if is(command.name(), ["pexpire", "psetex", "hpexpire"]) {
        return soon(command.get(2), 1);
    }
    (1..command.len()).any(|index| match command.arg(index) {
        word if word.eq_ignore_ascii_case(b"ex") => soon(command.get(index + 1), 1000),
        word if word.eq_ignore_ascii_case(b"px") => soon(command.get(index + 1), 1),
        _ => false,
    })
}

/// Whether an entry of a stream gets its id from the server's clock. Redis reads the id up to its first zero byte.
fn names_the_clock(command: &Command) -> bool {
    let is_clock = |word: &[u8]| word.split(|byte| *byte == 0).next() == Some(b"*");
    command.name().eq_ignore_ascii_case(b"xadd")
        && (1..command.len()).any(|index| is_clock(command.arg(index)))
}

/// Draws a stream; now and then it is one of `corpus`, broken further.
pub(crate) fn draw(random: &mut SmallRng, corpus: &[Vec<u8>]) -> Stream {
    let mut bytes = match corpus.choose(random) {
        Some(known) if random.random_bool(0.2) => known.clone(),
        _ => pipeline(random),
    };
    if random.random_bool(0.5) {
        for _ in 0..random.random_range(1..=3) {
            shatter(random, &mut bytes);
        }
    }
    let mut cuts: Vec<usize> = Vec::new();
    if bytes.len() > 1 && random.random_bool(0.5) {
        cuts = (0..random.random_range(1..6)).map(|_| random.random_range(1..bytes.len())).collect();
        cuts.sort_unstable();
        cuts.dedup();
    }
    Stream { bytes, cuts }
}

fn pipeline(random: &mut SmallRng) -> Vec<u8> {
    let lines: Vec<&str> = LINES.lines().filter(|line| !line.is_empty()).collect();
    let mut bytes = Vec::new();
    if random.random_bool(0.2) {
        bytes.extend_from_slice(b"HELLO 3\r\n");
    }
    for _ in 0..random.random_range(1..=12) {
        let line = lines.choose(random).expect("there are commands");
        let args: Vec<String> = line.split(' ').map(|word| argument(random, word)).collect();
        if random.random_bool(0.8) {
            bytes.extend_from_slice(Command::from_args(&args).frame());
        } else {
            inline(random, &args, &mut bytes);
        }
    }
    bytes
}

fn argument(random: &mut SmallRng, word: &str) -> String {
    let drawn = match word {
        "K" => KEYS.choose(random),
        "V" => VALUES.choose(random),
        word => return word.replace('~', " "),
    };
    (*drawn.expect("there are some")).to_owned()
}

fn inline(random: &mut SmallRng, args: &[String], out: &mut Vec<u8>) {
    for (index, arg) in args.iter().enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        let bare = !arg.is_empty()
            && arg.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\'');
        if bare && random.random_bool(0.8) {
            out.extend_from_slice(arg.as_bytes());
        } else {
            let quoted: String = arg.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
            out.extend_from_slice(format!("\"{quoted}\"").as_bytes());
        }
    }
    out.extend_from_slice(if random.random_bool(0.8) { b"\r\n" } else { b"\n" });
}

fn shatter(random: &mut SmallRng, bytes: &mut Vec<u8>) {
    let at = random.random_range(0..=bytes.len());
    match random.random_range(0..5) {
        0 if at < bytes.len() => bytes[at] = random.next_u32() as u8,
        1 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        2 => {
            let end = (at + random.random_range(1..8)).min(bytes.len());
            bytes.drain(at..end);
        }
        3 => {
            let splinter = SPLINTERS.choose(random).expect("there are some");
            bytes.splice(at..at, splinter.iter().copied());
        }
        _ => {
            let end = (at + random.random_range(1..20)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
    }
}

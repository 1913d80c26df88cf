//! Every command of Redis with every option: the same invocations to a redis-server and to a router, reply by reply.
//! What COMMAND DOCS says about arguments makes the invocations; nothing here knows what the replies should be.

pub(crate) mod compare;
mod intended;
pub(crate) mod invocations;
pub(crate) mod seeds;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use protocol::router::{CommandClass, surface};
use wire::resp::{Command, Value};

use crate::cluster::{Client, Cluster, Layout, RedisServer, installed, shared, text};
use intended::{Difference, shown};
use tree::Documented;

/// Differences that a report lists.
const DIFFERENCES_MAX: usize = 60;
/// No more than storage can do at once, or it would be asked for less.
const PIPELINE: usize = 24;
/// Reads are sent so often, so that the later ones meet copies.
const ROUNDS: usize = 8;

/// What a group of invocations needs so that both servers see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// In one pipeline, again and again: nothing changes.
    Reads,
    /// In one pipeline, everything made anew before each.
    Writes,
    /// Each on a connection of its own, which it may change or end.
    Alone,
}

#[derive(Debug, Default)]
struct Tally {
    invocations: usize,
    replies: usize,
    /// By reason.
    meant: BTreeMap<&'static str, usize>,
    refused: usize,
    differences: Vec<String>,
}

/// One of the two that are compared.
struct Side {
    socket: PathBuf,
    resp3: bool,
}

impl Side {
    fn connect(&self) -> Client {
        let client = Client::unix(&self.socket).expect("it accepts");
        if self.resp3 { client.resp3() } else { client }
    }

    /// The replies to commands in one pipeline.
    fn pipeline(&self, commands: &[Command]) -> Vec<Bytes> {
        self.pipelines(commands, PIPELINE)
    }

    fn pipelines(&self, commands: &[Command], at_once: usize) -> Vec<Bytes> {
        let mut client = self.connect();
        let mut replies = Vec::with_capacity(commands.len());
        for some in commands.chunks(at_once) {
            let bytes: Vec<u8> = some.iter().flat_map(|command| command.frame().to_vec()).collect();
            client.write(&bytes).expect("it reads");
            let mut reply = |command| client.frame().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            replies.extend(some.iter().map(&mut reply));
        }
        // It is gone before anybody counts clients, or CLIENT KILL would find it.
        client.write_and_end(b"").and_then(|()| client.rest()).expect("it closes");
        replies
    }

    /// All that comes back for one command and a PING behind it, until the connection ends.
    fn alone(&self, command: &Command) -> String {
        let mut client = self.connect();
        let ping = Command::from_args(&["PING"]);
        let bytes = [command.frame().as_ref(), ping.frame().as_ref()].concat();
        client.write_and_end(&bytes).expect("it reads");
        client.rest().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }
}

struct Pair {
    redis: Side,
    ours: Side,
    servers: usize,
    tally: Tally,
}

impl Pair {
    fn check(&mut self, command: &Documented, class: &CommandClass, payload: &[u8]) {
        let all = invocations::of(command, payload);
        self.tally.invocations += all.len();
        if let CommandClass::Refused(reason) = class {
            return self.refused(reason, &all);
        }
        match manner(command, class) {
            Manner::Reads => self.reads(command, &all),
            Manner::Writes => self.writes(command, &all),
            Manner::Alone => self.alone(command, &all),
        }
    }

    /// Redis does not get them: some would end it.
    fn refused(&mut self, reason: &str, all: &[Vec<Vec<u8>>]) {
        let commands: Vec<Command> = all.iter().map(|arguments| Command::from_args(arguments)).collect();
        for (arguments, reply) in all.iter().zip(self.ours.pipeline(&commands)) {
            let reply = shown(&Value::parse(&reply).expect("a reply"));
            let right = reply.contains(reason) || reply.contains("wrong number of arguments for");
            if !right {
                self.tally.differences.push(format!("{}: not refused: {reply}", line(arguments)));
            }
        }
        self.tally.refused += 1;
        self.tally.replies += all.len();
    }

    fn reads(&mut self, command: &Documented, all: &[Vec<Vec<u8>>]) {
        let mut commands = reset(&command.group);
        let before = commands.len();
        commands.extend(all.iter().map(|arguments| Command::from_args(arguments)));
        let redis = self.redis.pipeline(&commands);
        for round in 0..ROUNDS {
            // Nothing is written between the rounds, so that the later ones meet copies: one by one, because reads of
            // one key in a pipeline follow the first of them.
            let ours = match round {
                0 => self.ours.pipeline(&commands),
                1 => self.ours.pipeline(&commands[before..]),
                _ => self.ours.pipelines(&commands[before..], 1),
            };
            let replies = ours.iter().skip(if round == 0 { before } else { 0 });
            for ((arguments, redis), ours) in all.iter().zip(&redis[before..]).zip(replies) {
                self.compare(command, arguments, redis, ours);
            }
        }
    }

    fn writes(&mut self, command: &Documented, all: &[Vec<Vec<u8>>]) {
        let reset = reset(&command.group);
        let mut commands = Vec::new();
        for arguments in all {
            commands.extend(reset.iter().cloned());
            commands.push(Command::from_args(arguments));
            // What it left behind, told from all keys.
            commands.push(state());
        }
        let (redis, ours) = (self.redis.pipeline(&commands), self.ours.pipeline(&commands));
        for (at, arguments) in all.iter().enumerate() {
            let own = (at + 1) * (reset.len() + 2) - 2;
            let same = self.compare(command, arguments, &redis[own], &ours[own]);
            // What is refused leaves everything as it was.
            if same && redis[own + 1] != ours[own + 1] {
                self.difference(arguments, "left", &redis[own + 1], &ours[own + 1]);
            }
        }
    }

    fn alone(&mut self, command: &Documented, all: &[Vec<Vec<u8>>]) {
        let reset = reset(&command.group);
        self.redis.pipeline(&reset);
        self.ours.pipeline(&reset);
        for arguments in all {
            let own = Command::from_args(arguments);
            let (redis, ours) = (self.redis.alone(&own), self.ours.alone(&own));
            self.tally.replies += 1;
            let (redis, ours) = (frames(redis), frames(ours));
            if redis.len() != ours.len() {
                let show = |frames: &[Bytes]| Bytes::from(frames.concat());
                self.difference(arguments, "all", &show(&redis), &show(&ours));
                continue;
            }
            for (redis, ours) in redis.iter().zip(&ours) {
                self.compare(command, arguments, redis, ours);
            }
        }
    }

    fn compare(&mut self, command: &Documented, arguments: &[Vec<u8>], redis: &Bytes, ours: &Bytes) -> bool {
        self.tally.replies += 1;
        if redis == ours {
            return true;
        }
        let (Ok(from_redis), Ok(from_us)) = (Value::parse(redis), Value::parse(ours)) else {
            self.difference(arguments, "reply", redis, ours);
            return false;
        };
        if compare::same(&command.name, &from_redis, &from_us) {
            return true;
        }
        let (redis_text, our_text) = (shown(&from_redis), shown(&from_us));
        let servers = self.servers;
        let difference = Difference { name: &command.name, redis: &redis_text, ours: &our_text, servers };
        match intended::reason(&difference) {
            Some(reason) => *self.tally.meant.entry(reason).or_default() += 1,
            None => self.difference(arguments, "reply", redis, ours),
        }
        false
    }

    fn difference(&mut self, arguments: &[Vec<u8>], what: &str, redis: &Bytes, ours: &Bytes) {
        let show = |bytes: &Bytes| bytes[..bytes.len().min(300)].escape_ascii().to_string();
        let text = format!("{}: {what}\n  redis: {}\n   ours: {}", line(arguments), show(redis), show(ours));
        self.tally.differences.push(text);
    }
}

fn manner(command: &Documented, class: &CommandClass) -> Manner {
    let own = ["connection", "pubsub", "transactions"].contains(&command.group.as_str());
    match class {
        // Redis closes a client that ends while it is paused.
        _ if command.name.starts_with("client|") && command.name.ends_with("pause") => Manner::Writes,
        _ if own => Manner::Alone,
        CommandClass::CachedRead | CommandClass::Read => Manner::Reads,
        _ => Manner::Writes,
    }
}

fn reset(group: &str) -> Vec<Command> {
    let keys = seeds::KEYS.len().to_string();
    let mut arguments = vec!["EVAL", seeds::SCRIPT, &keys];
    arguments.extend(seeds::KEYS);
    let mut commands = vec![Command::from_args(&arguments)];
    if group == "scripting" {
        commands.push(Command::from_args(&["SCRIPT", "FLUSH"]));
        commands.push(Command::from_args(&["SCRIPT", "LOAD", "return 1"]));
        commands.push(Command::from_args(&["FUNCTION", "FLUSH"]));
        commands.push(Command::from_args(&["FUNCTION", "LOAD", seeds::LIBRARY]));
    }
    commands
}

/// The lengths and types of all keys.
fn state() -> Command {
    const SCRIPT: &str = r"
local size = {string='STRLEN', list='LLEN', set='SCARD', zset='ZCARD', hash='HLEN', stream='XLEN'}
local out = {}
for _, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local ttl = redis.call('PTTL', key)
  local short = ttl >= 0 and 'expires' or 'stays'
  out[#out + 1] = kind .. ':' .. short .. ':' .. (size[kind] and redis.call(size[kind], key) or 0)
end
return out";
    let keys = seeds::KEYS.len().to_string();
    let mut arguments = vec!["EVAL_RO", SCRIPT, &keys];
    arguments.extend(seeds::KEYS);
    Command::from_args(&arguments)
}

pub(crate) fn line(arguments: &[Vec<u8>]) -> String {
    let words = arguments.iter().map(|word| word.escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}

fn frames(bytes: String) -> Vec<Bytes> {
    let (mut rest, mut frames) = (bytes.as_bytes(), Vec::new());
    while !rest.is_empty() {
        let length = wire::resp::ReplyScanner::new().scan(rest).ok().flatten().unwrap_or(rest.len());
        frames.push(Bytes::copy_from_slice(&rest[..length]));
        rest = &rest[length..];
    }
    frames
}

/// What a value looks like to RESTORE.
pub(crate) fn payload(reference: &Path) -> Vec<u8> {
    let mut client = Client::unix(reference).expect("it accepts");
    client.call(&["SET", "{t}dumped", "hello"]);
    let payload = client.call(&["DUMP", "{t}dumped"]).bytes().expect("a payload").to_vec();
    client.call(&["DEL", "{t}dumped"]);
    payload
}

fn run(servers: usize, resp3: bool) {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let reference = RedisServer::start();
    let storage: Vec<RedisServer> = (0..servers).map(|_| RedisServer::start()).collect();
    let tables = "[heat]\nthreshold = 1\nwindow_ms = 10\nhold_off_ms = 1".to_owned();
    let routing = if servers > 1 { "on-path" } else { "learned" };
    let cluster = Cluster::up(Layout { tables, routing, ..Layout::before(&storage) });
    let payload = payload(&reference.socket());
    let documented = tree::commands(&reference.connect().call(&["COMMAND", "DOCS"]));
    let redis = Side { socket: reference.socket(), resp3 };
    let ours = Side { socket: cluster.unix_socket(), resp3 };
    let mut pair = Pair { redis, ours, servers, tally: Tally::default() };
    let mut report = String::new();
    let mut treatments: BTreeMap<&str, CommandClass> =
        surface().into_iter().map(|row| (row.spec.name, row.class)).collect();
    for command in &documented {
        let class = treatments
            .remove(command.name.as_str())
            .unwrap_or_else(|| panic!("{} has no entry in the table", command.name));
        let (invocations, differences) = (pair.tally.invocations, pair.tally.differences.len());
        pair.check(command, &class, &payload);
        let (more, wrong) =
            (pair.tally.invocations - invocations, pair.tally.differences.len() - differences);
        report += &format!("{:28} {more:4} invocations, {wrong} differ\n", command.name);
    }
    assert!(treatments.is_empty(), "COMMAND DOCS does not name {treatments:?}");
    let hits = text(&cluster.connect(0).call(&["INFO", "distcache"]));
    let hits = hits.lines().find_map(|line| line.strip_prefix("hits:")?.parse::<usize>().ok());
    let Tally { invocations, replies, meant, refused, differences } = &pair.tally;
    report += &format!(
        "{servers} servers, RESP{}: {} commands, {invocations} invocations, {replies} replies compared, \
         {} refused commands, hits {hits:?}, {} differ\nmeant: {meant:#?}\n",
        if resp3 { 3 } else { 2 },
        documented.len(),
        refused,
        differences.len()
    );
    drop(std::io::stderr().lock().write_all(report.as_bytes()));
    let some: Vec<&str> = differences.iter().take(DIFFERENCES_MAX).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), some.join("\n"));
    assert!(hits.is_some_and(|hits| hits > 200), "too few reads met copies: {hits:?}");
}

#[test]
fn every_command_over_one_server_in_resp2() {
    run(1, false);
}

#[test]
fn every_command_over_one_server_in_resp3() {
    run(1, true);
}

#[test]
fn every_command_over_three_servers_in_resp2() {
    run(3, false);
}

#[test]
fn every_command_over_three_servers_in_resp3() {
    run(3, true);
}

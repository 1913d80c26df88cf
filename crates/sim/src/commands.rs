//! What clients ask for: keys of four kinds, and commands with what they do to which of them. Not when, or by whom.

use bytes::Bytes;
use linearize::{ModelState, What};
use protocol::placement::Placement;
use wire::resp::Command;
use wire::{Key, View};

use crate::random::SimRandom;
use crate::shape::{Shape, Traffic};

/// Keys that are read and never written: more than small nodes hold.
const COLD_KEYS: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Text,
    Counter,
    Hash,
    List,
}

/// A cacheable read of a key.
#[derive(Clone, Debug)]
pub(crate) struct ReadForm {
    pub(crate) what: What,
    pub(crate) command: Command,
    /// By RESP version.
    pub(crate) views: [View; 2],
}

#[derive(Clone, Debug)]
pub(crate) struct TestKey {
    pub(crate) kind: KeyKind,
    pub(crate) key: Key,
    pub(crate) reads: Vec<ReadForm>,
}

/// How a reply answers the operations of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageAnswers {
    /// Each of them with all of it.
    All,
    /// Each with its element.
    Elements,
    /// There are none, and it is null.
    Null,
    /// There are none.
    Nothing,
    /// There are none, and it says whether changes will be told.
    Tracking,
}

/// A command with what it does to which keys.
#[derive(Clone, Debug)]
pub(crate) struct DrawnCommand {
    pub(crate) command: Command,
    pub(crate) effects: Vec<(usize, What)>,
    pub(crate) answers: StorageAnswers,
    pub(crate) blocks: bool,
}

impl TestKey {
    fn new(placement: &Placement, kind: KeyKind, name: &str) -> TestKey {
        let forms: &[(&[&str], What)] = match kind {
            KeyKind::Text => &[(&["GET"], What::Get), (&["STRLEN"], What::Length)],
            KeyKind::Counter => &[(&["GET"], What::Get)],
            KeyKind::Hash => &[
                (&["HGETALL"], What::HashGetAll),
                (&["HLEN"], What::HashLength),
                (&["HGET", "f"], What::HashGet(b"f".to_vec())),
            ],
            KeyKind::List => &[(&["LLEN"], What::ListLength)],
        };
        let form = |(words, what): &(&[&str], What)| {
            let mut args = words.to_vec();
            args.insert(1, name);
            let command = Command::from_args(&args);
            let classified = commands::classify(&command).expect("a command of the table");
            let view = |resp3| commands::view(placement.view_hash(), &command, &classified, resp3);
            ReadForm { what: what.clone(), views: [view(false), view(true)], command }
        };
        let key = placement.key(0, Bytes::copy_from_slice(name.as_bytes()));
        TestKey { kind, key, reads: forms.iter().map(form).collect() }
    }

    pub(crate) fn initial(&self) -> ModelState {
        match self.kind {
            KeyKind::Text | KeyKind::Counter => ModelState::text(),
            KeyKind::Hash => ModelState::Hash(Default::default()),
            KeyKind::List => ModelState::List(Default::default()),
        }
    }
}

/// Texts come in pairs with one hash tag, so that MSET can take both.
pub(crate) fn keys(shape: &Shape, placement: &Placement) -> Vec<TestKey> {
    let Traffic { texts, counters, hashes, lists, .. } = shape.traffic;
    let mut keys = Vec::new();
    let mut add = |kind, name: String| keys.push(TestKey::new(placement, kind, &name));
    (0..texts).for_each(|n| add(KeyKind::Text, format!("{{{}}}t{n}", n / 2)));
    (0..counters).for_each(|n| add(KeyKind::Counter, format!("c{n}")));
    (0..hashes).for_each(|n| add(KeyKind::Hash, format!("h{n}")));
    (0..lists).for_each(|n| add(KeyKind::List, format!("l{n}")));
    keys
}

fn one(args: &[&[u8]], key: usize, what: What) -> DrawnCommand {
    let command = Command::from_args(args);
    DrawnCommand { command, effects: vec![(key, what)], answers: StorageAnswers::All, blocks: false }
}

/// What a client asks for next; `serial` makes every value unique. `near`: on this key.
pub(crate) fn draw(
    traffic: &Traffic,
    keys: &[TestKey],
    near: Option<usize>,
    serial: u64,
    random: &mut SimRandom,
) -> DrawnCommand {
    let favourite = if random.percent(traffic.skew) { Some(0) } else { None };
    let key = near.or(favourite).unwrap_or_else(|| random.index(keys.len()));
    if random.percent(traffic.reads) {
        if near.is_none() && random.percent(8) {
            return read_several(keys, random);
        }
        let form = &keys[key].reads[random.index(keys[key].reads.len())];
        let (command, effects) = (form.command.clone(), vec![(key, form.what.clone())]);
        return DrawnCommand { command, effects, answers: StorageAnswers::All, blocks: false };
    }
    let name = &keys[key].key.bytes[..];
    let value = format!("v{serial}").into_bytes();
    match keys[key].kind {
        KeyKind::Text => write_text(traffic, keys, key, value, random),
        KeyKind::Counter => match random.below(10) {
            0 => one(&[b"DEL", name], key, What::Delete),
            1 => expire(name, key, traffic, random),
            2 | 3 => one(&[b"INCR", name], key, What::Increment(1)),
            _ => {
                let text = serial.to_string();
                one(&[b"INCRBY", name, text.as_bytes()], key, What::Increment(serial as i64))
            }
        },
        KeyKind::Hash if random.percent(10) => one(&[b"DEL", name], key, What::Delete),
        KeyKind::Hash => {
            let field = random.pick(&[b"f", b"g"]).to_vec();
            one(&[b"HSET", name, &field, &value], key, What::HashSet(field.clone(), value.clone()))
        }
        KeyKind::List if near.is_none() && random.percent(40) => {
            let blocking = one(&[b"BLPOP", name, b"0"], key, What::Pop(name.to_vec()));
            DrawnCommand { blocks: true, ..blocking }
        }
        KeyKind::List => one(&[b"LPUSH", name, &value], key, What::Push(value.clone())),
    }
}

/// MGET of two to four different texts or counters.
fn read_several(keys: &[TestKey], random: &mut SimRandom) -> DrawnCommand {
    let simple: Vec<usize> =
        (0..keys.len()).filter(|key| matches!(keys[*key].kind, KeyKind::Text | KeyKind::Counter)).collect();
    let (start, count) = (random.index(simple.len()), random.between(2, 4) as usize);
    let chosen: Vec<usize> =
        (0..count.min(simple.len())).map(|n| simple[(start + n) % simple.len()]).collect();
    let mut args: Vec<&[u8]> = vec![b"MGET"];
    args.extend(chosen.iter().map(|key| &keys[*key].key.bytes[..]));
    let effects = chosen.iter().map(|key| (*key, What::Get)).collect();
    DrawnCommand {
        command: Command::from_args(&args),
        effects,
        answers: StorageAnswers::Elements,
        blocks: false,
    }
}

fn expire(name: &[u8], key: usize, traffic: &Traffic, random: &mut SimRandom) -> DrawnCommand {
    if !traffic.expiry {
        return one(&[b"INCR", name], key, What::Increment(1));
    }
    if random.percent(30) {
        return one(&[b"EXPIRE", name, b"1"], key, What::Expire(1000));
    }
    let milliseconds = random.pick(&[5, 50, 400]);
    let text = milliseconds.to_string();
    one(&[b"PEXPIRE", name, text.as_bytes()], key, What::Expire(milliseconds))
}

fn write_text(
    traffic: &Traffic,
    keys: &[TestKey],
    key: usize,
    value: Vec<u8>,
    random: &mut SimRandom,
) -> DrawnCommand {
    let name = &keys[key].key.bytes[..];
    let twin = key ^ 1;
    match random.below(12) {
        0 | 1 if keys.get(twin).is_some_and(|twin| twin.kind == KeyKind::Text) => {
            let other = [b"w", &value[..]].concat();
            let args: [&[u8]; 5] = [b"MSET", name, &value, &keys[twin].key.bytes, &other];
            let effects = vec![(key, What::Set(value.clone())), (twin, What::Set(other.clone()))];
            let command = Command::from_args(&args);
            DrawnCommand { command, effects, answers: StorageAnswers::All, blocks: false }
        }
        2 | 3 => one(&[b"APPEND", name, &value], key, What::Append(value.clone())),
        4 => one(&[b"DEL", name], key, What::Delete),
        5 | 6 if traffic.expiry => {
            let milliseconds: u64 = random.pick(&[5, 50, 400]);
            let text = milliseconds.to_string();
            let args: &[&[u8]] = match random.percent(50) {
                true => &[b"SET", name, &value, b"PX", text.as_bytes()],
                false => &[b"PSETEX", name, text.as_bytes(), &value],
            };
            one(args, key, What::SetFor(value.clone(), milliseconds))
        }
        7 if traffic.expiry => one(&[b"SETEX", name, b"1", &value], key, What::SetFor(value.clone(), 1000)),
        8 if traffic.expiry => {
            let milliseconds: u64 = random.pick(&[50, 400]);
            let text = milliseconds.to_string();
            one(&[b"PEXPIRE", name, text.as_bytes()], key, What::Expire(milliseconds))
        }
        _ => one(&[b"SET", name, &value], key, What::Set(value.clone())),
    }
}

/// A read of something that never was.
pub(crate) fn cold(random: &mut SimRandom) -> DrawnCommand {
    let name = format!("cold{}", random.below(COLD_KEYS));
    let command = Command::from_args(&["GET", &name]);
    DrawnCommand { command, effects: Vec::new(), answers: StorageAnswers::Null, blocks: false }
}

pub(crate) fn flush(keys: usize) -> DrawnCommand {
    let effects = (0..keys).map(|key| (key, What::Clear)).collect();
    let command = Command::from_args(&["FLUSHALL"]);
    DrawnCommand { command, effects, answers: StorageAnswers::All, blocks: false }
}

/// What a reply says of its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandVerdict {
    Told,
    Unknown,
    NoEffect,
}

/// Every error that DistCache gives in trouble says what became of the command.
pub(crate) fn verdict(reply: &[u8]) -> Result<CommandVerdict, String> {
    if !matches!(reply.first(), Some(b'-' | b'!')) {
        return Ok(CommandVerdict::Told);
    }
    let text = String::from_utf8_lossy(reply);
    let says = |words: &str| text.contains(words);
    if says("is unknown") {
        return Ok(CommandVerdict::Unknown);
    }
    // Only a read is told no more than that its connection broke.
    let harmless = [
        "BUSY",
        "no effect",
        "cannot be reached",
        "was not executed",
        "changed nothing",
        "does not own the key",
        "the connection to storage broke before the reply",
        // What blocked at a shim that leaves.
        "UNBLOCKED",
    ];
    match harmless.iter().any(|words| says(words)) {
        true => Ok(CommandVerdict::NoEffect),
        false => Err(format!("an unexpected reply: {text}")),
    }
}

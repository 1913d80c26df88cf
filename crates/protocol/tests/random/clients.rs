//! Clients behind routers: what they ask for, where, and what the answers mean. Not when.

use bytes::Bytes;
use protocol::command;
use protocol::placement::Placement;
use rand::RngExt;
use rand::rngs::SmallRng;
use wire::message::{Execute, Read, Reply};
use wire::resp::Command;
use wire::{Key, Message, Status, View};

use crate::model::{State, What};
use crate::network::{End, NODES, ROUTERS};
use crate::swarm::Swarm;

pub(crate) const CLIENTS: usize = 6;
/// Keeps the search for an order short.
pub(crate) const KEY_OPERATIONS_MAX: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Text,
    Hash,
    List,
}

/// A cacheable read of a key, ready to be sent.
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

impl TestKey {
    fn new(placement: &Placement, kind: KeyKind, name: &str) -> TestKey {
        let forms: &[(&[&str], What)] = match kind {
            KeyKind::Text => &[(&["GET"], What::Get)],
            KeyKind::Hash => &[
                (&["HGETALL"], What::HashGetAll),
                (&["HLEN"], What::HashLen),
                (&["HGET", "f"], What::HashGet(b"f".to_vec())),
            ],
            KeyKind::List => &[(&["LLEN"], What::ListLen)],
        };
        let form = |(words, what): &(&[&str], What)| {
            let mut args = words.to_vec();
            args.insert(1, name);
            let command = Command::from_args(&args);
            let classified = command::classify(&command).expect("a command of the table");
            let view = |resp3| command::view(placement.view_hash(), &command, &classified, resp3);
            ReadForm { what: what.clone(), views: [view(false), view(true)], command }
        };
        let key = placement.key(0, Bytes::copy_from_slice(name.as_bytes()));
        TestKey { kind, key, reads: forms.iter().map(form).collect() }
    }

    pub(crate) fn initial(&self) -> State {
        match self.kind {
            KeyKind::Text => State::text(),
            KeyKind::Hash => State::Hash(Default::default()),
            KeyKind::List => State::List(Default::default()),
        }
    }

    pub(crate) fn read(&self, form: usize, request: u64, resp3: bool, ordered: bool) -> Message {
        let ReadForm { views, command, .. } = &self.reads[form];
        let view = views[usize::from(resp3)];
        let command = if view == View::GET { Bytes::new() } else { command.frame().clone() };
        Message::Read(Read { request, key: self.key.clone(), view, resp3, ordered, command })
    }
}

pub(crate) fn keys(swarm: &Swarm, placement: &Placement) -> Vec<TestKey> {
    let mut keys: Vec<TestKey> =
        (0..swarm.text_keys).map(|n| TestKey::new(placement, KeyKind::Text, &format!("s{n}"))).collect();
    if swarm.hashes {
        keys.push(TestKey::new(placement, KeyKind::Hash, "h"));
    }
    if swarm.lists {
        keys.push(TestKey::new(placement, KeyKind::List, "l"));
    }
    keys
}

/// What a client wants to do next.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Read {
        key: usize,
        form: usize,
    },
    /// A command with what it does to which keys.
    Execute {
        args: Vec<Vec<u8>>,
        effects: Vec<(usize, What)>,
        blocks: bool,
    },
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) client: usize,
    pub(crate) to: End,
    /// Numbers in the history.
    pub(crate) operations: Vec<usize>,
    pub(crate) blocks: bool,
}

pub(crate) fn router_of(client: usize) -> End {
    ROUTERS.start + client % ROUTERS.len()
}

pub(crate) fn is_resp3(client: usize, swarm: &Swarm) -> bool {
    swarm.resp3 && client.is_multiple_of(3)
}

/// What the next client asks for; `serial` makes every value unique.
pub(crate) fn wish(swarm: &Swarm, keys: &[TestKey], serial: u64, random: &mut SmallRng) -> Wish {
    let key = random.random_range(0..keys.len());
    if random.random_range(0..100) < swarm.reads {
        return Wish::Read { key, form: random.random_range(0..keys[key].reads.len()) };
    }
    if swarm.flushes && random.random_bool(0.03) {
        let effects = (0..keys.len()).map(|key| (key, What::Clear)).collect();
        return Wish::Execute { args: vec![b"FLUSHALL".to_vec()], effects, blocks: false };
    }
    let name = keys[key].key.bytes.to_vec();
    let value = format!("v{serial}").into_bytes();
    let one = |args: &[&[u8]], what: What| Wish::Execute {
        args: args.iter().map(|arg| arg.to_vec()).collect(),
        effects: vec![(key, what)],
        blocks: false,
    };
    match keys[key].kind {
        KeyKind::Text => text_wish(swarm, keys, key, value, random),
        KeyKind::Hash if random.random_bool(0.1) => one(&[b"DEL", &name], What::Delete),
        KeyKind::Hash => {
            let field = [b"f".to_vec(), b"g".to_vec()][random.random_range(0..2)].clone();
            one(&[b"HSET", &name, &field, &value], What::HashSet(field.clone(), value.clone()))
        }
        KeyKind::List if random.random_bool(0.4) => Wish::Execute {
            args: vec![b"BLPOP".to_vec(), name.clone(), b"0".to_vec()],
            effects: vec![(key, What::Pop(name))],
            blocks: true,
        },
        KeyKind::List => one(&[b"LPUSH", &name, &value], What::Push(value.clone())),
    }
}

fn text_wish(swarm: &Swarm, keys: &[TestKey], key: usize, value: Vec<u8>, random: &mut SmallRng) -> Wish {
    let name = keys[key].key.bytes.to_vec();
    let one = |args: &[&[u8]], what: What| Wish::Execute {
        args: args.iter().map(|arg| arg.to_vec()).collect(),
        effects: vec![(key, what)],
        blocks: false,
    };
    match random.random_range(0..10) {
        0 if swarm.text_keys > 1 => {
            let other = (key + random.random_range(1..swarm.text_keys)) % swarm.text_keys;
            let other_value = [b"w", &value[..]].concat();
            let args =
                [b"MSET".to_vec(), name, value.clone(), keys[other].key.bytes.to_vec(), other_value.clone()];
            let effects = vec![(key, What::Set(value)), (other, What::Set(other_value))];
            Wish::Execute { args: args.to_vec(), effects, blocks: false }
        }
        1 | 2 => one(&[b"INCR", &name], What::Incr),
        3 => one(&[b"APPEND", &name, &value], What::Append(value.clone())),
        4 => one(&[b"DEL", &name], What::Delete),
        5 | 6 if swarm.expiry => {
            let milliseconds = [3, 20, 150][random.random_range(0..3)];
            let text = milliseconds.to_string().into_bytes();
            one(&[b"SET", &name, &value, b"PX", &text], What::SetPx(value.clone(), milliseconds))
        }
        _ => one(&[b"SET", &name, &value], What::Set(value.clone())),
    }
}

pub(crate) fn execute(
    keys: &[TestKey],
    request: u64,
    args: &[Vec<u8>],
    effects: &[(usize, What)],
    resp3: bool,
    ordered: bool,
) -> Message {
    let command = Command::from_args(args);
    let flush = matches!(effects[0].1, What::Clear);
    let key = if flush { Key::default() } else { keys[effects[0].0].key.clone() };
    Message::Execute(Execute { request, key, resp3, ordered, command: command.frame().clone() })
}

/// What a reply says of its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Told(Vec<u8>),
    Unknown,
    NoEffect,
}

pub(crate) fn verdict(reply: &Reply) -> Result<Verdict, String> {
    let text = String::from_utf8_lossy(&reply.value);
    let says = |words: &str| text.contains(words);
    match reply.status {
        Status::Ok if reply.value == b"_\r\n"[..] => Ok(Verdict::Told(b"$-1\r\n".to_vec())),
        Status::Ok => Ok(Verdict::Told(reply.value.to_vec())),
        Status::Nil => Ok(Verdict::Told(b"$-1\r\n".to_vec())),
        Status::Error | Status::Busy if says("is unknown") => Ok(Verdict::Unknown),
        Status::Error if says("connection to storage broke") && !says("the command had no effect") => {
            // Only a read says no more than that.
            Ok(Verdict::NoEffect)
        }
        Status::Error | Status::Busy if says("BUSY") || says("no effect") || says("cannot be reached") => {
            Ok(Verdict::NoEffect)
        }
        _ => Err(format!("an unexpected reply: {text}")),
    }
}

/// Where a read goes: to a node mostly, so that there is something to check.
pub(crate) fn destination(wish: &Wish, slot: Option<End>, random: &mut SmallRng) -> Option<End> {
    let via_node = matches!(wish, Wish::Read { .. }) && random.random_bool(0.8);
    if via_node { Some(random.random_range(NODES)) } else { slot }
}

//! What peers may say to a machine: any message that the codec can carry, with numbers that the machine has said
//! itself, because those are the ones that can confuse it. Not one rule about which messages make sense.

use std::sync::{Arc, OnceLock};

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use protocol::placement::{Placement, Secret};
use wire::header::{HEADER_BYTES, Header};
use wire::map::SHARE_WHOLE;
use wire::resp::Command;
use wire::{
    ClusterMap, Key, LayerMap, Message, NodeId, NodeMember, Partition, Peer, RackId, RouterId, Sharding,
    ShimId, ShimMember, decode, encode,
};

/// Two nodes in two layers, two shims; the first node is up or down.
pub(crate) fn placement(first_up: bool) -> Arc<Placement> {
    static PLACEMENTS: [OnceLock<Arc<Placement>>; 2] = [OnceLock::new(), OnceLock::new()];
    Arc::clone(PLACEMENTS[usize::from(first_up)].get_or_init(|| {
        let layer = |id: u16, partition| {
            let rack = (partition == Partition::Rack).then_some(RackId(0));
            let share = if first_up || id > 0 { SHARE_WHOLE } else { 0 };
            let node = NodeMember { id: NodeId(id), rack, capacity: 100, share };
            LayerMap { name: format!("layer-{id}"), partition, nodes: vec![node] }
        };
        let layers = vec![layer(0, Partition::Rack), layer(1, Partition::Hash)];
        let shims = (0..2).map(|id| ShimMember::new(ShimId(id), RackId(0))).collect();
        let map = ClusterMap { epoch: 1, level: 1, sharding: Sharding::Ring, layers, shims };
        Arc::new(Placement::new(Secret([3; 16]), map).expect("a well-formed map"))
    }))
}

/// The first bytes of keys say what they hold, so that commands fit them often enough.
const KEYS: [&str; 5] = ["s0", "s1", "h", "l", "{s0}x"];
const OPERATIONS: [u8; 26] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 99];
const TEXTS: [&[u8]; 8] = [
    b"$1\r\nx\r\n",
    b"$-1\r\n",
    b"*2\r\n+a\r\n:1\r\n",
    b"-ERR no\r\n",
    b"+QUEUED\r\n",
    b"",
    b"*1\r\n$8\r\nFLUSHALL\r\n",
    b"*3\r\n$3\r\nSET",
];
/// Texts every one of which is a whole reply.
pub(crate) const REPLIES: &[&[u8]] = TEXTS.split_at(5).0;
const COMMANDS: [&[&str]; 32] = [
    &["GET", "K"],
    &["STRLEN", "K"],
    &["SET", "K", "value"],
    &["SET", "K", "value", "PX", "5"],
    &["INCR", "K"],
    &["DEL", "K", "s1"],
    &["MGET", "K", "s1", "h"],
    &["MSET", "K", "1", "l", "2"],
    &["EXISTS", "K", "K"],
    &["HGETALL", "K"],
    &["HSET", "K", "f", "v"],
    &["LRANGE", "K", "0", "-1"],
    &["LPUSH", "K", "v"],
    &["BLPOP", "K", "0"],
    &["EXPIRE", "K", "10"],
    &["EVAL", "return 1", "1", "K"],
    &["EVAL", "return 1", "0"],
    &["FLUSHALL"],
    &["PING"],
    &["SELECT", "1"],
    &["HELLO", "3"],
    &["CLIENT", "ID"],
    &["DBSIZE"],
    &["SORT", "K", "BY", "w_*", "STORE", "s1"],
    &["SUBSCRIBE", "K"],
    &["PSUBSCRIBE", "K"],
    &["SSUBSCRIBE", "K"],
    &["UNSUBSCRIBE", "K"],
    &["PUBLISH", "K", "m"],
    &["PUBSUB", "NUMSUB", "K", "s1"],
    &["PUBSUB", "CHANNELS"],
    &["RESET"],
];

/// The numbers that were heard: sessions, fills, versions, requests, nonces.
pub(crate) struct Speech {
    heard: Vec<u64>,
}

impl Speech {
    pub(crate) fn new() -> Speech {
        Speech { heard: vec![0, 1, u64::MAX] }
    }

    /// A message that a machine has sent: it can be carried, and its numbers are known from now on.
    pub(crate) fn hear(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        let header = bytes.first_chunk::<HEADER_BYTES>().expect("a message has a header");
        let header = Header::read(header).expect("what was encoded can be read");
        assert_eq!(decode(&mut Bytes::from(bytes)).as_ref(), Ok(&Some(message.clone())));
        if self.heard.len() > 64 {
            self.heard.drain(3..35);
        }
        let numbers = [header.request, header.version].into_iter().chain(header.tail);
        self.heard.extend(numbers.filter(|number| *number > 1 && *number != u64::MAX));
    }

    pub(crate) fn number(&self, bytes: &mut Unstructured<'_>) -> Result<u64> {
        let heard = *bytes.choose(&self.heard)?;
        Ok(heard.wrapping_add(*bytes.choose(&[0, 0, 0, 1, u64::MAX])?))
    }

    /// The message; `None` if the codec would not let it through.
    pub(crate) fn message(&self, bytes: &mut Unstructured<'_>) -> Result<Option<Message>> {
        let key = key(bytes)?;
        let (command, view) = match bytes.ratio(3, 4)? {
            true => command(bytes, &key)?,
            false => ((*bytes.choose(&TEXTS)?).into(), self.number(bytes)?),
        };
        let value = if bytes.ratio(1, 2)? { command } else { Bytes::from_static(bytes.choose(&TEXTS)?) };
        let header = Header {
            operation: *bytes.choose(&OPERATIONS)?,
            flags: bytes.arbitrary()?,
            status: bytes.int_in_range(0..=4)?,
            degree: 1,
            request: self.number(bytes)?,
            digest: key.digest.0,
            view: if bytes.ratio(1, 2)? { view } else { 0 },
            database: key.database,
            waited_ms: bytes.arbitrary()?,
            key_bytes: key.bytes.len() as u32,
            value_bytes: value.len() as u32,
            map_epoch: 1,
            version: self.number(bytes)?,
            tail: [self.number(bytes)?, self.number(bytes)?, self.number(bytes)?, self.number(bytes)?],
        };
        let mut out = Vec::new();
        header.write(&mut out);
        out.extend_from_slice(&key.bytes);
        out.extend_from_slice(&value);
        Ok(decode(&mut out.into()).ok().flatten())
    }
}

pub(crate) fn peer(bytes: &mut Unstructured<'_>) -> Result<Peer> {
    let id = bytes.int_in_range(0..=2)?;
    Ok(match bytes.int_in_range(0..=2)? {
        0 => Peer::Node(NodeId(id)),
        1 => Peer::Shim(ShimId(id)),
        _ => Peer::Router(RouterId(id)),
    })
}

fn key(bytes: &mut Unstructured<'_>) -> Result<Key> {
    let name = bytes.choose(&KEYS)?.as_bytes();
    let mut key = placement(true).key(0, Bytes::from_static(name));
    if bytes.ratio(1, 16)? {
        key.digest.0 ^= 1;
    }
    Ok(key)
}

/// A command on this key, and its view if it has one.
fn command(bytes: &mut Unstructured<'_>, key: &Key) -> Result<(Bytes, u64)> {
    let command = any_command(bytes, &key.bytes)?;
    let view = commands::classify(&command).map_or(0, |classified| {
        commands::view(placement(true).view_hash(), &command, &classified, bytes.ratio(1, 4).unwrap_or(false))
            .0
    });
    Ok((command.frame().clone(), view))
}

/// One of the commands above on `key`.
pub(crate) fn any_command(bytes: &mut Unstructured<'_>, key: &[u8]) -> Result<Command> {
    let args: Vec<&[u8]> =
        bytes.choose(&COMMANDS)?.iter().map(|arg| if *arg == "K" { key } else { arg.as_bytes() }).collect();
    Ok(Command::from_args(&args))
}

/// A key by name, for commands that clients send.
pub(crate) fn key_name(bytes: &mut Unstructured<'_>) -> Result<&'static [u8]> {
    Ok(bytes.choose(&KEYS)?.as_bytes())
}

/// Time that goes by between two inputs, in microseconds: mostly little, sometimes more than a lease.
pub(crate) fn pause(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(u64::from(bytes.arbitrary::<u8>()?) * if bytes.ratio(1, 16)? { 8_000 } else { 40 })
}

//! Publish and subscribe of the embedded store, whose one subscriber is the shim. Not who the shim's subscribers are.

use std::collections::BTreeSet;

use bytes::Bytes;
use commands::glob;
use protocol::storage::StorageEvent;
use wire::resp::{Command, reply};

/// What the shim has subscribed to.
#[derive(Default)]
pub(super) struct StoreTopics {
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    shards: BTreeSet<Bytes>,
}

impl StoreTopics {
    /// Carries out a command of the subscriber connection; messages go before the reply. `None`: not one of them.
    pub(super) fn execute(&mut self, command: &Command, events: &mut Vec<StorageEvent>) -> Option<Bytes> {
        let word = command.name().to_ascii_lowercase();
        let (channels, patterns, shards) = (&mut self.channels, &mut self.patterns, &mut self.shards);
        Some(match word.as_slice() {
            b"subscribe" | b"unsubscribe" => confirm(&word, channels, command),
            b"psubscribe" | b"punsubscribe" => confirm(&word, patterns, command),
            b"ssubscribe" | b"sunsubscribe" => confirm(&word, shards, command),
            b"publish" if command.len() == 3 => self.publish(command, events),
            b"spublish" if command.len() == 3 => {
                let known = self.shards.contains(command.arg(1));
                if known {
                    events.push(push(&[b"smessage", command.arg(1), command.arg(2)]));
                }
                integer(i64::from(known))
            }
            b"pubsub" if command.len() >= 2 => self.about(command)?,
            _ => return None,
        })
    }

    fn publish(&self, command: &Command, events: &mut Vec<StorageEvent>) -> Bytes {
        let (channel, message) = (command.arg(1), command.arg(2));
        let before = events.len();
        if self.channels.contains(channel) {
            events.push(push(&[b"message", channel, message]));
        }
        for pattern in self.patterns.iter().filter(|pattern| glob::matches(pattern, channel)) {
            events.push(push(&[b"pmessage", pattern, channel, message]));
        }
        integer((events.len() - before) as i64)
    }

    fn about(&self, command: &Command) -> Option<Bytes> {
        let mut out = Vec::new();
        let sub = command.arg(1).to_ascii_lowercase();
        let names = if sub.starts_with(b"shard") { &self.shards } else { &self.channels };
        match sub.as_slice() {
            b"channels" | b"shardchannels" => {
                let pattern = command.get(2).unwrap_or(b"*");
                let found: Vec<&Bytes> = names.iter().filter(|name| glob::matches(pattern, name)).collect();
                reply::array_header(found.len(), &mut out);
                found.into_iter().for_each(|name| reply::bulk(name, &mut out));
            }
            b"numsub" | b"shardnumsub" => {
                reply::array_header((command.len() - 2) * 2, &mut out);
                for name in command.args().skip(2) {
                    reply::bulk(name, &mut out);
                    reply::integer(i64::from(names.contains(name)), &mut out);
                }
            }
            b"numpat" => reply::integer(self.patterns.len() as i64, &mut out),
            _ => return None,
        }
        Some(out.into())
    }
}

fn confirm(word: &[u8], names: &mut BTreeSet<Bytes>, command: &Command) -> Bytes {
    let name = command.get(1).unwrap_or_default();
    if word.windows(5).any(|part| part == b"unsub") {
        names.remove(name);
    } else {
        names.insert(Bytes::copy_from_slice(name));
    }
    let mut out = Vec::new();
    reply::push_header(3, true, &mut out);
    reply::bulk(word, &mut out);
    reply::bulk(name, &mut out);
    reply::integer(names.len() as i64, &mut out);
    out.into()
}

fn push(values: &[&[u8]]) -> StorageEvent {
    let mut out = Vec::new();
    reply::push_header(values.len(), true, &mut out);
    values.iter().for_each(|value| reply::bulk(value, &mut out));
    StorageEvent::Published(out.into())
}

fn integer(number: i64) -> Bytes {
    let mut out = Vec::new();
    reply::integer(number, &mut out);
    out.into()
}

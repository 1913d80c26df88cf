//! Who has subscribed to which channel: by channel, and by client. Not what is told to anybody.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::message::Subscribers;
use wire::resp::reply;
use wire::{Key, TopicKind};

use crate::hash::KeyMap;

pub(crate) const KINDS: [TopicKind; 3] = [TopicKind::Channel, TopicKind::Pattern, TopicKind::ShardChannel];

/// The router's clients by what they subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    by_kind: [KeyMap<BTreeSet<u32>>; 3],
}

/// What one client has subscribed to, and has been told so: each with its place in the order.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    by_kind: [KeyMap<u64>; 3],
    next: u64,
}

/// A client's subscription command that has no answer yet. The client's next command waits for it outside.
#[derive(Debug)]
pub(crate) struct Subscribing {
    pub(crate) kind: TopicKind,
    /// How it is confirmed.
    pub(crate) word: &'static str,
    /// In the order of the command; a name that is given twice is there twice.
    pub(crate) names: Vec<Key>,
    /// Topics that the client did not have before.
    pub(crate) new: Vec<Key>,
    /// What was published there meanwhile.
    pub(crate) held: Vec<Bytes>,
}

/// One push in the bytes of both protocol versions; the second is made when the first client needs it.
pub(crate) struct Push {
    pub(crate) resp3: Bytes,
    resp2: Option<Bytes>,
}

impl Push {
    pub(crate) fn new(resp3: Bytes) -> Push {
        Push { resp3, resp2: None }
    }

    pub(crate) fn bytes(&mut self, resp3: bool) -> Bytes {
        if resp3 {
            return self.resp3.clone();
        }
        let in_resp2 = |push: &Bytes| {
            let mut bytes = push.to_vec();
            if let Some(first) = bytes.first_mut() {
                *first = b'*';
            }
            Bytes::from(bytes)
        };
        self.resp2.get_or_insert_with(|| in_resp2(&self.resp3)).clone()
    }
}

impl Subscriptions {
    /// How many channels and patterns clients have, each counted once.
    pub(crate) fn len(&self) -> usize {
        self.by_kind.iter().map(KeyMap::len).sum()
    }

    /// How many clients have it now, as shims are told.
    pub(crate) fn told(&self, kind: TopicKind, name: &Key) -> Subscribers {
        let clients = self.by_kind[kind as usize].get(name).map_or(0, |clients| clients.len() as u32);
        Subscribers { kind, name: name.clone(), clients }
    }

    /// All that any client has, as shims are told.
    pub(crate) fn all(&self) -> impl Iterator<Item = Subscribers> {
        KINDS.into_iter().flat_map(|kind| {
            let names = self.by_kind[kind as usize].iter();
            names.map(move |(name, clients)| Subscribers {
                kind,
                name: name.clone(),
                clients: clients.len() as u32,
            })
        })
    }

    pub(crate) fn clients(&self, kind: TopicKind, name: &Key) -> Vec<u32> {
        self.by_kind[kind as usize].get(name).into_iter().flatten().copied().collect()
    }

    pub(crate) fn insert(&mut self, kind: TopicKind, name: &Key, client: u32) {
        self.by_kind[kind as usize].entry(name.clone()).or_default().insert(client);
    }

    /// One client less has it. How many still do, as shims are told.
    pub(crate) fn leave(&mut self, kind: TopicKind, name: &Key, client: u32) -> Subscribers {
        let topics = &mut self.by_kind[kind as usize];
        if let Some(clients) = topics.get_mut(name) {
            clients.remove(&client);
            if clients.is_empty() {
                topics.remove(name);
            }
        }
        self.told(kind, name)
    }
}

impl Subscribed {
    pub(crate) fn count(&self, kind: TopicKind) -> usize {
        self.by_kind[kind as usize].len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.iter().all(KeyMap::is_empty)
    }

    pub(crate) fn has(&self, kind: TopicKind, name: &Key) -> bool {
        self.by_kind[kind as usize].contains_key(name)
    }

    pub(crate) fn insert(&mut self, kind: TopicKind, name: Key) {
        self.next += 1;
        self.by_kind[kind as usize].entry(name).or_insert(self.next);
    }

    /// The oldest first, as Redis gives up patterns.
    pub(crate) fn names(&self, kind: TopicKind) -> Vec<Key> {
        let mut names: Vec<_> = self.by_kind[kind as usize].iter().collect();
        names.sort_unstable_by_key(|(_, place)| **place);
        names.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// What a confirmation says the client has now: shard channels are counted by themselves.
    fn counted(&self, kind: TopicKind) -> usize {
        match kind {
            TopicKind::ShardChannel => self.count(kind),
            _ => self.count(TopicKind::Channel) + self.count(TopicKind::Pattern),
        }
    }

    /// Whether the client had it.
    pub(crate) fn remove(&mut self, kind: TopicKind, name: &Key) -> bool {
        self.by_kind[kind as usize].remove(name).is_some()
    }

    /// What the client hears of one name, of several one after the other. `name`: none for a client that had nothing to
    /// give up.
    pub(crate) fn confirm(&self, told: &mut Confirmation, name: Option<&Key>) {
        let Confirmation { word, kind, resp3, out } = told;
        reply::push_header(3, *resp3, out);
        reply::bulk(word.as_bytes(), out);
        match name {
            Some(name) => reply::bulk(&name.bytes, out),
            None => reply::null(*resp3, out),
        }
        reply::integer(self.counted(*kind) as i64, out);
    }
}

/// What a client is told of a command of this word about topics of this kind.
pub(crate) struct Confirmation {
    pub(crate) word: &'static str,
    pub(crate) kind: TopicKind,
    pub(crate) resp3: bool,
    pub(crate) out: Vec<u8>,
}

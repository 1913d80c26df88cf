//! Subscriptions of the router's clients: who has which channel, the commands that change it, and what is pushed to
//! them. Not what other routers' clients have.

use std::collections::BTreeSet;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Deliver, Subscribe, Subscribers};
use wire::resp::reply;
use wire::{Key, Message, Peer, Sharding, ShimId, TopicKind};

use crate::hash::KeyMap;
use crate::placement::Placement;
use crate::router::flow::answer::Freed;
use crate::router::flow::dispatch::{Job, Origin, fan};
use crate::router::flow::gather::{Merge, is_error};
use crate::router::flow::pending::Pending;
use crate::router::flow::pipeline::{Part, Progress, Sent};
use crate::router::flow::route::Route;
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::{Classified, CommandKind};

const KINDS: [TopicKind; 3] = [TopicKind::Channel, TopicKind::Pattern, TopicKind::ShardChannel];
/// Messages that are kept for a client while its subscription is being confirmed; more are lost, as if they had been
/// published a moment earlier.
const HELD_MAX: usize = 4096;
/// Channels that every server publishes about the keys that it has.
const KEY_EVENTS: [&[u8]; 2] = [b"__keyspace@", b"__keyevent@"];

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
#[derive(Debug, Default)]
pub(crate) struct Subscribing {
    /// In the order of the command; a name that is given twice is there twice.
    names: Vec<(TopicKind, Key)>,
    /// Those that the client did not have before.
    new: Vec<(TopicKind, Key)>,
    held: Vec<Bytes>,
}

/// One push in the bytes of both protocol versions; the second is made when the first client needs it.
struct Push {
    resp3: Bytes,
    resp2: Option<Bytes>,
}

impl Push {
    fn new(resp3: Bytes) -> Push {
        Push { resp3, resp2: None }
    }

    fn bytes(&mut self, resp3: bool) -> Bytes {
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

    fn clients(&self, kind: TopicKind, name: &Key) -> u32 {
        self.by_kind[kind as usize].get(name).map_or(0, |clients| clients.len() as u32)
    }

    fn insert(&mut self, kind: TopicKind, name: &Key, client: u32) {
        self.by_kind[kind as usize].entry(name.clone()).or_default().insert(client);
    }

    fn remove(&mut self, kind: TopicKind, name: &Key, client: u32) {
        let Some(clients) = self.by_kind[kind as usize].get_mut(name) else { return };
        clients.remove(&client);
        if clients.is_empty() {
            self.by_kind[kind as usize].remove(name);
        }
    }
}

impl Subscribed {
    pub(crate) fn count(&self, kind: TopicKind) -> usize {
        self.by_kind[kind as usize].len()
    }

    fn is_empty(&self) -> bool {
        self.by_kind.iter().all(KeyMap::is_empty)
    }

    fn has(&self, kind: TopicKind, name: &Key) -> bool {
        self.by_kind[kind as usize].contains_key(name)
    }

    fn insert(&mut self, kind: TopicKind, name: Key) {
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

    /// `name`: none for a client that had nothing to give up.
    fn confirm(&self, word: &str, kind: TopicKind, name: Option<&Key>, resp3: bool, out: &mut Vec<u8>) {
        reply::push_header(3, resp3, out);
        reply::bulk(word.as_bytes(), out);
        match name {
            Some(name) => reply::bulk(&name.bytes, out),
            None => reply::null(resp3, out),
        }
        reply::integer(self.counted(kind) as i64, out);
    }
}

/// Redis' refusal of commands that a RESP2 connection with subscriptions has no place for the replies of.
pub(crate) fn misplaced(classified: &Classified) -> Option<Bytes> {
    let name = classified.spec.name;
    if classified.kind == CommandKind::Subscription || matches!(name, "ping" | "quit" | "reset") {
        return None;
    }
    Some(replies::error(&format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    )))
}

fn kind_of(command: &str) -> TopicKind {
    match command.as_bytes() {
        [b'p', ..] => TopicKind::Pattern,
        [b's', b's', ..] | [b's', b'u', b'n', ..] => TopicKind::ShardChannel,
        _ => TopicKind::Channel,
    }
}

/// The shims that publish there: the channel's own; all of them for patterns and for what servers say of their keys.
/// The servers of a Redis Cluster tell each other what is published, so there one has the pattern, or it comes twice.
fn shims_of(placement: &Placement, kind: TopicKind, name: &Key) -> SmallVec<[ShimId; 4]> {
    let of_key_events = || KEY_EVENTS.iter().any(|prefix| name.bytes.starts_with(prefix));
    let everywhere = match kind {
        TopicKind::Pattern => placement.map().sharding != Sharding::Slots || name.bytes.starts_with(b"__key"),
        TopicKind::Channel => of_key_events(),
        TopicKind::ShardChannel => false,
    };
    if everywhere {
        return placement.map().shims.iter().map(|shim| shim.id).collect();
    }
    SmallVec::from_slice(&[placement.shim(name)])
}

impl Router {
    /// Only once the client's pipeline has drained.
    pub(crate) fn launch_subscription(
        &mut self,
        placement: &Placement,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Progress {
        if let Some(state) = self.clients.get_mut(job.client) {
            state.subscribing = None;
        }
        let word = job.classified.spec.name;
        let kind = kind_of(word);
        let names: Vec<Key> = match self.topics(placement, job) {
            Ok(names) => names,
            Err(error) => return Progress::Done(error),
        };
        if word.contains("unsub") {
            return Progress::Done(self.launch_unsubscribe(job, kind, names, effects));
        }
        let Some(state) = self.clients.get(job.client) else { return Progress::Done(Bytes::new()) };
        let has = |name: &Key| state.subscribed.as_ref().is_some_and(|own| own.has(kind, name));
        let mut new: Vec<(TopicKind, Key)> = Vec::new();
        let mut seen = KeyMap::default();
        for name in names.iter().filter(|name| !has(name)) {
            if seen.insert(name.clone(), ()).is_none() {
                new.push((kind, name.clone()));
            }
        }
        let shims = new.iter().flat_map(|(kind, name)| shims_of(placement, *kind, name));
        let asked: Vec<ShimId> = shims.collect();
        if let Some(missing) = asked.iter().find(|shim| !self.shim_linked(**shim)) {
            return self.unavailable(*missing);
        }
        if self.over_limit(asked.len()) {
            return self.busy();
        }
        let names = names.into_iter().map(|name| (kind, name)).collect();
        let parts = self.send_subscribe(placement, job, &new, effects);
        let none_new = new.is_empty();
        if let Some(state) = self.clients.get_mut(job.client) {
            state.subscribing = Some(Box::new(Subscribing { names, new, held: Vec::new() }));
        }
        if none_new {
            return Progress::Done(self.confirm_subscription(job.client, word).unwrap_or_default());
        }
        fan(parts, Merge::Subscribed { word })
    }

    /// The names that a command gives, in buffers of their own.
    fn topics(&mut self, placement: &Placement, job: &Job<'_>) -> Result<Vec<Key>, Bytes> {
        let bytes_max = self.config.key_bytes_max;
        if let Some(long) = job.command.args().skip(1).find(|name| name.len() > bytes_max) {
            self.counters.refusals += 1;
            let bytes = long.len();
            let error = format!("ERR DistCache: a channel of {bytes} bytes is over the limit of {bytes_max}");
            return Err(replies::error(&error));
        }
        let names = job.command.args().skip(1);
        Ok(names.map(|name| placement.key(0, Bytes::copy_from_slice(name))).collect())
    }

    fn send_subscribe(
        &mut self,
        placement: &Placement,
        job: &Job<'_>,
        new: &[(TopicKind, Key)],
        effects: &mut Vec<Effect>,
    ) -> Vec<Part> {
        let mut parts = Vec::new();
        for (kind, name) in new {
            self.subscriptions.insert(*kind, name, job.client);
            let clients = self.subscriptions.clients(*kind, name);
            for shim in shims_of(placement, *kind, name) {
                let peer = Peer::Shim(shim);
                let origin = job.origin(parts.len() as u32);
                let request = self.pending.insert(Pending::new(origin, peer));
                let message = Subscribe { request, kind: *kind, name: name.clone(), clients };
                effects.push(Effect::Send { to: peer, message: Message::Subscribe(message) });
                let sent = Sent { request, peer, read: false };
                parts.push(Part { sent, touch: SmallVec::new(), reply: None });
            }
        }
        parts
    }

    /// All shims have answered: the client has what it asked for, or nothing of it.
    pub(crate) fn subscribed(&mut self, now: Time, origin: Origin, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(origin.client) else { return };
        let Some(operation) = state.pipeline.get_mut(origin.sequence) else { return };
        let Progress::Fan(fan) = &mut operation.progress else { return };
        let Merge::Subscribed { word } = fan.merge else { return };
        let parts = std::mem::take(&mut fan.parts);
        let error = parts.into_iter().filter_map(|part| part.reply).find(is_error);
        let mut held = Vec::new();
        let bytes = match error {
            Some(error) => {
                self.take_back(origin.client, effects);
                error.value
            }
            None => {
                let own = state.subscribing.as_mut();
                held = own.map(|own| std::mem::take(&mut own.held)).unwrap_or_default();
                self.confirm_subscription(origin.client, word).unwrap_or_default()
            }
        };
        let Some(state) = self.clients.get_mut(origin.client) else { return };
        if let Some(operation) = state.pipeline.get_mut(origin.sequence) {
            operation.progress = Progress::Done(bytes);
        }
        state.subscribing = None;
        self.advance(now, origin.client, Freed::All, effects);
        for push in held {
            self.push_to(origin.client, &mut Push::new(push), effects);
        }
    }

    /// Undoes what `send_subscribe` began.
    fn take_back(&mut self, client: u32, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let Some(subscribing) = state.subscribing.take() else { return };
        for (kind, name) in subscribing.new {
            self.leave(client, kind, &name, effects);
        }
    }

    fn confirm_subscription(&mut self, client: u32, word: &str) -> Option<Bytes> {
        let state = self.clients.get_mut(client)?;
        let subscribing = state.subscribing.take()?;
        let own = state.subscribed.get_or_insert_default();
        let mut out = Vec::new();
        for (kind, name) in subscribing.names {
            own.insert(kind, name.clone());
            own.confirm(word, kind, Some(&name), state.resp3, &mut out);
        }
        Some(out.into())
    }

    fn launch_unsubscribe(
        &mut self,
        job: &Job<'_>,
        kind: TopicKind,
        mut names: Vec<Key>,
        effects: &mut Vec<Effect>,
    ) -> Bytes {
        let Some(state) = self.clients.get_mut(job.client) else { return Bytes::new() };
        let (resp3, word) = (state.resp3, job.classified.spec.name);
        let mut own = state.subscribed.take().unwrap_or_default();
        if job.command.len() == 1 {
            names = own.names(kind);
        }
        let mut out = Vec::new();
        if names.is_empty() {
            own.confirm(word, kind, None, resp3, &mut out);
        }
        for name in names {
            if own.by_kind[kind as usize].remove(&name).is_some() {
                self.leave(job.client, kind, &name, effects);
            }
            own.confirm(word, kind, Some(&name), resp3, &mut out);
        }
        if let Some(state) = self.clients.get_mut(job.client)
            && !own.is_empty()
        {
            state.subscribed = Some(own);
        }
        out.into()
    }

    /// One client less has the topic.
    fn leave(&mut self, client: u32, kind: TopicKind, name: &Key, effects: &mut Vec<Effect>) {
        self.subscriptions.remove(kind, name, client);
        let Some(placement) = self.placement.clone() else { return };
        let clients = self.subscriptions.clients(kind, name);
        for shim in shims_of(&placement, kind, name) {
            let message = Message::Subscribers(Subscribers { kind, name: name.clone(), clients });
            effects.push(Effect::Send { to: Peer::Shim(shim), message });
        }
    }

    /// RESET, or the client is gone.
    pub(crate) fn leave_all(
        &mut self,
        client: u32,
        subscribed: Option<Box<Subscribed>>,
        subscribing: Option<Box<Subscribing>>,
        effects: &mut Vec<Effect>,
    ) {
        for (kind, name) in subscribing.map(|own| own.new).unwrap_or_default() {
            self.leave(client, kind, &name, effects);
        }
        let Some(subscribed) = subscribed else { return };
        for kind in KINDS {
            for name in subscribed.names(kind) {
                self.leave(client, kind, &name, effects);
            }
        }
    }

    /// A shim's link is back: it has forgotten whose clients had what.
    pub(crate) fn subscribe_again(&mut self, shim: ShimId, effects: &mut Vec<Effect>) {
        self.follow_again(shim, effects);
        let Some(placement) = self.placement.clone() else { return };
        for kind in KINDS {
            for (name, clients) in &self.subscriptions.by_kind[kind as usize] {
                if shims_of(&placement, kind, name).contains(&shim) {
                    let clients = clients.len() as u32;
                    let message = Message::Subscribers(Subscribers { kind, name: name.clone(), clients });
                    effects.push(Effect::Send { to: Peer::Shim(shim), message });
                }
            }
        }
    }

    pub(crate) fn delivered(&mut self, deliver: Deliver, effects: &mut Vec<Effect>) {
        let Deliver { kind, name, push } = deliver;
        let Some(clients) = self.subscriptions.by_kind[kind as usize].get(&name) else { return };
        let clients: Vec<u32> = clients.iter().copied().collect();
        let mut push = Push::new(push);
        for client in clients {
            let Some(state) = self.clients.get_mut(client) else { continue };
            match &mut state.subscribing {
                // After the confirmation, and in the order of the messages of all channels.
                Some(subscribing) if !subscribing.new.is_empty() => {
                    if subscribing.held.len() < HELD_MAX {
                        subscribing.held.push(push.resp3.clone());
                    }
                }
                _ => self.push_to(client, &mut push, effects),
            }
        }
    }

    /// Says something to a client that it has not asked for now. Whole replies only are written around it.
    fn push_to(&mut self, client: u32, push: &mut Push, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get(client) else { return };
        self.counters.pushes += 1;
        let bytes = push.bytes(state.resp3);
        self.push_behind(client, bytes, effects);
    }

    /// The client's next command is read when this one has been answered: what it may be depends on the outcome.
    pub(crate) fn hold_client(&mut self, client: u32) {
        let Some(state) = self.clients.get_mut(client) else { return };
        state.stalled = true;
        state.subscribing.get_or_insert_default();
    }

    /// PUBLISH and SPUBLISH: to the server of their channel.
    pub(crate) fn launch_publish(
        &mut self,
        placement: &Placement,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Progress {
        let bytes = job.command.arg_bytes(1);
        if bytes.len() > self.config.key_bytes_max {
            return self.topics(placement, job).map_or_else(Progress::Done, |_| self.busy());
        }
        let channel = placement.key(0, bytes);
        let shim = placement.shim(&channel);
        if !self.shim_linked(shim) {
            return self.unavailable(shim);
        }
        if self.over_limit(1) {
            return self.busy();
        }
        let route = Route { peer: Peer::Shim(shim), ordered: false };
        let (origin, frame) = (job.origin(0), job.command.frame());
        Progress::Sent(self.send_execute(origin, CommandKind::Publish, route, channel, frame, effects))
    }
}

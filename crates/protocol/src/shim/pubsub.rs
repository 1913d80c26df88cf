//! Subscriptions of routers at the shim: each topic once at storage, messages on to every router, receivers counted.
//! Not which clients they are for.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Deliver, Subscribe, Subscribers};
use wire::resp::{Command, Value, reply};
use wire::{Key, Message, Peer, RouterId, TopicKind};

use super::operation::Origin;
use super::operations::CommandAsked;
use super::step::ShimStep;
use super::{Purpose, Shim, StorageState};
use crate::hash::KeyMap;
use crate::storage::{Lane, PING, Reach};
use crate::time::Time;
use commands::CommandKind;
use commands::glob;
use std::time::Duration;

const KINDS: [TopicKind; 3] = [TopicKind::Channel, TopicKind::Pattern, TopicKind::ShardChannel];
/// How long after a failure subscriptions are asked for again, and how often an idle subscriber connection is probed.
const RESTORE_INTERVAL: Duration = Duration::from_millis(100);
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const LOST: &str = "-ERR DistCache: the connection to storage broke before the subscription began\r\n";
const UNEXPECTED: &str = "-ERR DistCache: storage gave a reply that does not fit the command\r\n";

/// What routers subscribe to, by `TopicKind`.
#[derive(Clone, Debug, Default)]
pub(super) struct Topics {
    by_kind: [KeyMap<Topic>; 3],
    /// Some topic may have to be asked for again.
    restore: bool,
    restored: Time,
    probed: Time,
}

/// One channel or pattern. At most one command about it is at storage at a time.
#[derive(Clone, Debug, Default)]
struct Topic {
    /// Routers with clients, and how many each has.
    routers: SmallVec<[(RouterId, u32); 1]>,
    /// Storage sends what is published there.
    active: bool,
    /// A SUBSCRIBE or UNSUBSCRIBE is at storage.
    asked: bool,
    /// To be answered once it is active.
    waiting: SmallVec<[Origin; 1]>,
}

/// A SUBSCRIBE or UNSUBSCRIBE at storage.
#[derive(Clone, Debug, Hash)]
pub(super) struct TopicChange {
    pub(super) kind: TopicKind,
    pub(super) name: Key,
    pub(super) begins: bool,
}

impl Topic {
    fn clients(&self) -> i64 {
        self.routers.iter().map(|(_, clients)| i64::from(*clients)).sum()
    }
}

impl Topics {
    pub(super) fn len(&self) -> usize {
        self.by_kind.iter().map(KeyMap::len).sum()
    }

    fn of(&self, kind: TopicKind) -> &KeyMap<Topic> {
        &self.by_kind[kind as usize]
    }

    fn of_mut(&mut self, kind: TopicKind) -> &mut KeyMap<Topic> {
        &mut self.by_kind[kind as usize]
    }

    /// How many more clients have the topic than storage counts for it. Where storage's answer comes before the one about
    /// the topic, it was given before, and nobody has got what it counts.
    fn difference(topic: &Topic) -> i64 {
        if topic.active { topic.clients() - 1 } else { 0 }
    }

    /// What to add to storage's number of receivers: its clients are one connection, ours are many.
    fn more_receivers(&self, channel: &Key, shard: bool) -> i64 {
        let kind = if shard { TopicKind::ShardChannel } else { TopicKind::Channel };
        let own = self.more_subscribers(channel, kind);
        if shard {
            return own;
        }
        let matching = self.of(TopicKind::Pattern).iter();
        let matching = matching.filter(|(pattern, _)| glob::matches(&pattern.bytes, &channel.bytes));
        own + matching.map(|(_, topic)| Topics::difference(topic)).sum::<i64>()
    }

    fn more_subscribers(&self, channel: &Key, kind: TopicKind) -> i64 {
        self.of(kind).get(channel).map_or(0, Topics::difference)
    }
}

impl Shim {
    pub(super) fn subscribe(&mut self, step: &mut ShimStep<'_>, router: RouterId, subscribe: Subscribe) {
        let Subscribe { request, kind, name, clients } = subscribe;
        let origin = Origin::new(Peer::Router(router), request);
        self.set_clients(step, router, &Subscribers { kind, name: name.clone(), clients });
        match (&self.storage, self.topics.of_mut(kind).get_mut(&name)) {
            (_, None) => self.subscribed(step, origin),
            (_, Some(topic)) if topic.active && !topic.asked => self.subscribed(step, origin),
            (StorageState::Up { .. }, Some(topic)) => topic.waiting.push(origin),
            (StorageState::Down { reason, .. }, Some(_)) => {
                let text = format!("-ERR DistCache: storage cannot be reached: {reason}\r\n");
                step.reply_error(origin, &text);
            }
        }
    }

    fn subscribed(&mut self, step: &mut ShimStep<'_>, origin: Origin) {
        step.reply(origin, Bytes::from_static(reply::OK));
    }

    pub(super) fn set_clients(
        &mut self,
        step: &mut ShimStep<'_>,
        router: RouterId,
        subscribers: &Subscribers,
    ) {
        let Subscribers { kind, name, clients } = subscribers;
        let topics = self.topics.of_mut(*kind);
        if *clients == 0 && !topics.contains_key(name) {
            return;
        }
        // The name outlives the read buffer that it arrived in.
        let topic = topics.entry(super::reads::own(name)).or_default();
        topic.routers.retain(|(known, _)| *known != router);
        if *clients > 0 {
            topic.routers.push((router, *clients));
        }
        self.settle_topic(step, *kind, name);
    }

    /// Asks storage for what the routers want, unless a command about it is there already.
    fn settle_topic(&mut self, step: &mut ShimStep<'_>, kind: TopicKind, name: &Key) {
        let up = matches!(self.storage, StorageState::Up { .. });
        let Some(topic) = self.topics.of_mut(kind).get_mut(name) else { return };
        let wanted = !topic.routers.is_empty();
        if topic.asked {
            return;
        }
        if wanted == topic.active {
            if !wanted {
                self.topics.of_mut(kind).remove(name);
            }
            return;
        }
        if !up {
            self.topics.restore = true;
            return;
        }
        topic.asked = true;
        let word = match (kind, wanted) {
            (TopicKind::Channel, true) => "SUBSCRIBE",
            (TopicKind::Channel, false) => "UNSUBSCRIBE",
            (TopicKind::Pattern, true) => "PSUBSCRIBE",
            (TopicKind::Pattern, false) => "PUNSUBSCRIBE",
            (TopicKind::ShardChannel, true) => "SSUBSCRIBE",
            (TopicKind::ShardChannel, false) => "SUNSUBSCRIBE",
        };
        let command = Command::from_args(&[word.as_bytes(), &name.bytes]).frame().clone();
        let change = TopicChange { kind, name: super::reads::own(name), begins: wanted };
        let reach = if kind == TopicKind::ShardChannel { self.reach(name) } else { Reach::Whole };
        let (purpose, commands) = (Purpose::Topic(change), SmallVec::from_elem(command, 1));
        self.store(step, purpose, Lane::Subscriber, reach, commands);
    }

    /// Storage has answered a SUBSCRIBE or UNSUBSCRIBE; `None`: it never will.
    pub(super) fn topic_answered(
        &mut self,
        step: &mut ShimStep<'_>,
        change: TopicChange,
        answer: Option<Bytes>,
    ) {
        let TopicChange { kind, name, begins } = change;
        let Some(topic) = self.topics.of_mut(kind).get_mut(&name) else { return };
        topic.asked = false;
        let error = match answer {
            Some(answer) if answer.first() == Some(&b'>') => None,
            Some(answer) if answer.first() == Some(&b'-') => Some(answer),
            Some(_) => Some(Bytes::from_static(UNEXPECTED.as_bytes())),
            None => Some(Bytes::from_static(LOST.as_bytes())),
        };
        if error.is_none() {
            topic.active = begins;
        }
        let settled = topic.active || error.is_some();
        let waiting = if settled { std::mem::take(&mut topic.waiting) } else { SmallVec::new() };
        for origin in waiting {
            match &error {
                None => self.subscribed(step, origin),
                Some(error) => step.reply(origin, error.clone()),
            }
        }
        if error.is_some() {
            self.topics.restore = true;
        } else {
            self.settle_topic(step, kind, &name);
        }
    }

    /// The subscriber connection is gone, and with it every subscription of storage's.
    pub(super) fn unsubscribed(&mut self) {
        self.topics.restore = true;
        for kind in KINDS {
            self.topics.of_mut(kind).values_mut().for_each(|topic| topic.active = false);
        }
    }

    pub(super) fn tick_topics(&mut self, step: &mut ShimStep<'_>) {
        if self.topics.len() == 0 {
            return;
        }
        if self.topics.restore && step.now.since(self.topics.restored) >= RESTORE_INTERVAL {
            self.restore_topics(step);
        }
        if step.now.since(self.topics.probed) >= PROBE_INTERVAL {
            // A server that has gone without a word would be noticed by nothing else.
            self.topics.probed = step.now;
            let (purpose, lane) = (Purpose::Probe, Lane::Subscriber);
            self.store(step, purpose, lane, Reach::Whole, SmallVec::from_elem(PING, 1));
        }
    }

    pub(super) fn restore_topics(&mut self, step: &mut ShimStep<'_>) {
        self.topics.restore = false;
        self.topics.restored = step.now;
        for kind in KINDS {
            let names: Vec<Key> = self.topics.of(kind).keys().cloned().collect();
            names.iter().for_each(|name| self.settle_topic(step, kind, name));
        }
    }

    /// A router's link is gone: its clients get nothing until it says again how many there are.
    pub(super) fn forget_subscribers(&mut self, step: &mut ShimStep<'_>, router: RouterId) {
        for kind in KINDS {
            let mut left = Vec::new();
            for (name, topic) in self.topics.of_mut(kind) {
                topic.waiting.retain(|origin| origin.from != Peer::Router(router));
                let before = topic.routers.len();
                topic.routers.retain(|(known, _)| *known != router);
                if topic.routers.len() < before {
                    left.push(name.clone());
                }
            }
            left.iter().for_each(|name| self.settle_topic(step, kind, name));
        }
    }

    /// A push of storage's: once to every router with clients of its topic.
    pub(super) fn published(&mut self, step: &mut ShimStep<'_>, push: &Bytes) {
        let Some((kind, name)) = topic_of(push) else {
            self.statistics.unexpected += 1;
            return;
        };
        let name = self.placement.key(0, name);
        // Nobody: it was published before storage had heard that the last one left.
        let Some(topic) = self.topics.of(kind).get(&name) else { return };
        for (router, _) in topic.routers.clone() {
            self.statistics.messages_delivered += 1;
            let message = Deliver { kind, name: name.clone(), push: push.clone() };
            step.send(Peer::Router(router), Message::Deliver(message));
        }
    }

    /// PUBLISH and PUBSUB take the subscriber's connection: there storage answers in the order in which it delivers.
    pub(super) fn publish(&mut self, step: &mut ShimStep<'_>, asked: &CommandAsked<'_>) {
        let CommandAsked { origin, execute, command, classified } = *asked;
        let is = |name: &str| classified.spec.name == name;
        let purpose = if classified.kind == CommandKind::Publish {
            let channel = self.placement.key(0, command.arg_bytes(1));
            if let Some(refusal) = self.refusal(&channel) {
                return step.refuse(origin, &refusal);
            }
            Purpose::Publish { origin, channel, shard: is("spublish") }
        } else if is("pubsub|numsub") || is("pubsub|shardnumsub") {
            let kind = if is("pubsub|numsub") { TopicKind::Channel } else { TopicKind::ShardChannel };
            Purpose::CountSubscribers { origin, kind }
        } else {
            Purpose::Plain { origin, keys: SmallVec::new() }
        };
        let frame = SmallVec::from_elem(execute.command.clone(), 1);
        let reach = match &purpose {
            Purpose::Publish { channel, shard: true, .. } => self.reach(channel),
            _ => Reach::Whole,
        };
        self.store(step, purpose, Lane::Subscriber, reach, frame);
    }

    /// The reply to PUBLISH, with the receivers that storage does not know of.
    pub(super) fn receivers_counted(&self, channel: &Key, shard: bool, answer: Bytes) -> Bytes {
        match Value::parse(&answer) {
            Ok(Value::Integer(count)) => {
                let mut out = Vec::new();
                reply::integer((count + self.topics.more_receivers(channel, shard)).max(0), &mut out);
                out.into()
            }
            _ => answer,
        }
    }

    /// Names and numbers in turn. Those of other shims' channels are theirs to count.
    pub(super) fn subscribers_counted(
        &mut self,
        step: &mut ShimStep<'_>,
        origin: Origin,
        kind: TopicKind,
        answer: Bytes,
    ) {
        let Ok(Value::Array(values)) = Value::parse(&answer) else {
            return step.reply(origin, answer);
        };
        let mut out = Vec::with_capacity(answer.len() + 16);
        reply::array_header(values.len(), &mut out);
        for pair in values.chunks(2) {
            let (Some(Value::Bulk(name)), Some(Value::Integer(count))) = (pair.first(), pair.get(1)) else {
                return step.reply_error(origin, UNEXPECTED);
            };
            let key = self.placement.key(0, name.clone());
            let is_own = self.placement.shim(&key) == self.config.id;
            let count = if is_own { count + self.topics.more_subscribers(&key, kind) } else { 0 };
            reply::bulk(name, &mut out);
            reply::integer(count.max(0), &mut out);
        }
        step.reply(origin, out.into());
    }
}

/// What a push was sent for.
fn topic_of(push: &Bytes) -> Option<(TopicKind, Bytes)> {
    let Ok(Value::Push(values)) = Value::parse(push) else { return None };
    let mut words = values.into_iter();
    let (Some(Value::Bulk(word)), Some(Value::Bulk(name))) = (words.next(), words.next()) else {
        return None;
    };
    let kind = match word.as_ref() {
        b"message" => TopicKind::Channel,
        b"pmessage" => TopicKind::Pattern,
        b"smessage" => TopicKind::ShardChannel,
        _ => return None,
    };
    Some((kind, name))
}

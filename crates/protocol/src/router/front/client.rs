//! The router's clients: what each has set up on its connection, and its pipeline. Not their sockets.

use bytes::Bytes;

use crate::router::ClientId;
use crate::router::flow::pipeline::Pipeline;
use crate::router::flow::watch::Watch;
use crate::router::flow::window::TURN_COMMANDS;
use crate::router::front::client_tracking::ClientTracking;
use crate::router::front::identity::Identity;
use crate::router::front::pubsub::{Subscribed, Subscribing};
use crate::router::front::transaction::Queued;
use crate::time::Time;
use commands::memcached::MemcachedFront;

/// CLIENT REPLY: whether replies are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    SkipNext,
}

#[derive(Debug)]
pub(crate) struct Client {
    /// What CLIENT ID says: never used again.
    pub(crate) number: u64,
    pub(crate) opened: Time,
    /// When its last command came, and which it was.
    pub(crate) seen: Time,
    pub(crate) last: &'static str,
    /// Its address and the one that it came to.
    pub(crate) known: Option<Box<(String, String)>>,
    pub(crate) identity: Identity,
    pub(crate) resp3: bool,
    pub(crate) replies: Replies,
    pub(crate) labels: Option<Box<Labels>>,
    pub(crate) pipeline: Pipeline,
    /// Only of a client that has any subscription.
    pub(crate) subscribed: Option<Box<Subscribed>>,
    pub(crate) subscribing: Option<Box<Subscribing>>,
    /// A reply that closes the connection is in the pipeline: nothing after it is taken.
    pub(crate) closing: bool,
    /// Between MULTI and EXEC.
    pub(crate) transaction: Option<Box<Queued>>,
    /// Since its first WATCH was sent.
    pub(crate) watch: Option<Watch>,
    /// Only of a client that speaks memcached.
    pub(crate) memcached: Option<Box<MemcachedFront>>,
    /// Only of a client with CLIENT TRACKING on.
    pub(crate) tracking: Option<Box<ClientTracking>>,
    /// The pipeline was full and has not drained to half since.
    pub(crate) stalled: bool,
    /// While nothing goes on before it reads: the least that it has left unread, and since when that is no less.
    pub(crate) stuck: Option<(u64, Time)>,
    /// Commands that may be unanswered. Nobody knows how large a reply will be, so it begins small, grows with every small
    /// reply and shrinks with a large one: what one client has asked for must not fill the links that all share.
    pub(crate) window: usize,
}

/// The window of a new client: one round trip more for whoever pipelines more at once.
const WINDOW_START: usize = 16;

/// What clients say about themselves; most say nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) name: Bytes,
    pub(crate) library: Bytes,
    pub(crate) library_version: Bytes,
}

impl Client {
    pub(crate) fn ready(&self) -> bool {
        !self.stalled && !self.closing
    }

    pub(crate) fn addresses(&self) -> (&str, &str) {
        self.known.as_deref().map_or(("?:0", "?:0"), |(own, local)| (own, local))
    }

    /// Whether no more may be taken from it. `bytes_max`: of commands and replies that are held.
    pub(crate) fn is_full(&self, pipeline_max: usize, bytes_max: usize) -> bool {
        self.pipeline.len() >= self.window.min(pipeline_max)
            || self.pipeline.held_bytes() >= bytes_max
            || self.pipeline.turns().len() >= TURN_COMMANDS
    }

    /// Whether it has room enough again to be read on.
    pub(crate) fn has_drained(&self, pipeline_max: usize, bytes_max: usize) -> bool {
        self.pipeline.len() <= self.window.min(pipeline_max) / 2
            && self.pipeline.held_bytes() <= bytes_max / 2
            && self.pipeline.turns().len() <= TURN_COMMANDS / 2
    }

    /// A reply of this size went out; the next ones may be as large.
    pub(crate) fn replied(&mut self, reply_bytes: usize, pipeline_max: usize, bytes_max: usize) {
        let fitting = (bytes_max / reply_bytes.max(1)).max(1);
        self.window = (self.window + 1).min(fitting).min(pipeline_max);
    }

    /// RESP2 has no pushes: a connection with subscriptions carries nothing else.
    pub(crate) fn only_listens(&self) -> bool {
        self.subscribed.is_some() && !self.resp3
    }

    /// Whether the next command comes while keys are watched.
    pub(crate) fn is_watching(&self) -> bool {
        self.pipeline.will_watch().unwrap_or(self.watch.is_some())
    }

    /// Bytes of its commands without a reply, of replies that wait for earlier ones, and of what it has queued.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pipeline.held_bytes() + self.transaction.as_ref().map_or(0, |queued| queued.bytes())
    }

    pub(crate) fn labels(&mut self) -> &mut Labels {
        self.labels.get_or_insert_default()
    }

    /// Whether the next operation's reply is swallowed.
    pub(crate) fn take_silence(&mut self) -> bool {
        match self.replies {
            Replies::On => false,
            Replies::Off => true,
            Replies::SkipNext => {
                self.replies = Replies::On;
                true
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Clients {
    clients: Vec<Option<Box<Client>>>,
    count: usize,
    opened: u64,
}

impl Clients {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn open(&mut self, now: Time, id: ClientId, identity: Identity) {
        let index = id.0 as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        assert!(self.clients[index].is_none(), "client {index} is open already");
        self.opened += 1;
        self.count += 1;
        self.clients[index] = Some(Box::new(Client {
            number: self.opened,
            opened: now,
            seen: now,
            last: "NULL",
            known: None,
            identity,
            resp3: false,
            replies: Replies::On,
            labels: None,
            pipeline: Pipeline::default(),
            subscribed: None,
            subscribing: None,
            closing: false,
            transaction: None,
            watch: None,
            memcached: None,
            tracking: None,
            stalled: false,
            stuck: None,
            window: WINDOW_START,
        }));
    }

    pub(crate) fn close(&mut self, index: u32) -> Option<Box<Client>> {
        let client = self.clients.get_mut(index as usize)?.take()?;
        self.count -= 1;
        Some(client)
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &Client)> {
        let clients = self.clients.iter().enumerate();
        clients.filter_map(|(index, client)| Some((index as u32, client.as_deref()?)))
    }

    /// The place of the client of this number.
    pub(crate) fn find(&self, number: u64) -> Option<u32> {
        self.numbered().find(|(_, client)| client.number == number).map(|(index, _)| index)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().filter_map(|client| client.as_deref())
    }

    /// The places of all clients, which stay theirs until they close.
    pub(crate) fn indexes(&self) -> Vec<u32> {
        let indexed = self.clients.iter().enumerate();
        indexed.filter(|(_, client)| client.is_some()).map(|(index, _)| index as u32).collect()
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.iter_mut().filter_map(|client| client.as_deref_mut())
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Client> {
        self.clients.get(index as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Client> {
        self.clients.get_mut(index as usize)?.as_deref_mut()
    }
}

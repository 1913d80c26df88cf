//! The router's clients: what each has set up on its connection, as a Redis or memcached server keeps it. Not what it has
//! asked for, and not its socket.

use bytes::Bytes;

use crate::router::effect::ClientId;
use crate::router::flow::request::Manner;
use crate::router::front::client_tracking::ClientTracking;
use crate::router::front::permissions::ClientIdentity;
use crate::router::front::queued::Queued;
use crate::router::front::subscriptions::{Subscribed, Subscribing};
use crate::router::siblings::ThreadPlace;
use crate::time::Time;
use commands::memcached;

/// CLIENT REPLY: whether replies are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    SkipNext,
}

#[derive(Debug)]
pub(crate) struct Session {
    /// What CLIENT ID says: never used again.
    pub(crate) number: u64,
    pub(crate) opened: Time,
    /// When its last command came, and which it was.
    pub(crate) seen: Time,
    pub(crate) last: &'static str,
    /// Its address and the one that it came to.
    pub(crate) known: Option<Box<(String, String)>>,
    pub(crate) identity: ClientIdentity,
    pub(crate) resp3: bool,
    pub(crate) replies: ReplyMode,
    pub(crate) labels: Option<Box<ClientLabels>>,
    /// Only of a client that has any subscription.
    pub(crate) subscribed: Option<Box<Subscribed>>,
    pub(crate) subscribing: Option<Box<Subscribing>>,
    /// A subscription of its has no answer yet, and its next command is not read before: what it may be depends on that.
    pub(crate) awaits_subscription: bool,
    /// What was published to it while its subscription was being confirmed.
    pub(crate) unheard: Vec<Bytes>,
    /// The reply to its change of users, while servers are asked for what that has come to.
    pub(crate) users_changed: Option<Bytes>,
    /// A reply that closes the connection is in the pipeline: nothing after it is taken.
    pub(crate) closing: bool,
    /// Between MULTI and EXEC.
    pub(crate) transaction: Option<Box<Queued>>,
    /// Only of a client that speaks memcached.
    pub(crate) memcached: Option<Box<memcached::MemcachedFront>>,
    /// Only of a client with CLIENT TRACKING on.
    pub(crate) tracking: Option<Box<ClientTracking>>,
    /// While nothing goes on before it reads: the least that it has left unread, and since when that is no less.
    pub(crate) stuck: Option<(u64, Time)>,
}

/// What clients say about themselves; most say nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientLabels {
    pub(crate) name: Bytes,
    pub(crate) library: Bytes,
    pub(crate) library_version: Bytes,
}

impl Session {
    pub(crate) fn addresses(&self) -> (&str, &str) {
        self.known.as_deref().map_or(("?:0", "?:0"), |(own, local)| (own, local))
    }

    /// RESP2 has no pushes: a connection with subscriptions carries nothing else.
    pub(crate) fn only_listens(&self) -> bool {
        self.subscribed.is_some() && !self.resp3
    }

    /// Bytes of what it has queued.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |queued| queued.bytes())
    }

    /// How it is told of its next command.
    pub(crate) fn manner(&mut self) -> Manner {
        let shape = self.memcached.as_mut().and_then(|memcached| memcached.next.take());
        Manner { resp3: self.resp3, silent: self.take_silence(), closes: false, shape }
    }

    /// Whether what its next command reads is kept.
    pub(crate) fn take_caching(&mut self) -> bool {
        self.tracking.as_mut().is_some_and(|tracking| tracking.take_caching())
    }

    pub(crate) fn labels(&mut self) -> &mut ClientLabels {
        self.labels.get_or_insert_default()
    }

    /// Whether the next operation's reply is swallowed.
    fn take_silence(&mut self) -> bool {
        match self.replies {
            ReplyMode::On => false,
            ReplyMode::Off => true,
            ReplyMode::SkipNext => {
                self.replies = ReplyMode::On;
                true
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) place: ThreadPlace,
    sessions: Vec<Option<Box<Session>>>,
    count: usize,
    opened: u64,
}

impl Sessions {
    pub(crate) fn new(place: ThreadPlace) -> Sessions {
        Sessions { place, sessions: Vec::new(), count: 0, opened: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of the new one.
    pub(crate) fn open(&mut self, now: Time, id: ClientId, identity: ClientIdentity) -> u64 {
        let index = id.0 as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, || None);
        }
        assert!(self.sessions[index].is_none(), "client {index} is open already");
        let number = 1 + self.place.number(self.opened);
        self.opened += 1;
        self.count += 1;
        self.sessions[index] = Some(Box::new(Session {
            number,
            opened: now,
            seen: now,
            last: "NULL",
            known: None,
            identity,
            resp3: false,
            replies: ReplyMode::On,
            labels: None,
            subscribed: None,
            subscribing: None,
            awaits_subscription: false,
            unheard: Vec::new(),
            users_changed: None,
            closing: false,
            transaction: None,
            memcached: None,
            tracking: None,
            stuck: None,
        }));
        number
    }

    pub(crate) fn close(&mut self, index: u32) -> Option<Box<Session>> {
        let session = self.sessions.get_mut(index as usize)?.take()?;
        self.count -= 1;
        Some(session)
    }

    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &Session)> {
        let sessions = self.sessions.iter().enumerate();
        sessions.filter_map(|(index, session)| Some((index as u32, session.as_deref()?)))
    }

    /// The place of the client of this number.
    pub(crate) fn find(&self, number: u64) -> Option<u32> {
        self.numbered().find(|(_, session)| session.number == number).map(|(index, _)| index)
    }

    /// The places of all clients, which stay theirs until they close.
    pub(crate) fn indexes(&self) -> Vec<u32> {
        self.numbered().map(|(index, _)| index).collect()
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Session> {
        self.sessions.get(index as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Session> {
        self.sessions.get_mut(index as usize)?.as_deref_mut()
    }
}

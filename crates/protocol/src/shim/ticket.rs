//! What is asked of storage, so that its answer finds whose it is. Not what follows from it.

use smallvec::SmallVec;
use wire::{Key, Peer, TopicKind, View};

use super::joins::Origins;
use super::operation::Origin;
use super::pubsub;
use super::read_feed::TrackedRead;
use crate::key_view::KeyView;
use crate::time::Time;

/// What a storage ticket is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Read {
        origins: Origins,
        asked: KeyView,
    },
    /// A command that passes the queues by: without keys, or a read of these.
    Plain {
        origin: Origin,
        keys: SmallVec<[Key; 1]>,
    },
    /// WATCH.
    Watch {
        origin: Origin,
        first: bool,
        request: u64,
    },
    /// A transaction that writes nothing, on the connection that watches.
    WatchedRead {
        origin: Origin,
        number: u64,
    },
    Fill(FillTicket),
    Operation(u32),
    /// The rest of a reply that has begun; nobody takes it any more if there is no origin.
    Transfer {
        origin: Option<Origin>,
    },
    Proof,
    Touch {
        key: Key,
    },
    /// Asks nothing but a sign of life.
    Probe,
    /// A PING on the feed, or what makes it one.
    Feed {
        opens: bool,
    },
    /// A PING on the read feed.
    ReadFeed {
        ping: u64,
    },
    /// What shows whether others write.
    Examination,
    Topic(pubsub::TopicChange),
    Publish {
        origin: Origin,
        channel: Key,
        shard: bool,
    },
    CountSubscribers {
        origin: Origin,
        kind: TopicKind,
    },
}

#[derive(Clone, Debug)]
pub(super) struct FillTicket {
    pub(super) holder: Peer,
    pub(super) session: u64,
    pub(super) fill: u64,
    pub(super) key: Key,
    pub(super) view: View,
    /// The version current when the read was sent; `None` if no copy was registered.
    pub(super) version: Option<u64>,
    /// The first of its commands makes storage report the next change.
    pub(super) tracked: Option<TrackedRead>,
}

#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) issued: Time,
    /// How many were at storage then, itself included, if `Admission` counts it.
    pub(super) place: Option<u32>,
    pub(super) purpose: Purpose,
}

//! What a router can do, and why it closes a client. Not how a driver does it.

use std::time::Duration;

use bytes::Bytes;
use wire::{Message, Peer};

use crate::router::siblings::SiblingMessage;

/// A client connection, by the number that the driver gave it; numbers are small and are used again after
/// `Input::Closed`, because tables are indexed by them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Everything a router can do. Effects of one client keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send {
        to: Peer,
        message: Message,
    },
    Reply {
        client: ClientId,
        bytes: Bytes,
    },
    /// The next bytes of a large reply; more come once `Input::Drained` says that there is room.
    Part {
        client: ClientId,
        bytes: Bytes,
    },
    /// Something that the client has not asked for now: a message of a channel.
    Push {
        client: ClientId,
        bytes: Bytes,
    },
    /// After what was replied so far has been written, or at once, by the reason. `Input::Closed` is still owed.
    Close {
        client: ClientId,
        reason: CloseReason,
    },
    /// For another thread of the same router.
    Tell {
        thread: u16,
        message: Box<SiblingMessage>,
    },
    /// The client was not `ready` and is again.
    Resume {
        client: ClientId,
    },
}

/// Why a client is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// It has its replies, and nothing more of it counts: it has ended, asked for that, was told that it makes no sense, or
    /// has been killed.
    Answered,
    /// All clients hold more than they may, and this one held the most.
    Memory {
        all_bytes: u64,
        bytes_max: u64,
        bytes: u64,
        /// Its memory need not be free at once: a line may go behind its replies.
        tells: bool,
    },
    /// It sends, and does not read what it is told.
    Unread {
        kept_bytes: u64,
        unread_bytes: u64,
        waited: Duration,
        /// A line may go behind its replies, all of which are whole.
        tells: bool,
    },
    /// It has asked for nothing for too long.
    Idle,
    /// It has not shown who it is in time.
    Unauthenticated,
}

//! What the flow tells the front, one thing after the other, and what it has yet to do in between. Not what comes of it.
//!
//! The front hears of each event before the flow goes on, so that effects keep the order of what caused them.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Peer, ShimId};

use crate::router::flow::pipeline::RoomTurn;
use crate::router::flow::reply::PartReply;
use crate::router::flow::request::{RequestOrigin, Routed};
use crate::router::flow::touch::Freed;

#[derive(Debug)]
pub(crate) enum FlowEvent {
    /// The client may have replies, or parts of one, that are due: `Flow::next_answered` gives them.
    Answered { client: u32 },
    /// A command that the front prepares itself has its turn: `Flow::subscribe`, `Flow::ask_info` or `Flow::finish`.
    Turn { origin: RequestOrigin, routed: Box<Routed> },
    /// All shims have answered a subscription, some of them maybe with an error.
    Subscribed { origin: RequestOrigin, error: Option<Bytes> },
    /// All storage servers have answered a change of users, or the question for them behind it.
    UsersChanged { origin: RequestOrigin, replies: Vec<(ShimId, PartReply)> },
    /// A storage server has answered the router's own question of this number.
    Told { question: u32, reply: PartReply },
    /// A read was sent of which the client keeps what it reads.
    Keeps { client: u32 },
    /// A write was sent behind so many reads that clients keep, and shims say whose writes they report.
    Wrote { client: u32, request: u64, reads: u64 },
    /// The rest of a reply cannot be had. The client has its start, and there is no way to take that back.
    BrokenOff { client: u32 },
    /// Nobody has become this shim: what clients keep of its keys is tracked by nobody.
    Forgotten { shim: ShimId },
    /// All is done that `Flow::finish` has let go on.
    Settled { client: u32 },
}

/// What the flow has yet to do in this step.
#[derive(Debug)]
pub(crate) enum Todo {
    Tell(FlowEvent),
    /// Gives the client what is due, then sends what that has freed.
    Advance {
        client: u32,
        freed: Freed,
    },
    Release {
        client: u32,
        freed: Freed,
    },
    /// The first command of the client was tried; if it was answered at once, all goes on.
    GoOnBehind {
        client: u32,
        sequence: u64,
    },
    /// Requests whose members are gone.
    Lost(std::vec::IntoIter<u64>),
    /// Requests that have waited in vain for a process that is this shim.
    Unsent {
        shim: ShimId,
        requests: std::vec::IntoIter<u64>,
    },
    /// Nodes from this one on are looked at: those that leave reads unanswered for too long are left alone.
    Hanging {
        from: usize,
    },
    EndPause,
    /// Clients that a pause has held back.
    Unpaused(std::vec::IntoIter<u32>),
    FindExpired,
    Expired(std::vec::IntoIter<(u32, RoomTurn)>),
    Deal(Dealing),
}

/// Turns that are being dealt, member by member.
#[derive(Debug)]
pub(crate) struct Dealing {
    /// The next one last.
    pub(crate) peers: SmallVec<[Peer; 8]>,
    pub(crate) hand: Option<Hand>,
}

/// A client that may send some of its commands to a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hand {
    pub(crate) peer: Peer,
    pub(crate) client: u32,
    pub(crate) number: u64,
    /// How many more commands.
    pub(crate) left: usize,
}

/// The last is the next, so that what follows from a thing is done before what comes after it.
#[derive(Debug, Default)]
pub(crate) struct Todos {
    todos: Vec<Todo>,
}

impl Todos {
    pub(crate) fn push(&mut self, todo: Todo) {
        self.todos.push(todo);
    }

    pub(crate) fn tell(&mut self, event: FlowEvent) {
        self.todos.push(Todo::Tell(event));
    }

    pub(crate) fn advance(&mut self, client: u32, freed: Freed) {
        self.todos.push(Todo::Advance { client, freed });
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Todo> {
        self.todos.pop()
    }
}

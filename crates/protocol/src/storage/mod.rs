//! What the shim's machine says to its storage and hears back, and the machines that reach and fence storage servers. No
//! sockets.

mod backoff;
mod discovery;
pub mod durable;
mod health;
mod login;
mod mark;
pub mod memcached;
pub mod network;
pub mod redis;
pub mod redis_cluster;
pub mod redis_migration;
pub mod redis_sentinel;
mod step;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::coherence::lease::EarlierIncarnations;
pub use mark::{MarkedPart, REMEDY};

/// Which connection a command takes. One key always takes one of them, because two would reorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The shared, pipelined connection of this RESP version: first in, first out.
    Shared { resp3: bool },
    /// A connection of its own for as long as the command runs: blocking commands, and reads with large replies.
    Pinned { resp3: bool },
    /// As `Shared`, for scripts: one that runs for long keeps nobody from ending it.
    Scripts { resp3: bool },
    /// Has the subscriptions, always RESP3: what is published there comes before replies to what it was asked later.
    Subscriber,
    /// Reports what has changed, whoever changed it; always RESP3.
    Feed,
    /// Reports the next change of what tracked reads have read; always RESP3.
    ReadFeed,
    /// The connection on which a client watches keys: made for the first command with a number that is larger than all
    /// before, and never again, so that what it watched is never forgotten unnoticed.
    Watching { number: u64, resp3: bool },
}

/// What commands are about, for storage of several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Keys of this hash slot.
    Slot(u16),
    /// No key, or there is one server.
    Whole,
    /// Nothing but a sign that this incarnation still governs every server in use.
    Proof,
}

/// Commands that go out together, in order and next to each other, one reply each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    pub ticket: u64,
    pub lane: Lane,
    pub reach: Reach,
    /// Complete RESP command frames.
    pub commands: SmallVec<[Bytes; 2]>,
}

/// What is wanted of a command that storage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandControl {
    /// Give up a pinned command; its `Lost` and, once it cannot run any more, `Fenced` follow.
    Abort,
    /// End a pinned command as by its time-out, or by an error; its reply follows as ever.
    Unblock { error: bool },
    /// Throw away a reply that was said to be `Large`; nothing more is heard of its ticket.
    Skip,
    /// Hand on so many bytes more of it, in parts.
    Take { bytes: u64 },
}

/// Asks a server for a sign of life.
pub(crate) const PING: Bytes = Bytes::from_static(b"*1\r\n$4\r\nPING\r\n");
/// A reply of more than this is large: no node caches it, and nobody should hold the whole of it.
pub const LARGE_REPLY_BYTES: usize = 1 << 20;
/// On the way between storage and a client: enough to keep all connections in between busy.
pub const WINDOW_BYTES: u64 = 1 << 20;
pub const EARLY_BYTES: u64 = 64 << 10;

/// What storage reports. For every `Store` there is exactly one `Replies`, one `Lost` or one last `Part`, or it was told
/// to skip its reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageEvent {
    /// Commands may be sent, and no earlier incarnation can write any more (design, section 7). Another number than
    /// the last means another storage state or another fence: everything granted is void, but `earlier` leases may run.
    Up {
        incarnation: u64,
        traits: StorageTraits,
        earlier: EarlierIncarnations,
    },
    /// Nothing can be sent until the next `Up`.
    Down {
        reason: String,
        /// No server answers, or only that it is not ready yet: nobody serves these data, as far as is known here.
        gone: bool,
    },
    Replies {
        ticket: u64,
        replies: SmallVec<[Bytes; 2]>,
    },
    /// The last reply of a ticket is large. Without a `CommandControl` about it, it is kept until it is whole.
    Large {
        ticket: u64,
    },
    /// The next bytes of a reply that is handed on in parts.
    Part {
        ticket: u64,
        bytes: Bytes,
        last: bool,
    },
    /// The connection broke before the last reply. `sent` is false only if storage certainly has not executed it.
    Lost {
        ticket: u64,
        sent: bool,
    },
    /// A `message`, `pmessage` or `smessage` push of the subscriber connection, whole.
    Published(Bytes),
    /// The subscriber connection is gone, its subscriptions with it.
    Unsubscribed,
    /// These hash slots are between two servers, and no others: nothing of theirs may be granted until they have settled.
    Moving(Vec<u16>),
    /// An `invalidate` push of the feed, whole; and that there will be none.
    Changed(Bytes),
    FeedDown,
    /// The same of the read feed.
    ReadChanged(Bytes),
    ReadFeedDown,
    /// Others have made at least so many changes since the last word of them, of keys that nobody tells; or, with none, these were
    /// connected then.
    ForeignWrites {
        count: u64,
        connections: Vec<String>,
    },
    /// Whatever was reported lost before has either been executed by now or never will be.
    Fenced,
    /// What was handed over is another process' to take.
    Left,
    /// It is on record at the server that keys leave, or that they have left, as it was asked for.
    Marked,
    /// No key that leaves is here any more, or none that comes is here yet; and that nothing of them is asked elsewhere either.
    Migrated,
    MigrationEnded,
    /// For people, in the log: nothing follows from it.
    Note {
        level: NoteLevel,
        text: String,
    },
}

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteLevel {
    Info,
    Warning,
}

/// What the machine has to know about the storage server it talks to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StorageTraits {
    /// Fields of hashes may expire on their own, so replies of hash commands change without a write.
    pub hash_field_expiry: bool,
    /// There are several servers, so that an answer of one proves nothing of the others.
    pub many_servers: bool,
    /// Nothing is kept there of how long leases may be, so that they have to be short.
    pub short_leases: bool,
    /// It does not let earlier incarnations be kept from writing, which are followed as others are.
    pub unfenced: bool,
    /// A read on a shared connection behind CLIENT CACHING YES is tracked while the read feed is open: the next change of its
    /// key is reported there, but for one by a command on the same connection.
    pub tracks_reads: bool,
    /// It is on record there that keys have been divided anew, or are being; and that those that leave have left.
    pub divided: bool,
    pub keys_left: bool,
    /// It reports no changes, as nobody but its shim makes any: clients cannot keep what they read there.
    pub reports_no_changes: bool,
}

//! Every message between roles, as one closed enum. Which bytes it becomes is `codec`'s business.

use bytes::Bytes;

use crate::key::{Key, View};

/// Most layers a cluster can have (design: roles).
pub const LAYERS_MAX: usize = 4;

/// A set of layers, bit `i` for layer `i`; in replies: the layers that hold a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerSet(pub u8);

impl LayerSet {
    pub const EMPTY: LayerSet = LayerSet(0);

    pub fn contains(self, layer: usize) -> bool {
        self.0 & (1 << layer) != 0
    }

    #[must_use]
    pub fn with(self, layer: usize) -> LayerSet {
        LayerSet(self.0 | (1 << layer))
    }

    #[must_use]
    pub fn without(self, layer: usize) -> LayerSet {
        LayerSet(self.0 & !(1 << layer))
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// How many places a key has, as a step of a ladder that every member knows (`protocol::placement::elastic`); the first one is
/// one place in each layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Degree(pub u8);

impl Degree {
    pub const BASE: Degree = Degree(0);

    pub fn is_base(self) -> bool {
        self == Degree::BASE
    }
}

/// The load of one node, in requests per second divided by its relative capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoadStamp {
    /// The node's id plus one; zero says that no node of this layer has stamped the message.
    pub node_plus_one: u32,
    pub load: u32,
}

/// One stamp per layer, written by the nodes that a reply passes (paper, section 4.2).
pub type Loads = [LoadStamp; LAYERS_MAX];

/// What a reply is, so that nobody has to parse it to know whether it may be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// `value` is a complete RESP reply, verbatim.
    #[default]
    Ok,
    /// The null reply to GET (view 0); `value` is empty because its bytes depend on the RESP version.
    Nil,
    /// `value` is a complete RESP error reply.
    Error,
    /// A node or shim cannot answer now; somebody else may answer a read. Storage has not seen the command, unless `value`
    /// says so, which is the error for a client that has no other way.
    Busy,
    /// To and from nodes only: the reply is so large that none keeps it or passes it on; `value` is empty. The router asks
    /// the shim, which has means for it.
    Large,
    /// From nodes only: the node has no link to the shim of the key; `value` is empty. The router asks elsewhere.
    Unlinked,
    /// To and from nodes only: the shim of the key or its storage refuses for now, and `value` is its error. Nothing was
    /// read, so this says nothing of the key. Who has a copy may answer; the shim would refuse again.
    Refused,
}

impl Status {
    /// Whether the value is an error and not a reply that may be kept.
    pub fn is_refusal(self) -> bool {
        !matches!(self, Status::Ok | Status::Nil)
    }
}

/// A message between roles. Values are complete RESP replies and commands complete RESP frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    // Data channel: reads and everything else a client asks for.
    Read(Read),
    Reply(Reply),
    Execute(Execute),
    Cancel(Cancel),
    Fetch(Fetch),
    Fill(Fill),
    Offer(Offer),
    Subscribe(Subscribe),
    Subscribers(Subscribers),
    Deliver(Deliver),
    Follow(Follow),
    Track(Track),
    Changed(Changed),
    Part(Part),
    Credit(Credit),
    Handover(Handover),
    HandoverAck(HandoverAck),
    // Control channel: sessions and coherence.
    Hello(Hello),
    Welcome(Welcome),
    Reject(Reject),
    Renew(Renew),
    Grant(Grant),
    Refuse(Refuse),
    Invalidate(Invalidate),
    Ack(Ack),
    Commit(Commit),
    Evict(Evict),
    Revoke(Revoke),
    Revoked(Revoked),
    Heat(Heat),
    SetDegree(SetDegree),
    Window(Window),
    Tenure(Tenure),
}

/// A cacheable single-key read (router to node or shim, node to shim).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    pub request: u64,
    pub key: Key,
    pub view: View,
    pub resp3: bool,
    /// Takes effect after the earlier commands on this key of the same connection.
    pub ordered: bool,
    /// A large reply may come in parts. Only routers take them, so only they ask so.
    pub streams: bool,
    /// Milliseconds that it waited before it was sent; 65,535 for that and more.
    pub waited_ms: u16,
    /// How many places its router takes the key to have: above the base a node admits it at its first read.
    pub degree: Degree,
    /// The command's RESP frame; empty for view 0, which is `GET key`.
    pub command: Bytes,
}

/// The answer to a `Read` or an `Execute`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reply {
    pub request: u64,
    pub status: Status,
    /// Served from a node's copy.
    pub hit: bool,
    /// The layers in which this key's view is cached now (a hint: it steers, it promises nothing).
    pub cached: LayerSet,
    /// How many places the key has, as far as the node of a hit knows.
    pub degree: Degree,
    pub loads: Loads,
    /// `value` is only the start: `Part`s follow.
    pub more: bool,
    pub value: Bytes,
}

/// Any other command, with its keys inside `command`; `key` is the first of them, or empty for none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Execute {
    pub request: u64,
    pub key: Key,
    pub resp3: bool,
    pub ordered: bool,
    /// The request of the first WATCH that this one belongs to; the number of that WATCH itself.
    pub watch: Option<u64>,
    /// Milliseconds that it waited before it was sent; 65,535 for that and more.
    pub waited_ms: u16,
    pub command: Bytes,
}

/// The client of `request` is gone, or watches no more: a blocked command is given up, a WATCH forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cancel {
    pub request: u64,
}

/// A node's read that asks for a copy (node to shim): the paper's insertion, "GET want fill".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fetch {
    pub session: u64,
    /// Grows with every fetch of a session.
    pub fill: u64,
    pub key: Key,
    pub view: View,
    pub resp3: bool,
    pub command: Bytes,
}

/// The answer to a `Fetch`. Not granted: the value answers readers but is not a copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fill {
    pub session: u64,
    pub fill: u64,
    pub key: Key,
    pub view: View,
    pub version: u64,
    pub granted: bool,
    pub status: Status,
    pub cached: LayerSet,
    /// How many places the key has; the base, too, for a node that is none of them.
    pub degree: Degree,
    /// Remaining time to live when storage was asked; `None` for ever.
    pub ttl_ms: Option<u64>,
    /// For so much longer its key lives: the copy may answer meanwhile if storage is gone and the shim gives leave.
    pub stale_ms: u64,
    pub value: Bytes,
}

/// A hint that a key is hot (shim to node). The node alone decides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    pub key: Key,
    pub view: View,
    pub resp3: bool,
    /// Requests seen in the last second.
    pub heat: u32,
    pub command: Bytes,
}

/// What a subscription names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicKind {
    Channel,
    Pattern,
    ShardChannel,
}

/// So many of the router's clients have this channel or pattern from now on (router to shim). Answered by a `Reply`
/// once storage sends what is published there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subscribe {
    pub request: u64,
    pub kind: TopicKind,
    pub name: Key,
    pub clients: u32,
}

/// The same without an answer: fewer clients than before, none at all, or as many as before a link was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subscribers {
    pub kind: TopicKind,
    pub name: Key,
    pub clients: u32,
}

/// Something was published (shim to router, once for all clients that subscribed to `name`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deliver {
    pub kind: TopicKind,
    pub name: Key,
    /// The complete RESP3 push that subscribers get.
    pub push: Bytes,
}

/// What changes the router wants to hear of from now on (router to shim): those of keys with one of these prefixes, and
/// those of keys that it tracks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Follow {
    /// Answered by a `Reply` once storage reports changes; without a number by nothing.
    pub request: Option<u64>,
    /// No client of the router's tracks anything if this is not set.
    pub follows: bool,
    /// `Changed` shall say who has written.
    pub writers: bool,
    /// A RESP array of strings; empty for none.
    pub prefixes: Bytes,
}

/// The router's clients keep what they read of this key from here on: its next change is to be told (router to shim).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Track {
    pub key: Key,
}

/// These keys have changed or may have (shim to router); those that were tracked are not any longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changed {
    /// The router's own request that has written them, if that is known.
    pub writer: Option<u64>,
    /// A RESP array of strings; empty for all keys of the shim.
    pub keys: Bytes,
}

/// "I dropped what I held before": opens a session (node to shim).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hello {
    pub number: u64,
    pub nonce: u64,
    /// Drawn by the process at its start: another one may use the same id, and knows nothing of what this one holds.
    pub process: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Welcome {
    pub session: u64,
    pub nonce: u64,
    /// The longest lease that the shim grants, in microseconds.
    pub lease: u64,
    /// What the node takes off each lease for pauses that its clock does not see, in microseconds.
    pub guard: u64,
}

/// The number was too low: `last` is the highest one seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reject {
    pub last: u64,
    pub nonce: u64,
}

/// What comes after a part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Follows {
    More,
    Nothing,
    /// There is more, but it cannot be had any more.
    Lost,
}

/// The next bytes of a reply that was begun by a `Reply` with `more` (shim to router).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub request: u64,
    pub follows: Follows,
    pub value: Bytes,
}

/// The client has taken so many bytes of a reply that comes in parts: as many more may be sent (router to shim).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credit {
    pub request: u64,
    pub bytes: u64,
}

/// Asks to extend the lease. `sent` is the node's clock in microseconds, echoed by the grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    pub session: u64,
    pub sent: u64,
    /// Heat below which the node would not insert: keeps offers that it would decline off the wire.
    pub heat_floor: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub session: u64,
    pub sent: u64,
    /// Microseconds, counted by the node from `sent`.
    pub duration: u64,
    /// As in the WELCOME.
    pub guard: u64,
    pub leave: Option<Leave>,
}

/// Storage is gone: what rules allow to be stale may be served beyond the lease (shim to node, with a GRANT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leave {
    /// Microseconds, counted by the node from the GRANT's `sent`.
    pub duration: u64,
    /// For how many microseconds nobody has heard of changes.
    pub unheard: u64,
}

/// To a node: the session is not known or its lease has run out; the node drops it and says HELLO again. To a shim: the
/// node has dropped everything of the session and ends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refuse {
    pub session: u64,
}

/// First phase of a coherent write: drop every view older than `version`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Invalidate {
    pub session: u64,
    pub key: Key,
    pub version: u64,
    pub value: Option<EarlyValue>,
}

/// The value of an unconditional SET, held by the node until the matching COMMIT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EarlyValue {
    pub ttl_ms: Option<u64>,
    /// The RESP reply that GET would give.
    pub value: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ack {
    pub session: u64,
    pub key: Key,
    pub version: u64,
    /// The node holds nothing of this key; any fill up to this id is dead.
    pub nothing_held: Option<u64>,
}

/// Second phase: the pending value of exactly this version is what storage holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    pub session: u64,
    pub key: Key,
    pub version: u64,
}

/// The node has dropped the key's last view; `fill` is the key's highest fill id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evict {
    pub session: u64,
    pub key: Key,
    pub fill: u64,
}

/// Barrier: drop everything of this session that was granted up to now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revoke {
    pub session: u64,
    pub number: u64,
    /// Nobody hears of changes any more: drop only what rules do not allow to be stale, and say nothing.
    pub spares: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revoked {
    pub session: u64,
    pub number: u64,
}

/// How hot a key is at a node, told once a second while it takes much of the node, or has more places than one per layer (node
/// to shim).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heat {
    pub session: u64,
    pub key: Key,
    /// What the node stamps into its replies.
    pub degree: Degree,
    /// Thousandths of the node's time, or of its rate if it has one.
    pub permille: u32,
    /// Reads of the key in the last second.
    pub hits: u32,
    /// How often it was invalidated in that second.
    pub invalidations: u32,
}

/// The key has so many places from now on, and the node is one of them; at the base, only if it is one of the first, one per
/// layer (shim to node). Nothing depends on its arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetDegree {
    pub key: Key,
    pub degree: Degree,
}

/// The router may have so many requests under way at this member from now on (node or shim to router). Others wait at the
/// router.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    pub requests: u32,
}

impl Window {
    /// No limit: the member refuses what is too much for it.
    pub const UNLIMITED: u32 = u32::MAX;
}

/// A shim leaves in order: it answers what it has been sent, and whoever reads this sends nothing more, but keeps it for the
/// process that is the shim next (shim to router or node).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handover {
    /// The same of one process each time.
    pub number: u64,
}

/// Nothing comes behind this until the shim is another process, or has been waited for in vain (router or node to shim).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HandoverAck {
    pub number: u64,
}

/// Whether the sender is the shim, of all processes that may be it, and for how long it has been in microseconds: the youngest
/// tenure counts (shim to everybody, when a link is made and whenever it changes).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    pub age: Option<u64>,
    /// How many routers it is linked to; told again and again by one that stands by, and nothing has changed then (to the other
    /// processes that may be the shim).
    pub routers: Option<u32>,
}

impl Message {
    /// Whether it travels on the control channel, which overload of the data channel never delays.
    pub fn is_control(&self) -> bool {
        !matches!(
            self,
            Message::Read(_)
                | Message::Reply(_)
                | Message::Execute(_)
                | Message::Cancel(_)
                | Message::Fetch(_)
                | Message::Fill(_)
                | Message::Offer(_)
                | Message::Subscribe(_)
                | Message::Subscribers(_)
                | Message::Deliver(_)
                | Message::Follow(_)
                | Message::Track(_)
                | Message::Changed(_)
                | Message::Part(_)
                | Message::Credit(_)
                | Message::Handover(_)
                | Message::HandoverAck(_)
        )
    }
}

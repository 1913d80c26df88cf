//! The shim as a machine: the only way to one storage server's data, and the keeper of coherence for its keys.
//!
//! Order is part of the contract: `Effect::Store` of a write is emitted only after every servable copy of its
//! keys was acknowledged invalid or its lease has run out (design, section 6).

mod begin;
mod coherent;
mod elastic;
mod feed;
mod foreign_writers;
mod handover;
mod holders;
mod inspect;
mod joins;
mod large;
mod marks;
mod near;
mod observe;
mod operation;
mod operations;
mod pubsub;
mod purge;
mod reach;
mod read_feed;
mod reads;
mod refusal;
mod replies;
mod resharding;
mod settings;
mod stale;
mod statistics;
mod step;
mod storage_limit;
mod ticket;
mod touch;
mod tracking;
mod transaction;
mod unblock;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use slab::Slab;
use smallvec::SmallVec;
use wire::{Key, Message, Peer, RouterId, ShimId};

use crate::awake::Awake;
use crate::coherence::lease::{LeaseLimits, LeaseTerms};
use crate::hash::KeyMap;
use crate::heat::{HeatConfig, HeavyHitters, Hottest};
use crate::load::LoadMeter;
use crate::placement::Placement;
use crate::requests::{RequestQueue, RouterWindows};
use crate::storage::{CommandControl, Lane, PING, Reach, StorageEvent, Store};
use crate::time::Time;
use holders::Holders;
use joins::Readings;
use operation::{KeyState, Operation};
use replies::StorageState;
use step::ShimStep;
use storage_limit::StorageLimit;
use ticket::{FillTicket, Purpose, Ticket};
use watch::Watcher;

pub use commands::PurgeTarget;
pub(crate) use feed::changed_keys;
pub use feed::{Bounded, FeedState};
pub use foreign_writers::{ALL_KEYS, ForeignWritePolicy, ForeignWritersSeen};
pub use inspect::ShimBacklog;
pub(crate) use read_feed::TRACKED;
pub use resharding::{DepartingKeys, ReshardingPhase};
pub use settings::ShimSettings;
pub use statistics::ShimStatistics;
pub(crate) use tracking::TRACKED_MAX;

/// An unacknowledged INV or REVOKE is repeated this often.
const REPEATS_PER_LEASE: u32 = 4;
/// The proof that storage still obeys is renewed this often.
const PROOFS_PER_LEASE: u32 = 8;

/// What a shim is told at its start.
#[derive(Clone, Debug)]
pub struct ShimConfig {
    pub id: ShimId,
    pub lease: LeaseTerms,
    pub lease_limits: LeaseLimits,
    /// Blocking commands at a time: each has a connection of its own.
    pub blocking_max: usize,
    /// Large replies under way at a time, each with a connection of its own and up to [`WINDOW_BYTES`](crate::storage::WINDOW_BYTES) on
    /// its way; at least one.
    pub large_replies_max: usize,
    /// Larger values do not ride on INV: each copy would get them whether or not it is read again.
    pub early_value_bytes_max: usize,
    /// Views of hashes are cached even where fields may expire on their own.
    pub cache_expiring_hashes: bool,
    /// Others write to storage, too; `None` is strict.
    pub bounded: Option<Bounded>,
    /// Keys of which routers are to be told, for their clients that track them.
    pub tracked_max: usize,
    pub seed: u64,
    pub settings: ShimSettings,
}

impl Default for ShimConfig {
    fn default() -> ShimConfig {
        ShimConfig {
            id: ShimId(0),
            lease: LeaseTerms::default(),
            lease_limits: LeaseLimits::default(),
            blocking_max: 1_000,
            large_replies_max: 128,
            early_value_bytes_max: 64 << 10,
            cache_expiring_hashes: false,
            bounded: None,
            tracked_max: TRACKED_MAX,
            seed: 0,
            settings: ShimSettings::default(),
        }
    }
}

/// All that a shim can see.
#[derive(Clone, Debug)]
pub enum Input {
    Message {
        from: Peer,
        message: Message,
    },
    Linked(Peer),
    Unlinked(Peer),
    Storage(StorageEvent),
    Map(Arc<Placement>),
    /// What has changed in the configuration while serving.
    Settings(Box<ShimSettings>),
    /// How much of the last second the shim had something to do, in thousandths.
    Busy {
        permille: u32,
    },
    /// Asks for copies to be dropped, for who runs this shim; `Effect::Purged` of the same number follows.
    Purge {
        number: u64,
        scope: PurgeTarget,
    },
    /// This process ends: what it has begun is finished, and what storage and peers have with it goes to the next one. See
    /// [`Shim::has_left`].
    HandOver,
    Tick,
}

/// All that a shim can do. A message to a peer that is not linked is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Send {
        to: Peer,
        message: Message,
    },
    Store(Store),
    /// About what `Store` of this ticket has sent.
    Control {
        ticket: u64,
        control: CommandControl,
    },
    /// No copy of what `Input::Purge` of this number named is older than that; there were so many.
    Purged {
        number: u64,
        copies: u64,
    },
    /// The watching connection of this number serves nobody any more. `clean`: it has watched nothing since its EXEC.
    Release {
        number: u64,
        clean: bool,
    },
    /// Another process that may be the shim is gone, as far as is known here, or only is not the shim.
    Vacant {
        gone: bool,
    },
    /// Nothing is under way, and nothing can be granted any more.
    HandOver,
    /// This process has handed over, and stands by: every link to it begins anew, so that nobody takes it for one that leaves.
    Renew,
    /// Keys leave for the storage of these shims: storage moves them, and carries out commands where each is. Without any, none leaves
    /// here, and storage only keeps on record that keys are divided anew.
    Migrate {
        keys: DepartingKeys,
        destinations: Vec<ShimId>,
        /// An earlier process may have begun with it.
        again: bool,
    },
    /// What storage has of keys that come to it goes, as it is from before; nothing goes any more without any.
    Prepare {
        keys: Option<DepartingKeys>,
        /// An earlier process may have done it, and some may have come.
        again: bool,
    },
    /// No command for these keys follows.
    EndMigration,
}

#[derive(Clone)]
pub struct Shim {
    config: ShimConfig,
    placement: Arc<Placement>,
    storage: StorageState,
    /// Storage has said whether it can be used.
    storage_heard: bool,
    incarnation: Option<u64>,
    /// Since when the incarnation governs, and when this process was last seen to in an incarnation before.
    governs_since: Time,
    governed: Time,
    /// Storage keeps no record of leases.
    short_leases: bool,
    /// Until then no write reaches storage: an earlier incarnation's leases may still run.
    hold_until: Time,
    /// Until then no read does either: copies may still show what storage held before it was lost.
    reads_hold_until: Time,
    /// When the newest storage command that has been answered was sent.
    proof: Time,
    proof_sent: Time,
    touched: Time,
    touch_last: Time,
    touching: Vec<Key>,
    /// Hash slots between two servers, in order.
    moving: Vec<u16>,
    holders: Holders,
    linked: BTreeSet<Peer>,
    /// How many other processes that may be this shim are, all by the same name.
    others_linked: u32,
    departure: handover::Departure,
    reach: reach::RouterReach,
    resharding: resharding::Resharding,
    sessions_opened: u64,
    /// The last version taken; also what a key's state starts with.
    sequence: u64,
    keys: KeyMap<KeyState>,
    operations: Slab<Operation>,
    purges: Slab<purge::Purging>,
    /// Purges that wait for leases of earlier incarnations, each with their end.
    purges_held: Vec<(Time, u32)>,
    tickets: Slab<Ticket>,
    storage_limit: StorageLimit,
    /// Requests that are not begun yet, each with who asks.
    waiting: RequestQueue<(Peer, Message)>,
    windows: RouterWindows,
    /// When the request that is being begun came, less what it had waited before.
    since: Time,
    /// When requests that have waited for too long were looked for last.
    expiry: Time,
    /// Meter of requests begun.
    meter: LoadMeter,
    /// Who watches, by router and request.
    watchers: BTreeMap<(RouterId, u64), Watcher>,
    /// Watching connections that were asked for and not released.
    watching: usize,
    watches: u64,
    /// Reads at storage, and who waits for the next.
    readings: KeyMap<Readings>,
    /// How many wait so.
    joined: usize,
    larges: large::Larges,
    ready: VecDeque<u32>,
    held: Vec<u32>,
    barriers: VecDeque<u32>,
    barrier_number: u64,
    /// What storage answers while a script runs for too long; gone with the next reply that says otherwise.
    script_busy: Option<Bytes>,
    quarantined: Vec<Key>,
    /// A barrier's outcome is unknown: every key is quarantined.
    quarantined_whole: bool,
    topics: pubsub::Topics,
    feed: feed::Feed,
    stale: stale::Stale,
    read_feed: read_feed::ReadFeed,
    examination: foreign_writers::Examination,
    /// Items that are stale or being made anew.
    marked: KeyMap<()>,
    tracking: tracking::Tracking,
    elastic: elastic::ElasticKeys,
    heat: HeavyHitters,
    hottest: Hottest,
    observer: Option<observe::Observer>,
    heat_floor: u32,
    /// When it had a tick last.
    awake: Awake,
    frames: BytesMut,
    random: SmallRng,
    statistics: ShimStatistics,
}

impl Shim {
    pub fn new(config: ShimConfig, placement: Arc<Placement>) -> Shim {
        let mut holders = Holders::default();
        holders.set_nodes(placement.nodes_count(), config.settings.heat_min);
        Shim {
            storage: StorageState::Down { reason: "it has not been reached yet".into(), gone: true },
            storage_heard: false,
            incarnation: None,
            governs_since: Time(0),
            governed: Time(0),
            short_leases: true,
            hold_until: Time(u64::MAX),
            reads_hold_until: Time(0),
            proof: Time(0),
            proof_sent: Time(0),
            touched: Time(0),
            touch_last: Time(0),
            touching: Vec::new(),
            moving: Vec::new(),
            holders,
            linked: BTreeSet::new(),
            others_linked: 0,
            departure: handover::Departure::default(),
            reach: reach::RouterReach::default(),
            resharding: resharding::Resharding::new(&placement),
            sessions_opened: 0,
            sequence: 0,
            keys: KeyMap::default(),
            operations: Slab::new(),
            purges: Slab::new(),
            purges_held: Vec::new(),
            tickets: Slab::new(),
            storage_limit: StorageLimit::new(config.settings.requests.waits()),
            waiting: RequestQueue::new(config.settings.requests),
            windows: RouterWindows::default(),
            since: Time(0),
            expiry: Time(0),
            meter: LoadMeter::new(Duration::from_secs(1)),
            watchers: BTreeMap::new(),
            watching: 0,
            watches: 0,
            readings: KeyMap::default(),
            joined: 0,
            larges: large::Larges::default(),
            ready: VecDeque::new(),
            held: Vec::new(),
            barriers: VecDeque::new(),
            barrier_number: 0,
            script_busy: None,
            quarantined: Vec::new(),
            quarantined_whole: false,
            topics: pubsub::Topics::default(),
            feed: feed::Feed::default(),
            stale: stale::Stale::default(),
            read_feed: read_feed::ReadFeed::default(),
            examination: foreign_writers::Examination::default(),
            marked: KeyMap::default(),
            tracking: tracking::Tracking::default(),
            elastic: elastic::ElasticKeys::new(config.settings.copies_max),
            heat: HeavyHitters::new(config.settings.heat, config.seed),
            hottest: Hottest::default(),
            observer: config.settings.observes.map(observe::Observer::new),
            heat_floor: config.settings.heat_min,
            awake: Awake::default(),
            frames: BytesMut::new(),
            random: SmallRng::seed_from_u64(config.seed),
            statistics: ShimStatistics::default(),
            placement,
            config,
        }
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let step = &mut ShimStep { now, effects };
        match input {
            Input::Linked(peer) => self.linked(step, peer),
            Input::Unlinked(peer) => self.unlinked(step, peer),
            _ => {}
        }
        match input {
            Input::Message { from, message } => self.arrives(step, from, message),
            Input::Linked(node @ Peer::Node(_)) => self.repeat_to(step, node, Duration::ZERO),
            Input::Unlinked(Peer::Router(router)) => {
                self.unlinked_router(step, &input);
                self.holders.unlinked(router);
                self.forget_subscribers(step, router);
                self.forget_follower(router);
                self.windows.unlinked(router);
                self.waiting.retain(|(from, _)| *from != Peer::Router(router));
                self.forget_early(Peer::Router(router), None);
            }
            Input::Linked(Peer::Router(router)) => {
                self.windows.linked(router);
                self.holders.linked(router);
                self.repeat_to(step, Peer::Router(router), Duration::ZERO);
                self.tick_waiting(step);
            }
            Input::Unlinked(gone) => {
                self.waiting.retain(|(from, _)| *from != gone);
                self.forget_early(gone, None);
            }
            Input::Linked(Peer::Shim(_)) => {}
            Input::HandOver => {
                self.reach.ends_retreat();
                self.hand_over(step);
            }
            Input::Storage(event) => self.storage_event(step, event),
            Input::Map(placement) => self.adopt(step, placement),
            Input::Settings(settings) => self.set(step, *settings),
            Input::Busy { permille } => self.was_busy(permille),
            Input::Purge { number, scope } => {
                self.purge(step, purge::Requester::Process(number), &scope);
            }
            Input::Tick => self.tick(step),
        }
        self.begin_transfers(step);
        self.run_ready(step);
        self.begin_waiting(step);
        self.depart(step);
    }

    /// Members are never taken out of a map, only marked down.
    fn adopt(&mut self, step: &mut ShimStep<'_>, placement: Arc<Placement>) {
        if placement.nodes_count() < self.holders.nodes_count() {
            self.statistics.unexpected += 1;
            return;
        }
        self.holders.set_nodes(placement.nodes_count(), self.config.settings.heat_min);
        self.placement = placement;
        self.reshard(step);
    }

    fn message(&mut self, step: &mut ShimStep<'_>, from: Peer, message: Message) {
        match (from, message) {
            (_, Message::Read(read)) => self.read(step, from, read),
            (_, Message::HandoverAck(ack)) => self.handover_acknowledged(from, &ack),
            (Peer::Router(_), Message::Execute(execute)) => self.execute(step, from, execute),
            (_, Message::Credit(credit)) => self.credit(step, from, &credit),
            (Peer::Router(_), Message::Cancel(cancel)) => self.cancel(step, from, cancel.request),
            (Peer::Router(router), Message::Subscribe(subscribe)) => {
                self.subscribe(step, router, subscribe);
            }
            (Peer::Router(router), Message::Subscribers(subscribers)) => {
                self.set_clients(step, router, &subscribers);
            }
            (Peer::Router(router), Message::Follow(follow)) => self.follow(step, router, follow),
            (Peer::Router(router), Message::Track(track)) => self.track(step, router, track),
            (Peer::Node(node), message) if self.holders.get(from).is_some() => match message {
                Message::Fetch(fetch) => self.fetch(step, from, fetch),
                Message::Heat(heat) => self.heated(step, node, &heat),
                control => self.coherence(step, from, control),
            },
            (Peer::Router(router), message) => self.near(step, router, message),
            (Peer::Shim(_), Message::Tenure(tenure)) => self.told_tenure(step, &tenure),
            _ => self.statistics.unexpected += 1,
        }
    }

    fn tick(&mut self, step: &mut ShimStep<'_>) {
        self.storage_limit.tick(step.now);
        self.tick_waiting(step);
        self.tick_resharding(step);
        self.tick_observer(step.now);
        for holder in self.holders.peers() {
            // One without copies lets its lease run out; nothing is lost by that.
            if self.holders[holder].session.lapsed(step.now) && self.close_session(holder) {
                self.statistics.leases_lost += 1;
            }
            self.repeat_to(step, holder, self.config.lease.duration / REPEATS_PER_LEASE);
        }
        self.tick_near(step.now);
        self.heat_floor = self.holders.nodes().iter().map(|link| link.heat_floor).min().unwrap_or(u32::MAX);
        if step.now >= self.hold_until {
            self.ready.extend(self.held.drain(..));
        }
        self.release_purges(step);
        self.tick_stale(step);
        self.tick_elastic(step);
        self.tick_reach(step);
        if matches!(self.storage, StorageState::Up { .. }) {
            let interval = self.lease_terms(step.now).duration / PROOFS_PER_LEASE;
            if step.now.since(self.proof) >= interval && step.now.since(self.proof_sent) >= interval {
                self.prove(step);
            }
            if !self.stays() {
                return;
            }
            self.touch(step);
            self.tick_topics(step);
            self.tick_feed(step);
            self.tick_read_feed(step);
        }
    }

    /// Asks storage for a sign that this incarnation still governs it.
    fn prove(&mut self, step: &mut ShimStep<'_>) {
        self.proof_sent = step.now;
        let lane = Lane::Shared { resp3: false };
        self.store(step, Purpose::Proof, lane, Reach::Proof, SmallVec::from_elem(PING, 1));
    }

    fn store(
        &mut self,
        step: &mut ShimStep<'_>,
        purpose: Purpose,
        lane: Lane,
        reach: Reach,
        commands: SmallVec<[Bytes; 2]>,
    ) -> u64 {
        // What blocks says nothing about storage, and a PING in an idle hour is not in anybody's way.
        let counted = !matches!(purpose, Purpose::Proof) && matches!(lane, Lane::Shared { .. });
        let place = counted.then(|| self.storage_limit.sent(step.now));
        let ticket = self.tickets.insert(Ticket { issued: step.now, place, purpose }) as u64;
        step.effects.push(Effect::Store(Store { ticket, lane, reach, commands }));
        ticket
    }

    /// A command of one argument, cut from a shared buffer.
    fn frame(&mut self, head: &[u8], argument: &[u8]) -> Bytes {
        use std::io::Write;
        const CHUNK_BYTES: usize = 64 << 10;
        let bytes = head.len() + argument.len() + 32;
        if self.frames.capacity() < bytes {
            self.frames.reserve(CHUNK_BYTES.max(bytes));
        }
        self.frames.extend_from_slice(head);
        let mut length = [0u8; 32];
        let mut cursor = std::io::Cursor::new(&mut length[..]);
        write!(cursor, "${}\r\n", argument.len()).expect("a length fits into 32 bytes");
        let written = cursor.position() as usize;
        self.frames.extend_from_slice(&length[..written]);
        self.frames.extend_from_slice(argument);
        self.frames.extend_from_slice(b"\r\n");
        self.frames.split().freeze()
    }

    fn reach(&self, key: &Key) -> Reach {
        self.placement.home(key).slot.map_or(Reach::Whole, Reach::Slot)
    }

    /// The server of several keys, which one server has, or none.
    fn reach_of(&self, keys: &[Key]) -> Reach {
        keys.first().map_or(Reach::Whole, |key| self.reach(key))
    }

    /// Whether the key is between two servers.
    fn is_moving(&self, key: &Key) -> bool {
        let moving = |slot| self.moving.binary_search(&slot).is_ok();
        !self.moving.is_empty() && self.placement.home(key).slot.is_some_and(moving)
    }

    /// Whether anything at all may be granted or committed.
    fn grants(&self) -> bool {
        self.barriers.is_empty() && !self.quarantined_whole && self.hears() && self.is_alone() && self.stays()
    }

    fn session_id(&mut self) -> u64 {
        self.sessions_opened += 1;
        // A random incarnation plus a counter: no two sessions of any incarnations share an id.
        self.incarnation.unwrap_or_else(|| self.random.random()).wrapping_add(self.sessions_opened)
    }
}

//! A shim's storage on the servers of a Redis Cluster as a machine: which of them has a slot, what each is asked, what
//! that means for all of them together. Not how one server is reached and fenced.
//!
//! The shim's range of slots never changes; which servers have them does. Decision 17 has the reasons.

mod fan;
mod feed;
mod flight;
mod keyless;
mod redirect;
mod servers;
mod step;
mod tickets;
mod topology;
mod view;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use slab::Slab;
use wire::ShimId;

use crate::coherence::lease::Unrecorded;
use crate::placement::slot::{self, SLOTS};
use crate::storage::{CommandControl, Lane, Reach, StorageEvent, StorageTraits, Store};
use crate::time::Time;
use fan::Fan;
use feed::Reporters;
pub(crate) use feed::invalidate;
use flight::{Asked, Disturbed, Flight, Unit};
use step::ShardsStep;
pub use tickets::unblocked;

#[derive(Clone, Debug)]
pub struct ShardsConfig {
    pub shim: ShimId,
    pub shims_count: usize,
    /// Some servers of the cluster.
    pub seeds: Vec<SocketAddr>,
    /// How long a command may wait for a server that serves its slot.
    pub patience: Duration,
    pub seed: u64,
}

/// All that the machine can see.
#[derive(Clone, Debug)]
pub enum Input {
    Store(Store),
    Control {
        ticket: u64,
        control: CommandControl,
    },
    Release {
        number: u64,
        clean: bool,
    },
    /// From the connections to one server.
    Server {
        server: SocketAddr,
        event: StorageEvent,
    },
    /// A server's answer to CLUSTER NODES.
    Seen {
        server: SocketAddr,
        text: Bytes,
    },
    Tick,
}

/// All that it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To the shim's machine.
    Report(StorageEvent),
    /// Connect to a server and take it over.
    Connect {
        server: SocketAddr,
    },
    Leave {
        server: SocketAddr,
    },
    Store {
        server: SocketAddr,
        store: Store,
    },
    Control {
        server: SocketAddr,
        ticket: u64,
        control: CommandControl,
    },
    Release {
        server: SocketAddr,
        number: u64,
        clean: bool,
    },
    /// Ask it for CLUSTER NODES on a connection of its own.
    Ask {
        server: SocketAddr,
    },
    Warn(String),
}

/// A server that this shim has connections to, or wants to.
#[derive(Clone, Debug, Default)]
struct Server {
    /// Its incarnation, while commands may be sent.
    up: Option<(u64, StorageTraits)>,
    /// When the leases of earlier incarnations on record there end; what else has not been reported of them.
    leases_end: Time,
    unrecorded: Unrecorded,
    has_other_data: bool,
    reason: String,
    /// It is down because it does not answer.
    gone: bool,
    /// It was asked for subscriptions.
    listens: bool,
    /// Commands were lost there and not fenced since.
    owes_fence: bool,
    /// When it was asked for CLUSTER NODES, and whether it has not answered.
    viewed: Time,
    viewing: bool,
    used: Time,
    /// The command that proves that it governs this slot.
    probe: Option<(u16, Bytes)>,
}

pub struct Shards {
    config: ShardsConfig,
    /// The own slots: the first, and the first of the next shim.
    range: (u16, u16),
    random: SmallRng,
    servers: BTreeMap<SocketAddr, Server>,
    /// Owners of all slots.
    owners: Box<[Option<SocketAddr>]>,
    /// By which each slot's owner has it.
    epochs: Box<[u64]>,
    replicas: BTreeSet<SocketAddr>,
    /// Everybody who was seen, to be asked when nobody else answers.
    known: BTreeSet<SocketAddr>,
    /// Owners of own slots, each with the lowest of these.
    in_use: BTreeMap<SocketAddr, u16>,
    /// Servers in use of which no other shim's slots are lower.
    stewarded: Vec<SocketAddr>,
    /// Another shim has slots on one of those in use.
    shared: bool,
    /// What `number` stands for: the servers in use, each with its incarnation.
    members: BTreeMap<SocketAddr, u64>,
    number: Option<u64>,
    /// The data may be another's: the next `Up` has another number.
    void: bool,
    up: bool,
    reason: String,
    moving: BTreeMap<u16, Time>,
    asked: Slab<Asked>,
    fans: Slab<Fan>,
    orders: u64,
    disturbed: BTreeMap<u16, Disturbed>,
    /// Blocking commands that wait for a server.
    parked: VecDeque<Unit>,
    reporting: Reporters,
    reporting_reads: Reporters,
    watches: BTreeMap<u64, SocketAddr>,
    watch_last: u64,
    anchor: Option<SocketAddr>,
    scouted: Time,
    scout_last: Option<SocketAddr>,
    /// The view is known to be old.
    hurry: bool,
    warned: BTreeSet<String>,
}

impl Shards {
    pub fn new(config: ShardsConfig) -> Shards {
        Shards {
            range: slot::range(config.shim, config.shims_count),
            random: SmallRng::seed_from_u64(config.seed),
            servers: BTreeMap::new(),
            owners: vec![None; usize::from(SLOTS)].into_boxed_slice(),
            epochs: vec![0; usize::from(SLOTS)].into_boxed_slice(),
            replicas: BTreeSet::new(),
            known: config.seeds.iter().copied().collect(),
            in_use: BTreeMap::new(),
            stewarded: Vec::new(),
            shared: false,
            members: BTreeMap::new(),
            number: None,
            void: false,
            up: false,
            reason: String::new(),
            moving: BTreeMap::new(),
            asked: Slab::new(),
            fans: Slab::new(),
            orders: 0,
            disturbed: BTreeMap::new(),
            parked: VecDeque::new(),
            reporting: Reporters::new(StorageEvent::FeedDown),
            reporting_reads: Reporters::new(StorageEvent::ReadFeedDown),
            watches: BTreeMap::new(),
            watch_last: 0,
            anchor: None,
            scouted: Time(0),
            scout_last: None,
            hurry: true,
            warned: BTreeSet::new(),
            config,
        }
    }

    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Commands without a reply that are at no server.
    pub fn waiting_count(&self) -> usize {
        self.parked.len() + self.disturbed.values().map(|slot| slot.queue.len()).sum::<usize>()
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let step = &mut ShardsStep { now, effects };
        match input {
            Input::Store(store) => self.store(step, store),
            Input::Control { ticket, control } => self.control(step, ticket, control),
            Input::Release { number, clean } => {
                if let Some(server) = self.watches.remove(&number) {
                    step.effects.push(Effect::Release { server, number, clean });
                }
            }
            Input::Server { server, event } => self.server_event(step, server, event),
            Input::Seen { server, text } => self.seen(step, server, &text),
            Input::Tick => self.tick(step),
        }
    }

    fn store(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        if !self.up || store.commands.is_empty() {
            let lost = StorageEvent::Lost { ticket: store.ticket, sent: false };
            return step.report(lost);
        }
        match (store.lane, store.reach) {
            (_, Reach::Proof) => self.prove(step, store.ticket),
            (Lane::Watching { number, .. }, _) => self.watching(step, number, store),
            (Lane::Subscriber, _) => self.subscriber(step, store),
            (Lane::Feed, _) => self.feed(step, store),
            (Lane::ReadFeed, _) => self.read_feed(step, store),
            (_, Reach::Slot(_)) if self.refuse_wide(step, &store) => {}
            (_, Reach::Slot(slot)) => {
                let Store { ticket, lane, commands, .. } = store;
                self.orders += 1;
                let unit = Unit {
                    ticket,
                    slot,
                    lane,
                    commands,
                    order: self.orders,
                    since: step.now,
                    not_before: step.now,
                    ask: None,
                    refusal: None,
                };
                self.offer(step, unit);
            }
            (_, Reach::Whole) => self.keyless(step, store),
        }
    }

    /// On the server that watches under this number; a new number's is the slot's.
    fn watching(&mut self, step: &mut ShardsStep<'_>, number: u64, store: Store) {
        if number > self.watch_last
            && let Some(server) = self.serving(store.reach)
        {
            self.watch_last = number;
            self.watches.insert(number, server);
        }
        let server = self.watches.get(&number).copied();
        self.pass(step, server, store);
    }

    /// As it is, to one server; what is turned away there is lost.
    fn pass(&mut self, step: &mut ShardsStep<'_>, server: Option<SocketAddr>, store: Store) {
        let Some(server) = server.filter(|server| self.is_serving(server)) else {
            let lost = StorageEvent::Lost { ticket: store.ticket, sent: false };
            return step.report(lost);
        };
        let flight = Flight::Passed { ticket: store.ticket };
        self.launch(step, Asked { server, flight }, store);
    }

    /// Has the server carry out something that it is there for.
    fn launch(&mut self, step: &mut ShardsStep<'_>, asked: Asked, store: Store) {
        self.servers.entry(asked.server).or_default().used = step.now;
        self.ask(step, asked, store);
    }

    /// The same of what is asked of every server, needed or not. `store` goes out under a ticket of its own.
    fn ask(&mut self, step: &mut ShardsStep<'_>, asked: Asked, store: Store) {
        let server = asked.server;
        self.servers.entry(server).or_default().listens |= store.lane == Lane::Subscriber;
        let ticket = self.asked.insert(asked) as u64;
        step.effects.push(Effect::Store { server, store: Store { ticket, ..store } });
    }

    fn is_serving(&self, server: &SocketAddr) -> bool {
        self.servers.get(server).is_some_and(|server| server.up.is_some())
    }

    /// The server that takes commands for this now.
    fn serving(&self, reach: Reach) -> Option<SocketAddr> {
        let server = match reach {
            Reach::Slot(slot) => self.owner(slot),
            Reach::Whole | Reach::Proof => self.anchor,
        };
        server.filter(|server| self.is_serving(server))
    }

    fn owner(&self, slot: u16) -> Option<SocketAddr> {
        self.owners.get(usize::from(slot)).copied().flatten()
    }

    fn is_own(&self, slot: u16) -> bool {
        (self.range.0..self.range.1).contains(&slot)
    }

    /// Once for each reason.
    fn warn(&mut self, step: &mut ShardsStep<'_>, text: String) {
        const WARNINGS_MAX: usize = 64;
        if self.warned.len() < WARNINGS_MAX && self.warned.insert(text.clone()) {
            step.effects.push(Effect::Warn(text));
        }
    }
}

#[cfg(test)]
mod tests;

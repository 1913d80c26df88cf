//! The controller as a machine: takes heartbeats, keeps what replicas share in a store, and tells members the map that the
//! store has. Not how a store is reached, nor how a map is written down there.
//!
//! Whose partitions are whose is decided in [`partitions`], and may be ahead of the store: this replica proposes it, one
//! replica's proposal becomes the store's map, and only that map is told. The driver reports everything that the store says
//! before each [`Input::Tick`], and once more after it.

mod agents;
pub mod partitions;
pub mod resharding;
mod stored;

use std::collections::BTreeMap;
use std::time::Duration;

use wire::{NodeId, Peer, ShimId};

use crate::statistics::statistics;
use crate::time::Time;
use agents::Agents;
use partitions::{Liveness, Partitions, Terms};
use resharding::ReshardingReport;

pub use stored::{Members, StoredMap};

/// What a controller is told at its start.
#[derive(Clone, Debug)]
pub struct ControllerConfig<M> {
    pub terms: Terms,
    /// This life of this replica, as its maps name it.
    pub by: String,
    /// Random: the history of a store that has no map yet; others follow it, when such a store has lost one.
    pub history: u64,
    pub members: M,
}

/// All that a controller can see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<M: Members> {
    /// One that is authentic and whose members are among those known.
    Heartbeat(Heartbeat),
    /// The store has changed.
    Changed(Change<M::Roster>),
    /// The store has told everything until now.
    Read,
    /// The store cannot be asked. Nothing is known about what was told to it.
    Away { reason: String },
    /// The operator takes a node's partition away, or lets the node have it again.
    Drain { node: NodeId, drained: bool },
    /// The operator lets keys go to a shim that has none, or all keys of one to the others; see `Partitions::may_reshard`.
    Reshard { shim: ShimId, joins: bool },
    /// There are more members than before.
    Grown(M),
    /// Time passes.
    Tick,
}

/// What a process says of its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Random for the life of the process.
    pub agent: u64,
    /// Grows with every heartbeat of the agent.
    pub sequence: u64,
    /// The history of the map that the process acts on; 0 if it has only its configuration's.
    pub history: u64,
    /// The highest feature level that the process and the controllers that it hears of speak.
    pub level: u8,
    pub members: Vec<Beat>,
    /// Members that stop in order: it is their last word.
    pub leaving: Vec<Peer>,
}

/// A member lives and acts on the map of `epoch`; `empty` says that it is a node without copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    pub member: Peer,
    pub epoch: u32,
    pub empty: bool,
    /// Which shim it is, and how far that is, if it is one and no other process is it.
    pub resharding: Option<ReshardingReport>,
}

/// One change of the store, whoever made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<R> {
    /// The member has a lease.
    Registered(Peer),
    /// The member's lease has run out, or it left.
    Gone(Peer),
    /// The map is another one now, of this version; or something that is no map, and why.
    Map { version: u64, map: Result<StoredMap<R>, String> },
    /// There is no map any more: somebody has emptied the store.
    NoMap,
}

/// All that a controller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<R> {
    /// To the store: the member gets a lease, or its lease starts anew.
    Keep(Peer),
    /// To the store: the member's lease ends.
    Forget(Peer),
    /// To the store: this map into the place of the one that has `version`, 0 for none. It replaces what was proposed
    /// before, and is repeated until the store has it or a later one.
    Propose { version: u64, map: StoredMap<R> },
    /// The heartbeat was not taken: it, or a later one of its agent, was here before.
    Refuse,
    /// What the member last said of itself is too old to be shown.
    Silent(Peer),
    /// For people: nothing follows from it.
    Log(Event<R>),
}

/// What people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<R> {
    Left(Peer),
    Lapsed(Peer),
    /// The store has this map.
    Taken(StoredMap<R>),
    /// The store's map is not for these members; nothing is proposed while it is there.
    Foreign {
        reason: String,
    },
    StoreAway {
        reason: String,
    },
    StoreBack,
}

statistics! {
    /// Totals since the start.
    pub struct ControllerStatistics {
        heartbeats: counter("heartbeats", "Heartbeats accepted",
            "about two per second and member; 0: nobody reaches this controller"),
        replays: counter("heartbeats", "Heartbeats that came once more or out of order",
            "a steady rate: somebody repeats what members say"),
        /// Whether or not the store took them.
        maps: counter("maps", "Cluster maps published", "a rise without a change of yours: members come and go"),
    }
}

/// The last heartbeat of a member at this replica.
#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Time,
    /// What it said of itself may be shown.
    shown: bool,
}

pub struct Controller<M: Members> {
    members: M,
    by: String,
    lease: Duration,
    partitions: Partitions,
    /// The store's map, which is the only one that members are told.
    committed: StoredMap<M::Roster>,
    /// The history that the store has, or gets with this replica's next map.
    history: u64,
    /// The last history that this replica has begun.
    history_begun: u64,
    /// The epoch that every cluster begins with.
    epoch_first: u32,
    /// The store's version of its map; 0 if it has none.
    version: u64,
    /// The store was read at least once: before that, nothing is known.
    read: bool,
    /// Why the store cannot be asked, if it cannot.
    problem: Option<String>,
    /// Why the store's map is not for these members, if it is not.
    foreign: Option<String>,
    heard: BTreeMap<Peer, Heard>,
    agents: Agents,
    statistics: ControllerStatistics,
}

impl<M: Members> Controller<M> {
    pub fn new(now: Time, config: ControllerConfig<M>) -> Controller<M> {
        let ControllerConfig { terms, by, history, members } = config;
        let map = members.map();
        let epoch_first = map.epoch;
        let partitions = Partitions::new(now, terms, map, &members.others());
        Controller {
            committed: proposal(&partitions, &members, history, &by),
            members,
            by,
            lease: terms.lease,
            partitions,
            history,
            history_begun: history,
            epoch_first,
            version: 0,
            read: false,
            problem: None,
            foreign: None,
            heard: BTreeMap::new(),
            agents: Agents::default(),
            statistics: ControllerStatistics::default(),
        }
    }

    pub fn step(&mut self, now: Time, input: Input<M>, effects: &mut Vec<Effect<M::Roster>>) {
        match input {
            Input::Heartbeat(heartbeat) => self.heartbeat(now, &heartbeat, effects),
            Input::Changed(change) => self.changed(now, change, effects),
            Input::Read => {
                self.read = true;
                if self.problem.take().is_some() {
                    effects.push(Effect::Log(Event::StoreBack));
                }
            }
            Input::Away { reason } => {
                if self.problem.replace(reason.clone()).is_none() {
                    effects.push(Effect::Log(Event::StoreAway { reason }));
                }
            }
            Input::Drain { node, drained } => self.decide(now, partitions::Input::Drain { node, drained }),
            Input::Reshard { shim, joins } => self.decide(now, partitions::Input::Reshard { shim, joins }),
            Input::Grown(members) => {
                self.members = members;
                self.grow(now, false);
            }
            Input::Tick => self.tick(now, effects),
        }
    }

    /// The map that members are told; none before the store was read.
    pub fn told(&self) -> Option<&StoredMap<M::Roster>> {
        self.read.then_some(&self.committed)
    }

    /// The newest map that the store is known to have had; the members' own map before that.
    pub fn committed(&self) -> &StoredMap<M::Roster> {
        &self.committed
    }

    /// Why the store cannot be asked, if it cannot.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Why the store's map is not for these members, if it is not: nothing that is decided here gets there.
    pub fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref()
    }

    /// With those that were added since the start.
    pub fn members(&self) -> &M {
        &self.members
    }

    pub fn liveness(&self) -> impl Iterator<Item = (Peer, Liveness)> {
        self.partitions.members()
    }

    /// When this replica has heard from the member last.
    pub fn heard(&self, member: Peer) -> Option<Time> {
        self.heard.get(&member).map(|heard| heard.at)
    }

    /// What this replica has decided, which the store need not have.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    pub fn statistics(&self) -> ControllerStatistics {
        self.statistics
    }

    fn heartbeat(&mut self, now: Time, heartbeat: &Heartbeat, effects: &mut Vec<Effect<M::Roster>>) {
        if !self.agents.admit(now, heartbeat.agent, heartbeat.sequence) {
            self.statistics.replays += 1;
            return effects.push(Effect::Refuse);
        }
        self.statistics.heartbeats += 1;
        let forgotten = ![0, self.history].contains(&heartbeat.history);
        for Beat { member, epoch, empty, resharding } in heartbeat.members.iter().copied() {
            effects.push(Effect::Keep(member));
            if forgotten {
                self.decide(now, partitions::Input::Forgotten { epoch });
            }
            let empty = empty && !forgotten;
            let level = heartbeat.level;
            self.decide(now, partitions::Input::Heartbeat { member, epoch, empty, level, resharding });
            self.heard.insert(member, Heard { at: now, shown: true });
        }
        for member in heartbeat.leaving.iter().copied() {
            effects.extend([Effect::Log(Event::Left(member)), Effect::Forget(member)]);
            self.decide(now, partitions::Input::Left { member });
            self.hush(member, effects);
        }
    }

    fn changed(&mut self, now: Time, change: Change<M::Roster>, effects: &mut Vec<Effect<M::Roster>>) {
        match change {
            Change::Gone(member) => {
                effects.push(Effect::Log(Event::Lapsed(member)));
                self.decide(now, partitions::Input::Expired { member });
                self.hush(member, effects);
            }
            // Perhaps at another replica, which then has its heartbeats.
            Change::Registered(member) => self.decide(now, partitions::Input::Registered { member }),
            Change::NoMap => self.lose_map(),
            Change::Map { version, map } => {
                self.version = version;
                let taken = map.and_then(|map| self.take_map(now, &map).map(|()| map));
                self.foreign = taken.as_ref().err().cloned();
                effects.push(Effect::Log(match taken {
                    Ok(map) => Event::Taken(map),
                    Err(reason) => Event::Foreign { reason },
                }));
            }
        }
    }

    /// An error says why the map is not for these members: nothing has changed then.
    fn take_map(&mut self, now: Time, map: &StoredMap<M::Roster>) -> Result<(), String> {
        if !self.partitions.believes(map.epoch) {
            return Err(format!("no cluster comes to epoch {}", map.epoch));
        }
        // Its own are no news, and it may be ahead of them.
        if map.by != self.by {
            if let Some(grown) = self.members.grown(&map.roster)? {
                self.members = grown;
                self.grow(now, true);
            }
            let (nodes, shims) = (map.nodes.clone(), map.shims.clone());
            let (epoch, level) = (map.epoch, map.level);
            self.decide(now, partitions::Input::Published { epoch, level, nodes, shims });
            if self.members.exceeds(&map.roster) {
                self.grow(now, false);
            }
        }
        self.history = map.history;
        // Members do not go back, so neither does what they are told.
        if map.epoch >= self.committed.epoch {
            self.committed = map.clone();
        }
        Ok(())
    }

    /// Another replica may have seen later maps than this one, and members with it: in another history their epochs are
    /// not taken for those of this one.
    fn lose_map(&mut self) {
        (self.version, self.foreign) = (0, None);
        self.history_begun = self.history_begun.wrapping_add(1);
        self.history = self.history_begun;
    }

    fn grow(&mut self, now: Time, stored: bool) {
        let (map, others) = (self.members.map(), self.members.others());
        self.decide(now, partitions::Input::Grown { map, others, stored });
    }

    fn tick(&mut self, now: Time, effects: &mut Vec<Effect<M::Roster>>) {
        let lease = self.lease;
        let old = |heard: &Heard| heard.shown && now.since(heard.at) >= lease;
        let silent = self.heard.iter().filter(|(_, heard)| old(heard)).map(|(member, _)| *member);
        for member in silent.collect::<Vec<_>>() {
            self.hush(member, effects);
        }
        if self.read && self.problem.is_none() {
            self.decide(now, partitions::Input::Tick);
            self.propose(effects);
        }
    }

    /// A conflict needs no answer: the other map comes, and this replica overtakes it where it knows better.
    fn propose(&mut self, effects: &mut Vec<Effect<M::Roster>>) {
        let newer = self.partitions.map().epoch > self.committed.epoch;
        let lost = self.version == 0 && self.committed.epoch > self.epoch_first;
        if self.foreign.is_none() && (newer || lost) {
            let map = proposal(&self.partitions, &self.members, self.history, &self.by);
            effects.push(Effect::Propose { version: self.version, map });
        }
    }

    fn hush(&mut self, member: Peer, effects: &mut Vec<Effect<M::Roster>>) {
        if let Some(heard) = self.heard.get_mut(&member)
            && std::mem::take(&mut heard.shown)
        {
            effects.push(Effect::Silent(member));
        }
    }

    fn decide(&mut self, now: Time, input: partitions::Input) {
        let mut effects = Vec::new();
        self.partitions.step(now, input, &mut effects);
        self.statistics.maps += effects.len() as u64;
    }
}

fn proposal<M: Members>(
    partitions: &Partitions,
    members: &M,
    history: u64,
    by: &str,
) -> StoredMap<M::Roster> {
    StoredMap {
        epoch: partitions.map().epoch,
        level: partitions.map().level,
        history,
        by: by.to_owned(),
        roster: members.roster(),
        nodes: partitions.ownership(),
        shims: partitions.shim_parts(),
    }
}

//! The controller machine over a store: heartbeats become leases, lapsed leases and maps become inputs. No HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::controller::partitions::{Effect, Input, Partitions, Terms};
use protocol::time::Time;
use runtime::config::{Config, ConfigError, EPOCH_FIRST};
use runtime::heartbeat::{Heartbeat, HeartbeatReply};
use runtime::status::{ClusterStatus, ControllerStatus, MemberStatus};
use wire::{ClusterMap, NodeId, Peer, RouterId};

use crate::errands::Errands;
use crate::hot::hottest;
use crate::store::{Change, Store, StoreError, StoredMap, StoredNode};

/// Agents remembered against replays. A restarted process is a new one, so the number must be far above that of
/// processes; the one silent for longest goes first.
const AGENTS_MAX: usize = 16_384;

/// Why a heartbeat was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this heartbeat, or a later one of the same agent, was here before")]
    Replay,
    #[error(
        "member {0:?} is not a {1} in the controller's configuration; give all processes the same file, and let \
         `distcache reload` tell the controller of members that were added"
    )]
    Stranger(String, &'static str),
    #[error("this controller has just started and waits for its store: {0}")]
    Unread(StoreError),
}

#[derive(Default)]
struct Agent {
    sequence: u64,
    heard: Time,
}

pub(crate) struct Service {
    /// With the members that were added since the start.
    pub(crate) config: Arc<Config>,
    pub(crate) machine: Partitions,
    id: String,
    /// This life of this replica, as its maps name it.
    by: String,
    store: Box<dyn Store>,
    /// The store's map, which is the only one that members are told. The machine may be ahead of it.
    pub(crate) committed: StoredMap,
    /// The store's version of its map; 0 if it has none.
    map_version: u64,
    /// The store has been read at least once: before that, nothing is known.
    pub(crate) read: bool,
    /// Why the store cannot be asked, if it cannot.
    pub(crate) store_problem: Option<StoreError>,
    /// Why the store's map is not for this configuration; nothing is published then.
    foreign: Option<String>,
    /// Of the members that this replica has heard of within a lease.
    pub(crate) statuses: BTreeMap<String, MemberStatus>,
    heard: BTreeMap<String, Time>,
    lease: Duration,
    agents: BTreeMap<u64, Agent>,
    pub(crate) errands: Errands,
    heartbeats: u64,
    heartbeats_refused: u64,
    maps: u64,
}

impl Service {
    pub(crate) fn new(now: Time, config: Arc<Config>, index: usize, store: Box<dyn Store>) -> Service {
        let own = &config.controllers[index];
        let durations = Terms { lease: own.member_lease(), grace: own.grace(), step: own.return_step() };
        let machine = Partitions::new(now, durations, config.map(), &routers(&config));
        let by = format!("{} {:016x}", own.id, rand::random::<u64>());
        Service {
            committed: stored(rand::random(), &by, &config, &machine),
            machine,
            by: by.clone(),
            id: own.id.clone(),
            store,
            map_version: 0,
            read: false,
            store_problem: None,
            foreign: None,
            statuses: BTreeMap::new(),
            heard: BTreeMap::new(),
            lease: own.member_lease(),
            agents: BTreeMap::new(),
            errands: Errands::new(rand::random()),
            heartbeats: 0,
            heartbeats_refused: 0,
            maps: 0,
            config,
        }
    }

    /// Takes an authenticated heartbeat and answers with the newest map.
    pub(crate) fn heartbeat(&mut self, now: Time, heartbeat: Heartbeat) -> Result<HeartbeatReply, Refusal> {
        let theirs = heartbeat.known;
        let members: Vec<String> = heartbeat.members.iter().map(|member| member.id().to_owned()).collect();
        let routes = heartbeat.members.iter().any(|member| matches!(member, MemberStatus::Router(_)));
        let taken = self.take(now, heartbeat);
        match &taken {
            Ok(()) => self.heartbeats += 1,
            Err(_) => self.heartbeats_refused += 1,
        }
        taken?;
        self.tick(now);
        if let Some(problem) = self.unread() {
            return Err(Refusal::Unread(problem));
        }
        let known = self.committed.size();
        let longer = known.exceeds(&theirs);
        Ok(HeartbeatReply {
            epoch: self.committed.epoch,
            history: self.committed.history,
            known,
            shares: self.committed.shares(),
            roster: longer.then(|| self.committed.roster.clone()),
            errands: self.errands.of(&members),
            hot: if routes { hottest(self.statuses.values()) } else { Vec::new() },
        })
    }

    /// When this replica has heard from a member last.
    pub(crate) fn heard(&self, id: &str) -> Option<Time> {
        self.heard.get(id).copied()
    }

    /// A heartbeat that was not authentic.
    pub(crate) fn refuse(&mut self) {
        self.heartbeats_refused += 1;
    }

    fn take(&mut self, now: Time, heartbeat: Heartbeat) -> Result<(), Refusal> {
        let mut peers = Vec::with_capacity(heartbeat.members.len());
        for member in &heartbeat.members {
            peers.push(self.peer(member)?);
        }
        self.check_sequence(now, &heartbeat)?;
        let forgotten = ![0, self.committed.history].contains(&heartbeat.history);
        for (member, status) in peers.into_iter().zip(heartbeat.members) {
            self.store.keep(now, status.id());
            let (epoch, empty) = (status.epoch(), is_empty(&status) && !forgotten);
            if forgotten {
                self.step(now, Input::Forgotten { epoch });
            }
            self.step(now, Input::Heartbeat { member, epoch, empty });
            self.heard.insert(status.id().to_owned(), now);
            self.statuses.insert(status.id().to_owned(), status);
        }
        heartbeat.reports.into_iter().for_each(|report| self.errands.report(report));
        for id in heartbeat.leaving {
            let Some(member) = self.config.peer(&id) else { continue };
            tracing::info!(id, "has left");
            self.store.forget(now, &id);
            self.step(now, Input::Left { member });
            self.statuses.remove(&id);
        }
        Ok(())
    }

    fn peer(&self, member: &MemberStatus) -> Result<Peer, Refusal> {
        let peer = self.config.peer(member.id());
        let (matches, role) = match member {
            MemberStatus::Node(_) => (matches!(peer, Some(Peer::Node(_))), "node"),
            MemberStatus::Shim(_) => (matches!(peer, Some(Peer::Shim(_))), "shim"),
            MemberStatus::Router(_) => (matches!(peer, Some(Peer::Router(_))), "router"),
            MemberStatus::Controller(_) => (false, "member with a heartbeat"),
        };
        peer.filter(|_| matches).ok_or_else(|| Refusal::Stranger(member.id().to_owned(), role))
    }

    fn check_sequence(&mut self, now: Time, heartbeat: &Heartbeat) -> Result<(), Refusal> {
        if !self.agents.contains_key(&heartbeat.agent) && self.agents.len() >= AGENTS_MAX {
            let oldest = self.agents.iter().min_by_key(|(_, agent)| agent.heard).map(|(id, _)| *id);
            oldest.and_then(|id| self.agents.remove(&id));
        }
        let agent = self.agents.entry(heartbeat.agent).or_default();
        if heartbeat.sequence <= agent.sequence {
            return Err(Refusal::Replay);
        }
        *agent = Agent { sequence: heartbeat.sequence, heard: now };
        Ok(())
    }

    /// Takes a node's partition away, or lets the node have it back. It shows in the store's map once it is done.
    pub(crate) fn drain(&mut self, now: Time, node: NodeId, drained: bool) {
        self.step(now, Input::Drain { node, drained });
        self.tick(now);
    }

    /// Takes the members that `newer`, another version of the configuration, has more.
    pub(crate) fn reload(&mut self, now: Time, newer: &Config) -> Result<(), ConfigError> {
        if let Some(grown) = self.config.grown_to(newer)? {
            self.config = Arc::new(grown);
            self.grow(now, false);
            self.tick(now);
        }
        Ok(())
    }

    fn grow(&mut self, now: Time, stored: bool) {
        let input = Input::Grown { map: self.config.map(), others: routers(&self.config), stored };
        self.step(now, input);
    }

    /// Lets time pass: lapsed leases, other controllers' maps, grace periods.
    pub(crate) fn tick(&mut self, now: Time) {
        let (heard, lease) = (&self.heard, self.lease);
        self.statuses.retain(|id, _| heard.get(id).is_some_and(|heard| now.since(*heard) < lease));
        let seen = self.see_changes(now).and_then(|()| {
            self.step(now, Input::Tick);
            self.propose(now);
            self.see_changes(now)
        });
        let problem = seen.err();
        match (&self.store_problem, &problem) {
            (None, Some(problem)) => tracing::warn!(%problem, "going on with the last map"),
            (Some(_), None) => tracing::info!("the store answers again"),
            _ => {}
        }
        self.read |= problem.is_none();
        self.store_problem = problem;
    }

    /// Why it cannot tell the map yet.
    pub(crate) fn unread(&self) -> Option<StoreError> {
        self.store_problem.clone().filter(|_| !self.read)
    }

    fn see_changes(&mut self, now: Time) -> Result<(), StoreError> {
        for change in self.store.changes(now)? {
            match change {
                Change::Gone { member: id } => {
                    let Some(member) = self.config.peer(&id) else { continue };
                    tracing::info!(id, "its lease has ended");
                    self.statuses.remove(&id);
                    self.step(now, Input::Expired { member });
                }
                Change::Registered { member: id } => {
                    // Perhaps at another replica, which then has its heartbeats.
                    if let Some(member) = self.config.peer(&id) {
                        self.step(now, Input::Registered { member });
                    }
                }
                Change::NoMap => self.map_version = 0,
                Change::Map { version, value } => {
                    self.map_version = version;
                    match StoredMap::parse(&value) {
                        Ok(map) => self.take_map(now, map),
                        Err(error) => self.refuse_map(error.to_string()),
                    }
                }
            }
        }
        Ok(())
    }

    fn take_map(&mut self, now: Time, map: StoredMap) {
        if !self.machine.believes(map.epoch) {
            return self.refuse_map(format!("no cluster comes to epoch {}", map.epoch));
        }
        // Its own are no news to the machine, which may be ahead of them.
        if map.by != self.by {
            match self.config.grown(&map.roster) {
                Ok(Some(grown)) => {
                    self.config = Arc::new(grown);
                    self.grow(now, true);
                }
                Ok(None) => {}
                Err(error) => return self.refuse_map(error.to_string()),
            }
            self.step(now, Input::Published { epoch: map.epoch, nodes: map.ownership() });
            if self.config.roster_size().exceeds(&map.size()) {
                self.grow(now, false);
            }
        }
        self.foreign = None;
        tracing::info!(epoch = map.epoch, by = map.by, shares = ?map.shares(), "the map of the store");
        // Members do not go back, so neither does what they are told.
        if map.epoch > self.committed.epoch {
            self.committed = map;
        } else {
            self.committed.history = map.history;
        }
    }

    fn refuse_map(&mut self, reason: String) {
        tracing::error!(
            reason,
            "the store's map is not this configuration's; this controller changes nothing"
        );
        self.foreign = Some(reason);
    }

    fn step(&mut self, now: Time, input: Input) {
        let mut effects = Vec::new();
        self.machine.step(now, input, &mut effects);
        self.maps += effects.iter().map(|Effect::Publish(_)| 1).sum::<u64>();
    }

    /// Hands the machine's map to the store while the store has an older one. A conflict needs no answer: the other map
    /// comes, and the machine overtakes it where it knows better.
    fn propose(&mut self, now: Time) {
        let newer = self.machine.map().epoch > self.committed.epoch;
        let lost = self.map_version == 0 && self.committed.epoch > EPOCH_FIRST;
        if self.foreign.is_none() && (newer || lost) {
            let map = stored(self.committed.history, &self.by, &self.config, &self.machine);
            self.store.propose(now, self.map_version, &map.to_text());
        }
    }

    /// The store's map with the members of this configuration.
    pub(crate) fn map(&self) -> ClusterMap {
        self.config.map_with(self.committed.epoch, |node| self.committed.share(node))
    }

    /// The live members, in the order of the configuration.
    pub(crate) fn status(&self) -> ClusterStatus {
        let members = self.config.member_ids().filter_map(|id| self.statuses.get(id).cloned());
        ClusterStatus::of(self.committed.epoch, members)
    }

    pub(crate) fn own_status(&self) -> ControllerStatus {
        let members_up = self.statuses.len() as u64;
        ControllerStatus {
            id: self.id.clone(),
            epoch: self.committed.epoch,
            store_up: self.store_problem.is_none(),
            members_up,
            members_down: (self.machine.members().count() as u64).saturating_sub(members_up),
            heartbeats_total: self.heartbeats,
            heartbeats_refused_total: self.heartbeats_refused,
            maps_total: self.maps,
        }
    }
}

fn routers(config: &Config) -> Vec<Peer> {
    (0..config.routers.len()).map(|index| Peer::Router(RouterId(index as u16))).collect()
}

fn stored(history: u64, by: &str, config: &Config, machine: &Partitions) -> StoredMap {
    let nodes = machine.ownership().into_iter();
    StoredMap {
        epoch: machine.map().epoch,
        history,
        by: by.to_owned(),
        roster: config.roster(),
        nodes: nodes.map(|node| StoredNode { share: node.share, drained: node.drained }).collect(),
    }
}

/// Whether the member says that it holds no copies.
fn is_empty(member: &MemberStatus) -> bool {
    matches!(member, MemberStatus::Node(node) if node.objects == 0)
}

#[cfg(test)]
mod tests;

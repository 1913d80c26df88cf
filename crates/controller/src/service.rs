//! The controller machine over a store: heartbeats become leases, lapsed leases and maps become inputs. No HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::controller::{Controller, ControllerConfig, Effect, Input, Ownership};
use protocol::time::Time;
use runtime::config::Config;
use runtime::heartbeat::{Heartbeat, HeartbeatReply};
use runtime::status::{ClusterStatus, ControllerStatus, MemberStatus};
use serde::{Deserialize, Serialize};
use wire::{Peer, RouterId, SHARE_WHOLE};

use crate::store::{Change, LeaseId, Put, Store, StoreError, Transaction};

const MAP_KEY: &str = "map";
const MEMBER_PREFIX: &str = "members/";
/// Agents remembered against replays. A restarted process is a new one, so the number must be far above that of
/// processes; the one silent for longest goes first.
const AGENTS_MAX: usize = 16_384;

/// Why a heartbeat was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("this heartbeat, or a later one of the same agent, was here before")]
    Replay,
    #[error("member {0:?} is not a {1} in the controller's configuration; give all processes the same file")]
    Stranger(String, &'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The map as the store keeps it: what differs from the configuration.
#[derive(Debug, Serialize, Deserialize)]
struct StoredMap {
    epoch: u32,
    nodes: Vec<StoredNode>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredNode {
    share: u16,
    drained: bool,
}

#[derive(Default)]
struct Agent {
    sequence: u64,
    heard: Time,
}

pub(crate) struct Service {
    pub(crate) config: Arc<Config>,
    pub(crate) machine: Controller,
    id: String,
    member_lease: Duration,
    store: Box<dyn Store>,
    /// The store's version of the map's key.
    map_version: u64,
    /// A map that the store has not taken yet.
    unpublished: bool,
    leases: BTreeMap<String, LeaseId>,
    /// Of the members whose lease holds.
    pub(crate) statuses: BTreeMap<String, MemberStatus>,
    agents: BTreeMap<u64, Agent>,
    heartbeats: u64,
    heartbeats_refused: u64,
    maps: u64,
}

impl Service {
    pub(crate) fn new(now: Time, config: Arc<Config>, index: usize, store: Box<dyn Store>) -> Service {
        let own = &config.controllers[index];
        let durations =
            ControllerConfig { lease: own.member_lease(), grace: own.grace(), step: own.return_step() };
        let routers: Vec<Peer> =
            (0..config.routers.len()).map(|index| Peer::Router(RouterId(index as u16))).collect();
        Service {
            machine: Controller::new(now, durations, config.map(), &routers),
            id: own.id.clone(),
            member_lease: own.member_lease(),
            store,
            map_version: 0,
            unpublished: false,
            leases: BTreeMap::new(),
            statuses: BTreeMap::new(),
            agents: BTreeMap::new(),
            heartbeats: 0,
            heartbeats_refused: 0,
            maps: 0,
            config,
        }
    }

    /// Takes an authenticated heartbeat and answers with the newest map.
    pub(crate) fn heartbeat(&mut self, now: Time, heartbeat: Heartbeat) -> Result<HeartbeatReply, Refusal> {
        let taken = self.take(now, heartbeat);
        match &taken {
            Ok(()) => self.heartbeats += 1,
            Err(_) => self.heartbeats_refused += 1,
        }
        taken?;
        self.tick(now);
        Ok(HeartbeatReply { epoch: self.machine.map().epoch, shares: self.shares() })
    }

    /// Of the nodes that do not own their whole partition.
    fn shares(&self) -> BTreeMap<String, u16> {
        let nodes = self.machine.map().layers.iter().flat_map(|layer| &layer.nodes);
        let partial = nodes.filter(|node| node.share < SHARE_WHOLE);
        partial.map(|node| (self.config.node(node.id).id.clone(), node.share)).collect()
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
        for (peer, member) in peers.into_iter().zip(heartbeat.members) {
            self.keep_registered(now, member.id())?;
            self.step(
                now,
                Input::Heartbeat { member: peer, epoch: member.epoch(), empty: is_empty(&member) },
            );
            self.statuses.insert(member.id().to_owned(), member);
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

    fn keep_registered(&mut self, now: Time, id: &str) -> Result<(), StoreError> {
        if let Some(lease) = self.leases.get(id)
            && self.store.keep_alive(now, *lease)?
        {
            return Ok(());
        }
        // The loss of the old lease must be seen before the new one, or it would look like the new one's.
        self.leases.remove(id);
        self.see_changes(now)?;
        let lease = self.store.grant(now, self.member_lease)?;
        let key = format!("{MEMBER_PREFIX}{id}");
        self.store.transact(now, Put { key, version: 0, value: self.id.clone(), lease: Some(lease) })?;
        self.leases.insert(id.to_owned(), lease);
        Ok(())
    }

    /// Lets time pass: lapsed leases, other controllers' maps, grace periods.
    pub(crate) fn tick(&mut self, now: Time) {
        let seen = self.see_changes(now);
        if seen.is_ok() {
            self.step(now, Input::Tick);
        }
        let published = if self.unpublished { self.publish(now) } else { Ok(()) };
        if let Err(error) = seen.and(published) {
            tracing::warn!(%error, "going on with the last map");
        }
    }

    fn see_changes(&mut self, now: Time) -> Result<(), StoreError> {
        for change in self.store.watch(now)? {
            match change {
                Change::Deleted { key } => {
                    let id = key.strip_prefix(MEMBER_PREFIX).unwrap_or(&key).to_owned();
                    let Some(member) = self.config.peer(&id) else { continue };
                    tracing::warn!(id, "no heartbeat any more");
                    self.statuses.remove(&id);
                    self.leases.remove(&id);
                    self.step(now, Input::Expired { member });
                }
                Change::Put { key, version, value } if key == MAP_KEY => {
                    self.map_version = version;
                    match serde_json::from_str::<StoredMap>(&value) {
                        Ok(StoredMap { epoch, nodes }) => {
                            let ownership =
                                |node: StoredNode| Ownership { share: node.share, drained: node.drained };
                            let nodes = nodes.into_iter().map(ownership).collect();
                            self.step(now, Input::Published { epoch, nodes });
                        }
                        Err(error) => tracing::warn!(%error, "the store holds a map that cannot be read"),
                    }
                }
                Change::Put { key, .. } => {
                    // Registered, perhaps at another replica, which then has its heartbeats.
                    let id = key.strip_prefix(MEMBER_PREFIX).unwrap_or(&key);
                    if let Some(member) = self.config.peer(id) {
                        self.step(now, Input::Registered { member });
                    }
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, now: Time, input: Input) {
        let mut effects = Vec::new();
        self.machine.step(now, input, &mut effects);
        for Effect::Publish(map) in effects {
            tracing::info!(epoch = map.epoch, shares = ?self.shares(), "publishing a map");
            self.maps += 1;
            self.unpublished = true;
        }
    }

    /// A conflict needs no answer: the watch brings the other map, and the machine overtakes it where it knows better.
    fn publish(&mut self, now: Time) -> Result<(), StoreError> {
        let node = |node: Ownership| StoredNode { share: node.share, drained: node.drained };
        let nodes = self.machine.ownership().into_iter().map(node).collect();
        let stored = StoredMap { epoch: self.machine.map().epoch, nodes };
        let value = serde_json::to_string(&stored).map_err(|error| StoreError(error.to_string()))?;
        let put = Put { key: MAP_KEY.to_owned(), version: self.map_version, value, lease: None };
        if let Transaction::Done(version) = self.store.transact(now, put)? {
            self.map_version = version;
        }
        self.unpublished = false;
        Ok(())
    }

    /// The live members, in the order of the configuration.
    pub(crate) fn status(&self) -> ClusterStatus {
        let members = self.config.member_ids().filter_map(|id| self.statuses.get(id).cloned());
        ClusterStatus::of(self.machine.map().epoch, members)
    }

    pub(crate) fn own_status(&self) -> ControllerStatus {
        let members_up = self.statuses.len() as u64;
        ControllerStatus {
            id: self.id.clone(),
            epoch: self.machine.map().epoch,
            members_up,
            members_down: (self.machine.members().count() as u64).saturating_sub(members_up),
            heartbeats_total: self.heartbeats,
            heartbeats_refused_total: self.heartbeats_refused,
            maps_total: self.maps,
        }
    }
}

/// Whether the member says that it holds no copies.
fn is_empty(member: &MemberStatus) -> bool {
    matches!(member, MemberStatus::Node(node) if node.objects == 0)
}

#[cfg(test)]
mod tests;

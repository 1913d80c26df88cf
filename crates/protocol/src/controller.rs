//! The controller's machine: which members live, and the cluster map that follows. Not where members are registered.
//!
//! A member holds a lease in the store and keeps it by heartbeats. A node whose lease has run out keeps its partition
//! for a grace period, since remapping moves keys; then the map's next epoch gives its partition to the others, and
//! the epoch after its return gives it back (paper, section 4.4).

use std::collections::BTreeMap;
use std::time::Duration;

use wire::{ClusterMap, NodeId, NodeMember, Peer};

use crate::time::Time;

/// Durations of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerConfig {
    /// Length of a member's lease in the store; members that have never registered get one from the start.
    pub lease: Duration,
    /// From the end of a node's lease to the map without it.
    pub grace: Duration,
}

impl Default for ControllerConfig {
    fn default() -> ControllerConfig {
        ControllerConfig { lease: Duration::from_secs(3), grace: Duration::from_secs(3) }
    }
}

/// All that the controller sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The member's lease was granted or kept; `epoch` is that of the map it acts on.
    Heartbeat {
        member: Peer,
        epoch: u32,
    },
    /// The member's lease ran out.
    Expired {
        member: Peer,
    },
    /// Another replica has published this map.
    Published {
        epoch: u32,
        down: Vec<NodeId>,
    },
    Tick,
}

/// All that the controller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Publish(ClusterMap),
}

/// Whether a member lives, as far as its lease tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Up,
    /// Its lease ran out at this time, which for a member that never registered lies one lease after the start.
    Lost {
        since: Time,
    },
}

#[derive(Clone, Debug)]
pub struct Controller {
    config: ControllerConfig,
    map: ClusterMap,
    members: BTreeMap<Peer, Liveness>,
}

impl Controller {
    /// Starts from the configuration's map; `others` are members beside its nodes and shims.
    pub fn new(now: Time, config: ControllerConfig, map: ClusterMap, others: &[Peer]) -> Controller {
        let lost = Liveness::Lost { since: now.after(config.lease) };
        let nodes = nodes_of(&map).map(|node| Peer::Node(node.id));
        let shims = map.shims.iter().map(|shim| Peer::Shim(shim.id));
        let members = nodes.chain(shims).chain(others.iter().copied()).map(|peer| (peer, lost)).collect();
        Controller { config, map, members }
    }

    /// The newest map.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// Nodes that own nothing in the newest map.
    pub fn down(&self) -> Vec<NodeId> {
        nodes_of(&self.map).filter(|node| !node.up).map(|node| node.id).collect()
    }

    pub fn members(&self) -> impl Iterator<Item = (Peer, Liveness)> {
        self.members.iter().map(|(peer, liveness)| (*peer, *liveness))
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let changed = match input {
            Input::Heartbeat { member, epoch } => self.heartbeat(member, epoch),
            Input::Expired { member } => self.expired(now, member),
            Input::Published { epoch, down } => self.published(epoch, &down),
            Input::Tick => self.remove_lost(now),
        };
        if changed {
            self.map.epoch += 1;
            effects.push(Effect::Publish(self.map.clone()));
        }
    }

    fn heartbeat(&mut self, member: Peer, epoch: u32) -> bool {
        let Some(liveness) = self.members.get_mut(&member) else { return false };
        *liveness = Liveness::Up;
        // A controller that lost its store would otherwise publish epochs that members have left behind.
        let behind = epoch > self.map.epoch;
        if behind {
            self.map.epoch = epoch;
        }
        let Peer::Node(id) = member else { return behind };
        let returned = nodes_mut(&mut self.map).find(|node| node.id == id && !node.up);
        returned.map(|node| node.up = true).is_some() || behind
    }

    fn expired(&mut self, now: Time, member: Peer) -> bool {
        if let Some(liveness @ Liveness::Up) = self.members.get_mut(&member) {
            *liveness = Liveness::Lost { since: now };
        }
        false
    }

    /// Equal epochs are adopted too: the store has decided between two replicas that published at once.
    fn published(&mut self, epoch: u32, down: &[NodeId]) -> bool {
        if epoch >= self.map.epoch {
            self.map.epoch = epoch;
            nodes_mut(&mut self.map).for_each(|node| node.up = !down.contains(&node.id));
        }
        false
    }

    fn remove_lost(&mut self, now: Time) -> bool {
        let mut changed = false;
        for node in nodes_mut(&mut self.map).filter(|node| node.up) {
            let Some(Liveness::Lost { since }) = self.members.get(&Peer::Node(node.id)) else { continue };
            if now >= since.after(self.config.grace) {
                node.up = false;
                changed = true;
            }
        }
        changed
    }
}

fn nodes_of(map: &ClusterMap) -> impl Iterator<Item = &NodeMember> {
    map.layers.iter().flat_map(|layer| &layer.nodes)
}

fn nodes_mut(map: &mut ClusterMap) -> impl Iterator<Item = &mut NodeMember> {
    map.layers.iter_mut().flat_map(|layer| &mut layer.nodes)
}

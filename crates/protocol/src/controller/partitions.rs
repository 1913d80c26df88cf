//! Whose partitions are whose: which members live, and the map that follows. Not what the store has, nor what members are
//! told.
//!
//! A member holds a lease in the store and keeps it by heartbeats. A node whose lease has run out keeps its partition
//! for a grace period, since remapping moves keys; then the map's next epoch gives its partition to the others. It
//! gets it back in steps, once it has said that it holds nothing any more (paper, section 4.4): what it left behind
//! elsewhere cools down while it warms up.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::level;
use wire::{ClusterMap, LEVELS, NodeId, NodeMember, Peer, SHARE_WHOLE, ShimId};

use super::resharding::{self, Reports, ReshardingRefusal, ReshardingReport, ShimPart};
use crate::time::Time;

/// The part of its partition that a returning node takes with each step, in thousandths.
const STEP: u16 = SHARE_WHOLE / 4;

/// A cluster that changes every second comes here after 68 years. What says that it is further is wrong, and who
/// followed it would leave no epoch for the maps to come.
const EPOCH_MAX: u32 = u32::MAX / 2;

/// How long members may be silent, how fast one takes its partition back, and what the controller speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Length of a member's lease in the store; members that have never registered get one from the start.
    pub lease: Duration,
    /// From the end of a node's lease to the map without it.
    pub grace: Duration,
    /// Between two steps by which a node takes its partition back.
    pub step: Duration,
    /// The highest feature level that this controller speaks.
    pub level_max: u8,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            lease: Duration::from_secs(2),
            grace: Duration::from_millis(300),
            step: Duration::from_secs(1),
            level_max: LEVELS.max,
        }
    }
}

/// All that decides whose partitions are whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The member's lease was granted or kept. It acts on the map of `epoch`; `empty` says that it holds no copies, and `level` is
    /// the highest that it and the controllers that it hears of speak.
    /// A process that is a shim says how far it is with keys that leave it.
    Heartbeat { member: Peer, epoch: u32, empty: bool, level: u8, resharding: Option<ReshardingReport> },
    /// Members act on a map of this epoch that the store never had: a store before it was lost with its maps.
    Forgotten { epoch: u32 },
    /// The store knows the member, perhaps through another replica.
    Registered { member: Peer },
    /// The member's lease ran out.
    Expired { member: Peer },
    /// The member stops in order: there is nothing to wait for.
    Left { member: Peer },
    /// The operator takes a node's partition away, or lets the node have it again.
    Drain { node: NodeId, drained: bool },
    /// The operator lets keys go to a shim that has none, or all keys of one to the others.
    Reshard { shim: ShimId, joins: bool },
    /// The store has a map that this replica did not make. Nodes that it does not list are new.
    Published { epoch: u32, level: u8, nodes: Vec<Ownership>, shims: Vec<ShimPart> },
    /// There are more members than before, in this map and in `others`; nodes that are new own nothing yet. `stored`
    /// says that the store has them already.
    Grown { map: ClusterMap, others: Vec<Peer>, stored: bool },
    /// Time passes, and the store has told everything until now.
    Tick,
}

/// What the store keeps of a node, in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    pub share: u16,
    /// It stays at nothing until the operator says otherwise.
    pub drained: bool,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Publish(ClusterMap),
}

/// Whether a member lives, as far as its lease tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Up,
    /// Its lease ran out at this time; a member that never registered counts from the start.
    Lost {
        since: Time,
    },
}

/// What the map does not say of a node.
#[derive(Clone, Copy, Debug)]
struct Share {
    drained: bool,
    /// The first epoch in which it owns nothing: copies that it made before are gone once it acts on this one.
    emptied: u32,
    /// When its share changed last.
    changed: Time,
}

#[derive(Clone, Debug)]
pub struct Partitions {
    terms: Terms,
    map: ClusterMap,
    members: BTreeMap<Peer, Liveness>,
    /// The levels of members that live and have told this replica.
    levels: BTreeMap<Peer, u8>,
    reports: Reports,
    /// By node.
    shares: Vec<Share>,
    ticked: Time,
    /// No lease counts as lost before: until then members could not keep theirs, or this controller did not see it.
    forgiven: Time,
}

impl Partitions {
    /// Starts from the configuration's map; `others` are members beside its nodes and shims.
    pub fn new(now: Time, terms: Terms, map: ClusterMap, others: &[Peer]) -> Partitions {
        let lost = Liveness::Lost { since: now };
        let nodes = nodes_of(&map).map(|node| Peer::Node(node.id));
        let shims = map.shims.iter().map(|shim| Peer::Shim(shim.id));
        let members = nodes.chain(shims).chain(others.iter().copied()).map(|peer| (peer, lost)).collect();
        let share = Share { drained: false, emptied: map.epoch, changed: now };
        let shares = vec![share; nodes_of(&map).count()];
        let (levels, reports, forgiven) = (BTreeMap::new(), Reports::default(), now.after(terms.lease));
        Partitions { terms, map, members, levels, reports, shares, ticked: now, forgiven }
    }

    /// The newest map.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// What the store is to keep of the nodes beside the map's epoch.
    pub fn ownership(&self) -> Vec<Ownership> {
        let mut nodes = vec![Ownership::default(); self.shares.len()];
        for node in nodes_of(&self.map) {
            let drained = self.shares[index(node.id)].drained;
            nodes[index(node.id)] = Ownership { share: node.share, drained };
        }
        nodes
    }

    /// What it is to keep of the shims.
    pub fn shim_parts(&self) -> Vec<ShimPart> {
        self.map.shims.iter().map(ShimPart::from).collect()
    }

    /// Whether `Input::Reshard` would do anything.
    pub fn may_reshard(&self, shim: ShimId, joins: bool) -> Result<(), ReshardingRefusal> {
        resharding::begin(&mut self.map.clone(), shim, joins)
    }

    /// Whether a member or a store can be right that there is a map of this epoch.
    pub fn believes(&self, epoch: u32) -> bool {
        epoch <= EPOCH_MAX.max(self.map.epoch)
    }

    pub fn members(&self) -> impl Iterator<Item = (Peer, Liveness)> {
        self.members.iter().map(|(peer, liveness)| (*peer, *liveness))
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let changed = match input {
            Input::Heartbeat { epoch, .. } | Input::Forgotten { epoch } | Input::Published { epoch, .. }
                if !self.believes(epoch) =>
            {
                false
            }
            Input::Heartbeat { member, .. } if !self.members.contains_key(&member) => false,
            Input::Heartbeat { member, epoch, empty, level, resharding } => {
                self.levels.insert(member, level);
                self.reports.hear(member, epoch, resharding);
                self.heartbeat(member, epoch) | (empty && self.returned(now, member, epoch))
            }
            Input::Forgotten { epoch } => self.forgotten(epoch),
            Input::Registered { member } => self.registered(member),
            Input::Expired { member } => self.expired(now, member),
            Input::Left { member } => self.expired(now, member) | self.left(now, member),
            Input::Drain { node, drained } => self.drain(now, node, drained),
            Input::Reshard { shim, joins } => resharding::begin(&mut self.map, shim, joins).is_ok(),
            Input::Published { epoch, level, nodes, shims } => {
                self.map.level = level;
                resharding::set_parts(&mut self.map, &shims);
                self.published(now, epoch, &nodes)
            }
            Input::Grown { map, others, stored } => self.grown(now, map, &others) && !stored,
            Input::Tick => self.tick(now),
        };
        if changed {
            self.map.epoch += 1;
            effects.push(Effect::Publish(self.map.clone()));
        }
    }

    fn heartbeat(&mut self, member: Peer, epoch: u32) -> bool {
        self.registered(member);
        // A controller that lost its store would otherwise publish epochs that members have left behind.
        let behind = epoch > self.map.epoch;
        self.map.epoch = self.map.epoch.max(epoch);
        behind
    }

    /// The same epoch stands for two maps then, so that everybody needs a later one.
    fn forgotten(&mut self, epoch: u32) -> bool {
        let ambiguous = epoch >= self.map.epoch;
        self.map.epoch = self.map.epoch.max(epoch);
        ambiguous
    }

    /// The first step of a node that owns nothing and holds nothing, and knows that it owns nothing.
    fn returned(&mut self, now: Time, member: Peer, epoch: u32) -> bool {
        let Peer::Node(id) = member else { return false };
        let Some(node) = node_mut(&mut self.map, id).filter(|node| !node.is_up()) else { return false };
        let share = &mut self.shares[index(id)];
        if share.drained || epoch < share.emptied {
            return false;
        }
        node.share = STEP;
        share.changed = now;
        true
    }

    fn registered(&mut self, member: Peer) -> bool {
        if let Some(liveness) = self.members.get_mut(&member) {
            *liveness = Liveness::Up;
        }
        false
    }

    fn expired(&mut self, now: Time, member: Peer) -> bool {
        if let Some(liveness @ Liveness::Up) = self.members.get_mut(&member) {
            *liveness = Liveness::Lost { since: now };
        }
        // What it speaks in its next life is its own to say.
        self.levels.remove(&member);
        self.reports.forget(member);
        false
    }

    fn left(&mut self, now: Time, member: Peer) -> bool {
        match member {
            Peer::Node(id) => self.take(now, id),
            Peer::Shim(_) | Peer::Router(_) => false,
        }
    }

    fn drain(&mut self, now: Time, id: NodeId, drained: bool) -> bool {
        let Some(share) = self.shares.get_mut(index(id)) else { return false };
        let news = std::mem::replace(&mut share.drained, drained) != drained;
        news | (drained && self.take(now, id))
    }

    /// Takes the node's partition away. False if it has none.
    fn take(&mut self, now: Time, id: NodeId) -> bool {
        let epoch = self.map.epoch + 1;
        let Some(node) = node_mut(&mut self.map, id).filter(|node| node.is_up()) else { return false };
        node.share = 0;
        let share = &mut self.shares[index(id)];
        (share.emptied, share.changed) = (epoch, now);
        true
    }

    /// The store decides between replicas, whatever this one has made of its view meanwhile. Members may know a later
    /// epoch than the store's, if it has lost some; they are told in one that is later still.
    fn published(&mut self, now: Time, epoch: u32, nodes: &[Ownership]) -> bool {
        let behind = epoch < self.map.epoch;
        self.map.epoch = self.map.epoch.max(epoch);
        let emptied = self.map.epoch + u32::from(behind);
        for node in nodes_mut(&mut self.map) {
            let stored = nodes.get(index(node.id)).copied().unwrap_or_default();
            let share = &mut self.shares[index(node.id)];
            share.drained = stored.drained;
            if node.share != stored.share {
                node.share = stored.share;
                (share.emptied, share.changed) = (emptied, now);
            }
        }
        behind
    }

    /// Members keep their numbers, so a map can only get longer.
    fn grown(&mut self, now: Time, map: ClusterMap, others: &[Peer]) -> bool {
        let known = self.shares.len();
        if nodes_of(&map).count() < known {
            return false;
        }
        let ownership = self.ownership();
        let (epoch, level) = (self.map.epoch, self.map.level);
        let parts = self.shim_parts();
        self.map = ClusterMap { epoch, level, ..map };
        resharding::set_parts(&mut self.map, &parts);
        for node in nodes_mut(&mut self.map) {
            node.share = ownership.get(index(node.id)).map_or(0, |known| known.share);
        }
        let count = nodes_of(&self.map).count();
        self.shares.resize(count, Share { drained: false, emptied: epoch + 1, changed: now });
        let nodes = nodes_of(&self.map).map(|node| Peer::Node(node.id));
        for peer in nodes.chain(others.iter().copied()) {
            self.members.entry(peer).or_insert(Liveness::Lost { since: now });
        }
        true
    }

    fn tick(&mut self, now: Time) -> bool {
        // Nobody looked for so long that members may have kept leases, or tried to, unseen.
        if now.since(self.ticked) > self.terms.lease / 2 {
            self.forgiven = now.after(self.terms.lease);
        }
        self.ticked = now;
        let reshards = self.reports.advance(&mut self.map, &self.members);
        self.remove_lost(now) | self.raise(now) | self.set_level(now) | reshards
    }

    /// Whether the member has been lost for so long that nobody waits for it.
    fn is_overdue(&self, now: Time, liveness: &Liveness) -> bool {
        match *liveness {
            Liveness::Up => false,
            Liveness::Lost { since } => now >= since.max(self.forgiven).after(self.terms.grace),
        }
    }

    /// A member that speaks less than the map's level takes it down at once; it rises when everybody who may be there has said more.
    fn set_level(&mut self, now: Time) -> bool {
        let lowest = self.levels.values().copied().fold(self.terms.level_max, u8::min).max(level::first());
        let silent = |(member, liveness): (&Peer, &Liveness)| {
            !self.levels.contains_key(member) && !self.is_overdue(now, liveness)
        };
        let rises = lowest > self.map.level && !self.levels.is_empty() && !self.members.iter().any(silent);
        if !rises && lowest >= self.map.level {
            return false;
        }
        self.map.level = lowest;
        true
    }

    fn remove_lost(&mut self, now: Time) -> bool {
        let overdue = |liveness: &Liveness| self.is_overdue(now, liveness);
        let nodes = nodes_of(&self.map).map(|node| node.id);
        let lost: Vec<NodeId> =
            nodes.filter(|id| self.members.get(&Peer::Node(*id)).is_some_and(overdue)).collect();
        lost.into_iter().fold(false, |changed, id| changed | self.take(now, id))
    }

    /// The next step of each node that lives and has had its last one for long enough.
    fn raise(&mut self, now: Time) -> bool {
        let mut changed = false;
        for node in nodes_mut(&mut self.map).filter(|node| node.is_up() && node.share < SHARE_WHOLE) {
            let share = &mut self.shares[index(node.id)];
            let lives = self.members.get(&Peer::Node(node.id)) == Some(&Liveness::Up);
            if lives && now >= share.changed.after(self.terms.step) {
                node.share = SHARE_WHOLE.min(node.share / STEP * STEP + STEP);
                share.changed = now;
                changed = true;
            }
        }
        changed
    }
}

fn index(id: NodeId) -> usize {
    usize::from(id.0)
}

fn nodes_of(map: &ClusterMap) -> impl Iterator<Item = &NodeMember> {
    map.layers.iter().flat_map(|layer| &layer.nodes)
}

fn nodes_mut(map: &mut ClusterMap) -> impl Iterator<Item = &mut NodeMember> {
    map.layers.iter_mut().flat_map(|layer| &mut layer.nodes)
}

fn node_mut(map: &mut ClusterMap, id: NodeId) -> Option<&mut NodeMember> {
    nodes_mut(map).find(|node| node.id == id)
}

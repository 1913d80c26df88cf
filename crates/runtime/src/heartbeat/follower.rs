//! What a process makes of its controllers' answers: the newest map, with the members that it brings. Not the asking.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::controller::resharding::ShimPart;
use wire::{ClusterMap, LEVELS, NodeId, RELEASE, Relocation, SHARE_WHOLE, ShimState};

use super::message::{Heartbeat, HeartbeatReply};
use super::shim_part::ShimPartText;
use crate::instance::{Instance, MapCell};
use crate::orders::Orders;
use crate::status::{HotKeyView, StatusCell};
use config::{Config, EPOCH_FIRST};

/// A member that does not act on a map by then holds the next one up, however often the others say that they do.
const HURRY_MAX: Duration = Duration::from_secs(5);

/// What the agents keep of one member. A client library has no status: nobody waits for it.
#[derive(Clone, Debug)]
pub struct Pulse {
    pub status: Option<StatusCell>,
    pub maps: MapCell,
    pub orders: Orders,
}

impl Pulse {
    pub(super) fn id(&self) -> Option<String> {
        Some(self.status.as_ref()?.get().id().to_owned())
    }
}

impl From<&Instance> for Pulse {
    fn from(instance: &Instance) -> Pulse {
        let Instance { status, maps, orders, .. } = instance;
        Pulse { status: Some(status.clone()), maps: maps.clone(), orders: orders.clone() }
    }
}

/// Shared by the agents of all controllers.
pub(super) struct MapFollower {
    /// With the members that were added since the start.
    config: Arc<Config>,
    members: Vec<Pulse>,
    /// By controller.
    answering: Vec<bool>,
    /// The highest feature level that each controller speaks; none of one that has not answered yet.
    levels: Vec<Option<u8>>,
    reachable: bool,
    /// Epoch of the newest map handed to the members.
    epoch: u32,
    history: u64,
    /// Requests wait meanwhile for the next map, which needs every member's heartbeat.
    hurry_until: Option<Instant>,
}

impl MapFollower {
    pub(super) fn new(config: Arc<Config>, members: Vec<Pulse>) -> MapFollower {
        let answering = vec![false; config.controllers.len()];
        let levels = vec![None; config.controllers.len()];
        MapFollower {
            config,
            members,
            answering,
            levels,
            reachable: true,
            epoch: EPOCH_FIRST,
            history: 0,
            hurry_until: None,
        }
    }

    pub(super) fn heartbeat(&self, agent: u64, sequence: u64) -> Heartbeat {
        // A member that hangs must look lost, whatever this thread can say.
        let fresh = self.members.iter().filter_map(|member| member.status.as_ref()).filter(|s| s.is_fresh());
        let members = fresh.map(StatusCell::get).collect();
        Heartbeat { members, ..self.heartbeat_of_nobody(agent, sequence) }
    }

    fn heartbeat_of_nobody(&self, agent: u64, sequence: u64) -> Heartbeat {
        // A controller that is silent for now is still of its release.
        let level = self.levels.iter().flatten().copied().fold(LEVELS.max, u8::min);
        Heartbeat {
            agent,
            sequence,
            agreement: self.config.agreement(),
            release: RELEASE.to_owned(),
            level,
            members: Vec::new(),
            leaving: Vec::new(),
            history: self.history,
            known: self.config.roster_size(),
            reports: Vec::new(),
        }
    }

    /// Whether keys change their shim with the map that the members have, and for as long as others may be expected to act on it.
    pub(super) fn hurries(&self) -> bool {
        self.hurry_until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn farewell(&self, agent: u64, sequence: u64) -> Heartbeat {
        let members = self.members.iter().filter_map(|member| member.status.as_ref());
        let leaving = members.map(|status| status.get().id().to_owned()).collect();
        Heartbeat { leaving, ..self.heartbeat_of_nobody(agent, sequence) }
    }

    pub(super) fn answers(&self, controller: usize) -> bool {
        self.answering[controller]
    }

    /// What came of a heartbeat to one of the controllers.
    pub(super) fn heard(&mut self, controller: usize, answer: Result<HeartbeatReply, String>) {
        let id = &self.config.controllers[controller].id;
        let answered = answer.is_ok();
        let answered_before = std::mem::replace(&mut self.answering[controller], answered);
        match answer {
            Ok(reply) => {
                self.levels[controller] = Some(reply.level_max);
                if !std::mem::replace(&mut self.reachable, true) {
                    tracing::info!(controller = id, "a controller is back");
                }
                self.hand_over(&reply);
                let hot: Arc<[HotKeyView]> = reply.hot.into();
                self.members.iter().for_each(|member| member.orders.tell_hot_keys(&hot));
            }
            Err(problem) if self.answering.contains(&true) => {
                if answered_before {
                    tracing::info!(controller = id, problem, "one controller takes no heartbeats");
                }
            }
            Err(problem) => {
                if std::mem::replace(&mut self.reachable, false) {
                    tracing::warn!(
                        problem,
                        "no controller takes heartbeats; going on with map {}",
                        self.epoch
                    );
                }
            }
        }
    }

    fn hand_over(&mut self, reply: &HeartbeatReply) {
        if reply.epoch <= self.epoch {
            return;
        }
        match reply.roster.as_ref().map(|roster| self.config.grown(roster)).transpose() {
            Ok(grown) => {
                if let Some(config) = grown.flatten() {
                    self.config = Arc::new(config);
                }
            }
            Err(error) => {
                tracing::error!(%error, "the controller's members are not ours; restart with its configuration");
                return;
            }
        }
        let share = |node: NodeId| match usize::from(node.0) < reply.known.nodes {
            true => reply.shares.get(&self.config.node(node).id).copied().unwrap_or(SHARE_WHOLE),
            false => 0,
        };
        let mut map = self.config.map_with(reply.epoch, reply.level, share);
        if let Err(unlisted) = set_parts(&self.config, reply, &mut map) {
            tracing::error!(
                "keys are divided among {unlisted} more shims than the file lists; start it with the file of the controllers"
            );
            return;
        }
        let map = Arc::new(map);
        tracing::info!(epoch = map.epoch, shares = ?reply.shares, "new cluster map");
        (self.epoch, self.history) = (map.epoch, reply.history);
        let hands_over = map.shims.iter().any(|shim| shim.relocation != Relocation::Moving);
        self.hurry_until = hands_over.then(|| Instant::now() + HURRY_MAX);
        let addresses: Arc<[_]> = self.config.nodes.iter().map(|node| node.listen.clone()).collect();
        for member in &self.members {
            member.maps.publish(&map, &addresses);
        }
    }
}

/// Which shims have keys, as the controller says. Of shims that it does not list it says nothing, and they have none; those that it lists
/// and the file does not may have none, or this member would look for their keys elsewhere: then it fails with how many they are.
fn set_parts(config: &Config, reply: &HeartbeatReply, map: &mut ClusterMap) -> Result<(), usize> {
    let HeartbeatReply { parts, known, .. } = reply;
    // A controller of a release that does not say it has never divided keys anew.
    if known.shims == 0 {
        return Ok(());
    }
    let is_absent = |part: &ShimPartText| part.state == ShimState::Absent;
    let foreign = parts.iter().filter(|(id, part)| is_absent(part) && config.shim_id(id).is_none()).count();
    let unlisted = known.shims.saturating_sub(config.shims.len()).saturating_sub(foreign);
    if unlisted > 0 {
        return Err(unlisted);
    }
    let absent = ShimPart { state: ShimState::Absent, ..ShimPart::default() };
    for (index, (shim, member)) in config.shims.iter().zip(&mut map.shims).enumerate() {
        let part = parts.get(&shim.id).copied().map(ShimPart::from);
        *member = part.unwrap_or(if index < known.shims { ShimPart::default() } else { absent }).of(member);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MapFollower, Pulse, ShimPartText, set_parts};
    use crate::heartbeat::HeartbeatReply;
    use crate::instance::MapCell;
    use crate::orders::Orders;
    use crate::status::{MemberStatus, RouterStatus, StatusCell};
    use config::RosterSize;
    use config::{Config, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig};
    use std::sync::Arc;
    use wire::{Partition, Relocation, ShimState};

    #[test]
    fn only_a_newer_epoch_reaches_the_members() {
        let address = || "127.0.0.1:0".parse().unwrap();
        let mut config = Config::new("t", Secret([1; 16]));
        config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
        config.nodes.push(NodeConfig::new("n0", "spine", None, address()));
        config.nodes.push(NodeConfig::new("n1", "spine", None, address()));
        config.nodes.push(NodeConfig::new("n2", "spine", None, address()));
        config.shims.push(ShimConfig::new("s", "r", address(), StorageConfig::Embedded));
        config.routers.push(RouterConfig::new("x", address()));
        let maps = MapCell::default();
        let status = StatusCell::new(MemberStatus::Router(RouterStatus::default()));
        let pulse = Pulse { status: Some(status), maps: maps.clone(), orders: Orders::default() };
        let mut follower = MapFollower::new(Arc::new(config), vec![pulse]);

        follower.hand_over(&HeartbeatReply { epoch: 1, ..HeartbeatReply::default() });
        assert_eq!(maps.newer_than(0), None);
        let shares = [("n1".to_owned(), 250), ("stranger".to_owned(), 0)].into();
        let known = RosterSize { nodes: 2, ..RosterSize::default() };
        follower.hand_over(&HeartbeatReply { epoch: 4, shares, known, ..HeartbeatReply::default() });
        follower.hand_over(&HeartbeatReply { epoch: 3, ..HeartbeatReply::default() });
        let (map, _) = maps.newer_than(1).unwrap();
        let shares: Vec<_> = map.layers[0].nodes.iter().map(|node| node.share).collect();
        assert_eq!((map.epoch, shares), (4, vec![1000, 250, 0]), "the controllers do not know n2");
    }

    #[test]
    fn a_map_with_keys_at_shims_that_the_file_does_not_list_is_not_taken() {
        let mut config = Config::new("t", Secret([1; 16]));
        for id in ["s-0", "s-1"] {
            config.shims.push(ShimConfig::new(
                id,
                "r",
                "127.0.0.1:0".parse().unwrap(),
                StorageConfig::Embedded,
            ));
        }
        let states = |shims: usize, parts: &[(&str, ShimState)]| {
            let part = |state| ShimPartText { state, leaving: Relocation::Moving };
            let parts = parts.iter().map(|(id, state)| ((*id).to_owned(), part(*state))).collect();
            let known = RosterSize { shims, ..RosterSize::default() };
            let reply = HeartbeatReply { parts, known, ..HeartbeatReply::default() };
            let mut map = config.map();
            set_parts(&config, &reply, &mut map).map(|()| map.shims.iter().map(|shim| shim.state).collect())
        };
        let [normal, absent] = [ShimState::Normal, ShimState::Absent];
        assert_eq!(states(0, &[]), Ok(vec![normal, normal]), "an older controller");
        assert_eq!(states(2, &[("s-1", absent)]), Ok(vec![normal, absent]));
        assert_eq!(states(1, &[]), Ok(vec![normal, absent]), "the controllers do not know s-1");
        assert_eq!(states(3, &[("s-2", absent)]), Ok(vec![normal, normal]));
        assert_eq!(states(3, &[("s-2", ShimState::Joining)]), Err(1));
        assert_eq!(states(4, &[("s-2", absent)]), Err(1));
    }

    #[test]
    fn heartbeats_hurry_while_keys_change_their_shim() {
        let mut config = Config::new("t", Secret([1; 16]));
        let listen = "127.0.0.1:0".parse().unwrap();
        config.shims.push(ShimConfig::new("s-0", "r", listen, StorageConfig::Embedded));
        let mut follower = MapFollower::new(Arc::new(config), Vec::new());
        let mut hurries = |epoch, leaving| {
            let part = ShimPartText { state: ShimState::Normal, leaving };
            let known = RosterSize { shims: 1, ..RosterSize::default() };
            let parts = [("s-0".to_owned(), part)].into();
            follower.hand_over(&HeartbeatReply { epoch, parts, known, ..HeartbeatReply::default() });
            follower.hurries()
        };
        assert!(!hurries(2, Relocation::Moving));
        assert!(hurries(3, Relocation::Announced) && hurries(4, Relocation::Gone));
        assert!(!hurries(5, Relocation::Moving));
    }
}

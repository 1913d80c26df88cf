//! The cluster map and the members as the HTTP API shows them. Not how they come about.

use std::time::Duration;

use protocol::controller::partitions::Liveness;
use protocol::controller::resharding::ShimPart;
use protocol::time::Time;
use runtime::heartbeat::ShimPartText;
use serde::{Deserialize, Serialize};
use wire::{ClusterMap, Partition, Peer, SHARE_WHOLE, ShimId, ShimState};

use crate::service::Service;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapView {
    pub epoch: u32,
    pub layers: Vec<LayerView>,
    pub shims: Vec<ShimView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerView {
    pub name: String,
    pub partition: String,
    pub nodes: Vec<NodeView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub id: String,
    pub rack: Option<String>,
    pub capacity: f64,
    /// How much of its partition it owns, 0 to 1.
    pub share: f64,
    /// Whether an operator keeps it at nothing.
    pub drained: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimView {
    pub id: String,
    pub rack: String,
    /// Whether keys are its own, and how far what leaves it is.
    #[serde(flatten)]
    pub part: ShimPartText,
}

/// One member and whether it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberView {
    pub id: String,
    pub role: String,
    pub state: MemberState,
    /// Since its last heartbeat; none if this controller has heard none.
    #[serde(default)]
    pub silent_ms: Option<u64>,
    /// In what its configuration differs from the controller's, which refuses its heartbeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
}

/// Two heartbeats in a row have not come.
const LATE: Duration = Duration::from_millis(1_250);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    Up,
    /// Its last heartbeat is older than heartbeats are apart; its lease holds still.
    Late,
    /// Its heartbeats have stopped; a node's partition is still its own.
    Lost,
    /// The map has given its partition to other nodes.
    Down,
    /// So it has, because an operator wants it so.
    Drained,
}

impl MapView {
    pub(crate) fn of(service: &Service) -> MapView {
        let (config, map) = (service.config(), service.map());
        let racks = config.racks();
        let layers = map.layers.iter().map(|layer| LayerView {
            name: layer.name.clone(),
            partition: match layer.partition {
                Partition::Rack => "rack".to_owned(),
                Partition::Hash => "hash".to_owned(),
            },
            nodes: layer
                .nodes
                .iter()
                .map(|node| NodeView {
                    id: config.node(node.id).id.clone(),
                    rack: node.rack.map(|rack| racks[usize::from(rack.0)].to_owned()),
                    capacity: f64::from(node.capacity) / 1000.0,
                    drained: service.machine.committed().drained(node.id),
                    share: f64::from(node.share) / f64::from(SHARE_WHOLE),
                })
                .collect(),
        });
        let shims = config.shims.iter().zip(&map.shims).map(|(shim, member)| ShimView {
            id: shim.id.clone(),
            rack: shim.rack.clone(),
            part: ShimPart::from(member).into(),
        });
        MapView { epoch: map.epoch, layers: layers.collect(), shims: shims.collect() }
    }
}

fn is_absent(map: &ClusterMap, shim: ShimId) -> bool {
    map.shims.get(usize::from(shim.0)).is_some_and(|shim| shim.state == ShimState::Absent)
}

pub(crate) fn members(service: &Service, now: Time) -> Vec<MemberView> {
    let map = service.map();
    let nodes = map.layers.iter().flat_map(|layer| &layer.nodes);
    let down: Vec<Peer> = nodes.filter(|node| !node.is_up()).map(|node| Peer::Node(node.id)).collect();
    let silence = |peer| service.machine.heard(peer).map(|heard| now.since(heard));
    let state = |peer, liveness, silence: Option<Duration>| match (peer, liveness) {
        (Peer::Node(id), _) if service.machine.committed().drained(id) => MemberState::Drained,
        // It has no keys, and may be stopped.
        (Peer::Shim(id), Liveness::Lost { .. }) if is_absent(&map, id) => MemberState::Drained,
        (peer, _) if down.contains(&peer) => MemberState::Down,
        (_, Liveness::Up) if silence.is_some_and(|silence| silence > LATE) => MemberState::Late,
        (_, Liveness::Up) => MemberState::Up,
        (_, Liveness::Lost { .. }) => MemberState::Lost,
    };
    let role = |peer| match peer {
        Peer::Node(_) => "node",
        Peer::Shim(_) => "shim",
        Peer::Router(_) => "router",
    };
    let members = service.machine.liveness().map(|(peer, liveness)| {
        let silence = silence(peer);
        let id = service.config().peer_name(peer);
        MemberView {
            role: role(peer).to_owned(),
            state: state(peer, liveness, silence),
            silent_ms: silence.map(|silence| silence.as_millis() as u64),
            disagreement: service.disagreement(now, &id).map(ToString::to_string),
            id,
        }
    });
    members.collect()
}

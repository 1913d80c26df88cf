//! Scripted transcripts of the controller: whose partitions are whose, and what a replica makes of members and its store.

mod partitions;
mod replica;

use wire::{
    ClusterMap, LayerMap, NodeId, NodeMember, Partition, Peer, RackId, RouterId, SHARE_WHOLE, Sharding,
    ShimId, ShimMember,
};

/// One node in the first layer, the others in the second.
fn map(nodes: u16) -> ClusterMap {
    let node = |id| NodeMember { id: NodeId(id), rack: None, capacity: 1000, share: SHARE_WHOLE };
    let layer = |name: &str, ids: std::ops::Range<u16>| LayerMap {
        name: name.to_owned(),
        partition: Partition::Hash,
        nodes: ids.map(node).collect(),
    };
    let shims = vec![ShimMember::new(ShimId(0), RackId(0))];
    ClusterMap {
        epoch: 1,
        level: 1,
        sharding: Sharding::Ring,
        layers: vec![layer("leaf", 0..1), layer("spine", 1..nodes)],
        shims,
    }
}

fn peer(text: &str) -> Peer {
    let number = text[1..].parse().expect("a member's number");
    match &text[..1] {
        "n" => Peer::Node(NodeId(number)),
        "s" => Peer::Shim(ShimId(number)),
        _ => Peer::Router(RouterId(number)),
    }
}

fn check(name: &str, play: impl Fn(&str) -> String) {
    let path = format!("{}/tests/scripts/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let script = std::fs::read_to_string(&path).unwrap();
    let actual = play(&script);
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    assert_eq!(actual, script);
}

#[test]
fn partitions_go_and_come_back() {
    check("partitions", partitions::play);
}

#[test]
fn a_replica_shares_its_map() {
    check("controller", replica::play);
}

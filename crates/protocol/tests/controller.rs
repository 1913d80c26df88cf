//! Scripted transcripts of the controller's machine: `scripts/controller.txt`, inputs and the answers expected.

use std::fmt::Write;
use std::time::Duration;

use protocol::controller::{Controller, ControllerConfig, Effect, Input, Ownership};
use protocol::time::Time;
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
    let shims = vec![ShimMember { id: ShimId(0), rack: RackId(0) }];
    ClusterMap {
        epoch: 1,
        sharding: Sharding::Ring,
        layers: vec![layer("leaf", 0..1), layer("spine", 1..nodes)],
        shims,
    }
}

fn controller() -> Controller {
    let config = ControllerConfig {
        lease: Duration::from_secs(2),
        grace: Duration::from_millis(500),
        step: Duration::from_secs(1),
    };
    Controller::new(Time(0), config, map(2), &[Peer::Router(RouterId(0))])
}

fn peer(text: &str) -> Peer {
    let number = text[1..].parse().expect("a member's number");
    match &text[..1] {
        "n" => Peer::Node(NodeId(number)),
        "s" => Peer::Shim(ShimId(number)),
        _ => Peer::Router(RouterId(number)),
    }
}

fn parse(line: &str) -> Vec<(Time, Input)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ms = |index: usize| words[index].parse::<u64>().expect("milliseconds");
    if words[0] == "ticks" {
        return (ms(1)..=ms(2)).step_by(100).map(|ms| (Time(ms * 1000), Input::Tick)).collect();
    }
    let time = Time(ms(0) * 1000);
    let number = |index: usize| words[index].parse::<u32>().expect("a number");
    let input = match words[1] {
        "heartbeat" => {
            let empty = words.get(4) == Some(&"empty");
            Input::Heartbeat { member: peer(words[2]), epoch: number(3), empty }
        }
        "forgotten" => Input::Forgotten { epoch: number(2) },
        "registered" => Input::Registered { member: peer(words[2]) },
        "expired" => Input::Expired { member: peer(words[2]) },
        "left" => Input::Left { member: peer(words[2]) },
        "drain" | "undrain" => Input::Drain { node: NodeId(number(2) as u16), drained: words[1] == "drain" },
        "published" => {
            let node = |text: &&str| Ownership {
                share: text.trim_end_matches('d').parse().expect("a share"),
                drained: text.ends_with('d'),
            };
            Input::Published { epoch: number(2), nodes: words[3..].iter().map(node).collect() }
        }
        "grown" => {
            let stored = words.get(3) == Some(&"stored");
            Input::Grown { map: map(number(2) as u16), others: vec![Peer::Router(RouterId(1))], stored }
        }
        "tick" => Input::Tick,
        other => panic!("no input is called {other}"),
    };
    vec![(time, input)]
}

fn show(at: &str, effect: &Effect, out: &mut String) {
    let Effect::Publish(map) = effect;
    let nodes = map.layers.iter().flat_map(|layer| &layer.nodes);
    let shares: Vec<String> = nodes.map(|node| node.share.to_string()).collect();
    writeln!(out, "> {at}publish {}: {}", map.epoch, shares.join(" ")).unwrap();
}

#[test]
fn scripts() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/controller.txt");
    let script = std::fs::read_to_string(path).unwrap();
    let mut actual = String::new();
    let mut machine = controller();
    for line in script.lines().filter(|line| !line.starts_with('>')) {
        writeln!(actual, "{line}").unwrap();
        if line.starts_with("case ") {
            machine = controller();
        } else if !line.is_empty() && !line.starts_with('#') {
            for (time, input) in parse(line) {
                let mut effects = Vec::new();
                machine.step(time, input, &mut effects);
                let at =
                    if line.starts_with("ticks") { format!("{} ", time.0 / 1000) } else { String::new() };
                effects.iter().for_each(|effect| show(&at, effect, &mut actual));
            }
        }
    }
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        std::fs::write(path, &actual).unwrap();
    }
    assert_eq!(actual, script);
}

//! Scripted transcripts of the controller's machine: `scripts/controller.txt`, inputs and the answers expected.

use std::fmt::Write;
use std::time::Duration;

use protocol::controller::{Controller, ControllerConfig, Effect, Input};
use protocol::time::Time;
use wire::{ClusterMap, LayerMap, NodeId, NodeMember, Partition, Peer, RackId, RouterId, ShimId, ShimMember};

fn map() -> ClusterMap {
    let node = |id| NodeMember { id: NodeId(id), rack: None, capacity: 1000, up: true };
    let layer = |name: &str, id| LayerMap {
        name: name.to_owned(),
        partition: Partition::Hash,
        nodes: vec![node(id)],
    };
    let shims = vec![ShimMember { id: ShimId(0), rack: RackId(0) }];
    ClusterMap { epoch: 1, layers: vec![layer("leaf", 0), layer("spine", 1)], shims }
}

fn controller() -> Controller {
    let config = ControllerConfig { lease: Duration::from_secs(3), grace: Duration::from_secs(3) };
    Controller::new(Time(0), config, map(), &[Peer::Router(RouterId(0))])
}

fn peer(text: &str) -> Peer {
    let number = text[1..].parse().expect("a member's number");
    match &text[..1] {
        "n" => Peer::Node(NodeId(number)),
        "s" => Peer::Shim(ShimId(number)),
        _ => Peer::Router(RouterId(number)),
    }
}

fn parse(line: &str) -> (Time, Input) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let time = Time(words[0].parse::<u64>().expect("milliseconds") * 1000);
    let number = |index: usize| words[index].parse().expect("an epoch");
    let input = match words[1] {
        "heartbeat" => Input::Heartbeat { member: peer(words[2]), epoch: number(3) },
        "expired" => Input::Expired { member: peer(words[2]) },
        "published" => {
            let node = |text: &&str| NodeId(text[1..].parse().expect("a node's number"));
            Input::Published { epoch: number(2), down: words[3..].iter().map(node).collect() }
        }
        "tick" => Input::Tick,
        other => panic!("no input is called {other}"),
    };
    (time, input)
}

fn show(effect: &Effect, out: &mut String) {
    let Effect::Publish(map) = effect;
    let nodes = map.layers.iter().flat_map(|layer| &layer.nodes);
    let down: Vec<String> = nodes.filter(|node| !node.up).map(|node| format!("n{}", node.id.0)).collect();
    let down = if down.is_empty() { "-".to_owned() } else { down.join(" ") };
    writeln!(out, "> publish {} down {down}", map.epoch).unwrap();
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
            let (time, input) = parse(line);
            let mut effects = Vec::new();
            machine.step(time, input, &mut effects);
            effects.iter().for_each(|effect| show(effect, &mut actual));
        }
    }
    if std::env::var_os("UPDATE_SCRIPTS").is_some() {
        std::fs::write(path, &actual).unwrap();
    }
    assert_eq!(actual, script);
}

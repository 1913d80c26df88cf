//! Maps as a store holds them, which anybody may have written: one is refused with a reason, or says the same after it
//! was written again, and a controller can go on from it.

use std::sync::{Arc, OnceLock};

use config::Config;
use controller::store::{StoredRoster, map_text, parse_map};
use protocol::controller::partitions::{Input, Partitions, Terms};
use protocol::placement::{Placement, Secret};
use protocol::time::Time;
use wire::{NodeId, Peer};

/// The configuration of the controller that reads the map: fewer members than the map may have.
const CONFIG: &str = r#"
[cluster]
name = "demo"
secret = "00112233445566778899aabbccddeeff"
[[layer]]
name = "spine"
partition = "hash"
[[node]]
id = "n"
layer = "spine"
listen = "127.0.0.1:7000"
[[shim]]
id = "s"
rack = "r"
listen = "127.0.0.1:7001"
[[router]]
id = "c"
listen = "127.0.0.1:7002"
"#;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (stored, unknown) = match parse_map(text) {
        Ok(stored) => stored,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    let written = parse_map(&map_text(&stored, &unknown)).expect("what was written can be read");
    assert_eq!(written, (stored.clone(), unknown));
    let config = config();
    let grown = match config.grown(&stored.roster) {
        Ok(None) => {
            assert!(!stored.roster.size().exceeds(&config.roster_size()));
            config
        }
        Ok(Some(grown)) => {
            assert!(grown.roster_size().exceeds(&config.roster_size()));
            assert_eq!(grown.roster().nodes[0], config.roster().nodes[0]);
            grown.validate().expect("it was validated");
            Arc::new(grown)
        }
        Err(refused) => return assert!(!refused.to_string().contains(char::is_control), "{refused}"),
    };
    go_on(&grown, &stored);
}

fn config() -> Arc<Config> {
    static CONFIGURED: OnceLock<Arc<Config>> = OnceLock::new();
    Arc::clone(CONFIGURED.get_or_init(|| Arc::new(Config::parse(CONFIG).expect("a valid configuration"))))
}

/// The next map is a later one that places keys.
fn go_on(config: &Config, stored: &StoredRoster) {
    let (mut now, mut effects) = (Time(1_000_000), Vec::new());
    let mut machine = Partitions::new(now, Terms::default(), config.map(), &[]);
    if !machine.believes(stored.epoch) {
        return;
    }
    let (epoch, level) = (stored.epoch, stored.level);
    let (nodes, shims) = (stored.nodes.clone(), stored.shims.clone());
    machine.step(now, Input::Published { epoch, level, nodes, shims }, &mut effects);
    // One that is behind is answered with a later one, so that whoever has seen this controller's first goes on.
    let behind = stored.epoch < config.map().epoch;
    assert_eq!(machine.map().epoch, stored.epoch.max(config.map().epoch) + u32::from(behind));
    for node in 0..config.nodes.len() {
        now.0 += 100_000;
        let member = Peer::Node(NodeId(node as u16));
        machine.step(now, Input::Left { member }, &mut effects);
        let epoch = machine.map().epoch;
        let heartbeat = Input::Heartbeat { member, epoch, empty: true, level: 1, resharding: None };
        machine.step(now, heartbeat, &mut effects);
    }
    assert!(machine.map().epoch >= stored.epoch, "it goes back");
    let placed = Placement::new(Secret(config.secret().0), machine.map().clone());
    assert!(placed.is_ok(), "{placed:?}");
}

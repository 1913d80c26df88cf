//! What a controller finds in etcd: it is refused, or says the same after it was written again; a configuration grows
//! by it or does not, and never loses a member.

use std::sync::LazyLock;

use controller::store::StoredMap;
use runtime::config::{Config, LayerConfig, NodeConfig, Secret, ShimConfig, StorageConfig};
use wire::Partition;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let address = |port: u16| format!("127.0.0.1:{port}").parse().expect("an address");
    let mut config = Config::new("fuzz", Secret([1; 16]));
    config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Rack });
    config.nodes.push(NodeConfig::new("n0", "leaf", Some("r0"), address(7001)));
    config.shims.push(ShimConfig::new("s0", "r0", address(7002), StorageConfig::Embedded));
    config
});

pub(crate) fn run(data: &[u8]) {
    let config = &*CONFIG;
    let Ok(text) = std::str::from_utf8(data) else { return };
    let map = match StoredMap::parse(text) {
        Ok(map) => map,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    let again = StoredMap::parse(&map.to_text()).expect("what was written can be read");
    assert_eq!(again, map);
    match config.grown(&map.roster) {
        Ok(Some(grown)) => {
            assert!(grown.roster_size().exceeds(&config.roster_size()));
            assert_eq!(grown.roster().nodes[0], config.roster().nodes[0]);
            grown.validate().expect("it was validated");
        }
        Ok(None) => assert!(!map.size().exceeds(&config.roster_size())),
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
}

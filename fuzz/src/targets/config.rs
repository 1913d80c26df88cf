//! Configuration files: one that is refused is told why in one line, one that is taken describes a cluster.

use std::sync::Arc;

use bytes::Bytes;
use config::{Config, Override};
use protocol::placement::{Placement, Secret};
use toml::Value;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = Override::from_flag(text) {
        assert!(error.to_string().starts_with("--set "), "{error}");
    }
    if asks_elsewhere(text) {
        return;
    }
    match Config::parse(text) {
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("configuration"), "it does not say where: {error}");
            assert!(!error.contains(char::is_control), "more than one line of text: {error:?}");
        }
        Ok(config) => describes_a_cluster(&config),
    }
}

/// Whether a file would be read or a name resolved: neither is the text's own.
fn asks_elsewhere(text: &str) -> bool {
    fn any(value: &Value) -> bool {
        match value {
            Value::String(text) => text.split_once("redis://").is_some_and(|(_, rest)| {
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                !place.starts_with(|c: char| c.is_ascii_digit() || c == '[')
                    || place.contains(|c: char| !(c.is_ascii_hexdigit() || "[].:/".contains(c)))
            }),
            Value::Array(values) => values.iter().any(any),
            Value::Table(table) => table.iter().any(|(key, value)| key == "secret_file" || any(value)),
            _ => false,
        }
    }
    toml::from_str::<toml::Table>(text).is_ok_and(|table| any(&Value::Table(table)))
}

fn describes_a_cluster(config: &Config) {
    config.validate().expect("what was read is valid");
    let map = config.map();
    let nodes: usize = map.layers.iter().map(|layer| layer.nodes.len()).sum();
    assert_eq!((nodes, map.shims.len()), (config.nodes.len(), config.shims.len()));
    for id in config.member_ids() {
        assert!(config.member(id).is_some(), "{id} is a member that is none");
    }
    let placement = Placement::new(Secret(config.secret().0), map).expect("a valid configuration has a map");
    let placement = Arc::new(placement);
    let key = placement.key(0, Bytes::from_static(b"key"));
    for (layer, place) in placement.places(&key).into_iter().enumerate() {
        assert_eq!(place.is_some(), layer < config.layers.len(), "every node is up");
    }
}

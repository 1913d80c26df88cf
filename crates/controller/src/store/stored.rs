//! The map as stores keep it: its text. Not how it gets there.

use std::collections::BTreeMap;

use config::Roster;
use protocol::controller::partitions::Ownership;
use serde::{Deserialize, Serialize};
use wire::SHARE_WHOLE;

pub type StoredRoster = protocol::controller::StoredMap<Roster>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    epoch: u32,
    history: u64,
    by: String,
    roster: Roster,
    nodes: Vec<TextNode>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextNode {
    /// In thousandths.
    share: u16,
    drained: bool,
}

/// What is wrong with a stored map.
#[derive(Debug, thiserror::Error)]
pub enum StoredMapError {
    #[error("it is not a map of this version: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it lists {nodes} nodes and what {owners} of them own")]
    Lengths { nodes: usize, owners: usize },
    #[error("a node owns {0} thousandths of its partition")]
    Share(u16),
}

/// Reads what a store holds, which anybody may have written.
///
/// # Errors
/// It is no map, or one that contradicts itself.
pub fn parse_map(text: &str) -> Result<StoredRoster, StoredMapError> {
    let Text { epoch, history, by, roster, nodes } = serde_json::from_str(text)?;
    if nodes.len() != roster.nodes.len() {
        return Err(StoredMapError::Lengths { nodes: roster.nodes.len(), owners: nodes.len() });
    }
    if let Some(node) = nodes.iter().find(|node| node.share > SHARE_WHOLE) {
        return Err(StoredMapError::Share(node.share));
    }
    let nodes = nodes.into_iter().map(|node| Ownership { share: node.share, drained: node.drained });
    Ok(StoredRoster { epoch, history, by, roster, nodes: nodes.collect() })
}

/// As stores keep it.
pub fn map_text(map: &StoredRoster) -> String {
    let nodes = map.nodes.iter().map(|node| TextNode { share: node.share, drained: node.drained });
    let StoredRoster { epoch, history, by, roster, .. } = map.clone();
    let text = Text { epoch, history, by, roster, nodes: nodes.collect() };
    serde_json::to_string(&text).expect("strings, numbers and lists of them are JSON")
}

/// By id, what the nodes own that do not own their whole partition.
pub(crate) fn shares(map: &StoredRoster) -> BTreeMap<String, u16> {
    let nodes = map.roster.nodes.iter().zip(&map.nodes);
    let partial = nodes.filter(|(_, owned)| owned.share < SHARE_WHOLE);
    partial.map(|(node, owned)| (node.id.clone(), owned.share)).collect()
}

#[cfg(test)]
mod tests {
    use super::{map_text, parse_map, shares};

    const ROSTER: &str = r#"{"layers":[{"name":"spine","by_rack":false}],"nodes":[{"id":"n","layer":"spine",
        "rack":null,"listen":"127.0.0.1:7000","capacity":1000}],"shims":[],"routers":[]}"#;

    fn text(nodes: &str) -> String {
        format!(r#"{{"epoch":3,"history":5,"by":"c","roster":{ROSTER},"nodes":{nodes}}}"#)
    }

    #[test]
    fn a_map_survives_the_store() {
        let map = parse_map(&text(r#"[{"share":250,"drained":false}]"#)).unwrap();
        assert_eq!((map.epoch, shares(&map)), (3, [("n".to_owned(), 250)].into()));
        assert_eq!(parse_map(&map_text(&map)).unwrap(), map);
    }

    #[test]
    fn what_is_no_map_is_refused_with_a_reason() {
        let refused = |text: &str, expected: &str| {
            let error = parse_map(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("", "not a map");
        refused(&text(r#"[{"share":250,"drained":false,"x":1}]"#), "unknown field `x`");
        refused(&text(r#"[{"share":1001,"drained":false}]"#), "owns 1001 thousandths");
        refused(&text("[]"), "1 nodes and what 0 of them own");
    }
}

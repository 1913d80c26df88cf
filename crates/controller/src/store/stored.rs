//! The map as stores keep it: who the members are and what each node owns. Not how it gets there.

use std::collections::BTreeMap;

use protocol::controller::partitions::Ownership;
use runtime::config::{Roster, RosterSize};
use serde::{Deserialize, Serialize};
use wire::{NodeId, SHARE_WHOLE};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredMap {
    pub epoch: u32,
    /// Random for the life of the store, so that an epoch that was lost with another store is not taken for one of its.
    pub history: u64,
    /// The life of the replica that made it.
    pub by: String,
    pub roster: Roster,
    /// In the order of the roster.
    pub nodes: Vec<StoredNode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredNode {
    /// In thousandths.
    pub share: u16,
    pub drained: bool,
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

impl StoredMap {
    /// Reads what a store holds, which anybody may have written.
    ///
    /// # Errors
    /// It is no map, or one that contradicts itself.
    pub fn parse(text: &str) -> Result<StoredMap, StoredMapError> {
        let map: StoredMap = serde_json::from_str(text)?;
        if map.nodes.len() != map.roster.nodes.len() {
            return Err(StoredMapError::Lengths { nodes: map.roster.nodes.len(), owners: map.nodes.len() });
        }
        match map.nodes.iter().find(|node| node.share > SHARE_WHOLE) {
            Some(node) => Err(StoredMapError::Share(node.share)),
            None => Ok(map),
        }
    }

    /// As stores keep it.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("strings, numbers and lists of them are JSON")
    }

    pub fn size(&self) -> RosterSize {
        let Roster { layers, nodes, routers, .. } = &self.roster;
        RosterSize { layers: layers.len(), nodes: nodes.len(), routers: routers.len() }
    }

    pub(crate) fn ownership(&self) -> Vec<Ownership> {
        let owned = |node: &StoredNode| Ownership { share: node.share, drained: node.drained };
        self.nodes.iter().map(owned).collect()
    }

    /// What the node owns, which is nothing for one that it does not list.
    pub(crate) fn share(&self, node: NodeId) -> u16 {
        self.nodes.get(usize::from(node.0)).map_or(0, |node| node.share)
    }

    pub(crate) fn drained(&self, node: NodeId) -> bool {
        self.nodes.get(usize::from(node.0)).is_some_and(|node| node.drained)
    }

    /// By id, of the nodes that do not own their whole partition.
    pub(crate) fn shares(&self) -> BTreeMap<String, u16> {
        let nodes = self.roster.nodes.iter().zip(&self.nodes);
        let partial = nodes.filter(|(_, owned)| owned.share < SHARE_WHOLE);
        partial.map(|(node, owned)| (node.id.clone(), owned.share)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::StoredMap;

    const ROSTER: &str = r#"{"layers":[{"name":"spine","by_rack":false}],"nodes":[{"id":"n","layer":"spine",
        "rack":null,"listen":"127.0.0.1:7000","capacity":1000}],"shims":[],"routers":[]}"#;

    fn text(nodes: &str) -> String {
        format!(r#"{{"epoch":3,"history":5,"by":"c","roster":{ROSTER},"nodes":{nodes}}}"#)
    }

    #[test]
    fn a_map_survives_the_store() {
        let map = StoredMap::parse(&text(r#"[{"share":250,"drained":false}]"#)).unwrap();
        assert_eq!((map.epoch, map.shares()), (3, [("n".to_owned(), 250)].into()));
        assert_eq!(StoredMap::parse(&map.to_text()).unwrap(), map);
    }

    #[test]
    fn what_is_no_map_is_refused_with_a_reason() {
        let refused = |text: &str, expected: &str| {
            let error = StoredMap::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("", "not a map");
        refused(&text(r#"[{"share":250,"drained":false,"x":1}]"#), "unknown field `x`");
        refused(&text(r#"[{"share":1001,"drained":false}]"#), "owns 1001 thousandths");
        refused(&text("[]"), "1 nodes and what 0 of them own");
    }
}

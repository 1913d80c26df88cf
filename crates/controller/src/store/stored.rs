//! The map as stores keep it: its text. Not how it gets there.

use std::collections::BTreeMap;

use config::Roster;
use protocol::controller::partitions::Ownership;
use protocol::controller::resharding::ShimPart;
use runtime::heartbeat::{ShimPartText, to_json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use wire::{SHARE_WHOLE, ShimState};

pub type StoredRoster = protocol::controller::StoredMap<Roster>;

#[derive(Serialize, Deserialize)]
struct Text {
    epoch: u32,
    #[serde(default = "wire::level::first")]
    level: u8,
    history: u64,
    by: String,
    roster: Roster,
    nodes: Vec<TextNode>,
    /// Empty in a map of a release that did not know it.
    #[serde(default)]
    shims: Vec<ShimPartText>,
}

#[derive(Serialize, Deserialize)]
struct TextNode {
    /// In thousandths.
    share: u16,
    drained: bool,
}

/// What a later release has written into a map, by where it stands there. It is written again, so that nothing is lost while
/// replicas of two releases serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnknownFields(Value);

/// What is wrong with a stored map.
#[derive(Debug, thiserror::Error)]
pub enum StoredMapError {
    #[error("it is not a map: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it lists {nodes} nodes and what {owners} of them own")]
    Lengths { nodes: usize, owners: usize },
    #[error("it says of {parts} shims whether keys are theirs, and lists {shims}")]
    Parts { shims: usize, parts: usize },
    #[error("no shim has keys in it")]
    NoOwners,
    #[error("a node owns {0} thousandths of its partition")]
    Share(u16),
}

/// Reads what a store holds, which anybody may have written.
///
/// # Errors
/// It is no map, or one that contradicts itself.
pub fn parse_map(text: &str) -> Result<(StoredRoster, UnknownFields), StoredMapError> {
    let told: Value = serde_json::from_str(text)?;
    let known = Text::deserialize(&told)?;
    let unknown = UnknownFields(unknown(&told, &serde_json::to_value(&known)?));
    let Text { epoch, level, history, by, roster, nodes, shims } = known;
    if nodes.len() != roster.nodes.len() {
        return Err(StoredMapError::Lengths { nodes: roster.nodes.len(), owners: nodes.len() });
    }
    if let Some(node) = nodes.iter().find(|node| node.share > SHARE_WHOLE) {
        return Err(StoredMapError::Share(node.share));
    }
    let nodes = nodes.into_iter().map(|node| Ownership { share: node.share, drained: node.drained });
    if shims.len() > roster.shims.len() {
        return Err(StoredMapError::Parts { shims: roster.shims.len(), parts: shims.len() });
    }
    let none = |states: [ShimState; 2]| !shims.iter().any(|shim| states.contains(&shim.state));
    if !shims.is_empty()
        && (none([ShimState::Normal, ShimState::Leaving]) || none([ShimState::Normal, ShimState::Joining]))
    {
        return Err(StoredMapError::NoOwners);
    }
    let shims = shims.into_iter().map(ShimPart::from).collect();
    Ok((StoredRoster { epoch, level, history, by, roster, nodes: nodes.collect(), shims }, unknown))
}

/// As stores keep it, with what was `unknown` of the one before.
pub fn map_text(map: &StoredRoster, unknown: &UnknownFields) -> String {
    let nodes = map.nodes.iter().map(|node| TextNode { share: node.share, drained: node.drained });
    let shims = map.shims.iter().copied().map(ShimPartText::from).collect();
    let StoredRoster { epoch, level, history, by, roster, .. } = map.clone();
    let text = Text { epoch, level, history, by, roster, nodes: nodes.collect(), shims };
    let text = String::from_utf8(to_json(&text)).expect("JSON is UTF-8");
    if unknown.0.is_null() {
        return text;
    }
    let mut value: Value = serde_json::from_str(&text).expect("it was written as JSON");
    add(&mut value, &unknown.0);
    value.to_string()
}

/// What `told` has more than `known`; null if nothing.
fn unknown(told: &Value, known: &Value) -> Value {
    match (told, known) {
        (Value::Object(told), Value::Object(known)) => {
            let more = told.iter().map(|(key, value)| {
                let more = known.get(key).map_or_else(|| value.clone(), |known| unknown(value, known));
                (key.clone(), more)
            });
            let more: Map<String, Value> = more.filter(|(_, more)| !more.is_null()).collect();
            if more.is_empty() { Value::Null } else { Value::Object(more) }
        }
        (Value::Array(told), Value::Array(known)) => {
            let more: Vec<Value> = told.iter().zip(known).map(|(told, known)| unknown(told, known)).collect();
            if more.iter().all(Value::is_null) { Value::Null } else { Value::Array(more) }
        }
        _ => Value::Null,
    }
}

/// Members keep their places in a map, so what was unknown of one is its own still.
fn add(target: &mut Value, unknown: &Value) {
    match (target, unknown) {
        (Value::Object(target), Value::Object(unknown)) => {
            for (key, more) in unknown {
                match target.get_mut(key) {
                    Some(known) => add(known, more),
                    None => drop(target.insert(key.clone(), more.clone())),
                }
            }
        }
        (Value::Array(target), Value::Array(unknown)) => {
            target.iter_mut().zip(unknown).for_each(|(target, more)| add(target, more));
        }
        _ => {}
    }
}

/// By id, the shims of which there is more to say than that keys are theirs.
pub(crate) fn parts(map: &StoredRoster) -> BTreeMap<String, ShimPartText> {
    let shims = map.roster.shims.iter().zip(&map.shims).filter(|(_, part)| **part != ShimPart::default());
    shims.map(|(shim, part)| (shim.id.clone(), ShimPartText::from(*part))).collect()
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
        assert_eq!((map.0.epoch, shares(&map.0)), (3, [("n".to_owned(), 250)].into()));
        assert_eq!(parse_map(&map_text(&map.0, &map.1)).unwrap(), map);
    }

    #[test]
    fn what_a_later_release_has_written_stays() {
        let node = r#"{"share":250,"drained":false,"pinned":{"by":"ann"}}"#;
        let later = text(&format!("[{node}]")).replace(r#""by_rack":false"#, r#""by_rack":false,"weight":3"#);
        let later = later.replacen('{', r#"{"colour":"blue","level":7,"#, 1);
        let (mut map, unknown) = parse_map(&later).unwrap();
        assert_eq!((map.level, map.nodes[0].share), (7, 250));
        (map.epoch, map.nodes[0].share) = (4, 500);
        let written: serde_json::Value = serde_json::from_str(&map_text(&map, &unknown)).unwrap();
        let at = |pointer: &str| written.pointer(pointer).unwrap().to_string();
        assert_eq!((at("/colour"), at("/roster/layers/0/weight")), (r#""blue""#.to_owned(), "3".to_owned()));
        assert_eq!(
            (at("/nodes/0/pinned/by"), at("/nodes/0/share")),
            (r#""ann""#.to_owned(), "500".to_owned())
        );
        assert_eq!((at("/epoch"), at("/level")), ("4".to_owned(), "7".to_owned()));
        // A member that is new has none.
        map.nodes.push(map.nodes[0]);
        let written: serde_json::Value = serde_json::from_str(&map_text(&map, &unknown)).unwrap();
        assert!(written.pointer("/nodes/1/pinned").is_none());
    }

    #[test]
    fn what_is_no_map_is_refused_with_a_reason() {
        let refused = |text: &str, expected: &str| {
            let error = parse_map(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused("", "not a map");
        refused(&text(r#"[{"share":1001,"drained":false}]"#), "owns 1001 thousandths");
        refused(&text("[]"), "1 nodes and what 0 of them own");
    }
}

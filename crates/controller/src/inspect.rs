//! Where one key lives: its storage, its place in every layer, other nodes that have it, and whether members report it as hot. It asks
//! nobody.

use bytes::Bytes;
use config::key_text;
use protocol::placement::MapError;
use runtime::status::HotKeyView;
use serde::{Deserialize, Serialize};

use crate::hot::hottest;
use crate::service::Service;

/// What `distcache inspect` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspection {
    pub key: String,
    pub epoch: u32,
    pub shim: String,
    pub rack: String,
    pub places: Vec<KeyPlace>,
    /// Other nodes among whose hottest it is: it is too hot for its places. They may be more.
    #[serde(default)]
    pub further: Vec<FurtherPlace>,
    /// Routers that hold it themselves, and have it among their hottest.
    #[serde(default)]
    pub near: Vec<NearPlace>,
    /// Whether a member counts it among its hottest.
    pub hot: bool,
    /// Requests per second that those members see; 0 says only that it is not among them.
    pub heat: u64,
}

/// The key's place in one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPlace {
    pub layer: String,
    /// The node that may hold it; `None` if no node of the layer that could is up.
    pub node: Option<String>,
    /// Requests per second that this node sees, if the key is among its hottest.
    pub heat: Option<u64>,
}

/// A node beside the key's places that has a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FurtherPlace {
    pub node: String,
    /// Requests per second that this node sees.
    pub heat: u64,
}

/// A router that holds a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearPlace {
    pub router: String,
    /// Reads per second that it answers itself.
    pub heat: u64,
}

pub(crate) fn inspect(service: &Service, key: &[u8]) -> Result<Inspection, MapError> {
    let config = service.config();
    let placement = config.placement(service.map())?;
    let text = key_text(key);
    let key = placement.key(0, Bytes::copy_from_slice(key));
    let shim = config.shim(placement.shim(&key));
    let seen = hottest(service.statuses.values()).into_iter().find(|hot| hot.key == text);
    let seen = seen.unwrap_or_else(HotKeyView::default);
    let layers = placement.map().layers.iter().zip(placement.places(&key));
    let places = layers.map(|(layer, node)| {
        let node = node.map(|node| config.node(node).id.clone());
        let heat = node.as_ref().and_then(|node| seen.members.get(node)).copied();
        KeyPlace { layer: layer.name.clone(), node, heat }
    });
    let places: Vec<KeyPlace> = places.collect();
    let is_place = |node: &str| places.iter().any(|place| place.node.as_deref() == Some(node));
    let nodes = placement.map().layers.iter().flat_map(|layer| &layer.nodes);
    let others = nodes.map(|node| &config.node(node.id).id).filter(|node| !is_place(node));
    let further = others.filter_map(|node| {
        let heat = *seen.members.get(node)?;
        Some(FurtherPlace { node: node.clone(), heat })
    });
    let further = further.collect();
    let near = config.routers.iter().filter_map(|router| {
        let heat = *seen.members.get(&router.id)?;
        Some(NearPlace { router: router.id.clone(), heat })
    });
    let near = near.collect();
    Ok(Inspection {
        epoch: placement.epoch(),
        shim: shim.id.clone(),
        rack: shim.rack.clone(),
        places,
        further,
        near,
        hot: !seen.members.is_empty(),
        heat: seen.heat,
        key: text,
    })
}

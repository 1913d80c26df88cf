//! The shim's state of one key: which nodes hold copies, and which of those must be told before a write.

use smallvec::SmallVec;
use wire::message::Ack;
use wire::{NodeId, View};

/// Hints per key: views beyond these are served and kept coherent, but not advertised.
const VIEWS_HINTED_MAX: usize = 64;

/// One node's copy as the shim knows it: never less than what the node really holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub node: NodeId,
    /// Highest fill id registered.
    pub fill: u64,
    /// A grant or COMMIT has gone out since the last acknowledged INV.
    pub servable: bool,
    /// The version whose value the node holds pending.
    pub pending: Option<u64>,
    /// Views that the node has asked for: it fills them again on demand, so hints name them even after an INV.
    pub views: SmallVec<[View; 1]>,
}

/// The copies of one key. The version is that of the last write, or of the moment when the state was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directory {
    pub version: u64,
    /// In the order of their nodes: an elastic key may have a copy in each.
    pub entries: SmallVec<[Entry; 2]>,
}

impl Directory {
    pub fn new(version: u64) -> Directory {
        Directory { version, entries: SmallVec::new() }
    }

    /// Registers a copy before storage is read for it. Tells whether it is the node's first one.
    pub fn register(&mut self, node: NodeId, fill: u64, view: View) -> bool {
        let before = self.entries.len();
        let index = self.place(node).unwrap_or_else(|index| {
            let entry = Entry { node, fill, servable: true, pending: None, views: SmallVec::new() };
            self.entries.insert(index, entry);
            index
        });
        let entry = &mut self.entries[index];
        entry.fill = entry.fill.max(fill);
        entry.servable = true;
        if entry.views.len() < VIEWS_HINTED_MAX && !entry.views.contains(&view) {
            entry.views.push(view);
        }
        self.entries.len() > before
    }

    /// Whether a node may serve a value of the key, now or when it is committed.
    pub fn has_copies(&self) -> bool {
        self.entries.iter().any(|entry| entry.servable || entry.pending.is_some())
    }

    /// Whether a fill that was registered for `version` may still become a copy.
    pub fn is_registered(&self, node: NodeId, fill: u64, version: u64) -> bool {
        self.version == version && self.entry(node).is_some_and(|entry| entry.fill >= fill)
    }

    /// Where the node's entry is, or would be.
    fn place(&self, node: NodeId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&node, |entry| entry.node)
    }

    pub fn entry(&self, node: NodeId) -> Option<&Entry> {
        self.place(node).ok().map(|place| &self.entries[place])
    }

    pub fn entry_mut(&mut self, node: NodeId) -> Option<&mut Entry> {
        self.place(node).ok().map(|place| &mut self.entries[place])
    }

    /// The node has acknowledged an INV, which may have held an early value. Tells whether it holds nothing any more.
    pub fn acknowledge(&mut self, node: NodeId, ack: &Ack, early_value: bool) -> bool {
        let Some(entry) = self.entry_mut(node) else { return false };
        if ack.nothing_held.is_some_and(|fill| entry.fill <= fill) {
            return self.remove(node);
        }
        entry.servable = false;
        entry.pending = (early_value && ack.nothing_held.is_none()).then_some(ack.version);
        false
    }

    /// The nodes that hold exactly the value of `version` pending; they count as servable from now on. None if another
    /// write has begun since.
    pub fn commit(&mut self, version: u64) -> SmallVec<[NodeId; 2]> {
        let mut nodes = SmallVec::new();
        if self.version != version {
            return nodes;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.pending == Some(version)) {
            entry.pending = None;
            entry.servable = true;
            nodes.push(entry.node);
        }
        nodes
    }

    /// The node says that it has dropped the key, so every fill up to this id is dead: the last ones may not have
    /// been registered. An older id than the entry's is a message overtaken by a new fetch.
    pub fn evict(&mut self, node: NodeId, fill: u64) -> bool {
        let matches = self.entry(node).is_some_and(|entry| entry.fill <= fill);
        if matches {
            self.remove(node);
        }
        matches
    }

    /// Tells whether there was anything to remove.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let place = self.place(node);
        place.is_ok_and(|place| {
            self.entries.remove(place);
            true
        })
    }
}

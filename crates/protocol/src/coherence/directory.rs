//! The shim's state of one key: who holds copies, and which of those must be told before a write.

use smallvec::SmallVec;
use wire::message::Ack;
use wire::{Peer, View};

/// Hints per key: views beyond these are served and kept coherent, but not advertised.
const VIEWS_HINTED_MAX: usize = 64;

/// One holder's copy as the shim knows it: never less than what is really held. A node, or a router with near copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub holder: Peer,
    /// Highest fill id registered.
    pub fill: u64,
    /// A grant or COMMIT has gone out since the last acknowledged INV.
    pub servable: bool,
    /// The version whose value it holds pending.
    pub pending: Option<u64>,
    /// Views that it has asked for: it fills them again on demand, so hints name them even after an INV.
    pub views: SmallVec<[View; 1]>,
}

/// The copies of one key. The version is that of the last write, or of the moment when the state was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Directory {
    pub version: u64,
    /// In the order of their holders: an elastic key may have a copy in each.
    pub entries: SmallVec<[Entry; 2]>,
}

impl Directory {
    pub fn new(version: u64) -> Directory {
        Directory { version, entries: SmallVec::new() }
    }

    /// Registers a copy before storage is read for it. Tells whether it is the holder's first one.
    pub fn register(&mut self, holder: Peer, fill: u64, view: View) -> bool {
        let before = self.entries.len();
        let index = self.place(holder).unwrap_or_else(|index| {
            let entry = Entry { holder, fill, servable: true, pending: None, views: SmallVec::new() };
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

    /// Whether anybody may serve a value of the key, now or when it is committed. One that another write has overtaken never is.
    pub fn has_copies(&self) -> bool {
        self.entries.iter().any(|entry| entry.servable || entry.pending == Some(self.version))
    }

    /// Whether a fill that was registered for `version` may still become a copy.
    pub fn is_registered(&self, holder: Peer, fill: u64, version: u64) -> bool {
        self.version == version && self.entry(holder).is_some_and(|entry| entry.fill >= fill)
    }

    /// Where the holder's entry is, or would be.
    fn place(&self, holder: Peer) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&holder, |entry| entry.holder)
    }

    pub fn entry(&self, holder: Peer) -> Option<&Entry> {
        self.place(holder).ok().map(|place| &self.entries[place])
    }

    pub fn entry_mut(&mut self, holder: Peer) -> Option<&mut Entry> {
        self.place(holder).ok().map(|place| &mut self.entries[place])
    }

    /// The holder has acknowledged an INV, which may have held an early value. Tells whether it holds nothing any more.
    pub fn acknowledge(&mut self, holder: Peer, ack: &Ack, early_value: bool) -> bool {
        let Some(entry) = self.entry_mut(holder) else { return false };
        if ack.nothing_held.is_some_and(|fill| entry.fill <= fill) {
            return self.remove(holder);
        }
        entry.servable = false;
        entry.pending = (early_value && ack.nothing_held.is_none()).then_some(ack.version);
        false
    }

    /// Holders of exactly the value of `version` pending; they count as servable from now on. None if another
    /// write has begun since.
    pub fn commit(&mut self, version: u64) -> SmallVec<[Peer; 2]> {
        let mut holders = SmallVec::new();
        if self.version != version {
            return holders;
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.pending == Some(version)) {
            entry.pending = None;
            entry.servable = true;
            holders.push(entry.holder);
        }
        holders
    }

    /// The holder says that it has dropped the key, so every fill up to this id is dead: the last ones may not have
    /// been registered. An older id than the entry's is a message overtaken by a new fetch.
    pub fn evict(&mut self, holder: Peer, fill: u64) -> bool {
        let matches = self.entry(holder).is_some_and(|entry| entry.fill <= fill);
        if matches {
            self.remove(holder);
        }
        matches
    }

    /// Tells whether there was anything to remove.
    pub fn remove(&mut self, holder: Peer) -> bool {
        let place = self.place(holder);
        place.is_ok_and(|place| {
            self.entries.remove(place);
            true
        })
    }
}

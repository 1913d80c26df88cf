//! Keys of which clients keep what they read: registered at each key's shim, on the link that reads take. Not what clients
//! are told when a key changes.
//!
//! Until a reply has come over that link since, the interest in a key may not stand yet, and reads go there behind it; then
//! copies will do.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;
use wire::message::{Follow, Track};
use wire::{Key, Message, Peer, ShimId};

use crate::hash::KeyMap;
use crate::router::flow::pipeline::SentRequest;

/// A client that keeps a key: by its place, and by the number that CLIENT ID says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeper {
    pub(crate) client: u32,
    pub(crate) number: u64,
    /// The number of its newest read of the key among all reads that are kept.
    pub(crate) read: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Interests {
    keys: KeyMap<KeyInterest>,
    /// The oldest first; of each key only the entry with its own serial counts.
    order: VecDeque<(u64, Key)>,
    serial: u64,
    /// So many have been kept.
    reads: u64,
    /// Requests whose reply shows that the interest in a key stands.
    unconfirmed: BTreeMap<u64, (Key, u64)>,
    /// What shims were told last.
    told: Option<Follow>,
}

#[derive(Debug)]
struct KeyInterest {
    shim: ShimId,
    serial: u64,
    confirmed: bool,
    keepers: SmallVec<[Keeper; 1]>,
}

impl Interests {
    pub(crate) fn keys_count(&self) -> usize {
        self.keys.len()
    }

    /// Pairs of a key and a client that keeps it.
    pub(crate) fn keepers_count(&self) -> usize {
        self.keys.values().map(|interest| interest.keepers.len()).sum()
    }

    /// The client keeps what it reads of the key next. What the key's shim is to be told, if it does not know.
    pub(crate) fn keep(&mut self, key: &Key, shim: ShimId, client: u32, number: u64) -> Option<Message> {
        self.reads += 1;
        let keeper = Keeper { client, number, read: self.reads };
        if let Some(interest) = self.keys.get_mut(key) {
            let mut known = interest.keepers.iter_mut();
            match known.find(|known| (known.client, known.number) == (client, number)) {
                Some(known) => *known = keeper,
                None => interest.keepers.push(keeper),
            }
            return None;
        }
        let key = Key { bytes: Bytes::copy_from_slice(&key.bytes), ..*key };
        self.serial += 1;
        let serial = self.serial;
        let keepers = SmallVec::from_elem(keeper, 1);
        self.keys.insert(key.clone(), KeyInterest { shim, serial, confirmed: false, keepers });
        self.order.push_back((serial, key.clone()));
        Some(Message::Track(Track { key }))
    }

    /// Whether the key's shim is known to report what becomes of it.
    pub(crate) fn stands(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|interest| interest.confirmed)
    }

    /// The reply to this request of a read shows that the interest in its key stands.
    pub(crate) fn confirm_later(&mut self, key: &Key, sent: SentRequest) {
        if let Some(interest) = self.keys.get(key).filter(|interest| !interest.confirmed)
            && matches!(sent.peer, Peer::Shim(_))
        {
            self.unconfirmed.insert(sent.request, (key.clone(), interest.serial));
        }
    }

    pub(crate) fn confirm(&mut self, from: Peer, request: u64) {
        if self.unconfirmed.is_empty() || !matches!(from, Peer::Shim(_)) {
            return;
        }
        let Some((key, serial)) = self.unconfirmed.remove(&request) else { return };
        if let Some(interest) = self.keys.get_mut(&key) {
            interest.confirmed |= interest.serial == serial;
        }
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Who has kept the key, which has changed: nobody does any longer, but for those who stay.
    pub(crate) fn end(&mut self, key: &Key, stays: impl Fn(Keeper) -> bool) -> SmallVec<[Keeper; 1]> {
        let Some(interest) = self.keys.get_mut(key) else { return SmallVec::new() };
        let (stay, ended) = interest.keepers.drain(..).partition(|keeper| stays(*keeper));
        interest.keepers = stay;
        if interest.keepers.is_empty() {
            self.keys.remove(key);
        }
        ended
    }

    /// The oldest key, while there are more than may be kept.
    pub(crate) fn excess(&mut self, keys_max: usize) -> Option<Key> {
        while self.keys.len() > keys_max || self.order.len() > 2 * keys_max + 16 {
            let (serial, key) = self.order.pop_front()?;
            if self.keys.get(&key).is_some_and(|interest| interest.serial == serial) {
                return Some(key);
            }
        }
        None
    }

    /// Any key of the shim may have changed.
    pub(crate) fn end_all_of(&mut self, shim: ShimId) {
        self.keys.retain(|_, interest| interest.shim != shim);
        self.order.retain(|(_, key)| self.keys.contains_key(key));
    }

    pub(crate) fn told(&self) -> Option<&Follow> {
        self.told.as_ref()
    }

    /// Whether this is news for the shims, and shall be told to them.
    pub(crate) fn tell(&mut self, follow: &Follow) -> bool {
        if self.told.as_ref().map_or(!follow.follows, |told| told == follow) {
            return false;
        }
        if !follow.follows {
            // Shims forget all of it, too.
            self.keys.clear();
            self.order.clear();
            self.unconfirmed.clear();
        }
        self.told = Some(follow.clone());
        true
    }

    /// Whether shims are asked whose writes they report.
    pub(crate) fn knows_writers(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.writers)
    }
}

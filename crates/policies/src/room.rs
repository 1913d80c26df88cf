//! What a cache holds in bytes, and which sizes its objects had when they came. Not which of them leaves.

use super::ObjectRequest;
use super::sizes::ObjectSizes;

#[derive(Clone, Debug)]
pub(crate) struct Room {
    capacity: u64,
    used: u64,
    sizes: ObjectSizes,
}

impl Room {
    pub(crate) fn new(capacity: u64) -> Room {
        Room { capacity, used: 0, sizes: ObjectSizes::default() }
    }

    pub(crate) fn reserve(&mut self, objects: usize) {
        self.sizes.reserve(objects);
    }

    /// Whether the cache could hold this much if nothing else were in it.
    #[inline]
    pub(crate) fn admits(&self, bytes: u32) -> bool {
        u64::from(bytes) <= self.capacity
    }

    /// Whether something must leave before this much comes.
    #[inline]
    pub(crate) fn lacks(&self, bytes: u32) -> bool {
        self.used + u64::from(bytes) > self.capacity
    }

    /// Takes in what was missed, after so many victims as it needs room; false, and nobody leaves, if it is larger than
    /// the cache.
    #[inline]
    pub(crate) fn take_in(
        &mut self,
        request: &ObjectRequest,
        mut evict: impl FnMut() -> Option<u32>,
    ) -> bool {
        if !self.admits(request.bytes) {
            return false;
        }
        while self.lacks(request.bytes) {
            let Some(victim) = evict() else { break };
            self.leave(victim);
        }
        self.enter(request.object, request.bytes);
        true
    }

    #[inline]
    pub(crate) fn enter(&mut self, object: u32, bytes: u32) {
        self.used += u64::from(bytes);
        self.sizes.set(object, bytes);
    }

    #[inline]
    pub(crate) fn leave(&mut self, object: u32) {
        self.used -= self.sizes.get(object);
    }

    pub(crate) fn bytes_of(&self, object: u32) -> u64 {
        self.sizes.get(object)
    }

    pub(crate) fn memory(&self) -> usize {
        self.sizes.memory()
    }
}

//! LIRS (Jiang and Zhang, SIGMETRICS '02): what is requested again within a short distance stays (LIR), all else (HIR)
//! passes through a small queue. As in the paper, with bytes for blocks and a bound on what is remembered.

use super::queue::{NOWHERE, QueuePlace, SlotQueue, queue_of};
use super::sizes::ObjectSizes;
use super::{ObjectRequest, Policy};

/// The share of the cache that HIR objects have once LIR objects fill the rest (the paper's 1 %).
const HIR_PERCENT: u64 = 1;

/// The paper's stack S, alone in its array of places.
const STACK: u32 = 1;
/// Its queue Q, of HIR objects that are cached; and the HIR objects that are not but still in S, in the order in which
/// they left. No object is in both.
const CACHED: u32 = 1;
const GONE: u32 = 2;

#[derive(Clone, Debug)]
pub struct Lirs {
    capacity: u64,
    lir_bytes_max: u64,
    lir: Vec<bool>,
    sizes: ObjectSizes,
    stack_places: Vec<QueuePlace>,
    stack: SlotQueue,
    places: Vec<QueuePlace>,
    cached: SlotQueue,
    gone: SlotQueue,
    lir_bytes: u64,
    cached_bytes: u64,
    gone_bytes: u64,
}

impl Lirs {
    pub fn new(capacity: u64) -> Lirs {
        let hir_bytes_max = (u128::from(capacity) * u128::from(HIR_PERCENT) / 100).max(1) as u64;
        Lirs {
            capacity,
            lir_bytes_max: capacity.saturating_sub(hir_bytes_max),
            lir: Vec::new(),
            sizes: ObjectSizes::default(),
            stack_places: Vec::new(),
            stack: SlotQueue::new(STACK),
            places: Vec::new(),
            cached: SlotQueue::new(CACHED),
            gone: SlotQueue::new(GONE),
            lir_bytes: 0,
            cached_bytes: 0,
            gone_bytes: 0,
        }
    }

    /// Makes an object of S that is in no other queue LIR, and the lowest ones HIR where that are too many.
    fn raise(&mut self, object: u32) {
        self.lir[object as usize] = true;
        self.lir_bytes += self.sizes.get(object);
        while self.lir_bytes > self.lir_bytes_max && self.lower() {}
    }

    /// Moves the LIR object at the bottom of S to the end of Q; there may be none.
    fn lower(&mut self) -> bool {
        self.prune();
        let Some(object) = self.stack.pop(&mut self.stack_places) else { return false };
        let bytes = self.sizes.get(object);
        self.lir[object as usize] = false;
        self.lir_bytes -= bytes;
        self.cached_bytes += bytes;
        self.cached.push(&mut self.places, object);
        self.prune();
        true
    }

    /// Takes HIR objects off the bottom of S; those that are not cached are forgotten.
    fn prune(&mut self) {
        while let Some(object) = self.stack.peek(&self.stack_places) {
            if self.lir[object as usize] {
                break;
            }
            self.stack.pop(&mut self.stack_places);
            self.forget(object);
        }
    }

    fn forget(&mut self, object: u32) {
        if queue_of(self.places[object as usize]) == GONE {
            self.places[object as usize] = NOWHERE;
            self.gone_bytes -= self.sizes.get(object);
        }
    }

    /// Puts the HIR object at the front of Q out of the cache, or first a LIR object into Q.
    fn evict(&mut self) -> bool {
        let Some(object) = self.cached.pop(&mut self.places) else { return self.lower() };
        let bytes = self.sizes.get(object);
        self.cached_bytes -= bytes;
        if self.stack_places[object as usize] != NOWHERE {
            self.gone_bytes += bytes;
            self.gone.push(&mut self.places, object);
        }
        true
    }

    /// What is remembered without being cached has as many bytes as the cache at most.
    fn bound(&mut self) {
        while self.gone_bytes > self.capacity {
            let Some(object) = self.gone.pop(&mut self.places) else { break };
            self.gone_bytes -= self.sizes.get(object);
            self.stack_places[object as usize] = NOWHERE;
        }
    }

    /// A hit on an object of Q: LIR if it was in S, for then it came back sooner than the lowest LIR object.
    fn hit_in_queue(&mut self, object: u32) {
        let was_in_stack = self.stack_places[object as usize] != NOWHERE;
        self.stack.push(&mut self.stack_places, object);
        if was_in_stack {
            self.places[object as usize] = NOWHERE;
            self.cached_bytes -= self.sizes.get(object);
            self.raise(object);
        } else {
            self.cached.push(&mut self.places, object);
        }
    }

    fn miss(&mut self, object: u32, bytes: u32) {
        let remembered = self.stack_places[object as usize] != NOWHERE;
        self.forget(object);
        // On top of S already, it is not pruned by what makes room.
        self.stack.push(&mut self.stack_places, object);
        let needed = u64::from(bytes);
        while self.lir_bytes + self.cached_bytes + needed > self.capacity && self.evict() {}
        self.sizes.set(object, bytes);
        self.stack.push(&mut self.stack_places, object);
        // Before there are enough LIR objects, everything is one.
        if remembered || self.lir_bytes + needed <= self.lir_bytes_max {
            self.raise(object);
        } else {
            self.cached_bytes += needed;
            self.cached.push(&mut self.places, object);
        }
        self.bound();
    }
}

impl Policy for Lirs {
    fn reserve(&mut self, objects: usize) {
        self.lir.resize(objects, false);
        self.stack_places.resize(objects, NOWHERE);
        self.places.resize(objects, NOWHERE);
        self.sizes.reserve(objects);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        let object = request.object;
        if self.lir[object as usize] {
            self.stack.push(&mut self.stack_places, object);
            self.prune();
            return true;
        }
        if queue_of(self.places[object as usize]) == CACHED {
            self.hit_in_queue(object);
            return true;
        }
        if u64::from(request.bytes) <= self.capacity {
            self.miss(object, request.bytes);
        }
        false
    }

    fn memory(&self) -> usize {
        let places = (self.stack_places.capacity() + self.places.capacity()) * size_of::<QueuePlace>();
        let queues = self.stack.memory() + self.cached.memory() + self.gone.memory();
        self.lir.capacity() + self.sizes.memory() + places + queues
    }
}

//! Infinite: nothing is ever evicted, so that only first requests miss. The bound on every policy's hits.

use super::{ObjectRequest, Policy};

#[derive(Clone, Debug, Default)]
pub struct Infinite {
    cached: Vec<bool>,
}

impl Policy for Infinite {
    fn reserve(&mut self, objects: usize) {
        self.cached.resize(objects, false);
    }

    #[inline]
    fn request(&mut self, request: &ObjectRequest) -> bool {
        std::mem::replace(&mut self.cached[request.object as usize], true)
    }

    fn memory(&self) -> usize {
        self.cached.capacity()
    }
}

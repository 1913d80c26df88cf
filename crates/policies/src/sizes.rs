//! The size that each cached object had when it came. Not the sizes of later requests for it.

/// Takes no memory as long as every size is 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectSizes {
    objects: usize,
    bytes: Vec<u32>,
}

impl ObjectSizes {
    pub(crate) fn reserve(&mut self, objects: usize) {
        self.objects = objects;
        if !self.bytes.is_empty() {
            self.bytes.resize(objects, 1);
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, object: u32, bytes: u32) {
        if self.bytes.is_empty() {
            if bytes == 1 {
                return;
            }
            self.bytes = vec![1; self.objects];
        }
        self.bytes[object as usize] = bytes;
    }

    #[inline]
    pub(crate) fn get(&self, object: u32) -> u64 {
        if self.bytes.is_empty() { 1 } else { u64::from(self.bytes[object as usize]) }
    }

    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() * size_of::<u32>()
    }
}

//! Memory that a device can use without a copy: whole sectors at a multiple of a sector. Not what is written in it.
#![expect(unsafe_code, reason = "aligned memory is allocated by hand")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::SECTOR;

/// Whole sectors of memory, aligned to a sector: its own, or a part of a pool, to which it goes back when dropped.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    bytes: usize,
    pool: Option<Arc<BufferPool>>,
}

// SAFETY: the memory belongs to this buffer alone, as that of a `Box<[u8]>` does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Zeroed memory for `bytes`, rounded up to whole sectors and at least one.
    pub fn new(bytes: usize) -> AlignedBuffer {
        let bytes = bytes.max(1).next_multiple_of(SECTOR);
        let layout = layout(bytes);
        // SAFETY: the layout has a size above 0.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuffer { start, bytes, pool: None }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `bytes` initialised bytes that live as long as this buffer, or the pool it holds.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; nobody else has this part of the memory, so the borrow of `self` is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        match self.pool.take() {
            Some(pool) => pool.free().push(self.start),
            // SAFETY: `new` allocated it with this layout, and nobody has freed it.
            None => unsafe { dealloc(self.start.as_ptr(), layout(self.bytes)) },
        }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, SECTOR).expect("less than half of the address space")
}

/// Buffers of one size in one piece of memory, which a device may know beforehand.
#[derive(Debug)]
pub struct BufferPool {
    memory: AlignedBuffer,
    buffer_bytes: usize,
    free: Mutex<Vec<NonNull<u8>>>,
}

// SAFETY: the free parts are mere addresses within `memory`, which is itself `Send` and `Sync`.
unsafe impl Send for BufferPool {}
// SAFETY: as above; the list of them is behind a lock.
unsafe impl Sync for BufferPool {}

impl BufferPool {
    /// Room for `count` buffers of `bytes`, rounded up to whole sectors.
    pub fn new(bytes: usize, count: usize) -> Arc<BufferPool> {
        let buffer_bytes = bytes.max(1).next_multiple_of(SECTOR);
        let memory = AlignedBuffer::new(buffer_bytes.checked_mul(count).expect("fits the address space"));
        // SAFETY: each part lies within the memory.
        let part = |index| unsafe { memory.start.add(index * buffer_bytes) };
        let free = Mutex::new((0..count).rev().map(part).collect());
        Arc::new(BufferPool { memory, buffer_bytes, free })
    }

    /// A buffer with whatever it held before; one of its own, which the device does not know, when the pool is empty.
    pub fn take(self: &Arc<BufferPool>) -> AlignedBuffer {
        match self.free().pop() {
            Some(start) => AlignedBuffer { start, bytes: self.buffer_bytes, pool: Some(Arc::clone(self)) },
            None => AlignedBuffer::new(self.buffer_bytes),
        }
    }

    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The addresses of all its memory.
    pub(super) fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.memory.start.as_ptr() as usize;
        start..start + self.memory.bytes
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<NonNull<u8>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_whole_zeroed_sectors_at_sectors() {
        for (asked, given) in [(0, SECTOR), (1, SECTOR), (SECTOR, SECTOR), (SECTOR + 1, 2 * SECTOR)] {
            let mut buffer = AlignedBuffer::new(asked);
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % SECTOR), (given, 0));
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_pool_lends_each_part_once_and_takes_it_back() {
        let pool = BufferPool::new(3 * SECTOR, 2);
        let (mut first, mut second, third) = (pool.take(), pool.take(), pool.take());
        let inside = |buffer: &AlignedBuffer| pool.addresses().contains(&(buffer.as_ptr() as usize));
        assert!(inside(&first) && inside(&second) && !inside(&third));
        first.fill(1);
        second.fill(2);
        assert!(first.iter().all(|byte| *byte == 1) && second.iter().all(|byte| *byte == 2));
        assert_eq!((first.len(), third.len()), (3 * SECTOR, 3 * SECTOR));
        let place = second.as_ptr();
        drop((second, third));
        let again = pool.take();
        assert_eq!(again.as_ptr(), place);
        assert!(!inside(&pool.take()));
        drop((pool, first));
        assert!(again.iter().all(|byte| *byte == 2), "a buffer keeps the pool alive");
    }
}

//! SIPQ's logical queue: the exact order of the objects that are worth writing again (dissertation, section 4.4). It knows
//! digests and sizes, and neither keys nor where anything is.
//!
//! The device is a cyclic log with one insertion point; what leaves its tail is written again at its head if the logical
//! queue still holds it. The queue holds a share theta of the cache; what has left it is served until it is overwritten.

mod ranked;
mod segmented;

use hashbrown::HashTable;

use crate::FlashPolicy;
use ranked::Ranked;
use segmented::Segmented;

/// An object's number in the logical queue; numbers are used again.
type ObjectNumber = u32;

/// What is known of an object that the queue holds.
#[derive(Clone, Copy, Debug)]
struct QueuedObject {
    digest: u64,
    bytes: u32,
}

#[derive(Debug)]
enum QueueOrder {
    /// FIFO: nothing is worth writing again.
    Nothing,
    Segmented(Segmented),
    Ranked(Ranked),
}

#[derive(Debug)]
pub struct Logical {
    numbers: HashTable<ObjectNumber>,
    objects: Vec<QueuedObject>,
    free: Vec<ObjectNumber>,
    order: QueueOrder,
}

impl Logical {
    /// For objects of so many bytes altogether. Bytes may be any unit, if they are the same one everywhere.
    pub fn new(policy: FlashPolicy, bytes_max: u64) -> Logical {
        let order = match policy {
            FlashPolicy::Fifo => QueueOrder::Nothing,
            FlashPolicy::SegmentedLru { segments } => {
                QueueOrder::Segmented(Segmented::new(segments, bytes_max))
            }
            FlashPolicy::Gdsf { frequency_max } => QueueOrder::Ranked(Ranked::new(frequency_max, bytes_max)),
        };
        Logical { numbers: HashTable::new(), objects: Vec::new(), free: Vec::new(), order }
    }

    pub fn contains(&self, digest: u64) -> bool {
        self.number(digest).is_some()
    }

    /// A request for an object, which the queue holds from now on unless it is larger than the queue. `gone` hears of every
    /// object that the queue lets go for it, by digest and bytes.
    pub fn request(&mut self, digest: u64, bytes: u32, gone: impl FnMut(u64, u32)) {
        if matches!(self.order, QueueOrder::Nothing) {
            return;
        }
        match self.number(digest) {
            Some(number) => {
                let before = std::mem::replace(&mut self.objects[number as usize].bytes, bytes);
                match &mut self.order {
                    QueueOrder::Nothing => {}
                    QueueOrder::Segmented(segmented) => segmented.hit(number, before, &self.objects),
                    QueueOrder::Ranked(ranked) => ranked.hit(number, before, &self.objects),
                }
            }
            None => self.insert(digest, bytes),
        }
        self.let_go(gone);
    }

    /// From now on for so many bytes.
    pub(crate) fn resize(&mut self, bytes_max: u64) {
        match &mut self.order {
            QueueOrder::Nothing => {}
            QueueOrder::Segmented(segmented) => segmented.resize(bytes_max, &self.objects),
            QueueOrder::Ranked(ranked) => ranked.resize(bytes_max),
        }
        self.let_go(|_, _| {});
    }

    pub(crate) fn remove(&mut self, digest: u64) {
        let Some(number) = self.number(digest) else { return };
        match &mut self.order {
            QueueOrder::Nothing => {}
            QueueOrder::Segmented(segmented) => segmented.remove(number, &self.objects),
            QueueOrder::Ranked(ranked) => ranked.remove(number, &self.objects),
        }
        self.release(number);
    }

    pub fn memory_bytes(&self) -> usize {
        let order = match &self.order {
            QueueOrder::Nothing => 0,
            QueueOrder::Segmented(segmented) => segmented.memory_bytes(),
            QueueOrder::Ranked(ranked) => ranked.memory_bytes(),
        };
        // The table has a byte of control beside each of its slots.
        let table = self.numbers.capacity() * 8 / 7 * (size_of::<ObjectNumber>() + 1);
        let objects = self.objects.capacity() * size_of::<QueuedObject>()
            + self.free.capacity() * size_of::<ObjectNumber>();
        order + table + objects
    }

    fn number(&self, digest: u64) -> Option<ObjectNumber> {
        self.numbers.find(digest, |number| self.objects[*number as usize].digest == digest).copied()
    }

    fn insert(&mut self, digest: u64, bytes: u32) {
        let object = QueuedObject { digest, bytes };
        let number = match self.free.pop() {
            Some(number) => {
                self.objects[number as usize] = object;
                number
            }
            None => {
                self.objects.push(object);
                (self.objects.len() - 1) as ObjectNumber
            }
        };
        let objects = &self.objects;
        self.numbers.insert_unique(digest, number, |number| objects[*number as usize].digest);
        match &mut self.order {
            QueueOrder::Nothing => {}
            QueueOrder::Segmented(segmented) => segmented.insert(number, &self.objects),
            QueueOrder::Ranked(ranked) => ranked.insert(number, &self.objects),
        }
    }

    /// The lowest go until the rest fits.
    fn let_go(&mut self, mut gone: impl FnMut(u64, u32)) {
        loop {
            let lowest = match &mut self.order {
                QueueOrder::Nothing => None,
                QueueOrder::Segmented(segmented) => segmented.evict(&self.objects),
                QueueOrder::Ranked(ranked) => ranked.evict(&self.objects),
            };
            let Some(number) = lowest else { return };
            let QueuedObject { digest, bytes } = self.objects[number as usize];
            gone(digest, bytes);
            self.release(number);
        }
    }

    fn release(&mut self, number: ObjectNumber) {
        let digest = self.objects[number as usize].digest;
        if let Ok(entry) = self.numbers.find_entry(digest, |other| *other == number) {
            entry.remove();
        }
        self.free.push(number);
    }
}

#[cfg(test)]
mod tests;

//! Dense numbers for the ids of a trace, in order of first request. Not what is known of an object.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::queue::OBJECTS_MAX;

/// From ids of 64 bits to numbers from 0 on. Takes 8 bytes and about 7 to 11 of the table for each object.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    ids: Vec<u64>,
    numbers: HashTable<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {OBJECTS_MAX} objects: simulate a sample of the trace")]
pub struct TooManyObjects;

impl Objects {
    /// The object's number, a new one at its first request.
    #[inline]
    pub fn number(&mut self, id: u64) -> Result<u32, TooManyObjects> {
        let Objects { ids, numbers } = self;
        match numbers.entry(
            mix(id),
            |number| ids[*number as usize] == id,
            |number| mix(ids[*number as usize]),
        ) {
            Entry::Occupied(entry) => Ok(*entry.get()),
            Entry::Vacant(_) if ids.len() == OBJECTS_MAX => Err(TooManyObjects),
            Entry::Vacant(entry) => {
                let number = ids.len() as u32;
                entry.insert(number);
                ids.push(id);
                Ok(number)
            }
        }
    }

    /// The id of the object with this number, which must have been given out.
    pub fn id(&self, number: u32) -> u64 {
        self.ids[number as usize]
    }

    pub fn count(&self) -> usize {
        self.ids.len()
    }
}

/// Spreads ids that differ in few bits over all bits (the finalizer of SplitMix64).
fn mix(id: u64) -> u64 {
    let mut bits = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_in_order_of_first_request() {
        let mut objects = Objects::default();
        let ids = [7_u64, u64::MAX, 7, 0, 1 << 40, 0, u64::MAX];
        let numbers: Vec<u32> = ids.iter().map(|id| objects.number(*id).unwrap()).collect();
        assert_eq!(numbers, [0, 1, 0, 2, 3, 2, 1]);
        assert_eq!(objects.count(), 4);
    }

    #[test]
    fn many_ids_stay_apart() {
        let mut objects = Objects::default();
        for round in 0..2 {
            for index in 0..10_000_u32 {
                let id = u64::from(index) << 32;
                assert_eq!(objects.number(id), Ok(index), "round {round}");
            }
        }
    }
}

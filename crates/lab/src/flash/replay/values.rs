//! The value of every object of a trace, out of one pool of bytes, so that what a cache returns can be compared. Not what
//! is in a cache.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// The largest block that a cache on flash has; a trace may tell of anything, and memory is not for that.
const BYTES_MAX: u64 = 256 << 20;
/// Values begin at so many different places.
const PLACES: u64 = 1 << 20;

/// Any two objects have different values of the same size, but for one pair in a million.
pub(super) struct Values {
    pool: Vec<u8>,
}

impl Values {
    /// For objects of up to so many bytes, if that is no more than a block can hold.
    pub(super) fn new(bytes_max: u64) -> Values {
        let mut pool = vec![0; (PLACES + bytes_max.min(BYTES_MAX)) as usize];
        SmallRng::seed_from_u64(0x7661_6c75_6573).fill(&mut pool[..]);
        Values { pool }
    }

    /// The object's value; `None` for an object that fits no block.
    pub(super) fn value(&self, object: u64, bytes: u64) -> Option<&[u8]> {
        // The upper bits of a product depend on all bits of the number.
        let place = (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize;
        let bytes = usize::try_from(bytes).ok()?;
        self.pool.get(place..place.checked_add(bytes)?)
    }

    /// Whether it is the object's value of some size.
    pub(super) fn is(&self, object: u64, value: &[u8]) -> bool {
        self.value(object, value.len() as u64) == Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_objects_apart() {
        let values = Values::new(100);
        let all: std::collections::BTreeSet<&[u8]> =
            (0..10_000).filter_map(|object| values.value(object, 100)).collect();
        assert!(all.len() > 9_900, "{} of 10,000 differ", all.len());
        assert_eq!(Values::new(100).value(7, 100), values.value(7, 100));
        let value = |object, bytes| values.value(object, bytes).expect("it is not too large");
        assert!(values.is(7, value(7, 10)) && !values.is(8, value(7, 10)));
        assert!(values.is(u64::MAX, value(u64::MAX, 100)) && !values.is(7, &[0; 101]));
    }

    #[test]
    fn an_object_beyond_any_block_has_none() {
        let values = Values::new(u64::MAX);
        assert!(values.value(7, BYTES_MAX).is_some());
        for bytes in [BYTES_MAX + PLACES + 1, u64::MAX] {
            assert_eq!(values.value(7, bytes), None);
        }
    }
}

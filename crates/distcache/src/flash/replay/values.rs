//! The value of every object of a trace, out of one pool of bytes, so that what a cache returns can be compared. Not what
//! is in a cache.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Values begin at so many different places.
const PLACES: u64 = 1 << 20;

/// Any two objects have different values of the same size, but for one pair in a million.
pub(super) struct Values {
    pool: Vec<u8>,
}

impl Values {
    pub(super) fn new(bytes_max: usize) -> Values {
        let mut pool = vec![0; PLACES as usize + bytes_max];
        SmallRng::seed_from_u64(0x7661_6c75_6573).fill(&mut pool[..]);
        Values { pool }
    }

    pub(super) fn value(&self, object: u64, bytes: usize) -> &[u8] {
        // The upper bits of a product depend on all bits of the number.
        let place = (object.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as usize;
        &self.pool[place..place + bytes]
    }

    /// Whether it is the object's value of some size.
    pub(super) fn is(&self, object: u64, value: &[u8]) -> bool {
        value.len() <= self.pool.len() - PLACES as usize && value == self.value(object, value.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_objects_apart() {
        let values = Values::new(100);
        let all: std::collections::BTreeSet<&[u8]> =
            (0..10_000).map(|object| values.value(object, 100)).collect();
        assert!(all.len() > 9_900, "{} of 10,000 differ", all.len());
        assert_eq!(Values::new(100).value(7, 100), values.value(7, 100));
        assert!(values.is(7, values.value(7, 10)) && !values.is(8, values.value(7, 10)));
        assert!(values.is(u64::MAX, values.value(u64::MAX, 100)) && !values.is(7, &[0; 101]));
    }
}

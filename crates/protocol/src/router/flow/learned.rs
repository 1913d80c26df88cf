//! The bounded table of views known to be cached and in which layers. Not the copies, and never a promise.

use wire::{Digest, LayerSet, View};

/// Slots that one view may sit in: eight fingerprints fill one cache line.
const WAYS: usize = 8;
const REFERENCED: u8 = 0x80;
const LAYERS: u8 = 0x0f;

/// Eight-way table of fingerprints with clock eviction inside each set. A fingerprint that two views
/// share sends one of them on a detour, nothing worse.
#[derive(Debug)]
pub(crate) struct Learned {
    fingerprints: Vec<u64>,
    /// Low bits: layers, zero for a free slot; high bit: read since the hand last passed.
    marks: Vec<u8>,
    hands: Vec<u8>,
    len: usize,
}

impl Learned {
    /// Room for about `views_max` views, rounded up to a power of two.
    pub(crate) fn new(views_max: usize) -> Learned {
        let sets = views_max.div_ceil(WAYS).next_power_of_two();
        Learned {
            fingerprints: vec![0; sets * WAYS],
            marks: vec![0; sets * WAYS],
            hands: vec![0; sets],
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The layers that were last said to hold this view; empty when nothing is known.
    pub(crate) fn layers(&mut self, digest: Digest, view: View) -> LayerSet {
        let fingerprint = fingerprint(digest, view);
        match self.find(fingerprint) {
            Some(slot) => {
                self.marks[slot] |= REFERENCED;
                LayerSet(self.marks[slot] & LAYERS)
            }
            None => LayerSet::EMPTY,
        }
    }

    /// From now on these layers hold the view and no others. An empty set forgets the view.
    pub(crate) fn learn(&mut self, digest: Digest, view: View, layers: LayerSet) {
        let fingerprint = fingerprint(digest, view);
        let layers = layers.0 & LAYERS;
        match (self.find(fingerprint), layers) {
            (Some(slot), 0) => {
                self.marks[slot] = 0;
                self.len -= 1;
            }
            (Some(slot), _) => self.marks[slot] = layers | (self.marks[slot] & REFERENCED),
            (None, 0) => {}
            (None, _) => {
                let slot = self.vacate(self.set(fingerprint));
                self.len += usize::from(self.marks[slot] & LAYERS == 0);
                self.fingerprints[slot] = fingerprint;
                self.marks[slot] = layers;
            }
        }
    }

    fn find(&self, fingerprint: u64) -> Option<usize> {
        let base = self.set(fingerprint) * WAYS;
        let ways = &self.fingerprints[base..base + WAYS];
        let way = ways.iter().position(|&other| other == fingerprint)?;
        (self.marks[base + way] & LAYERS != 0).then_some(base + way)
    }

    fn vacate(&mut self, set: usize) -> usize {
        let base = set * WAYS;
        if let Some(way) = (0..WAYS).find(|way| self.marks[base + way] & LAYERS == 0) {
            return base + way;
        }
        loop {
            let slot = base + usize::from(self.hands[set]) % WAYS;
            self.hands[set] = (self.hands[set] + 1) % WAYS as u8;
            if self.marks[slot] & REFERENCED == 0 {
                return slot;
            }
            self.marks[slot] &= !REFERENCED;
        }
    }

    fn set(&self, fingerprint: u64) -> usize {
        (fingerprint as usize) & (self.hands.len() - 1)
    }
}

/// Which view of which key; two share one hardly ever.
pub(super) fn fingerprint(digest: Digest, view: View) -> u64 {
    // The digest is uniform; the multiplication spreads a view that differs in few bits.
    (digest.0 as u64) ^ view.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u64) -> Digest {
        Digest(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)))
    }

    #[test]
    fn a_reply_teaches_and_an_empty_one_forgets() {
        let mut learned = Learned::new(64);
        learned.learn(digest(1), View::GET, LayerSet(0b10));
        assert_eq!(learned.layers(digest(1), View::GET), LayerSet(0b10));
        assert_eq!(learned.layers(digest(1), View(7)), LayerSet::EMPTY, "another view is another copy");
        assert_eq!(learned.len(), 1);
        learned.learn(digest(1), View::GET, LayerSet::EMPTY);
        assert_eq!(learned.len(), 0);
        assert_eq!(learned.layers(digest(1), View::GET), LayerSet::EMPTY);
    }

    #[test]
    fn views_in_use_survive_a_flood_of_others() {
        let mut learned = Learned::new(1024);
        for number in 0..100 {
            learned.learn(digest(number), View::GET, LayerSet(1));
        }
        for number in 1_000..21_000 {
            learned.learn(digest(number), View::GET, LayerSet(1));
            if number % 50 == 0 {
                (0..100).for_each(|hot| {
                    learned.layers(digest(hot), View::GET);
                });
            }
        }
        let kept = (0..100).filter(|&hot| !learned.layers(digest(hot), View::GET).is_empty()).count();
        assert_eq!(learned.len(), 1024, "it is full and no fuller");
        assert!(kept >= 95, "only {kept} of 100 hot views are still known");
    }

    #[test]
    fn zero_is_a_fingerprint_like_any_other() {
        let mut learned = Learned::new(8);
        assert_eq!(learned.layers(Digest(0), View::GET), LayerSet::EMPTY);
        learned.learn(Digest(0), View::GET, LayerSet(1));
        assert_eq!(learned.layers(Digest(0), View::GET), LayerSet(1));
    }
}

//! Views whose keys have more places than one per layer, as replies tell: where these are, and which of them are looked at for a
//! read. How many there should be is the key's shim's to say.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use smallvec::SmallVec;
use wire::{Degree, Key, NodeId, View};

use crate::hash::DigestHasher;
use crate::placement::elastic::places_of;
use crate::router::flow::learned::fingerprint;
use crate::time::Time;

/// Views known at a time; there cannot be many that each take half of a node.
const VIEWS_MAX: usize = 1024;
/// What no reply has confirmed for as long is forgotten.
const LIFE: Duration = Duration::from_secs(10);
/// How many places are compared for a read. With two, load spreads within some per cent; with four, within one.
pub(crate) const DRAWN: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct ElasticViews {
    /// By fingerprint.
    views: HashMap<u64, ElasticView, BuildHasherDefault<DigestHasher>>,
}

#[derive(Debug)]
struct ElasticView {
    degree: Degree,
    epoch: u32,
    confirmed: Time,
    places: Box<[NodeId]>,
}

impl ElasticViews {
    pub(crate) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// A hit says how many places the key of the view with this fingerprint has in a map of this epoch; `preferences` are all
    /// its nodes.
    pub(crate) fn learn(
        &mut self,
        now: Time,
        fingerprint: u64,
        (degree, epoch): (Degree, u32),
        preferences: impl FnOnce() -> Vec<NodeId>,
    ) {
        if degree.is_base() {
            self.views.remove(&fingerprint);
            return;
        }
        if let Some(known) = self.views.get_mut(&fingerprint)
            && (known.degree, known.epoch) == (degree, epoch)
        {
            known.confirmed = now;
            return;
        }
        if self.views.len() >= VIEWS_MAX {
            self.views.retain(|_, view| now.since(view.confirmed) < LIFE);
        }
        if self.views.len() < VIEWS_MAX || self.views.contains_key(&fingerprint) {
            let mut places = preferences();
            places.truncate(places_of(degree));
            let view = ElasticView { degree, epoch, confirmed: now, places: places.into() };
            self.views.insert(fingerprint, view);
        }
    }

    fn get(&self, now: Time, key: &Key, view: View) -> Option<&ElasticView> {
        if self.views.is_empty() {
            return None;
        }
        let known = self.views.get(&fingerprint(key.digest, view));
        known.filter(|view| now.since(view.confirmed) < LIFE)
    }

    /// How many places the view's key has, as far as is known.
    pub(crate) fn degree(&self, now: Time, key: &Key, view: View) -> Degree {
        self.get(now, key, view).map_or(Degree::BASE, |known| known.degree)
    }

    /// The nodes that are its places; none if it is not known to have more than one per layer.
    pub(crate) fn places(&self, now: Time, key: &Key, view: View) -> &[NodeId] {
        self.get(now, key, view).map_or(&[], |known| &known.places)
    }
}

/// Some of these places, drawn at random among those that `admits` lets pass.
pub(crate) fn draw(
    places: &[NodeId],
    random: [u64; 2],
    admits: impl Fn(NodeId) -> bool,
) -> SmallVec<[NodeId; DRAWN]> {
    let mut drawn = SmallVec::new();
    // Some come twice, some are not admitted: a few draws more do.
    for word in random {
        for part in (0..4).map(|part| (word >> (16 * part)) as usize & 0xffff) {
            let node = places[(part * places.len()) >> 16];
            if drawn.len() < DRAWN && !drawn.contains(&node) && admits(node) {
                drawn.push(node);
            }
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::Digest;

    use super::*;

    fn key(number: u32) -> Key {
        Key { digest: Digest(u128::from(number)), database: 0, bytes: Bytes::from(number.to_string()) }
    }

    fn learn(views: &mut ElasticViews, now: u64, number: u32, degree: u8) {
        let nodes = || (0..40).map(NodeId).collect();
        let fingerprint = fingerprint(key(number).digest, View::GET);
        views.learn(Time(now), fingerprint, (Degree(degree), 1), nodes);
    }

    fn places(views: &ElasticViews, now: u64, number: u32) -> usize {
        views.places(Time(now), &key(number), View::GET).len()
    }

    #[test]
    fn replies_teach_confirm_and_forget() {
        let mut views = ElasticViews::default();
        learn(&mut views, 0, 1, 5);
        assert_eq!((places(&views, 0, 1), places(&views, 0, 2)), (8, 0));
        learn(&mut views, 6_000_000, 1, 5);
        assert_eq!(places(&views, 15_000_000, 1), 8, "confirmed");
        assert_eq!(places(&views, 16_000_000, 1), 0, "not for ten seconds");
        learn(&mut views, 16_000_000, 1, 6);
        assert_eq!(places(&views, 16_000_000, 1), 12);
        assert_eq!(views.degree(Time(16_000_000), &key(1), View(7)), Degree::BASE, "another view");
        learn(&mut views, 16_000_000, 1, 0);
        assert!(views.is_empty());
    }

    #[test]
    fn as_many_are_known_as_fit_and_the_old_make_room() {
        let mut views = ElasticViews::default();
        for number in 0..1500 {
            learn(&mut views, 0, number, 3);
        }
        assert_eq!((views.views.len(), places(&views, 0, 1023), places(&views, 0, 1024)), (1024, 4, 0));
        learn(&mut views, 20_000_000, 5000, 3);
        assert_eq!((views.views.len(), places(&views, 20_000_000, 5000)), (1, 4));
    }

    #[test]
    fn four_different_places_are_drawn_and_each_as_often() {
        let nodes: Vec<NodeId> = (0..12).map(NodeId).collect();
        let (mut counts, mut few) = ([0u32; 12], 0);
        let mut word = 1u64;
        for _ in 0..20_000 {
            let random = [word, word.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15)];
            word = word.wrapping_mul(0xd6e8_feb8_6659_fd93).wrapping_add(0x9e37_79b9_7f4a_7c15);
            let drawn = draw(&nodes, random, |node| node != NodeId(3));
            few += u32::from(drawn.len() < DRAWN);
            drawn.iter().for_each(|node| counts[usize::from(node.0)] += 1);
        }
        assert_eq!(counts[3], 0);
        let others = counts.iter().enumerate().filter(|(node, _)| *node != 3);
        let mean = counts.iter().sum::<u32>() as f64 / 11.0;
        assert!(others.clone().all(|(_, count)| (f64::from(*count) / mean - 1.0).abs() < 0.06), "{counts:?}");
        assert!(few < 1000, "{few} of 20000 found fewer than four");
    }
}

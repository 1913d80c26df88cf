//! What is known of one key that moves. Not what follows from it.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

/// How many keys are remembered of either kind, at least; what is asked for again goes to its server at once.
const REMEMBERED: usize = 1 << 16;

/// How far a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveStage {
    /// A server is away, or owes the word that nothing is carried out late.
    Halted,
    /// On its way: one question about it is open.
    Moving,
    /// At its destination.
    Settled,
    /// At its old home, as it cannot be moved.
    Stuck,
}

#[derive(Clone, Debug)]
pub(super) struct MovingKey {
    pub(super) stage: MoveStage,
    /// Units that wait for it, in their order.
    pub(super) queue: VecDeque<usize>,
    /// Commands at its old home, since it is stuck there.
    pub(super) at_home: usize,
    /// It was met by going through the server, and counts among those that are moved at the same time.
    pub(super) is_background: bool,
}

impl MovingKey {
    pub(super) fn new(stage: MoveStage, is_background: bool) -> MovingKey {
        MovingKey { stage, queue: VecDeque::new(), at_home: 0, is_background }
    }

    /// Whether it says nothing that is not known without it.
    pub(super) fn is_idle(&self) -> bool {
        self.stage == MoveStage::Settled && self.queue.is_empty()
    }
}

/// Keys that are at their destination: those that were asked for last, and those that were moved last. Of millions that are moved
/// unasked, few are asked for soon, so that they do not push out those that are.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    asked: LastKeys,
    moved: LastKeys,
}

impl Settled {
    pub(super) fn asked(&mut self, key: Bytes) {
        self.asked.insert(key);
    }

    pub(super) fn moved(&mut self, key: Bytes) {
        self.moved.insert(key);
    }

    pub(super) fn contains(&self, key: &Bytes) -> bool {
        self.asked.contains(key) || self.moved.contains(key)
    }

    pub(super) fn clear(&mut self) {
        *self = Settled::default();
    }
}

#[derive(Clone, Debug, Default)]
struct LastKeys {
    young: BTreeSet<Bytes>,
    old: BTreeSet<Bytes>,
}

impl LastKeys {
    fn insert(&mut self, key: Bytes) {
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key);
    }

    fn contains(&self, key: &Bytes) -> bool {
        self.young.contains(key) || self.old.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{REMEMBERED, Settled};

    #[test]
    fn what_is_asked_for_is_not_forgotten_for_what_is_moved_unasked() {
        let key = |number: usize| Bytes::from(number.to_string());
        let mut settled = Settled::default();
        settled.asked(key(0));
        (1..=3 * REMEMBERED).for_each(|number| settled.moved(key(number)));
        assert!(settled.contains(&key(0)) && settled.contains(&key(2 * REMEMBERED + 1)));
        assert!(!settled.contains(&key(1)), "they are not all remembered");
        settled.clear();
        assert!(!settled.contains(&key(0)));
    }
}

//! The keys that clients work on: a few places with a name that changes often, and the history of each name.
//! Not what clients do with them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::operation::{JepsenHistory, JepsenOperation, JepsenOutcome};

/// Commands on one name; then the place goes on with a new one. Short enough to be checked at once, and long
/// enough to live through a fault.
const OPERATIONS_MAX: usize = 400;
/// Each command of unknown outcome doubles the orders that a checker has to try.
const UNKNOWN_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JepsenKeyKind {
    /// SET, with and without time to live, APPEND, PEXPIRE, DEL, MSET.
    Register,
    /// INCR.
    Counter,
    /// HSET of a few fields.
    Hash,
    /// LPUSH and LPOP.
    List,
    /// SADD and SREM of a few members.
    Set,
}

/// One name in one life.
pub(super) struct KeyLife {
    id: u64,
    pub(super) key: String,
    pub(super) kind: JepsenKeyKind,
    place: usize,
    log: Mutex<KeyLog>,
}

#[derive(Default)]
struct KeyLog {
    operations: Vec<JepsenOperation>,
    pending: usize,
    unknown: usize,
    /// No further command begins.
    retired: bool,
}

/// A command that has begun.
#[derive(Clone)]
pub(super) struct Begun {
    pub(super) life: Arc<KeyLife>,
    pub(super) index: usize,
}

pub(super) struct JepsenKeys {
    places: Vec<Mutex<Arc<KeyLife>>>,
    kinds: KeyKinds,
    lives: AtomicU64,
    judge: SyncSender<JepsenHistory>,
}

/// Places that share a hash tag, and so a storage server: an MSET goes to some of them.
pub(super) const GROUP: usize = 6;

/// What the places of a group hold.
pub(super) type KeyKinds = [JepsenKeyKind; GROUP];

pub(super) const ALL_KINDS: KeyKinds = [
    JepsenKeyKind::Register,
    JepsenKeyKind::Counter,
    JepsenKeyKind::Register,
    JepsenKeyKind::Hash,
    JepsenKeyKind::List,
    JepsenKeyKind::Set,
];

/// For storage that has nothing else.
pub(super) const STRINGS: KeyKinds = [
    JepsenKeyKind::Register,
    JepsenKeyKind::Counter,
    JepsenKeyKind::Register,
    JepsenKeyKind::Register,
    JepsenKeyKind::Counter,
    JepsenKeyKind::Register,
];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl JepsenKeys {
    /// Finished histories go to `judge`.
    pub(super) fn new(places: usize, kinds: KeyKinds, judge: SyncSender<JepsenHistory>) -> JepsenKeys {
        let mut keys = JepsenKeys { places: Vec::new(), kinds, lives: AtomicU64::new(0), judge };
        keys.places = (0..places).map(|place| Mutex::new(keys.born(place))).collect();
        keys
    }

    fn born(&self, place: usize) -> Arc<KeyLife> {
        let id = self.lives.fetch_add(1, Relaxed);
        let key = format!("{{{}}}{place}:{id}", place / GROUP);
        Arc::new(KeyLife { id, key, kind: self.kinds[place % GROUP], place, log: Mutex::default() })
    }

    pub(super) fn life(&self, place: usize) -> Arc<KeyLife> {
        Arc::clone(&lock(&self.places[place]))
    }

    /// The registers that share a server with `place`.
    pub(super) fn registers_beside(&self, place: usize) -> Vec<Arc<KeyLife>> {
        let first = place / GROUP * GROUP;
        let lives = (first..first + GROUP).map(|place| self.life(place));
        lives.filter(|life| life.kind == JepsenKeyKind::Register).collect()
    }

    /// Notes that a command is about to be sent; none if this life is over.
    pub(super) fn begin(&self, life: &Arc<KeyLife>, operation: JepsenOperation) -> Option<Begun> {
        let mut log = lock(&life.log);
        if log.retired {
            return None;
        }
        log.pending += 1;
        log.operations.push(operation);
        if log.operations.len() >= OPERATIONS_MAX {
            self.retire(life, &mut log);
        }
        Some(Begun { life: Arc::clone(life), index: log.operations.len() - 1 })
    }

    /// Returns when it was called, if it was answered.
    pub(super) fn end(&self, begun: &Begun, now: u64, outcome: JepsenOutcome) -> Option<u64> {
        let mut log = lock(&begun.life.log);
        log.pending -= 1;
        log.unknown += usize::from(outcome == JepsenOutcome::Unknown);
        let operation = &mut log.operations[begun.index];
        let call = matches!(outcome, JepsenOutcome::Told(_)).then_some(operation.call);
        (operation.returned, operation.outcome) = (now, outcome);
        if log.unknown >= UNKNOWN_MAX {
            self.retire(&begun.life, &mut log);
        }
        self.hand_over(&begun.life, log);
        call
    }

    fn retire(&self, life: &Arc<KeyLife>, log: &mut KeyLog) {
        if !std::mem::replace(&mut log.retired, true) {
            *lock(&self.places[life.place]) = self.born(life.place);
        }
    }

    /// To the judge, if nothing more will happen to it.
    fn hand_over(&self, life: &KeyLife, mut log: MutexGuard<'_, KeyLog>) {
        if log.retired && log.pending == 0 {
            let operations = std::mem::take(&mut log.operations);
            drop(log);
            // Without a judge the run is over.
            let _ = self.judge.send(JepsenHistory::new(life.id, life.key.clone(), &operations));
        }
    }

    /// Ends every life. No command may be pending.
    pub(super) fn finish(&self) {
        for place in &self.places {
            let life = Arc::clone(&lock(place));
            let mut log = lock(&life.log);
            log.retired = true;
            self.hand_over(&life, log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL_KINDS, JepsenKeys, JepsenOperation, JepsenOutcome};
    use crate::jepsen::operation::JepsenAction;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn a_life_ends_at_its_limits_and_its_history_leaves_when_nothing_is_pending() {
        let (sender, histories) = sync_channel(8);
        let keys = JepsenKeys::new(4, ALL_KINDS, sender);
        let life = keys.life(0);
        let operation = |what, call| JepsenOperation::begun(what, call, None, 0);
        let late = keys.begin(&life, operation(JepsenAction::Get, 1)).unwrap();
        for _ in 0..super::UNKNOWN_MAX {
            let begun = keys.begin(&life, operation(JepsenAction::Incr, 2)).unwrap();
            keys.end(&begun, 3, JepsenOutcome::Unknown);
        }
        assert!(keys.begin(&life, operation(JepsenAction::Get, 4)).is_none());
        assert_ne!(keys.life(0).key, life.key);
        assert!(histories.try_recv().is_err());
        keys.end(&late, 5, JepsenOutcome::Told("nil".to_owned()));
        let history = histories.try_recv().unwrap();
        assert_eq!((history.key, history.operations.len()), (life.key.clone(), 1 + super::UNKNOWN_MAX));
        keys.finish();
        assert_eq!(histories.try_iter().count(), 4);
    }
}

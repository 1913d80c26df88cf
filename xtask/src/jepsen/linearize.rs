//! Our own checker: whether one key's history has an order that explains every reply (Wing, Gong and Lowe).

use std::collections::HashSet;

use super::model::RegisterState;
use super::operation::{JepsenHistory, JepsenOutcome};

/// Beyond so many steps a history counts as undecided: it has too many commands of unknown outcome.
const STEPS_MAX: usize = 2_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JepsenVerdict {
    Linearizable,
    /// The operations of the longest order that explains its replies.
    Violation(Vec<usize>),
    Undecided,
}

/// A call or a return in the order of time, as a list from which both can be taken out and put back.
#[derive(Clone, Copy)]
struct HistoryEntry {
    operation: usize,
    is_call: bool,
    previous: usize,
    next: usize,
}

struct Events {
    /// The first is a sentinel; it also stands for the end.
    entries: Vec<HistoryEntry>,
    /// By operation: its call, and its return if it has one.
    places: Vec<(usize, Option<usize>)>,
}

impl Events {
    fn of(history: &JepsenHistory) -> Events {
        let mut moments = Vec::new();
        for (index, operation) in history.operations.iter().enumerate() {
            moments.push((operation.call, 0, index));
            if matches!(operation.outcome, JepsenOutcome::Told(_)) {
                moments.push((operation.returned, 1, index));
            }
        }
        moments.sort_unstable();
        let mut entries =
            vec![HistoryEntry { operation: usize::MAX, is_call: false, previous: moments.len(), next: 1 }];
        let mut places = vec![(0, None); history.operations.len()];
        for (place, (_, kind, operation)) in moments.iter().enumerate() {
            let (place, is_call) = (place + 1, *kind == 0);
            let next = if place == moments.len() { 0 } else { place + 1 };
            entries.push(HistoryEntry { operation: *operation, is_call, previous: place - 1, next });
            match is_call {
                true => places[*operation].0 = place,
                false => places[*operation].1 = Some(place),
            }
        }
        if moments.is_empty() {
            entries[0].next = 0;
        }
        Events { entries, places }
    }

    fn unlink(&mut self, place: usize) {
        let HistoryEntry { previous, next, .. } = self.entries[place];
        self.entries[previous].next = next;
        self.entries[next].previous = previous;
    }

    fn link(&mut self, place: usize) {
        let HistoryEntry { previous, next, .. } = self.entries[place];
        self.entries[previous].next = place;
        self.entries[next].previous = place;
    }

    fn take_out(&mut self, operation: usize) {
        let (call, returned) = self.places[operation];
        self.unlink(call);
        if let Some(returned) = returned {
            self.unlink(returned);
        }
    }

    fn put_back(&mut self, operation: usize) {
        let (call, returned) = self.places[operation];
        if let Some(returned) = returned {
            self.link(returned);
        }
        self.link(call);
    }
}

/// Which operations have taken effect.
#[derive(Clone, PartialEq, Eq, Hash)]
struct DoneOperations(Vec<u64>);

impl DoneOperations {
    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & 1 << (index % 64) != 0
    }

    fn flip(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }
}

pub(super) fn check(history: &JepsenHistory) -> JepsenVerdict {
    let operations = &history.operations;
    let mut events = Events::of(history);
    let told = |outcome: &JepsenOutcome| matches!(outcome, JepsenOutcome::Told(_));
    let mut required = operations.iter().filter(|operation| told(&operation.outcome)).count();
    let mut done = DoneOperations(vec![0; operations.len().div_ceil(64)]);
    let mut seen: HashSet<(DoneOperations, RegisterState)> = HashSet::new();
    let (mut state, mut path): (RegisterState, Vec<(usize, RegisterState)>) =
        (RegisterState::new(), Vec::new());
    let mut best = Vec::new();
    let mut place = events.entries[0].next;
    for _ in 0..STEPS_MAX {
        if required == 0 {
            return JepsenVerdict::Linearizable;
        }
        let HistoryEntry { operation: index, is_call, next, .. } = events.entries[place];
        if is_call && place != 0 {
            let operation = &operations[index];
            let blocked = operation.after.is_some_and(|after| !done.has(after));
            let reached = if blocked { None } else { state.after(operation) };
            done.flip(index);
            match reached.filter(|reached| seen.insert((done.clone(), reached.clone()))) {
                Some(reached) => {
                    path.push((index, std::mem::replace(&mut state, reached)));
                    required -= usize::from(told(&operation.outcome));
                    events.take_out(index);
                    place = events.entries[0].next;
                }
                None => {
                    done.flip(index);
                    place = next;
                }
            }
            continue;
        }
        // A return of something that has not taken effect: what was done last was wrong.
        if path.len() > best.len() {
            best = path.iter().map(|(index, _)| *index).collect();
        }
        let Some((last, before)) = path.pop() else { return JepsenVerdict::Violation(best) };
        state = before;
        done.flip(last);
        required += usize::from(told(&operations[last].outcome));
        events.put_back(last);
        place = events.entries[events.places[last].0].next;
    }
    JepsenVerdict::Undecided
}

#[cfg(test)]
mod tests {
    use super::{JepsenVerdict, check};
    use crate::jepsen::samples::samples;

    #[test]
    fn samples_are_judged_as_they_should() {
        for (number, (history, linearizable)) in samples().into_iter().enumerate() {
            assert_eq!(
                check(&history) == JepsenVerdict::Linearizable,
                linearizable,
                "{number}: {}",
                history.text(&[])
            );
        }
    }
}

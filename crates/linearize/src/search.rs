//! Whether one key's history has a sequential order that explains every reply (Wing and Gong, with memory).
//!
//! Knows clients' calls and replies and nothing of the system. A read that fits where the search stands is placed
//! there at once, since a read changes nothing and so forbids nothing later; only writes make the search branch, and
//! reads that would push the earliest time of something that sets a time to live.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use crate::model::{ModelState, ModelWindow, What};
use crate::operation::{HistoryOperation, HistoryOutcome};
use crate::witness;

/// Histories that need more are given up; none of an honest system has come near.
const STEPS_MAX: usize = 2_000_000;

struct Search<'a> {
    operations: &'a [&'a HistoryOperation],
    /// By operation: its predecessor in program order, as a place in `operations`.
    after: Vec<Option<u32>>,
    /// By operation: when it seems to have happened. Decides what is tried first, and nothing else.
    hints: Vec<Hint>,
    done: Vec<bool>,
    /// In the order of being placed, to be taken back.
    placed: Vec<u32>,
    /// Everything before it that is required is done.
    base: usize,
    required_left: usize,
    /// Unknown ones that are not placed.
    optional: Vec<u32>,
    set_hash: u64,
    seen: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    steps: usize,
    best: usize,
    /// In a second search after a failure: the length of the longest explanation, to be kept.
    capture: Option<usize>,
    best_placed: Vec<u32>,
}

/// A point of the search from which it goes on with one candidate after the other.
struct Branch {
    state: ModelState,
    now: u64,
    placed: usize,
    candidates: Vec<u32>,
    /// Outcomes of the current candidate that have not been tried.
    outcomes: Vec<ModelState>,
    current: u32,
}

/// What is to be said of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryVerdict {
    Linearizable,
    /// No order explains its replies.
    Violation(Unexplained),
    /// So many steps did not tell: it has too many operations of unknown outcome.
    Undecided(Unexplained),
}

/// How far a history could be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexplained {
    /// The places of the operations in the longest order that explains its replies.
    pub explained: Vec<usize>,
    /// Where it ends, for people.
    pub report: String,
}

/// Operations in any order.
pub fn check(operations: &[HistoryOperation], initial: ModelState) -> HistoryVerdict {
    // Operations without effect are left out, so places change.
    let mut order: Vec<usize> =
        (0..operations.len()).filter(|place| operations[*place].outcome != HistoryOutcome::Void).collect();
    order.sort_by_key(|place| operations[*place].invoked);
    let mut places = vec![None; operations.len()];
    order.iter().enumerate().for_each(|(new, old)| places[*old] = Some(new as u32));
    let kept: Vec<&HistoryOperation> = order.iter().map(|place| &operations[*place]).collect();
    let after = |operation: &&HistoryOperation| operation.after.and_then(|place| places[place as usize]);
    let required = |operation: &HistoryOperation| is_required(operation);
    let after: Vec<Option<u32>> = kept.iter().map(after).collect();
    if witness::explains(&kept, &after, &initial) {
        return HistoryVerdict::Linearizable;
    }
    let mut search = Search {
        hints: hints(&kept, &after, initial.clone()),
        after,
        done: vec![false; kept.len()],
        placed: Vec::with_capacity(kept.len()),
        base: 0,
        required_left: kept.iter().filter(|operation| required(operation)).count(),
        optional: (0..kept.len() as u32).filter(|place| !required(kept[*place as usize])).collect(),
        set_hash: 0,
        seen: HashSet::default(),
        steps: 0,
        best: 0,
        capture: None,
        best_placed: Vec::new(),
        operations: &kept,
    };
    let found = search.run(initial.clone());
    if found == Some(true) {
        return HistoryVerdict::Linearizable;
    }
    search.again(initial);
    let explained = search.best_placed.iter().map(|place| order[*place as usize]).collect();
    let unexplained = Unexplained { explained, report: search.report() };
    match found {
        Some(_) => HistoryVerdict::Violation(unexplained),
        None => HistoryVerdict::Undecided(unexplained),
    }
}

impl Search<'_> {
    fn required(&self, place: usize) -> bool {
        is_required(self.operations[place])
    }

    /// Repeats a search that failed, to find out how far it came.
    fn again(&mut self, initial: ModelState) {
        self.take_back(0);
        self.seen.clear();
        (self.base, self.steps, self.capture) = (0, 0, Some(self.best));
        self.run(initial);
    }

    /// `None`: given up.
    fn run(&mut self, initial: ModelState) -> Option<bool> {
        let Some(first) = self.open(initial, 0) else { return Some(self.required_left == 0) };
        let mut branches = vec![first];
        while let Some(branch) = branches.last_mut() {
            self.take_back(branch.placed);
            let Some(state) = self.next(branch) else {
                branches.pop();
                continue;
            };
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return None;
            }
            let now = branch.now.max(self.operations[branch.current as usize].invoked);
            self.place(branch.current);
            match self.open(state, now) {
                Some(branch) => branches.push(branch),
                None if self.required_left == 0 => return Some(true),
                None => {}
            }
        }
        Some(self.required_left == 0)
    }

    /// The next state that a branch has not tried; its operation is `current`.
    fn next(&self, branch: &mut Branch) -> Option<ModelState> {
        loop {
            if let Some(state) = branch.outcomes.pop() {
                return Some(state);
            }
            branch.current = branch.candidates.pop()?;
            let operation = self.operations[branch.current as usize];
            let when =
                ModelWindow { earliest: branch.now.max(operation.invoked), latest: operation.returned };
            let outcomes = branch.state.outcomes(&operation.what, when).into_iter();
            branch.outcomes = match &operation.outcome {
                HistoryOutcome::Told(told) => {
                    outcomes.filter(|(_, reply)| reply == told).map(|(state, _)| state).collect()
                }
                _ => outcomes.map(|(state, _)| state).collect(),
            };
        }
    }

    /// Places every read that fits, then lists what may come next. `None`: nothing is left, or it was here before.
    fn open(&mut self, state: ModelState, mut now: u64) -> Option<Branch> {
        let placed = loop {
            let (limit, window) = self.window();
            let latest = now.max(self.brief_from(&window));
            let next = ModelWindow { earliest: now, latest: limit };
            let mut fitting = window.iter().copied().filter(|place| {
                let place = *place as usize;
                self.operations[place].invoked <= latest && self.fits(place, &state, next)
            });
            let Some(place) = fitting.next() else { break window };
            now = now.max(self.operations[place as usize].invoked);
            self.place(place);
        };
        if self.required_left == 0 || !self.is_new(&state) {
            return None;
        }
        let (limit, _) = self.window();
        let next = ModelWindow { earliest: now, latest: limit };
        let free = |place: &u32| self.is_free(*place as usize, next);
        let mut candidates: Vec<u32> = placed.into_iter().filter(|place| free(place)).collect();
        candidates.sort_by_key(|place| self.hints[*place as usize]);
        candidates
            .extend(self.optional.iter().copied().filter(|place| !self.done[*place as usize] && free(place)));
        // Taken from the end: unknown ones last.
        candidates.reverse();
        let (placed, outcomes, current) = (self.placed.len(), Vec::new(), 0);
        Some(Branch { state, now, placed, candidates, outcomes, current })
    }

    /// Before when the next operation must have been invoked, and the required ones that were.
    fn window(&mut self) -> (u64, Vec<u32>) {
        while self.base < self.done.len() && (self.done[self.base] || !self.required(self.base)) {
            self.base += 1;
        }
        let (mut limit, mut window) = (u64::MAX, Vec::new());
        for place in self.base..self.operations.len() {
            let operation = self.operations[place];
            if operation.invoked > limit {
                break;
            }
            if !self.done[place] && self.required(place) {
                limit = limit.min(operation.returned);
                window.push(place as u32);
            }
        }
        (limit, window)
    }

    /// When the first of those that set a time to live was invoked.
    fn brief_from(&self, window: &[u32]) -> u64 {
        let open = self.optional.iter().filter(|place| !self.done[**place as usize]).chain(window);
        let brief = open.map(|place| self.operations[*place as usize]);
        let brief = brief.filter(|one| matches!(one.what, What::SetFor(..) | What::Expire(_)));
        brief.map(|operation| operation.invoked).min().unwrap_or(u64::MAX)
    }

    /// Whether an operation may take place `next`.
    fn is_free(&self, place: usize, next: ModelWindow) -> bool {
        let operation = self.operations[place];
        let earliest = next.earliest.max(operation.invoked);
        // A predecessor that nobody vouches for binds nobody.
        let waits = self.after[place].is_some_and(|before| {
            let before = before as usize;
            self.required(before) && !self.done[before]
        });
        !waits && earliest <= next.latest && earliest <= operation.returned
    }

    fn fits(&self, place: usize, state: &ModelState, next: ModelWindow) -> bool {
        let operation = self.operations[place];
        let HistoryOutcome::Told(told) = &operation.outcome else { return false };
        if !operation.what.reads() || !self.is_free(place, next) {
            return false;
        }
        let when = ModelWindow { earliest: next.earliest.max(operation.invoked), latest: operation.returned };
        state.read(&operation.what, when).is_some_and(|reply| reply == *told)
    }

    fn place(&mut self, place: u32) {
        self.done[place as usize] = true;
        self.placed.push(place);
        self.required_left -= usize::from(self.required(place as usize));
        self.set_hash ^= mixed(u64::from(place));
        if self.placed.len() > self.best {
            self.best = self.placed.len();
        }
        if self.capture == Some(self.placed.len()) {
            self.best_placed = self.placed.clone();
            self.capture = None;
        }
    }

    fn take_back(&mut self, count: usize) {
        while self.placed.len() > count {
            let Some(place) = self.placed.pop() else { return };
            self.done[place as usize] = false;
            self.required_left += usize::from(self.required(place as usize));
            self.set_hash ^= mixed(u64::from(place));
            self.base = self.base.min(place as usize);
        }
    }

    fn is_new(&mut self, state: &ModelState) -> bool {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        self.seen.insert(mixed(self.set_hash ^ hasher.finish()))
    }

    /// The end of the history as far as it was explained, and what follows.
    fn report(&self) -> String {
        let reached = |place: u32| self.best_placed.contains(&place);
        let all = 0..self.operations.len() as u32;
        let stuck = all.clone().find(|place| self.required(*place as usize) && !reached(*place)).unwrap_or(0);
        let near = self.operations[stuck as usize].invoked;
        let mut report = String::new();
        for place in all {
            let HistoryOperation { what, invoked, returned, outcome, after, .. } =
                self.operations[place as usize];
            let told = match outcome {
                HistoryOutcome::Told(reply) => String::from_utf8_lossy(reply).replace("\r\n", " "),
                other => format!("{other:?}"),
            };
            let unknown = *outcome == HistoryOutcome::Unknown;
            let close = invoked.abs_diff(near) < 3_000_000 || returned.abs_diff(near) < 3_000_000;
            let written = matches!(what, What::Clear) || !what.reads();
            if close || (unknown && written && *invoked < near) {
                let mark = if reached(place) { ' ' } else { '*' };
                report += &format!("{mark} {place:4} {invoked:9}..{returned:<20} {what:?} = {told}");
                report += &after.map_or("\n".to_owned(), |after| format!(" after {after}\n"));
            }
        }
        report
    }
}

/// Time, serial number of storage, and reads behind the write before them.
type Hint = (u64, u64, u8);

/// Writes happened when storage carried them out, and a read as soon as storage held what it was told.
fn hints(operations: &[&HistoryOperation], after: &[Option<u32>], initial: ModelState) -> Vec<Hint> {
    let mut hints: Vec<Hint> = operations.iter().map(|operation| (operation.returned, u64::MAX, 0)).collect();
    let mut written: Vec<((u64, u64), usize)> =
        (0..operations.len()).filter_map(|place| Some((operations[place].executed?, place))).collect();
    written.sort_unstable();
    let mut states = vec![(0, 0, initial)];
    for ((time, serial), place) in written {
        hints[place] = (time, serial, 0);
        let operation = operations[place];
        let when = ModelWindow { earliest: time, latest: time };
        let mut outcomes = states[states.len() - 1].2.outcomes(&operation.what, when);
        let told =
            |reply: &Vec<u8>| matches!(&operation.outcome, HistoryOutcome::Told(told) if told == reply);
        let index = outcomes.iter().position(|(_, reply)| told(reply)).unwrap_or(0);
        if index < outcomes.len() {
            states.push((time, serial, outcomes.swap_remove(index).0));
        }
    }
    for place in 0..operations.len() {
        let operation = operations[place];
        if let (true, HistoryOutcome::Told(told)) = (operation.what.reads(), &operation.outcome) {
            let before = after[place].map_or(0, |before| hints[before as usize].0);
            let from = operation.invoked.max(before);
            if let Some(hint) = read_hint(&states, operation, told, from) {
                hints[place] = hint;
            }
        }
    }
    hints
}

fn read_hint(
    states: &[(u64, u64, ModelState)],
    operation: &HistoryOperation,
    told: &[u8],
    from: u64,
) -> Option<Hint> {
    let first = states.partition_point(|(start, ..)| *start <= from).saturating_sub(1);
    for (index, (start, serial, state)) in states.iter().enumerate().skip(first) {
        if *start > operation.returned {
            break;
        }
        let end = states.get(index + 1).map_or(u64::MAX, |(next, ..)| *next);
        let when = ModelWindow { earliest: from.max(*start), latest: operation.returned.min(end) };
        if state.read(&operation.what, when).is_some_and(|reply| reply == told) {
            return Some((when.earliest, *serial, 1));
        }
        let expired = state.outcomes(&operation.what, when).iter().any(|(_, reply)| reply == told);
        if let (true, Some(expires)) = (expired, state.expires()) {
            let middle = expires.earliest / 2 + expires.latest / 2;
            return Some((when.earliest.max(middle), *serial, 1));
        }
    }
    None
}

/// Whether it has certainly happened.
pub(crate) fn is_required(operation: &HistoryOperation) -> bool {
    matches!(operation.outcome, HistoryOutcome::Told(_) | HistoryOutcome::Happened)
}

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::{HistoryVerdict, check};
    use crate::model::{ModelState, What};
    use crate::operation::{HistoryOperation, HistoryOutcome};

    fn operation(what: What, invoked: u64, returned: u64, reply: &str) -> HistoryOperation {
        let outcome = match reply {
            "?" => HistoryOutcome::Unknown,
            reply => HistoryOutcome::Told(reply.as_bytes().to_vec()),
        };
        HistoryOperation { what, invoked, returned, outcome, after: None, frame: None, executed: None }
    }

    fn set(value: &str, invoked: u64, returned: u64) -> HistoryOperation {
        operation(What::Set(value.into()), invoked, returned, "+OK\r\n")
    }

    fn get(value: &str, invoked: u64, returned: u64) -> HistoryOperation {
        operation(What::Get, invoked, returned, &format!("${}\r\n{value}\r\n", value.len()))
    }

    fn explained(operations: &[HistoryOperation]) -> bool {
        check(operations, ModelState::text()) == HistoryVerdict::Linearizable
    }

    #[test]
    fn a_stale_read_is_noticed_and_a_concurrent_one_is_not() {
        assert!(explained(&[set("a", 0, 1), set("b", 2, 6), get("a", 3, 4), get("b", 5, 7)]));
        assert!(!explained(&[set("a", 0, 1), set("b", 2, 3), get("a", 4, 5)]));
        assert!(!explained(&[set("a", 0, 1), set("b", 2, 9), get("b", 3, 4), get("a", 5, 6)]));
    }

    #[test]
    fn an_unknown_write_may_happen_once_late_or_never_but_not_after_its_fence() {
        let write = |fence| operation(What::Set("b".into()), 2, fence, "?");
        assert!(explained(&[set("a", 0, 1), write(u64::MAX), get("a", 3, 4)]));
        assert!(explained(&[set("a", 0, 1), write(u64::MAX), get("a", 3, 4), get("b", 5, 6)]));
        assert!(!explained(&[set("a", 0, 1), write(u64::MAX), get("b", 3, 4), get("a", 5, 6)]));
        assert!(!explained(&[set("a", 0, 1), write(4), get("a", 5, 6), get("b", 7, 8)]));
        let twice = [operation(What::Increment(1), 0, u64::MAX, "?"), get("2", 1, 2)];
        assert!(!explained(&twice));
    }

    #[test]
    fn pipelined_operations_keep_their_order() {
        let mut later = get("a", 3, 9);
        let sets = [set("a", 0, 1), set("b", 2, 8)];
        assert!(explained(&[sets[0].clone(), sets[1].clone(), later.clone()]));
        later.after = Some(1);
        assert!(!explained(&[sets[0].clone(), sets[1].clone(), later]));
    }

    #[test]
    fn a_write_whose_order_shows_late_is_tried_both_ways() {
        let append = |text: &str, invoked, returned, length| {
            operation(What::Append(text.into()), invoked, returned, &format!(":{length}\r\n"))
        };
        assert!(explained(&[
            append("a", 0, 9, 1),
            append("b", 1, 8, 2),
            append("c", 2, 7, 3),
            get("abc", 10, 11)
        ]));
        assert!(!explained(&[
            append("a", 0, 9, 1),
            append("b", 1, 8, 2),
            append("c", 2, 7, 3),
            get("acb", 10, 11)
        ]));
    }

    #[test]
    fn long_histories_are_quick() {
        let pair =
            |n: u64| [set(&n.to_string(), n * 10, n * 10 + 6), get(&n.to_string(), n * 10 + 7, n * 10 + 8)];
        let mut operations: Vec<HistoryOperation> = (0..5_000).flat_map(pair).collect();
        assert!(explained(&operations));
        operations[9_001] = get("4000", 45_007, 45_008);
        assert!(!explained(&operations));
    }

    #[test]
    fn expiry_has_its_time() {
        let brief = operation(What::SetFor("a".into(), 10), 0, 100, "+OK\r\n");
        let nil = |invoked, returned| operation(What::Get, invoked, returned, "$-1\r\n");
        assert!(explained(&[brief.clone(), get("a", 200, 300), nil(11_000, 12_000)]));
        assert!(!explained(&[brief.clone(), nil(200, 300)]));
        assert!(!explained(&[brief.clone(), get("a", 15_000, 15_100)]));
        assert!(!explained(&[brief, nil(10_000, 10_100), get("a", 10_200, 10_300)]));
    }
}

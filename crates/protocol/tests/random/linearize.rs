//! Whether one key's history has a sequential order that explains every reply (Wing and Gong, with memory).

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};

use crate::history::{Operation, Outcome};
use crate::model::{State, Window};

/// Sets of operations are 128-bit words.
pub(crate) const OPERATIONS_MAX: usize = 128;

struct Search<'a> {
    operations: &'a [(usize, &'a Operation)],
    /// Predecessors in program order, as positions in `operations`.
    after: Vec<Option<usize>>,
    /// Operations that must have happened.
    required: u128,
    seen: HashSet<(u128, State), BuildHasherDefault<DefaultHasher>>,
    /// The longest explanation found, for the report.
    best: Vec<usize>,
    path: Vec<usize>,
}

/// Operations come with their numbers in the whole history, in the order of their invocation.
pub(crate) fn check(operations: &[(usize, &Operation)], initial: State) -> Result<(), String> {
    assert!(operations.len() <= OPERATIONS_MAX, "{} operations are too many", operations.len());
    let position = |number: usize| operations.iter().position(|(other, _)| *other == number);
    let after = operations.iter().map(|(_, operation)| operation.after.and_then(position)).collect();
    let mut required = 0;
    for (index, (_, operation)) in operations.iter().enumerate() {
        if matches!(operation.outcome, Outcome::Told(_)) {
            required |= 1 << index;
        }
    }
    let (seen, best, path) = (HashSet::default(), Vec::new(), Vec::new());
    let mut search = Search { operations, after, required, seen, best, path };
    if search.explain(0, &initial, 0) {
        return Ok(());
    }
    let mut report = String::from("no order explains these replies:\n");
    for (number, operation) in operations {
        let Operation { what, invoked, returned, outcome, .. } = operation;
        let told = match outcome {
            Outcome::Told(reply) => String::from_utf8_lossy(reply).replace("\r\n", " "),
            other => format!("{other:?}"),
        };
        let reached = search.best.iter().any(|&index| operations[index].0 == *number);
        let mark = if reached { ' ' } else { '*' };
        report += &format!("{mark} {number:4} {invoked:9}..{returned:<20} {what:?} = {told}\n");
    }
    Err(report)
}

impl Search<'_> {
    /// Whether the operations that are not in `done` can follow, in some order, on `state`; `now` is the latest
    /// invocation of those done, and so the earliest time of any that follows.
    fn explain(&mut self, done: u128, state: &State, now: u64) -> bool {
        if done & self.required == self.required {
            return true;
        }
        if !self.seen.insert((done, state.clone())) {
            return false;
        }
        if self.path.len() > self.best.len() {
            self.best = self.path.clone();
        }
        let open = |index: &usize| done & (1 << index) == 0;
        let waiting: Vec<usize> = (0..self.operations.len()).filter(open).collect();
        let returned = |index: &usize| self.operations[*index].1.returned;
        let must = waiting.iter().filter(|index| self.required & (1 << **index) != 0);
        let limit = must.map(returned).min().unwrap_or(u64::MAX);
        for index in waiting {
            let operation = self.operations[index].1;
            // A predecessor that nobody vouches for binds nobody.
            let must_follow = |before: usize| self.required & !done & (1 << before) != 0;
            let blocked = self.after[index].is_some_and(must_follow);
            let earliest = now.max(operation.invoked);
            if earliest > limit || blocked || operation.returned < earliest {
                continue;
            }
            let when = Window { earliest, latest: operation.returned };
            for (next, reply) in state.outcomes(&operation.what, when) {
                let explained = match &operation.outcome {
                    Outcome::Told(told) => *told == reply,
                    _ => true,
                };
                if !explained {
                    continue;
                }
                self.path.push(index);
                let found = self.explain(done | 1 << index, &next, earliest);
                self.path.pop();
                if found {
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::history::{Operation, Outcome};
    use crate::model::{State, What};

    fn operation(what: What, invoked: u64, returned: u64, reply: &str) -> Operation {
        let outcome = match reply {
            "?" => Outcome::Unknown { reported: true },
            reply => Outcome::Told(reply.as_bytes().to_vec()),
        };
        Operation { key: 0, what, invoked, returned, outcome, after: None, to: 2 }
    }

    fn set(value: &str, invoked: u64, returned: u64) -> Operation {
        operation(What::Set(value.into()), invoked, returned, "+OK\r\n")
    }

    fn get(value: &str, invoked: u64, returned: u64) -> Operation {
        operation(What::Get, invoked, returned, &format!("${}\r\n{value}\r\n", value.len()))
    }

    fn explained(operations: &[Operation]) -> bool {
        let numbered: Vec<_> = operations.iter().enumerate().collect();
        check(&numbered, State::text()).is_ok()
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
        let twice = [operation(What::Incr, 0, u64::MAX, "?"), get("2", 1, 2)];
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
    fn expiry_has_its_time() {
        let brief = operation(What::SetPx("a".into(), 10), 0, 100, "+OK\r\n");
        let nil = |invoked, returned| operation(What::Get, invoked, returned, "$-1\r\n");
        assert!(explained(&[brief.clone(), get("a", 200, 300), nil(11_000, 12_000)]));
        assert!(!explained(&[brief.clone(), nil(200, 300)]));
        assert!(!explained(&[brief.clone(), get("a", 15_000, 15_100)]));
        assert!(!explained(&[brief, nil(10_000, 10_100), get("a", 10_200, 10_300)]));
    }
}

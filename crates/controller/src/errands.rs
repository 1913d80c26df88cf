//! What members are asked to do and what they have answered so far. Not how it travels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::time::Time;
use runtime::heartbeat::{Errand, Outcome, Report, Task};

/// Errands under way at a time.
const ERRANDS_MAX: usize = 16;
/// Nobody waits any more for one that is older.
const LIFE: Duration = Duration::from_secs(60);

pub(crate) struct Errands {
    running: Vec<Running>,
    last: u64,
}

struct Running {
    number: u64,
    task: Task,
    begun: Time,
    waiting: BTreeSet<String>,
    outcomes: BTreeMap<String, Outcome>,
}

/// How an errand stands: who has answered what, and who has not.
pub(crate) struct Standing {
    pub(crate) outcomes: BTreeMap<String, Outcome>,
    pub(crate) waiting: BTreeSet<String>,
}

impl Errands {
    /// `first` tells the errands of this life of a controller from those of the one before.
    pub(crate) fn new(first: u64) -> Errands {
        Errands { running: Vec::new(), last: first }
    }

    /// The number of the errand; `None` if too many are under way.
    pub(crate) fn begin(&mut self, now: Time, task: Task, members: BTreeSet<String>) -> Option<u64> {
        self.running.retain(|running| now.since(running.begun) < LIFE);
        if self.running.len() >= ERRANDS_MAX {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        self.running.push(Running { number, task, begun: now, waiting: members, outcomes: BTreeMap::new() });
        Some(number)
    }

    /// What these members still have to do.
    pub(crate) fn of(&self, members: &[String]) -> Vec<Errand> {
        let errands = self.running.iter().map(|running| {
            let named = members.iter().filter(|member| running.waiting.contains(*member));
            Errand { number: running.number, task: running.task.clone(), members: named.cloned().collect() }
        });
        errands.filter(|errand| !errand.members.is_empty()).collect()
    }

    pub(crate) fn report(&mut self, report: Report) {
        let Report { number, member, outcome } = report;
        let running = self.running.iter_mut().find(|running| running.number == number);
        if let Some(running) = running
            && running.waiting.remove(&member)
        {
            running.outcomes.insert(member, outcome);
        }
    }

    /// Takes it out if everybody has answered, or if `give_up`.
    pub(crate) fn end(&mut self, number: u64, give_up: bool) -> Option<Standing> {
        let place = self.running.iter().position(|running| running.number == number)?;
        if !self.running[place].waiting.is_empty() && !give_up {
            return None;
        }
        let Running { outcomes, waiting, .. } = self.running.swap_remove(place);
        Some(Standing { outcomes, waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::{ERRANDS_MAX, Errands};
    use protocol::time::Time;
    use runtime::heartbeat::{Outcome, Report, Task};

    #[test]
    fn an_errand_ends_when_everybody_has_reported() {
        let mut errands = Errands::new(7);
        let members = ["a", "b"].map(str::to_owned);
        let number = errands.begin(Time(0), Task::Reload, members.clone().into()).unwrap();
        let asked = errands.of(&["b".to_owned(), "c".to_owned()]);
        assert_eq!((asked.len(), &asked[0].members[..]), (1, &members[1..]));
        assert!(errands.of(&["c".to_owned()]).is_empty());
        let report = |member: &str, copies| Report {
            number,
            member: member.to_owned(),
            outcome: Outcome::Purged { copies },
        };
        errands.report(report("b", 1));
        errands.report(report("b", 2));
        errands.report(report("c", 3));
        assert!(errands.of(&members).iter().all(|errand| errand.members == members[..1]));
        assert!(errands.end(number, false).is_none());
        errands.report(report("a", 4));
        let standing = errands.end(number, false).unwrap();
        let outcomes: Vec<_> = standing.outcomes.into_values().collect();
        assert_eq!(outcomes, [Outcome::Purged { copies: 4 }, Outcome::Purged { copies: 1 }]);
        assert!(errands.end(number, true).is_none() && errands.of(&members).is_empty());
    }

    #[test]
    fn errands_are_bounded_in_number_and_time() {
        let mut errands = Errands::new(u64::MAX);
        let mut begin = |now| errands.begin(Time(now), Task::Reload, ["a".to_owned()].into());
        assert!((0..ERRANDS_MAX).all(|_| begin(0).is_some()));
        assert_eq!(begin(59_000_000), None);
        assert!(begin(60_000_000).is_some());
    }
}

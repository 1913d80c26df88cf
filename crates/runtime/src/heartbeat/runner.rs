//! Carries the errands of one controller out, each once, and keeps the reports until they are delivered. Not the asking.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Pulse;
use super::errand::{Errand, Outcome, Report, Task};
use crate::reload::Reloader;

/// Errands remembered, so that one that is told again is not begun again.
const BEGUN_MAX: usize = 256;
/// How long a report is worth hurrying for: whoever asked has gone by then.
const HURRY: Duration = Duration::from_secs(30);

type Outbox = Arc<Mutex<Vec<Report>>>;

pub(super) struct Runner {
    members: Vec<Pulse>,
    reloader: Option<Arc<Reloader>>,
    begun: VecDeque<u64>,
    /// Of the reports that are still to come.
    awaited: Vec<(u64, String)>,
    outbox: Outbox,
    hurry_until: Instant,
}

impl Runner {
    pub(super) fn new(members: Vec<Pulse>, reloader: Option<Arc<Reloader>>) -> Runner {
        Runner {
            members,
            reloader,
            begun: VecDeque::new(),
            awaited: Vec::new(),
            outbox: Outbox::default(),
            hurry_until: Instant::now(),
        }
    }

    pub(super) fn take(&mut self, errands: Vec<Errand>) {
        for errand in errands {
            if self.begun.contains(&errand.number) {
                continue;
            }
            if self.begun.len() == BEGUN_MAX {
                self.begun.pop_front();
            }
            self.begun.push_back(errand.number);
            self.hurry_until = Instant::now() + HURRY;
            self.begin(errand);
        }
    }

    fn begin(&mut self, errand: Errand) {
        let number = errand.number;
        self.awaited.extend(errand.members.iter().map(|member| (number, member.clone())));
        match errand.task {
            Task::Reload => {
                let outcome = match self.reloader.as_ref().map(|reloader| reloader.reload()) {
                    Some(Ok(reloaded)) => Outcome::Reloaded(reloaded),
                    Some(Err(reason)) => Outcome::Failed { reason },
                    None => Outcome::Failed { reason: "it has no configuration file".to_owned() },
                };
                for member in errand.members {
                    put(&self.outbox, Report { number, member, outcome: outcome.clone() });
                }
            }
            Task::Purge(scope) => {
                for member in errand.members {
                    let (outbox, id) = (Arc::clone(&self.outbox), member.clone());
                    let done = move |copies| {
                        let outcome = Outcome::Purged { copies };
                        put(&outbox, Report { number, member: id, outcome });
                    };
                    let named = |pulse: &&Pulse| pulse.id().is_some_and(|id| id == member);
                    let orders = self.members.iter().find(named).map(|pulse| &pulse.orders);
                    if !orders.is_some_and(|orders| orders.purge(scope.clone(), Box::new(done))) {
                        let reason = "too many purges wait already; try again later".to_owned();
                        put(&self.outbox, Report { number, member, outcome: Outcome::Failed { reason } });
                    }
                }
            }
        }
    }

    pub(super) fn reports(&self) -> Vec<Report> {
        lock(&self.outbox).clone()
    }

    /// The controller has got these.
    pub(super) fn delivered(&mut self, reports: &[Report]) {
        lock(&self.outbox).retain(|report| !reports.contains(report));
        let reported = |(number, member): &(u64, String)| {
            reports.iter().any(|report| report.number == *number && report.member == *member)
        };
        self.awaited.retain(|awaited| !reported(awaited));
    }

    /// Whether somebody waits for a report.
    pub(super) fn hurries(&mut self) -> bool {
        if Instant::now() >= self.hurry_until {
            self.awaited.clear();
        }
        !self.awaited.is_empty()
    }
}

fn put(outbox: &Outbox, report: Report) {
    lock(outbox).push(report);
}

fn lock(outbox: &Outbox) -> MutexGuard<'_, Vec<Report>> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Runner;
    use crate::heartbeat::{Errand, Outcome, Pulse, Task};
    use crate::instance::MapCell;
    use crate::orders::{Order, Orders, PurgeScope};
    use crate::status::{MemberStatus, ShimStatus, StatusCell};

    fn runner() -> (Runner, Orders) {
        let orders = Orders::default();
        let status = ShimStatus { id: "s0".to_owned(), ..ShimStatus::default() };
        let status = Some(StatusCell::new(MemberStatus::Shim(status)));
        let pulse = Pulse { status, maps: MapCell::default(), orders: orders.clone() };
        (Runner::new(vec![pulse], None), orders)
    }

    fn errand(task: Task) -> Errand {
        Errand { number: 7, task, members: vec!["s0".to_owned()] }
    }

    #[test]
    fn an_errand_is_done_once_and_reported_until_that_is_heard() {
        let (mut runner, orders) = runner();
        let purge = || errand(Task::Purge(PurgeScope::Prefix("a".to_owned())));
        runner.take(vec![purge(), purge()]);
        runner.take(vec![purge()]);
        let mut taken = orders.take();
        assert!(taken.len() == 1 && runner.hurries() && runner.reports().is_empty());
        let Some(Order::Purge { done, .. }) = taken.pop() else { panic!("a purge") };
        done(3);
        let reports = runner.reports();
        assert_eq!((reports.len(), &reports[0].outcome), (1, &Outcome::Purged { copies: 3 }));
        assert_eq!(runner.reports(), reports, "not delivered yet");
        runner.delivered(&reports);
        assert!(runner.reports().is_empty() && !runner.hurries());
    }

    #[test]
    fn what_cannot_be_done_is_reported_too() {
        let (mut runner, _orders) = runner();
        runner.take(vec![errand(Task::Reload)]);
        assert!(matches!(&runner.reports()[0].outcome, Outcome::Failed { .. }));
        let (mut runner, _orders) = self::runner();
        let stranger = Errand { members: vec!["s9".to_owned()], ..errand(Task::Purge(PurgeScope::All)) };
        runner.take(vec![stranger]);
        assert!(matches!(&runner.reports()[0].outcome, Outcome::Failed { .. }));
    }
}

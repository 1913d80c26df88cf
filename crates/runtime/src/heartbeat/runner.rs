//! Carries the orders of one controller out, each once, and keeps the reports until they are delivered. Not the asking.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Pulse;
use super::order::{MemberOrder, OrderKind, OrderOutcome, OrderReport};
use crate::reload::Reloader;
use wire::RELEASE;

/// Orders remembered, so that one that is told again is not begun again.
const BEGUN_MAX: usize = 256;
/// How long a report is worth hurrying for: whoever asked has gone by then.
const HURRY: Duration = Duration::from_secs(30);

type Outbox = Arc<Mutex<Vec<OrderReport>>>;

pub(super) struct Runner {
    members: Vec<Pulse>,
    reloader: Option<Arc<Reloader>>,
    begun: VecDeque<u64>,
    /// Orders and members whose reports are still to come.
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

    pub(super) fn take(&mut self, orders: Vec<MemberOrder>) {
        for order in orders {
            if self.begun.contains(&order.number) {
                continue;
            }
            if self.begun.len() == BEGUN_MAX {
                self.begun.pop_front();
            }
            self.begun.push_back(order.number);
            self.hurry_until = Instant::now() + HURRY;
            self.begin(order);
        }
    }

    fn begin(&mut self, order: MemberOrder) {
        let number = order.number;
        self.awaited.extend(order.members.iter().map(|member| (number, member.clone())));
        match order.kind {
            OrderKind::Reload => {
                let outcome = match self.reloader.as_ref().map(|reloader| reloader.reload()) {
                    Some(Ok(reloaded)) => OrderOutcome::Reloaded(reloaded),
                    Some(Err(reason)) => OrderOutcome::Failed { reason },
                    None => OrderOutcome::Failed { reason: "it has no configuration file".to_owned() },
                };
                for member in order.members {
                    put(&self.outbox, OrderReport { number, member, outcome: outcome.clone() });
                }
            }
            OrderKind::Unknown(_) => {
                let reason = format!("its release, {RELEASE}, does not know this order; upgrade it");
                for member in order.members {
                    let outcome = OrderOutcome::Failed { reason: reason.clone() };
                    put(&self.outbox, OrderReport { number, member, outcome });
                }
            }
            OrderKind::Purge(scope) => {
                for member in order.members {
                    let (outbox, id) = (Arc::clone(&self.outbox), member.clone());
                    let done = move |copies| {
                        let outcome = OrderOutcome::Purged { copies };
                        put(&outbox, OrderReport { number, member: id, outcome });
                    };
                    let named = |pulse: &&Pulse| pulse.id().is_some_and(|id| id == member);
                    let orders = self.members.iter().find(named).map(|pulse| &pulse.orders);
                    if !orders.is_some_and(|orders| orders.purge(scope.clone(), Box::new(done))) {
                        let reason = "too many purges wait already; try again later".to_owned();
                        put(
                            &self.outbox,
                            OrderReport { number, member, outcome: OrderOutcome::Failed { reason } },
                        );
                    }
                }
            }
        }
    }

    pub(super) fn reports(&self) -> Vec<OrderReport> {
        lock(&self.outbox).clone()
    }

    /// The controller has got these.
    pub(super) fn delivered(&mut self, reports: &[OrderReport]) {
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

fn put(outbox: &Outbox, report: OrderReport) {
    lock(outbox).push(report);
}

fn lock(outbox: &Outbox) -> MutexGuard<'_, Vec<OrderReport>> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Runner;
    use crate::heartbeat::{MemberOrder, OrderKind, OrderOutcome, Pulse};
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

    fn order(kind: OrderKind) -> MemberOrder {
        MemberOrder { number: 7, kind, members: vec!["s0".to_owned()] }
    }

    #[test]
    fn an_order_is_done_once_and_reported_until_that_is_heard() {
        let (mut runner, orders) = runner();
        let purge = || order(OrderKind::Purge(PurgeScope::Prefix("a".to_owned())));
        runner.take(vec![purge(), purge()]);
        runner.take(vec![purge()]);
        let mut taken = orders.take();
        assert!(taken.len() == 1 && runner.hurries() && runner.reports().is_empty());
        let Some(Order::Purge { done, .. }) = taken.pop() else { panic!("a purge") };
        done(3);
        let reports = runner.reports();
        assert_eq!((reports.len(), &reports[0].outcome), (1, &OrderOutcome::Purged { copies: 3 }));
        assert_eq!(runner.reports(), reports, "not delivered yet");
        runner.delivered(&reports);
        assert!(runner.reports().is_empty() && !runner.hurries());
    }

    #[test]
    fn what_cannot_be_done_is_reported_too() {
        let (mut runner, _orders) = runner();
        runner.take(vec![order(OrderKind::Reload)]);
        assert!(matches!(&runner.reports()[0].outcome, OrderOutcome::Failed { .. }));
        let (mut runner, _orders) = self::runner();
        let later = r#"{"number":7,"task":{"polish":{"twice":true}},"members":["s0"]}"#;
        runner.take(vec![serde_json::from_str(later).unwrap()]);
        assert!(
            matches!(&runner.reports()[0].outcome, OrderOutcome::Failed { reason } if reason.contains("upgrade"))
        );
        let (mut runner, _orders) = self::runner();
        let stranger =
            MemberOrder { members: vec!["s9".to_owned()], ..order(OrderKind::Purge(PurgeScope::All)) };
        runner.take(vec![stranger]);
        assert!(matches!(&runner.reports()[0].outcome, OrderOutcome::Failed { .. }));
    }
}

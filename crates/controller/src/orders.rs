//! What members are asked to do and what they have answered so far. Not how it travels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::time::Time;
use runtime::heartbeat::{MemberOrder, OrderKind, OrderOutcome, OrderReport};

/// Orders under way at a time.
const ORDERS_MAX: usize = 16;
/// An order that is older than this is dropped: who asked has gone.
const LIFE: Duration = Duration::from_secs(60);

pub(crate) struct OpenOrders {
    running: Vec<OpenOrder>,
    last: u64,
}

struct OpenOrder {
    number: u64,
    kind: OrderKind,
    begun: Time,
    waiting: BTreeSet<String>,
    outcomes: BTreeMap<String, OrderOutcome>,
}

/// How an order stands: who has answered what, and who has not.
pub(crate) struct OrderProgress {
    pub(crate) outcomes: BTreeMap<String, OrderOutcome>,
    pub(crate) waiting: BTreeSet<String>,
}

impl OpenOrders {
    /// `first` tells the orders of this life of a controller from those of the one before.
    pub(crate) fn new(first: u64) -> OpenOrders {
        OpenOrders { running: Vec::new(), last: first }
    }

    /// The number of the order; `None` if too many are under way.
    pub(crate) fn begin(&mut self, now: Time, kind: OrderKind, members: BTreeSet<String>) -> Option<u64> {
        self.running.retain(|running| now.since(running.begun) < LIFE);
        if self.running.len() >= ORDERS_MAX {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        self.running.push(OpenOrder {
            number,
            kind,
            begun: now,
            waiting: members,
            outcomes: BTreeMap::new(),
        });
        Some(number)
    }

    /// What these members still have to do.
    pub(crate) fn of(&self, members: &[String]) -> Vec<MemberOrder> {
        let orders = self.running.iter().map(|running| {
            let named = members.iter().filter(|member| running.waiting.contains(*member));
            MemberOrder {
                number: running.number,
                kind: running.kind.clone(),
                members: named.cloned().collect(),
            }
        });
        orders.filter(|order| !order.members.is_empty()).collect()
    }

    pub(crate) fn report(&mut self, report: OrderReport) {
        let OrderReport { number, member, outcome } = report;
        let running = self.running.iter_mut().find(|running| running.number == number);
        if let Some(running) = running
            && running.waiting.remove(&member)
        {
            running.outcomes.insert(member, outcome);
        }
    }

    /// Takes it out if everybody has answered, or if `give_up`.
    pub(crate) fn end(&mut self, number: u64, give_up: bool) -> Option<OrderProgress> {
        let place = self.running.iter().position(|running| running.number == number)?;
        if !self.running[place].waiting.is_empty() && !give_up {
            return None;
        }
        let OpenOrder { outcomes, waiting, .. } = self.running.swap_remove(place);
        Some(OrderProgress { outcomes, waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::{ORDERS_MAX, OpenOrders};
    use protocol::time::Time;
    use runtime::heartbeat::{OrderKind, OrderOutcome, OrderReport};

    #[test]
    fn an_order_ends_when_everybody_has_reported() {
        let mut orders = OpenOrders::new(7);
        let members = ["a", "b"].map(str::to_owned);
        let number = orders.begin(Time(0), OrderKind::Reload, members.clone().into()).unwrap();
        let asked = orders.of(&["b".to_owned(), "c".to_owned()]);
        assert_eq!((asked.len(), &asked[0].members[..]), (1, &members[1..]));
        assert!(orders.of(&["c".to_owned()]).is_empty());
        let report = |member: &str, copies| OrderReport {
            number,
            member: member.to_owned(),
            outcome: OrderOutcome::Purged { copies },
        };
        orders.report(report("b", 1));
        orders.report(report("b", 2));
        orders.report(report("c", 3));
        assert!(orders.of(&members).iter().all(|order| order.members == members[..1]));
        assert!(orders.end(number, false).is_none());
        orders.report(report("a", 4));
        let progress = orders.end(number, false).unwrap();
        let outcomes: Vec<_> = progress.outcomes.into_values().collect();
        assert_eq!(outcomes, [OrderOutcome::Purged { copies: 4 }, OrderOutcome::Purged { copies: 1 }]);
        assert!(orders.end(number, true).is_none() && orders.of(&members).is_empty());
    }

    #[test]
    fn orders_are_bounded_in_number_and_time() {
        let mut orders = OpenOrders::new(u64::MAX);
        let mut begin = |now| orders.begin(Time(now), OrderKind::Reload, ["a".to_owned()].into());
        assert!((0..ORDERS_MAX).all(|_| begin(0).is_some()));
        assert_eq!(begin(59_000_000), None);
        assert!(begin(60_000_000).is_some());
    }
}

//! What a router knows of the nodes' loads, and the choice of the less loaded. Not what a node measures.

use std::time::Duration;

use wire::NodeId;

use super::LOAD_MAX;
use crate::time::Time;

/// How long an entry takes to fall to zero, in a straight line. About as long as a node's own count takes to forget
/// its requests. Much longer, and a node looks busy long after it went idle; see `LoadTable`.
const AGING: Duration = Duration::from_secs(1);
/// How long an entry with unanswered requests keeps its full weight before it ages.
const PATIENCE: Duration = Duration::from_secs(1);

/// The loads of all nodes as far as replies have told, indexed by node.
///
/// An entry is the last reported load plus one per request that the router has sent since then. It ages toward
/// zero from the moment of the report (paper, section 4.2). The node that is not chosen sends no reports, so without
/// aging its entry stays at the height that kept it from being chosen, until the other node has risen above that:
/// routers then swing between the two. With aging, an entry that is not refreshed soon falls below the other; the
/// router tries it with one request, which restores its full weight until the answer tells the truth. A node that
/// leaves requests unanswered keeps its weight for longer: it is tried about once a second.
#[derive(Clone, Debug)]
pub struct LoadTable {
    entries: Vec<Entry>,
    aging: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    reported: u32,
    sent: u32,
    touched: Time,
    reachable: bool,
}

impl LoadTable {
    /// A table of nodes 0 to `nodes - 1`, all with load zero and reachable.
    pub fn new(nodes: usize) -> LoadTable {
        LoadTable::with_aging(nodes, Some(AGING))
    }

    /// A table whose entries fall to zero within `aging`, or never: for studies of what aging is good for.
    pub fn with_aging(nodes: usize, aging: Option<Duration>) -> LoadTable {
        let entry = Entry { reported: 0, sent: 0, touched: Time(0), reachable: true };
        LoadTable { entries: vec![entry; nodes], aging }
    }

    /// A reply has brought a node's load, in requests per second per unit of capacity. Unknown nodes are ignored.
    pub fn report(&mut self, now: Time, node: NodeId, load: u32) {
        if let Some(entry) = self.entries.get_mut(usize::from(node.0)) {
            entry.reported = load.min(LOAD_MAX);
            entry.sent = 0;
            entry.touched = now;
        }
    }

    /// The router sends a request to a node. Counting it at once keeps a router from sending a whole batch to
    /// the node that the last report showed to be the idler one.
    pub fn sent(&mut self, now: Time, node: NodeId) {
        if let Some(entry) = self.entries.get_mut(usize::from(node.0)) {
            entry.sent = entry.sent.saturating_add(1);
            entry.touched = now;
        }
    }

    /// Whether the node can be chosen. One that comes back starts with load zero, as it will be empty.
    pub fn set_reachable(&mut self, node: NodeId, reachable: bool) {
        if let Some(entry) = self.entries.get_mut(usize::from(node.0))
            && entry.reachable != reachable
        {
            *entry = Entry { reported: 0, sent: 0, touched: Time(0), reachable };
        }
    }

    /// The node's load as the router sees it; zero for nodes it does not know.
    pub fn load(&self, now: Time, node: NodeId) -> u32 {
        self.entries.get(usize::from(node.0)).map_or(0, |entry| entry.load(now, self.aging))
    }

    /// The least loaded reachable candidate, ties broken by `random`; none if no candidate is reachable.
    pub fn choose(&self, now: Time, candidates: &[NodeId], random: u64) -> Option<NodeId> {
        let mut best = None;
        let mut least = u32::MAX;
        let (mut ties, mut random) = (0, random);
        for &node in candidates {
            let Some(entry) = self.entries.get(usize::from(node.0)).filter(|entry| entry.reachable) else {
                continue;
            };
            let load = entry.load(now, self.aging);
            if best.is_none() || load < least {
                (best, least, ties) = (Some(node), load, 1);
            } else if load == least {
                // Each of n equals must win with 1/n: the n-th takes over from the winner so far with 1/n. Every
                // draw uses up its part of `random`, so that the draws are independent.
                ties += 1;
                if random % ties == 0 {
                    best = Some(node);
                }
                random /= ties;
            }
        }
        best
    }
}

impl Entry {
    fn load(&self, now: Time, aging: Option<Duration>) -> u32 {
        let full = self.reported.saturating_add(self.sent).min(LOAD_MAX);
        let Some(aging) = aging else { return full };
        let silence = now.since(self.touched);
        let age = if self.sent == 0 { silence } else { silence.saturating_sub(PATIENCE) };
        let left = aging.saturating_sub(age).as_micros() as u64;
        (u64::from(full) * left / (aging.as_micros() as u64).max(1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const SECOND: u64 = 1_000_000;

    /// Shares of the choices over many values of `random`, in thousandths.
    fn shares(table: &LoadTable, candidates: &[NodeId], nodes: usize) -> Vec<u32> {
        let mut counts = vec![0; nodes];
        for n in 0..60_000u64 {
            let random = (n + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(32)
                .wrapping_mul(0xd6e8_feb8_6659_fd93);
            let node = table.choose(Time(0), candidates, random).unwrap();
            counts[usize::from(node.0)] += 1;
        }
        counts.iter().map(|count| count * 1000 / 60_000).collect()
    }

    #[test]
    fn takes_the_least_loaded_of_one_to_four() {
        let mut table = LoadTable::new(4);
        let loads = [400, 300, 200, 100];
        let nodes: Vec<NodeId> = (0..4).map(NodeId).collect();
        for (node, load) in nodes.iter().zip(loads) {
            table.report(Time(0), *node, load);
        }
        for k in 1..=4 {
            assert_eq!(
                table.choose(Time(0), &nodes[..k], 9),
                Some(nodes[k - 1]),
                "the last of {k} is the idlest"
            );
            assert_eq!(table.choose(Time(0), &nodes[4 - k..], 9), Some(nodes[3]));
        }
        assert_eq!(table.choose(Time(0), &[], 9), None);
    }

    #[test]
    fn ties_are_broken_evenly() {
        let mut table = LoadTable::new(5);
        table.report(Time(0), NodeId(2), 1);
        let nodes: Vec<NodeId> = (0..5).map(NodeId).collect();
        for (candidates, tied) in [(&nodes[..2], 2), (&nodes[..4], 3), (&nodes[..5], 4)] {
            for (node, share) in shares(&table, candidates, 5).into_iter().enumerate() {
                let due = if node == 2 || node >= candidates.len() { 0 } else { 1000 / tied };
                assert!(share.abs_diff(due) <= 8, "{share} of 1000 for node {node} of {tied} tied");
            }
        }
    }

    #[test]
    fn own_sends_count_until_the_next_report() {
        let mut table = LoadTable::new(2);
        table.report(Time(0), A, 100);
        table.report(Time(0), B, 110);
        for _ in 0..11 {
            assert_eq!(table.choose(Time(0), &[A, B], 0), Some(A));
            table.sent(Time(0), A);
            if table.load(Time(0), A) >= 110 {
                break;
            }
        }
        table.sent(Time(0), A);
        assert_eq!(table.choose(Time(0), &[A, B], 0), Some(B));
        table.report(Time(0), A, 105);
        assert_eq!(table.load(Time(0), A), 105);
        assert_eq!(table.choose(Time(0), &[A, B], 0), Some(A));
    }

    #[test]
    fn ages_to_zero_in_a_straight_line_and_later_while_requests_are_unanswered() {
        let mut table = LoadTable::new(1);
        table.report(Time(SECOND), A, 1000);
        let check = |table: &LoadTable, now_ms: u64, expected: u32| {
            assert_eq!(table.load(Time(now_ms * 1000), A), expected, "at {now_ms} ms");
        };
        check(&table, 1000, 1000);
        check(&table, 1001, 999);
        check(&table, 1500, 500);
        check(&table, 2000, 0);
        check(&table, 60_000, 0);
        check(&table, 0, 1000);
        table.sent(Time(60 * SECOND), A);
        check(&table, 60_000, 1001);
        check(&table, 61_000, 1001);
        check(&table, 61_500, 500);
        check(&table, 62_000, 0);
        table.report(Time(62 * SECOND), A, 10);
        check(&table, 62_500, 5);
    }

    #[test]
    fn another_aging_is_kept_and_none_keeps_every_report() {
        let loads = |aging: Option<Duration>| {
            let mut table = LoadTable::with_aging(1, aging);
            table.report(Time(0), A, 1000);
            [0, 50_000, 100_000, 60 * SECOND].map(|now| table.load(Time(now), A))
        };
        assert_eq!(loads(Some(Duration::from_millis(100))), [1000, 500, 0, 0]);
        assert_eq!(loads(Some(Duration::ZERO)), [0, 0, 0, 0]);
        assert_eq!(loads(None), [1000; 4]);
    }

    #[test]
    fn a_node_that_never_answers_is_tried_about_once_a_second() {
        let mut table = LoadTable::new(2);
        table.report(Time(0), A, 1000);
        let mut tries = 0;
        for ms in 0..20_000u64 {
            let now = Time(ms * 1000);
            table.report(now, B, 1500);
            if table.choose(now, &[A, B], ms) == Some(A) {
                table.sent(now, A);
                tries += u64::from(ms >= 2000);
            }
        }
        assert!((9..=18).contains(&tries), "{tries} tries in 18 seconds");
    }

    #[test]
    fn an_idle_node_is_tried_with_one_request_not_a_flood() {
        let mut table = LoadTable::new(2);
        table.report(Time(0), A, 5000);
        let now = Time(10 * SECOND);
        table.report(now, B, 4000);
        assert_eq!(table.choose(now, &[A, B], 0), Some(A));
        table.sent(now, A);
        assert_eq!(table.choose(now, &[A, B], 0), Some(B));
        table.report(now, A, 1);
        assert_eq!(table.choose(now, &[A, B], 0), Some(A));
    }

    #[test]
    fn unreachable_nodes_are_never_chosen_and_return_without_a_past() {
        let mut table = LoadTable::new(2);
        table.report(Time(0), A, 10);
        table.report(Time(0), B, 500);
        table.set_reachable(A, false);
        assert_eq!(table.choose(Time(0), &[A, B], 0), Some(B));
        table.report(Time(0), A, 700);
        assert_eq!(table.choose(Time(0), &[A, B], 0), Some(B), "a late report does not bring it back");
        table.set_reachable(B, false);
        assert_eq!(table.choose(Time(0), &[A, B], 0), None);
        table.set_reachable(A, true);
        assert_eq!(table.choose(Time(0), &[A, B], 0), Some(A));
        assert_eq!(table.load(Time(0), A), 0);
        table.report(Time(0), A, 30);
        table.set_reachable(A, true);
        assert_eq!(table.load(Time(0), A), 30, "nothing changes for a node that was reachable");
    }

    #[test]
    fn forged_and_unknown_reports_do_no_harm() {
        let mut table = LoadTable::new(1);
        table.report(Time(0), A, u32::MAX);
        table.sent(Time(0), A);
        assert_eq!(table.load(Time(0), A), LOAD_MAX);
        table.report(Time(0), NodeId(9), 5);
        table.sent(Time(0), NodeId(9));
        table.set_reachable(NodeId(9), true);
        assert_eq!(table.load(Time(0), NodeId(9)), 0);
        assert_eq!(table.choose(Time(0), &[NodeId(9)], 0), None);
        assert_eq!(table.choose(Time(0), &[NodeId(9), A], 0), Some(A));
    }
}

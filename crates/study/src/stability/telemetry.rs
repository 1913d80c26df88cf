//! What routers know of nodes: the product's load tables, fed by replies or by the truth. Not the queues themselves.

use std::collections::VecDeque;
use std::time::Duration;

use protocol::load::{LoadMeter, LoadTable};
use protocol::time::Time;
use wire::NodeId;

use super::{StabilitySettings, Telemetry};

const WINDOW: Duration = Duration::from_secs(1);

pub(super) enum Knowledge {
    /// One table that hears of every change.
    Truth(LoadTable),
    Replies(ReplyTelemetry),
}

pub(super) struct ReplyTelemetry {
    tables: Vec<LoadTable>,
    meters: Vec<NodeMeter>,
    /// Who sent the requests that wait at each node.
    senders: Vec<VecDeque<u16>>,
    /// Throughput in thousandths of that of a node of layer 0.
    capacities: Vec<u32>,
}

enum NodeMeter {
    Sliding(LoadMeter),
    Completed(CompletedWindow),
}

/// The count of the last whole window, as a switch has it that resets its counter.
#[derive(Default)]
struct CompletedWindow {
    window: u64,
    current: u32,
    last: u32,
}

impl Knowledge {
    pub(super) fn new(settings: &StabilitySettings) -> Knowledge {
        let capacities = settings.model.capacities();
        let nodes = capacities.len();
        let meter = || match settings.telemetry {
            Telemetry::Exact => None,
            Telemetry::Sliding => Some(NodeMeter::Sliding(LoadMeter::new(WINDOW))),
            Telemetry::Completed => Some(NodeMeter::Completed(CompletedWindow::default())),
        };
        match (0..nodes).map(|_| meter()).collect() {
            None => Knowledge::Truth(LoadTable::with_aging(nodes, None)),
            Some(meters) => Knowledge::Replies(ReplyTelemetry {
                tables: vec![LoadTable::with_aging(nodes, settings.aging); settings.routers],
                meters,
                senders: vec![VecDeque::new(); nodes],
                capacities: capacities.iter().map(|capacity| (capacity * 1000.0).round() as u32).collect(),
            }),
        }
    }

    pub(super) fn choose(&self, now: Time, router: u16, candidates: &[NodeId], random: u64) -> NodeId {
        let table = match self {
            Knowledge::Truth(table) => table,
            Knowledge::Replies(replies) => &replies.tables[usize::from(router)],
        };
        table.choose(now, candidates, random).expect("all nodes are reachable")
    }

    /// A request is on its way to a node, whose queue it joins or, if that is full, is dropped from without a word.
    pub(super) fn sent(&mut self, now: Time, router: u16, node: NodeId, queue: u32, joined: bool) {
        match self {
            Knowledge::Truth(table) => table.report(now, node, queue),
            Knowledge::Replies(replies) => {
                replies.tables[usize::from(router)].sent(now, node);
                if joined {
                    replies.senders[usize::from(node.0)].push_back(router);
                }
            }
        }
    }

    /// A node has served a request and answers.
    pub(super) fn served(&mut self, now: Time, node: NodeId, queue: u32) {
        match self {
            Knowledge::Truth(table) => table.report(now, node, queue),
            Knowledge::Replies(replies) => replies.answer(now, node),
        }
    }
}

impl ReplyTelemetry {
    fn answer(&mut self, now: Time, node: NodeId) {
        let index = usize::from(node.0);
        let router = self.senders[index].pop_front().expect("who is served has joined");
        let capacity = self.capacities[index];
        let load = match &mut self.meters[index] {
            NodeMeter::Sliding(meter) => {
                meter.record(now);
                meter.load(now, capacity)
            }
            NodeMeter::Completed(meter) => {
                meter.record(now);
                (u64::from(meter.last) * 1000 / u64::from(capacity.max(1))) as u32
            }
        };
        self.tables[usize::from(router)].report(now, node, load);
    }
}

impl CompletedWindow {
    fn record(&mut self, now: Time) {
        let window = now.0 / WINDOW.as_micros() as u64;
        if window != self.window {
            self.last = if window == self.window + 1 { self.current } else { 0 };
            (self.window, self.current) = (window, 0);
        }
        self.current += 1;
    }
}

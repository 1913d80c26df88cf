//! What must hold: at every step no stale copy, in the end an order for every key, no debts, no leftovers.

use protocol::node::NodeBacklog;
use protocol::shim::ShimBacklog;

use crate::history::Outcome;
use crate::linearize;
use crate::network::{End, NODES, SLOTS};
use crate::world::World;

impl World {
    /// Whatever the node would serve now is what storage holds now. A node that is paused serves nothing: its
    /// clock is read after what it is asked.
    pub(crate) fn check_node(&mut self, index: End) {
        let process = &self.nodes[index];
        let Some(node) = process.machine.as_ref().filter(|_| process.paused_until <= self.now) else {
            return;
        };
        if node.objects() == 0 {
            return;
        }
        let (local, milliseconds) = (process.clock.at(self.now), self.storage_ms());
        let mut stale = None;
        for key in &self.keys {
            for (form, view) in key.reads.iter().flat_map(|form| form.views.map(|view| (form, view))) {
                let Some(served) = node.servable(local, &key.key, view) else { continue };
                let Some(held) = self.storage.execute(milliseconds, &form.command) else { continue };
                let served = if served.is_empty() { &b"$-1\r\n"[..] } else { &served[..] };
                if held != served {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", " ");
                    stale = Some(format!(
                        "node {index} would answer {:?} with {}, storage holds {}",
                        form.command,
                        text(served),
                        text(&held)
                    ));
                }
            }
        }
        if let Some(stale) = stale {
            self.fail(stale);
        }
    }

    pub(crate) fn finish(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.check_debts();
        self.check_directory();
        for key in 0..self.keys.len() {
            let operations = self.history.of_key(key);
            let verdict = linearize::check(&operations, self.keys[key].initial());
            if let Err(report) = verdict {
                self.fail(format!("key {:?}: {report}", self.keys[key].key.bytes));
            }
        }
        let operations = &self.history.operations;
        self.report.operations += operations.len() as u64;
        let unknown = operations.iter().filter(|one| matches!(one.outcome, Outcome::Unknown { .. }));
        self.report.unknown += unknown.count() as u64;
        NODES.for_each(|index| self.count_node(index));
        (0..SLOTS.len()).for_each(|index| self.count_shim(index));
    }

    /// Every operation has ended and nothing waits for anything.
    fn check_debts(&mut self) {
        if let Some((number, request)) = self.requests.first_key_value() {
            let what = &self.history.operations[request.operations[0]];
            return self.fail(format!("{number} was never answered: {request:?}, {what:?}"));
        }
        for index in NODES {
            let Some(node) = &self.nodes[index].machine else { continue };
            let (backlog, consistent) = (node.backlog(), node.is_consistent());
            if backlog != NodeBacklog::default() {
                self.fail(format!("node {index} is left with {backlog:?}"));
            }
            if !consistent {
                self.fail(format!("node {index} has lost count of its objects"));
            }
        }
        let Some(shim) = &self.shims[self.current - SLOTS.start].machine else {
            return self.fail("there is no shim in the end".into());
        };
        let backlog = shim.backlog();
        if backlog != ShimBacklog::default() {
            self.fail(format!("the shim is left with {backlog:?}"));
        }
    }

    /// Where no message can be lost, the directory knows of no copy that its node does not.
    fn check_directory(&mut self) {
        let Some(shim) = &self.shims[self.current - SLOTS.start].machine else { return };
        if !self.swarm.loses_nothing() {
            return;
        }
        let mut phantom = None;
        for key in &self.keys {
            for holder in shim.holders(&key.key) {
                let node = &self.nodes[usize::from(holder.0)].machine;
                if !node.as_ref().is_some_and(|node| node.knows(&key.key)) {
                    phantom =
                        Some(format!("the directory has {holder:?} for {:?}, which does not", key.key.bytes));
                }
            }
        }
        if let Some(phantom) = phantom {
            self.fail(phantom);
        }
    }

    pub(crate) fn count_node(&mut self, index: End) {
        let Some(node) = &self.nodes[index].machine else { return };
        let (statistics, report) = (node.statistics(), &mut self.report);
        report.hits += statistics.hits;
        report.joined += statistics.joined;
        report.fills += statistics.fills;
        report.poisoned += statistics.poisoned;
        report.ungranted += statistics.ungranted;
        report.commits += statistics.commits;
        report.evictions += statistics.evictions;
        report.lease_losses += statistics.lease_losses;
    }

    pub(crate) fn count_shim(&mut self, index: usize) {
        let Some(shim) = &self.shims[index].machine else { return };
        let (statistics, report) = (shim.statistics(), &mut self.report);
        report.repeats += statistics.repeats;
        report.revokes += statistics.revokes;
        report.lapses += statistics.lease_lapses;
        report.storage_lost += statistics.storage_lost;
    }
}

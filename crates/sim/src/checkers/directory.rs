//! Copies against storage, the directory and leases: nothing that could be served may be stale or unknown.

use std::time::Duration;

use wire::resp::Command;
use wire::{Key, Peer};

use crate::cluster::Cluster;
use crate::network::HostId;
use crate::storage::Effect;

const NULL: &[u8] = b"$-1\r\n";

impl Cluster {
    fn index_of_key(&self, name: &[u8]) -> Option<usize> {
        self.keys.iter().position(|key| key.key.bytes == name)
    }

    /// Storage has just carried out a command: no node may serve what was there before.
    pub(crate) fn check_written(&mut self, server: usize, command: &Command, effect: Effect) {
        let written: Vec<usize> = match effect {
            Effect::Read => return,
            Effect::Wrote if command.name() == b"MSET" => {
                (1..command.len()).step_by(2).filter_map(|arg| self.index_of_key(command.arg(arg))).collect()
            }
            Effect::Wrote => self.index_of_key(command.arg(1)).into_iter().collect(),
            Effect::WroteAll => {
                let here = |key: &usize| usize::from(self.placement.shim(&self.keys[*key].key).0) == server;
                (0..self.keys.len()).filter(here).collect()
            }
        };
        for index in written {
            let key = self.keys[index].key.clone();
            for holder in self.holders() {
                match self.shape.is_unfenced() {
                    // It may be late.
                    true => self.check_fresh(holder, index),
                    false => self.check_current(holder, &key),
                }
            }
        }
    }

    /// Whatever the node would serve now is what storage holds now, or held a moment ago if others write, too, or if it has lost
    /// that.
    pub(crate) fn check_servable(&mut self, host: HostId, key: &Key) {
        let index = self.index_of_key(&key.bytes);
        let lost = index.is_some_and(|index| self.known_lost(index, self.world.now()) != u64::MAX);
        match (self.shape.has_outsiders() || lost, index) {
            (true, Some(index)) => self.check_fresh(host, index),
            (true, None) => {}
            (false, _) => self.check_current(host, key),
        }
    }

    /// Whatever the node would serve now is what storage holds now. A node that is paused serves nothing: its clock
    /// is read after what it is asked.
    fn check_current(&mut self, host: HostId, key: &Key) {
        if self.hosts[host].is_paused(self.world.now()) {
            return;
        }
        let Some(node) = self.hosts[host].holder().filter(|node| node.knows(key)) else { return };
        // Under another digest, as confused peers have it, nobody asks for it.
        let known = self.index_of_key(&key.bytes).filter(|index| self.keys[*index].key == *key);
        let Some(index) = known else { return };
        let local = self.hosts[host].clock.at(self.world.now());
        let server = &mut self.servers[usize::from(self.placement.shim(key).0)];
        let now_ms = server.now_ms(self.world.now());
        let mut stale = None;
        for form in &self.keys[index].reads {
            for (resp3, view) in form.views.into_iter().enumerate() {
                let Some(served) = node.servable(local, key, view) else { continue };
                let resp3 = resp3 == 1 && form.views[0] != form.views[1];
                let Some((held, _)) = server.data().execute(now_ms, &form.command, resp3) else { continue };
                let served = if served.is_empty() { NULL } else { &served[..] };
                if held != served {
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", " ");
                    stale = Some(format!(
                        "node {host} would answer {:?} with {}, storage holds {}",
                        form.command,
                        text(served),
                        text(&held)
                    ));
                }
            }
        }
        if let Some(stale) = stale {
            self.world.fail(stale);
        }
    }

    /// A node has got a lease: it must end before the shim's, in virtual time.
    pub(crate) fn check_lease(&mut self, host: HostId, from: Peer) {
        let Peer::Shim(shim) = from else { return };
        let own = &self.hosts[host];
        let local = own.clock.at(self.world.now());
        let Some((session, remaining)) = own.holder().and_then(|node| node.session(local, shim)) else {
            return;
        };
        let ours = own.clock.virtual_us(remaining.as_micros() as u64);
        let Some(id) = own.role.peer() else { return };
        for slot in self.slots() {
            let other = &self.hosts[slot];
            let Some(machine) = other.shim() else { continue };
            if other.role.peer() != Some(from) {
                continue;
            }
            let there = machine.session(other.clock.at(self.world.now()), id);
            let theirs = there.filter(|(id, _)| *id == session).map(|(_, remaining)| remaining);
            let theirs =
                theirs.map(|remaining: Duration| other.clock.virtual_us(remaining.as_micros() as u64));
            if theirs.is_some_and(|theirs| ours > theirs) {
                self.world
                    .fail(format!("the lease of node {host} from {from:?} outlives the shim's by {ours} us"));
                return;
            }
        }
    }

    /// What a node could serve its shim would invalidate.
    pub(crate) fn check_known(&mut self) {
        let mut unknown = None;
        // Two shims may write side by side, and each is told of what the other one writes.
        if self.shape.refused.users {
            return;
        }
        for host in self.holders() {
            let own = &self.hosts[host];
            let (Some(node), Some(id)) = (own.holder(), own.role.peer()) else { continue };
            let local = own.clock.at(self.world.now());
            for key in self.keys.iter().filter(|key| node.knows(&key.key)) {
                let mut views = key.reads.iter().flat_map(|form| form.views);
                if !views.any(|view| node.servable(local, &key.key, view).is_some()) {
                    continue;
                }
                let slot = &self.hosts[self.servers[usize::from(self.placement.shim(&key.key).0)].obeyed];
                let Some(shim) = slot.shim() else { continue };
                let there = slot.clock.at(self.world.now());
                let owner = self.placement.shim(&key.key);
                let session = node.session(local, owner).map(|(session, _)| session);
                let counted = session.is_some_and(|session| shim.grants_run(there, id, session));
                let known = shim.holds_writes(there) || (counted && shim.would_invalidate(&key.key, id));
                if !known {
                    unknown = Some(format!(
                        "node {host} could serve {:?}, and its shim would write without asking it",
                        key.key.bytes
                    ));
                }
            }
        }
        if let Some(unknown) = unknown {
            self.world.fail(unknown);
        }
    }
}

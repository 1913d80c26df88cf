//! What goes wrong on the schedule, and how it heals. Not how machines take it.

use std::sync::Arc;
use std::time::Duration;

use protocol::node::{self, Node};
use protocol::shim::{self, Shim};
use protocol::storage::{StorageEvent, StorageTraits};
use rand::RngExt;

use crate::backend::Backend;
use crate::network::{End, NODES, SLOTS};
use crate::world::{Clock, Timer, World, placement};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Break,
    Stall,
    PauseNode,
    PauseShim,
    KillNode,
    KillShim,
    LoseStorage,
    PauseStorage,
    Incarnation,
    Remap,
}

impl World {
    pub(crate) fn plan_faults(&mut self) {
        let swarm = self.swarm.clone();
        let kinds = [
            (Fault::Break, swarm.breaks),
            (Fault::Stall, swarm.stalls),
            (Fault::PauseNode, swarm.node_pauses),
            (Fault::PauseShim, swarm.shim_pauses),
            (Fault::KillNode, swarm.node_kills),
            (Fault::KillShim, swarm.shim_kills),
            (Fault::LoseStorage, swarm.storage_losses),
            (Fault::PauseStorage, swarm.storage_pauses),
            (Fault::Incarnation, swarm.incarnations),
            (Fault::Remap, swarm.remaps),
        ];
        for (fault, _) in kinds.into_iter().filter(|(_, on)| *on) {
            let due = self.soon(swarm.fault_interval * 2);
            self.at(due, Timer::Fault(fault));
        }
    }

    /// Timers of faults, and of what follows them.
    pub(crate) fn recover(&mut self, timer: Timer) {
        self.note(|| format!("{timer:?}"));
        match timer {
            Timer::Fault(fault) if !self.calm => {
                self.strike(fault);
                let due = self.soon(self.swarm.fault_interval * 2);
                self.at(due, Timer::Fault(fault));
            }
            Timer::Dial => self.dial(),
            Timer::Start(end) => self.start(end),
            Timer::Kill(end) => self.kill(end),
            Timer::Takeover(slot) => self.takeover(slot),
            Timer::Notice(slot) => self.notice(slot),
            Timer::Fence(slot) => self.fence(slot),
            Timer::Up(slot) => self.up(slot),
            Timer::NewIncarnation(slot) => self.new_incarnation(slot),
            Timer::Map(end, placement) if NODES.contains(&end) => {
                self.step_node(end, node::Input::Map(placement));
            }
            Timer::Map(slot, placement) => self.step_shim(slot, shim::Input::Map(placement)),
            _ => {}
        }
    }

    fn strike(&mut self, fault: Fault) {
        let lease = self.swarm.lease;
        let node = self.random.random_range(NODES);
        match fault {
            Fault::Break => {
                let link = self.random.random_range(0..self.network.count());
                if self.network.is_whole(link) {
                    self.network.break_link(link, &mut self.random);
                }
            }
            Fault::Stall => {
                let link = self.random.random_range(0..self.network.count());
                let (from, channel) = (self.random.random_range(0..2), self.random.random_range(0..2));
                let until = self.soon(lease * 2);
                self.network.stall(link, from, channel, until);
            }
            Fault::PauseNode => self.nodes[node].paused_until = self.soon(lease * 5 / 2),
            Fault::PauseShim => {
                let slot = self.random.random_range(SLOTS);
                self.shims[slot - SLOTS.start].paused_until = self.soon(lease * 3 / 2);
            }
            Fault::KillNode if self.nodes[node].machine.is_some() => {
                let drains = self.swarm.drains && self.random.random_bool(0.5);
                let end = if drains { self.soon(lease / 4) } else { self.now };
                if drains && self.is_awake(node) {
                    self.step_node(node, node::Input::Drain);
                }
                self.at(end, Timer::Kill(node));
                let start = self.random.random_range(0..=lease);
                self.at(end + start, Timer::Start(node));
            }
            Fault::KillShim => self.replace_shim(),
            Fault::LoseStorage => self.lose_storage(),
            Fault::PauseStorage => self.storage_paused_until = self.soon(lease * 3 / 2),
            Fault::Incarnation => self.lose_incarnation(),
            Fault::Remap => self.remap(),
            Fault::KillNode => {}
        }
    }

    pub(crate) fn start(&mut self, end: End) {
        if NODES.contains(&end) && self.nodes[end].machine.is_some() {
            return;
        }
        let seed = self.random.random();
        let clock = Clock::draw(&mut self.random);
        self.serial += 1;
        let life = self.serial;
        if NODES.contains(&end) {
            let node = Node::new(self.swarm.node(end, seed), Arc::clone(&self.placement));
            let process = &mut self.nodes[end];
            (process.machine, process.clock, process.paused_until, process.life) =
                (Some(node), clock, 0, life);
        } else {
            let links = (0..self.network.count()).filter(|link| self.network.ends(*link).contains(&end));
            if links.into_iter().any(|link| !self.network.is_idle(link)) {
                // Somebody has not noticed the end of the process that was here.
                return self.at(self.now + self.swarm.lease / 50, Timer::Start(end));
            }
            let shim = Shim::new(self.swarm.shim(seed), Arc::clone(&self.placement));
            let process = &mut self.shims[end - SLOTS.start];
            (process.machine, process.clock, process.paused_until, process.life) =
                (Some(shim), clock, 0, life);
            self.backends[end - SLOTS.start] = Backend::default();
            self.cut_at[end - SLOTS.start] = None;
            if self.now > 0 {
                let due = self.soon(self.swarm.lease / 4);
                self.at(due, Timer::Takeover(end));
            }
        }
        let tick = self.soon(self.swarm.tick);
        self.at(tick, Timer::Tick { end, life });
    }

    fn kill(&mut self, end: End) {
        self.network.kill(end, &mut self.random);
        self.serial += 1;
        if NODES.contains(&end) {
            self.count_node(end);
            (self.nodes[end].machine, self.nodes[end].life) = (None, self.serial);
        } else {
            let index = end - SLOTS.start;
            self.count_shim(index);
            (self.shims[index].machine, self.shims[index].life) = (None, self.serial);
            let lost = self.backends[index].lose_all(&mut self.random);
            self.stranded.extend(lost);
            self.backends[index] = Backend::default();
        }
    }

    /// Whoever is alive and not linked dials; some succeed at once.
    fn dial(&mut self) {
        for link in 0..self.network.count() {
            let ends = self.network.ends(link);
            let alive = |end: End| match (NODES.contains(&end), SLOTS.contains(&end)) {
                (true, _) => self.nodes[end].machine.is_some(),
                (_, true) => end == self.current && self.shims[end - SLOTS.start].machine.is_some(),
                _ => true,
            };
            // A shim's successor has its address: nobody is linked with both.
            let predecessor = SLOTS.contains(&ends[1])
                && SLOTS.into_iter().any(|slot| slot != ends[1] && !self.is_free(ends[0], slot));
            let ready = self.network.is_idle(link) && ends.into_iter().all(alive) && !predecessor;
            if ready && self.random.random_bool(0.7) {
                self.network.heal(link);
            }
        }
        self.at(self.now + self.swarm.lease / 20, Timer::Dial);
    }

    fn is_free(&self, end: End, slot: End) -> bool {
        (0..self.network.count())
            .filter(|link| self.network.ends(*link) == [end, slot])
            .all(|link| self.network.is_idle(link))
    }

    /// Another shim process starts for the same storage; the old one may live on for a while.
    fn replace_shim(&mut self) {
        let old = self.current;
        let new = if old == SLOTS.start { SLOTS.start + 1 } else { SLOTS.start };
        let settled = self.backends[old - SLOTS.start].incarnation != 0;
        if self.shims[new - SLOTS.start].machine.is_some() || !settled {
            return;
        }
        let zombie = self.swarm.zombies && self.random.random_bool(0.6);
        let end = if zombie { self.soon(self.swarm.lease * 3) } else { self.now };
        self.at(end, Timer::Kill(old));
        self.current = new;
        let start = self.soon(self.swarm.lease / 2);
        self.at(start, Timer::Start(new));
    }

    /// Storage obeys `slot` from now on and nobody else: its connections can do nothing any more.
    pub(crate) fn takeover(&mut self, slot: End) {
        for old in SLOTS.filter(|old| *old != slot) {
            let index = old - SLOTS.start;
            let lost = self.backends[index].lose_all(&mut self.random);
            if self.random.random_bool(0.5) {
                self.backends[index].events.clear();
            }
            self.stranded.extend(lost);
            self.backends[index].cut = true;
            self.cut_at[index] = Some(self.now);
            let due = self.soon(self.swarm.lease * 2);
            self.at(due, Timer::Notice(old));
        }
        self.resolve_stranded();
        for old in SLOTS.filter(|old| *old != slot) {
            self.history.bury(self.now, old, true);
        }
        self.announce(slot);
    }

    /// The old shim hears that it has been replaced, if it is still there.
    fn notice(&mut self, slot: End) {
        if self.backends[slot - SLOTS.start].cut {
            self.backends[slot - SLOTS.start].notice();
        }
    }

    fn announce(&mut self, slot: End) {
        let incarnation: u64 = self.random.random_range(1..=u64::MAX);
        let backend = &mut self.backends[slot - SLOTS.start];
        (backend.incarnation, backend.up) = (incarnation, true);
        backend.events.push_back(StorageEvent::Up { incarnation, traits: StorageTraits::default() });
    }

    fn lose_storage(&mut self) {
        let slot = self.current;
        let backend = &mut self.backends[slot - SLOTS.start];
        if !backend.up || backend.cut || backend.connections.is_empty() {
            return;
        }
        let index = self.random.random_range(0..backend.connections.len());
        let pinned = backend.connections[index].is_pinned();
        let lost = backend.lose(index, &mut self.random);
        self.stranded.push(lost);
        let fence = self.soon(self.swarm.lease);
        self.at(fence, Timer::Fence(slot));
        if !pinned {
            self.backends[slot - SLOTS.start].down("its connection broke");
            let early = self.swarm.up_before_fence;
            let up = if early { self.now + (fence - self.now) / 2 } else { fence };
            self.at(up, Timer::Up(slot));
        }
    }

    fn fence(&mut self, slot: End) {
        if self.backends[slot - SLOTS.start].cut || self.backends[slot - SLOTS.start].incarnation == 0 {
            return;
        }
        self.resolve_stranded();
        self.history.bury(self.now, slot, false);
        self.backends[slot - SLOTS.start].events.push_back(StorageEvent::Fenced);
    }

    fn up(&mut self, slot: End) {
        let backend = &mut self.backends[slot - SLOTS.start];
        if !backend.up && !backend.cut && backend.incarnation != 0 {
            backend.up = true;
            let (incarnation, traits) = (backend.incarnation, StorageTraits::default());
            backend.events.push_back(StorageEvent::Up { incarnation, traits });
        }
    }

    /// The server lost this incarnation's user; it is the same data.
    fn lose_incarnation(&mut self) {
        let slot = self.current;
        let backend = &mut self.backends[slot - SLOTS.start];
        if !backend.up || backend.cut {
            return;
        }
        let lost = backend.lose_all(&mut self.random);
        backend.down("its user is gone");
        self.stranded.extend(lost);
        let due = self.soon(self.swarm.lease / 2);
        self.at(due, Timer::NewIncarnation(slot));
    }

    fn new_incarnation(&mut self, slot: End) {
        let backend = &self.backends[slot - SLOTS.start];
        if backend.cut || backend.up || backend.incarnation == 0 {
            return;
        }
        if self.random.random_bool(0.5) {
            self.fence(slot);
        }
        self.resolve_stranded();
        self.announce(slot);
    }

    pub(crate) fn abort(&mut self, slot: End, ticket: u64) {
        let lost = self.backends[slot - SLOTS.start].abort(ticket);
        if let Some(lost) = lost {
            self.stranded.push(lost);
            let due = self.soon(self.swarm.lease / 2);
            self.at(due, Timer::Fence(slot));
        }
    }

    fn remap(&mut self) {
        let epoch = self.placement.epoch() + 1;
        let shares = [(); 2].map(|()| if self.random.random_bool(0.7) { wire::SHARE_WHOLE } else { 0 });
        self.placement = placement(epoch, shares);
        for end in NODES.chain(SLOTS) {
            let due = self.soon(self.swarm.lease);
            self.at(due, Timer::Map(end, Arc::clone(&self.placement)));
        }
    }

    /// Storage gets to something that it read from a connection that is no more.
    pub(crate) fn execute_stranded(&mut self, index: usize) {
        if self.random.random_bool(0.8) {
            return;
        }
        let Some(frame) = self.stranded[index].head() else {
            self.stranded.swap_remove(index);
            return;
        };
        match self.apply(frame) {
            Some(reply) => self.stranded[index].executed(reply),
            None => {
                self.serial += 1;
                self.stranded[index].blocked.get_or_insert(self.serial);
            }
        }
        self.wake_blocked();
    }

    /// What is stranded happens now or never.
    fn resolve_stranded(&mut self) {
        while let Some(index) = self.stranded.len().checked_sub(1) {
            let index = self.random.random_range(0..=index);
            let stuck = self.stranded[index].blocked.is_some();
            if stuck || self.stranded[index].head().is_none() || self.random.random_bool(0.2) {
                self.stranded.swap_remove(index);
            } else {
                self.execute_stranded(index);
            }
        }
    }

    /// Blocked commands go on if they can, those first that came first.
    pub(crate) fn wake_blocked(&mut self) {
        loop {
            let all = self.backends.iter().flat_map(|backend| &backend.connections).chain(&self.stranded);
            let mut blocked: Vec<(u64, bytes::Bytes)> =
                all.filter_map(|connection| Some((connection.blocked?, connection.head()?))).collect();
            blocked.sort_unstable_by_key(|(serial, _)| *serial);
            let mut woken = false;
            for (serial, frame) in blocked {
                let Some(reply) = self.apply(frame) else { continue };
                let backends = self.backends.iter_mut().flat_map(|backend| &mut backend.connections);
                let mut all = backends.chain(&mut self.stranded);
                if let Some(found) = all.find(|connection| connection.blocked == Some(serial)) {
                    found.executed(reply);
                }
                woken = true;
            }
            if !woken {
                return;
            }
        }
    }

    /// Nothing goes wrong any more, and what went wrong heals.
    pub(crate) fn settle(&mut self) {
        self.calm = true;
        self.note(|| "calm".into());
        self.network.unstall();
        self.storage_paused_until = 0;
        for process in &mut self.nodes {
            process.paused_until = 0;
        }
        for process in &mut self.shims {
            process.paused_until = 0;
        }
        for slot in SLOTS {
            if slot != self.current && self.shims[slot - SLOTS.start].machine.is_some() {
                self.kill(slot);
            }
        }
        while self.recovering() && self.failure.is_none() {
            self.run_until(self.now + self.swarm.lease / 4);
        }
        // Dials succeed with a chance of 70 % each.
        self.run_until(self.now + self.swarm.lease);
        let blocked: Vec<u64> =
            self.requests.iter().filter(|(_, request)| request.blocks).map(|(number, _)| *number).collect();
        blocked.into_iter().for_each(|number| self.cancel(number));
        self.probe();
        let restarts = self.swarm.shim_kills || self.swarm.incarnations;
        let hold = if restarts { self.swarm.terms().restart_wait() } else { Duration::ZERO };
        let patience = self.swarm.lease + self.swarm.lease / 4 + hold.as_micros() as u64;
        self.run_until(self.now + patience);
        self.drain();
        // A session that its node has closed lives on at the shim until its lease ends.
        self.run_until(self.now + self.swarm.lease * 2);
        self.drain();
    }
}

//! Processes start, tick and end. Not what happens to them in between.

use std::sync::Arc;
use std::time::Duration;

use protocol::node::{self, Node};
use protocol::router::{self, Router};
use protocol::shim::{self, Shim};
use protocol::storage::network::StorageInput;

use crate::clock::{HostClock, REST_MAX, ROUTER_TICK_US};
use crate::cluster::Cluster;
use crate::event::SimEvent;
use crate::following::SimFollower;
use crate::host::{HostRole, Machine};
use crate::network::HostId;
use crate::storage::RECONNECT;

impl Cluster {
    /// Starts a process in its place, if none is there.
    pub(crate) fn start(&mut self, host: HostId) {
        if self.hosts[host].is_alive() {
            return;
        }
        let seed = self.world.random.number();
        let clock = HostClock::draw(
            &mut self.world.random,
            self.shape.faults.contains(crate::fault_kind::FaultKind::Clock),
        );
        let placement = Arc::clone(&self.placement);
        let machine = match self.hosts[host].role {
            HostRole::Node(id) => {
                let config = self.shape.node(id, placement.layer_of(id), seed);
                let mut node = Node::new(config, placement);
                let busy = node::Input::Busy { permille: self.shape.busy };
                node.step(clock.at(self.world.now()), busy, &mut Vec::new());
                Machine::Node(Box::new(node))
            }
            HostRole::Shim(id) => Machine::Shim(Box::new(Shim::new(self.shape.shim(id, seed), placement))),
            HostRole::Router(_) => {
                let mut router = Router::new(self.shape.router(seed));
                router.step(clock.at(self.world.now()), router::Input::Map(placement), &mut Vec::new());
                Machine::Router(Box::new(router))
            }
            HostRole::Controller => {
                self.registry.join(host - self.controllers_first);
                Machine::Controller(Box::new(self.new_controller(host, clock.at(self.world.now()), seed)))
            }
        };
        let numbers: Vec<u64> = self.controllers().map(|_| self.world.random.number()).collect();
        let follower = SimFollower::new(Arc::clone(&self.placement), numbers.into_iter());
        let own = &mut self.hosts[host];
        own.life += 1;
        own.follower = follower;
        (own.machine, own.clock, own.paused_until, own.pause_in_hand) = (Some(machine), clock, 0, None);
        own.parked.clear();
        own.reloaded = (self.world.now(), 0);
        let life = own.life;
        if !matches!(self.hosts[host].role, HostRole::Router(_) | HostRole::Controller) {
            // It reads its configuration before anything else.
            self.reloads(host, life);
        }
        if self.is_slot(host) {
            self.start_backend(host, seed);
        }
        self.world.note(|| format!("{host} starts"));
        let tick = self.world.soon(self.tick_of(host));
        self.world.at(tick, SimEvent::Tick { host, life });
        if !matches!(self.hosts[host].role, HostRole::Controller) {
            self.begin_heartbeats(host);
        }
    }

    /// A process ends at once; its peers notice in their own time.
    pub(crate) fn kill(&mut self, host: HostId) {
        if !self.hosts[host].is_alive() {
            return;
        }
        self.world.note(|| format!("{host} ends"));
        self.count_up(host);
        self.cut_links(host);
        if self.is_slot(host) {
            self.end_backend(host);
        }
        let own = &mut self.hosts[host];
        own.machine = None;
        own.parked.clear();
        own.life += 1;
        if self.routers().contains(&host) {
            self.disconnect_clients(host);
        }
    }

    /// A process starts again where one ended.
    pub(crate) fn restart(&mut self, host: HostId) {
        if self.hosts[host].is_alive() {
            return;
        }
        self.start(host);
    }

    pub(crate) fn tick(&mut self, host: HostId, life: u32) {
        let own = &self.hosts[host];
        if own.life != life {
            return;
        }
        if own.is_paused(self.world.now()) {
            let until = own.paused_until;
            return self.world.at(until, SimEvent::Tick { host, life });
        }
        if self.rests(host) {
            let next = self.world.now() + self.tick_of(host);
            return self.world.at(next, SimEvent::Tick { host, life });
        }
        self.hosts[host].ticked = self.world.now();
        match &self.hosts[host].machine {
            Some(Machine::Node(_)) => self.step_node(host, node::Input::Tick),
            Some(Machine::Shim(_)) => {
                self.step_storage(host, StorageInput::Tick);
                self.step_shim(host, shim::Input::Tick);
            }
            Some(Machine::Router(_)) => self.step_router(host, router::Input::Tick),
            Some(Machine::Controller(_)) => self.tick_controller(host),
            None => return,
        }
        let next = self.world.now() + self.tick_of(host);
        self.world.at(next, SimEvent::Tick { host, life });
    }

    /// Whether the process sleeps through this tick, as it may where nothing is due.
    fn rests(&self, host: HostId) -> bool {
        let own = &self.hosts[host];
        let now = own.clock.at(self.world.now());
        let rest = match &own.machine {
            Some(Machine::Node(node)) => node.rest(now),
            Some(Machine::Shim(shim)) => shim.rest(now),
            Some(Machine::Router(router)) => router.rest(now),
            _ => Duration::ZERO,
        };
        self.world.now() < own.ticked + rest.min(REST_MAX).as_micros() as u64
    }

    fn tick_of(&self, host: HostId) -> u64 {
        match self.hosts[host].role {
            HostRole::Node(_) | HostRole::Shim(_) => self.shape.tick,
            HostRole::Router(_) => ROUTER_TICK_US,
            HostRole::Controller => 100_000,
        }
    }

    pub(crate) fn begin(&mut self) {
        let slow = self.shape.slow_channels;
        self.network.slow_down(slow, &mut self.world.random);
        for host in 0..self.hosts.len() {
            let spare = self.is_slot(host) && (host - self.slots_first) % 2 == 1;
            if !spare {
                self.start(host);
            }
        }
        for link in 0..self.network.links.len() {
            let due = self.world.soon(2_000);
            self.world.at(due, SimEvent::Dial { link });
        }
        for client in 0..self.clients.len() {
            let due = self.world.soon(50_000);
            self.world.at(due, SimEvent::Client { client });
        }
        // Every shim takes its storage over and waits as after a restart, and writes gather meanwhile.
        self.disturb_until(RECONNECT + self.shape.stall_max(), None);
        let due = self.world.soon(self.shape.fault_interval);
        self.world.at(due, SimEvent::Fault);
        self.world.at(1_000_000, SimEvent::Inspect);
        if let Some(grows_at) = self.shape.grows_at {
            self.world.at(grows_at, SimEvent::Grow);
        }
        if self.shape.has_outsiders() {
            self.world.at(0, SimEvent::Outsider);
        }
    }
}

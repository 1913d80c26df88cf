//! The loop over everything that happens, in its order. Not what it does to whom.

use crate::cluster::Cluster;
use crate::event::SimEvent;
use crate::fault_kind::FaultKind;
use crate::network::HostId;
use crate::storage;
use crate::storage::site::Doer;

/// Six a minute at least, however rare faults are in a run.
const INTERVAL_US_MAX: u64 = 10_000_000;

impl Cluster {
    /// Lets virtual time pass. The first violation ends it: what follows from it says nothing.
    pub(crate) fn run_until(&mut self, end: u64) {
        while let Some(event) = self.world.next(end) {
            self.fire(event);
        }
    }

    pub(crate) fn fire(&mut self, event: SimEvent) {
        if let Some(host) = self.target(&event) {
            if let Some(until) = self.cut(&event) {
                return self.world.at(until, event);
            }
            if self.hosts[host].parks(self.world.now()) {
                return self.hosts[host].parked.push_back(event);
            }
        }
        match event {
            SimEvent::Deliver { place, life } => self.deliver(place, life),
            SimEvent::Late { link, from, life, message } => self.late(link, from, life, message),
            SimEvent::Tell { link, side, life, up } => self.tell(link, side, life, up),
            SimEvent::Dial { link } => self.dial(link),
            SimEvent::Tick { host, life } => self.tick(host, life),
            SimEvent::Wake { host, life } => self.wake(host, life),
            SimEvent::Effects { host, life, effects } => {
                if self.hosts[host].life == life {
                    self.carry_out(host, effects);
                }
            }
            SimEvent::Client { client } => self.client_acts(client),
            SimEvent::Command { host, client, connection, command } => {
                self.commanded(host, client, connection, command);
            }
            SimEvent::Cancel { client, connection } => self.give_up(client, connection),
            SimEvent::Heartbeat { host, life, agent } => self.heartbeat(host, life, agent),
            SimEvent::Map { host, life, told } => self.adopt(host, life, told),
            SimEvent::Grow => self.grow(),
            SimEvent::Mend => self.registry.mend(),
            SimEvent::Repeat { host, life, heartbeat } => self.repeat(host, life, heartbeat),
            SimEvent::Propose { host, life } => self.proposed(host, life),
            SimEvent::Operator { node, drained } => self.operate(node, drained),
            SimEvent::Start { host } => self.restart(host),
            SimEvent::Kill { host, life } => {
                if self.hosts[host].life == life {
                    self.kill(host);
                }
            }
            SimEvent::HandsOver { server, life, until } => self.hands_over(server, life, until),
            SimEvent::Reload { host, life } => self.reloads(host, life),
            SimEvent::Refresh { client, key } => self.refresh(client, key),
            SimEvent::Outsider => self.outsider_acts(),
            SimEvent::Fault => self.fault(),
            SimEvent::Inspect => self.inspect(),
            SimEvent::Wire { server, event } => self.wire_event(server, event),
            SimEvent::Awake { server } => self.server_wakes(server),
            SimEvent::Rollback { server } => self.roll_back(server),
        }
    }

    /// The host that an event is for, if it is for the process there and a paused one gets it later.
    fn target(&self, event: &SimEvent) -> Option<HostId> {
        match event {
            SimEvent::Deliver { place, .. } => Some(self.network.links[place.link].hosts[1 - place.from]),
            SimEvent::Late { link, from, .. } => Some(self.network.links[*link].hosts[1 - from]),
            SimEvent::Tell { link, side, .. } => Some(self.network.links[*link].hosts[*side]),
            SimEvent::Wire { event, .. } => match event.doer() {
                Doer::Process(connection) => Some(storage::slot_of(connection)),
                Doer::Server | Doer::Kernel => None,
            },
            SimEvent::Command { host, .. } | SimEvent::Map { host, .. } | SimEvent::Reload { host, .. } => {
                Some(*host)
            }
            _ => None,
        }
    }

    /// Until when a message is held up on its way.
    pub(crate) fn cut(&self, event: &SimEvent) -> Option<u64> {
        let (link, from) = match event {
            SimEvent::Deliver { place, .. } => (place.link, place.from),
            SimEvent::Late { link, from, .. } => (*link, *from),
            _ => return None,
        };
        let hosts = self.network.links[link].hosts;
        self.network.cut_until(self.world.now(), hosts[from], hosts[1 - from])
    }

    pub(crate) fn wake(&mut self, host: HostId, life: u32) {
        if self.hosts[host].life != life || self.hosts[host].is_paused(self.world.now()) {
            return;
        }
        self.world.note(|| format!("{host} wakes"));
        if self.is_slot(host) {
            self.tell_shim(host);
        }
        for event in std::mem::take(&mut self.hosts[host].parked) {
            self.fire(event);
        }
    }

    /// Every copy that could be served is in its shim's directory, unless the shim waits out leases of the past.
    fn inspect(&mut self) {
        self.world.at(self.world.now() + crate::records::INSPECT_US, SimEvent::Inspect);
        self.network.forget_cuts(self.world.now());
        self.inspect_feeds();
        self.sweep();
        self.check_rules();
        self.check_kept_in_calm();
        self.check_known();
    }

    /// One thing goes wrong, and the next one is planned.
    fn fault(&mut self) {
        if self.calm || self.shape.faults.is_empty() {
            return;
        }
        let kinds: Vec<FaultKind> = self.shape.faults.kinds().collect();
        let kind = self.world.random.pick(&kinds);
        let struck = self.strike(kind);
        let wait =
            if struck { self.world.random.wait(self.shape.fault_interval) } else { self.shape.lease / 10 };
        let next = self.world.now() + wait.min(INTERVAL_US_MAX);
        self.world.at(next, SimEvent::Fault);
        if struck {
            self.world.event(9, kind as usize);
            self.world.note(|| format!("fault {}", kind.name()));
            *self.watch.faults.entry(kind).or_default() += 1;
        }
    }
}

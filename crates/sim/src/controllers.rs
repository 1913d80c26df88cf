//! Controllers, the members that tell them that they live, and the operator: who hears what and when. Decides nothing that
//! the controllers' machine decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::controller::{self, Beat, Controller, ControllerConfig, Effect, Heartbeat, Input, StoredMap};
use protocol::placement::Placement;
use protocol::time::Time;
use wire::{NodeId, Peer};

use crate::cast::{Cast, Roster};
use crate::cluster::{Cluster, Event, placement};
use crate::host::Machine;
use crate::network::HostId;

/// Until a write that did not arrive at the store is tried again.
const RETRY: u64 = 200_000;

/// The map that a process acts on, and how it tells each controller that it lives.
pub(crate) struct Follower {
    pub(crate) placement: Arc<Placement>,
    /// The history of that map; 0 before it has one of a controller.
    pub(crate) history: u64,
    agents: Vec<Agent>,
    /// It has said its last word.
    left: bool,
}

struct Agent {
    number: u64,
    sequence: u64,
}

/// A map as a controller tells it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    history: u64,
    placement: Arc<Placement>,
}

impl Follower {
    /// `numbers` of its agents, one for each controller.
    pub(crate) fn new(placement: Arc<Placement>, numbers: impl Iterator<Item = u64>) -> Follower {
        let agents = numbers.map(|number| Agent { number, sequence: 0 }).collect();
        Follower { placement, history: 0, agents, left: false }
    }
}

/// What the operator wants and the map does not show yet.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    drains: BTreeMap<NodeId, bool>,
}

impl Cluster {
    pub(crate) fn new_controller(&self, host: HostId, now: Time, seed: u64) -> Controller<Cast> {
        let config = ControllerConfig {
            terms: self.registry.terms,
            by: format!("{host} {}", self.hosts[host].life + 1),
            history: seed,
            members: self.cast.clone(),
        };
        Controller::new(now, config)
    }

    /// Those that follow maps tell every controller that they live.
    pub(crate) fn begin_heartbeats(&mut self, host: HostId) {
        let life = self.hosts[host].life;
        for agent in 0..self.controllers().len() {
            let due = self.soon(self.registry.heartbeat_interval());
            self.at(due, Event::Heartbeat { host, life, agent });
        }
    }

    /// A process says that its member lives, to one controller, which answers with its map.
    pub(crate) fn heartbeat(&mut self, host: HostId, life: u32, agent: usize) {
        if self.hosts[host].life != life || self.hosts[host].follower.left {
            return;
        }
        let interval = self.registry.heartbeat_interval();
        let due = self.now + interval / 2 + self.random.below(interval / 2);
        self.at(due, Event::Heartbeat { host, life, agent });
        let Some(member) = self.hosts[host].role.peer() else { return };
        let epoch = self.hosts[host].follower.placement.epoch();
        let empty = self.hosts[host].node().is_some_and(|node| node.objects() == 0);
        self.post(host, agent, vec![Beat { member, epoch, empty }], Vec::new());
    }

    /// A process stops in order: nobody waits for its member.
    pub(crate) fn say_farewell(&mut self, host: HostId) {
        let Some(member) = self.hosts[host].role.peer() else { return };
        for agent in 0..self.controllers().len() {
            self.post(host, agent, Vec::new(), vec![member]);
        }
        self.hosts[host].follower.left = true;
    }

    fn post(&mut self, host: HostId, agent: usize, members: Vec<Beat>, leaving: Vec<Peer>) {
        // A shim that was replaced has nothing to say any more.
        let replaced = self.is_slot(host) && self.servers[self.server_of(host)].current != host;
        if !self.hosts[host].is_awake(self.now) || replaced {
            return;
        }
        let follower = &mut self.hosts[host].follower;
        let own = &mut follower.agents[agent];
        own.sequence += 1;
        let (agent_number, sequence, history) = (own.number, own.sequence, follower.history);
        let controller = self.controllers_first + agent;
        let cut = self.network.cut_until(self.now, host, controller).is_some();
        let silent = self.storms.is_silent(self.now, host) || self.registry.is_lost(self.now);
        if cut || silent || !self.hosts[controller].is_awake(self.now) {
            return;
        }
        let heartbeat = Heartbeat { agent: agent_number, sequence, history, members, leaving };
        self.step_controller(controller, Input::Heartbeat(heartbeat));
        self.look(controller);
        self.answer(controller, host);
    }

    /// The map that the controller tells goes to who asked, if there it is news.
    fn answer(&mut self, controller: HostId, host: HostId) {
        let epoch = self.hosts[host].follower.placement.epoch();
        let told = self.hosts[controller].controller().and_then(Controller::told);
        let Some(map) = told.filter(|map| map.epoch > epoch) else { return };
        let told = Told { history: map.history, placement: Arc::new(placement(self.cast.told(map))) };
        if self.network.cut_until(self.now, controller, host).is_none() {
            let due = self.now + self.random.wait(self.shape.latency);
            let life = self.hosts[host].life;
            self.at(due, Event::Map { host, life, told });
        }
    }

    pub(crate) fn tick_controller(&mut self, host: HostId) {
        let reached = |controller: &Controller<Cast>| controller.problem().is_none();
        if self.hosts[host].controller().is_some_and(reached) {
            for (node, drained) in self.operator.drains.clone() {
                self.step_controller(host, Input::Drain { node, drained });
            }
        }
        self.look(host);
        let Some(map) = self.hosts[host].controller().and_then(Controller::told) else { return };
        self.operator.drains.retain(|node, drained| map.drained(*node) != *drained);
    }

    /// The operator wants a node's partition taken away, or given back.
    pub(crate) fn operate(&mut self, node: NodeId, drained: bool) {
        self.operator.drains.insert(node, drained);
    }

    /// A controller hears what its store has to say, lets time pass, and sees what came of that.
    fn look(&mut self, host: HostId) {
        self.read_store(host);
        self.step_controller(host, Input::Tick);
        self.read_store(host);
    }

    fn read_store(&mut self, host: HostId) {
        match self.registry.changes(self.now, host - self.controllers_first) {
            Ok(changes) => {
                for change in changes {
                    self.step_controller(host, Input::Changed(change));
                }
                self.step_controller(host, Input::Read);
            }
            Err(reason) => self.step_controller(host, Input::Away { reason }),
        }
    }

    fn step_controller(&mut self, host: HostId, input: Input<Cast>) {
        let own = &mut self.hosts[host];
        let Some(Machine::Controller(machine)) = &mut own.machine else { return };
        let mut effects = Vec::new();
        machine.step(own.clock.at(self.now), input, &mut effects);
        let (index, life) = (host - self.controllers_first, own.life);
        for effect in effects {
            match effect {
                Effect::Keep(member) => self.registry.keep(self.now, index, member, true),
                Effect::Forget(member) => self.registry.keep(self.now, index, member, false),
                Effect::Propose { version, map } => {
                    if self.registry.propose(index, version, map) {
                        let due = self.now + self.random.wait(self.shape.latency);
                        self.at(due, Event::Propose { host, life });
                    }
                }
                // Nobody looks at statuses here.
                Effect::Refuse | Effect::Silent(_) => {}
                Effect::Log(event) => self.note(|| log(host, &event)),
            }
        }
    }

    /// What a controller proposed reaches the store, or will be tried again.
    pub(crate) fn proposed(&mut self, host: HostId, life: u32) {
        if self.hosts[host].life != life {
            return;
        }
        match self.registry.carry(self.now, host - self.controllers_first) {
            Ok(None) => {}
            Ok(Some(map)) => {
                let epoch = map.epoch;
                self.watch.maps += 1;
                self.trace.event(self.now, 11, host);
                self.trace.word(u64::from(epoch));
            }
            Err(()) => self.at(self.now + RETRY, Event::Propose { host, life }),
        }
    }

    pub(crate) fn adopt(&mut self, host: HostId, life: u32, told: Told) {
        let Told { history, placement } = told;
        let own = &mut self.hosts[host];
        if own.life != life || placement.epoch() <= own.follower.placement.epoch() {
            return;
        }
        (own.follower.placement, own.follower.history) = (Arc::clone(&placement), history);
        self.trace.event(self.now, 4, host);
        self.trace.word(u64::from(placement.epoch()));
        match &self.hosts[host].machine {
            Some(Machine::Node(_)) => self.step_node(host, protocol::node::Input::Map(placement)),
            Some(Machine::Shim(_)) => self.step_shim(host, protocol::shim::Input::Map(placement)),
            Some(Machine::Router(_)) => self.step_router(host, protocol::router::Input::Map(placement)),
            Some(Machine::Controller(_)) | None => {}
        }
    }
}

fn log(host: HostId, event: &controller::Event<Roster>) -> String {
    let shares =
        |map: &StoredMap<Roster>| map.nodes.iter().map(|owned| owned.share.to_string()).collect::<Vec<_>>();
    match event {
        controller::Event::Taken(map) => {
            let (by, shares) = (&map.by, shares(map).join(" "));
            format!("{host} takes the store's map {} of {:x} by {by}: {shares}", map.epoch, map.history)
        }
        other => format!("{host}: {other:?}"),
    }
}

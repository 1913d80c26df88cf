//! Controllers, the members that tell them that they live, and the operator: who hears what and when. Decides nothing that
//! the controllers' machine decides.

use std::sync::Arc;

use protocol::controller::{
    self, Beat, Controller, ControllerConfig, Effect, Heartbeat, Input, Members, StoredMap,
};
use protocol::time::Time;
use wire::{LEVELS, NodeId, Peer};

use crate::cast::{Cast, CastRoster};
use crate::cluster::{Cluster, placement};
use crate::event::SimEvent;
use crate::following::Told;
use crate::host::Machine;
use crate::network::HostId;

/// Until a write that did not arrive at the store is tried again.
const RETRY: u64 = 200_000;

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

    /// Members that follow maps tell every controller that they live.
    pub(crate) fn begin_heartbeats(&mut self, host: HostId) {
        let life = self.hosts[host].life;
        for agent in 0..self.controllers().len() {
            let due = self.world.soon(self.registry.heartbeat_interval());
            self.world.at(due, SimEvent::Heartbeat { host, life, agent });
        }
    }

    /// A process says that its member lives, to one controller, which answers with its map.
    pub(crate) fn heartbeat(&mut self, host: HostId, life: u32, agent: usize) {
        if self.hosts[host].life != life || self.hosts[host].follower.left {
            return;
        }
        let interval = self.registry.heartbeat_interval();
        let due = self.world.now() + interval / 2 + self.world.random.below(interval / 2);
        self.world.at(due, SimEvent::Heartbeat { host, life, agent });
        let Some(member) = self.hosts[host].role.peer() else { return };
        let epoch = self.hosts[host].follower.placement.epoch();
        let empty = self.hosts[host].node().is_some_and(|node| node.objects() == 0);
        self.post(host, agent, vec![Beat { member, epoch, empty, resharding: None }], Vec::new());
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
        if !self.hosts[host].is_awake(self.world.now()) || replaced {
            return;
        }
        let follower = &mut self.hosts[host].follower;
        let own = &mut follower.agents[agent];
        own.sequence += 1;
        let (agent_number, sequence, history) = (own.number, own.sequence, follower.history);
        let controller = self.controllers_first + agent;
        let cut = self.network.cut_until(self.world.now(), host, controller).is_some();
        let machine = self.hosts[controller].controller();
        let stranger = |beat: &Beat| machine.is_some_and(|machine| !machine.members().knows(beat.member));
        // One that names strangers is not taken at all.
        let strange = members.iter().any(stranger);
        let silent = self.storms.is_silent(self.world.now(), host) || self.registry.is_lost(self.world.now());
        if cut || silent || strange || !self.hosts[controller].is_awake(self.world.now()) {
            return;
        }
        let heartbeat =
            Heartbeat { agent: agent_number, sequence, history, level: LEVELS.max, members, leaving };
        if self.storms.doubles(self.world.now(), &mut self.world.random) {
            let due = self.world.soon(self.shape.lease * 2);
            let life = self.hosts[controller].life;
            self.world.at(due, SimEvent::Repeat { host: controller, life, heartbeat: heartbeat.clone() });
        }
        self.step_controller(controller, Input::Heartbeat(heartbeat));
        self.look(controller);
        self.answer(controller, host);
    }

    /// Somebody sends again what a controller has taken: it is taken once.
    pub(crate) fn repeat(&mut self, host: HostId, life: u32, heartbeat: Heartbeat) {
        let replays = |cluster: &Cluster| {
            cluster.hosts[host].controller().map_or(0, |machine| machine.statistics().replays)
        };
        let before = replays(self);
        if self.hosts[host].life == life {
            self.step_controller(host, Input::Heartbeat(heartbeat));
            if replays(self) == before {
                self.world.fail(format!("controller {host} takes a heartbeat twice"));
            }
        }
    }

    /// The map that the controller tells goes to the process that asked, if it is news there.
    fn answer(&mut self, controller: HostId, host: HostId) {
        let epoch = self.hosts[host].follower.placement.epoch();
        let told = self.hosts[controller].controller().and_then(Controller::told);
        let Some(map) = told.filter(|map| map.epoch > epoch).cloned() else { return };
        self.check_told(controller, &map);
        let told = Told { history: map.history, placement: Arc::new(placement(self.cast.told(&map))) };
        if self.network.cut_until(self.world.now(), controller, host).is_none() {
            let due = self.world.now() + self.world.random.wait(self.shape.latency);
            let life = self.hosts[host].life;
            self.world.at(due, SimEvent::Map { host, life, told });
        }
    }

    pub(crate) fn tick_controller(&mut self, host: HostId) {
        let machine = self.hosts[host].controller();
        let reached = machine.filter(|machine| machine.problem().is_none());
        if let Some(map) = reached.and_then(Controller::told) {
            let other = |(node, drained): &(&NodeId, &bool)| map.drained(**node) != **drained;
            let wanted = self.operator.drained.iter().filter(other);
            for (node, drained) in wanted.map(|(node, drained)| (*node, *drained)).collect::<Vec<_>>() {
                self.step_controller(host, Input::Drain { node, drained });
            }
            self.take_new_members(host);
        }
        self.look(host);
    }

    /// Files of controllers have everybody from now on.
    pub(crate) fn grow(&mut self) {
        self.cast = self.cast.with(self.everybody());
        self.operator.grows = true;
    }

    pub(crate) fn everybody(&self) -> CastRoster {
        CastRoster { nodes: self.slots_first, routers: self.shape.routers, stranger: false }
    }

    /// The operator has a controller read its file again, until all of them know everybody.
    fn take_new_members(&mut self, host: HostId) {
        let file = self.cast.roster();
        let lacks = |host: HostId| {
            let machine = self.hosts[host].controller();
            machine.is_some_and(|machine| machine.members().roster() != file)
        };
        if self.operator.grows && lacks(host) {
            self.step_controller(host, Input::Grown(self.cast.clone()));
        } else if !self.controllers().any(lacks) {
            self.operator.grows = false;
        }
    }

    /// The operator wants a node's partition taken away, or given back.
    pub(crate) fn operate(&mut self, node: NodeId, drained: bool) {
        self.operator.drained.insert(node, drained);
    }

    /// A controller hears what its store has to say, lets time pass, and sees what came of that.
    fn look(&mut self, host: HostId) {
        self.read_store(host);
        self.step_controller(host, Input::Tick);
        self.read_store(host);
    }

    fn read_store(&mut self, host: HostId) {
        match self.registry.changes(self.world.now(), host - self.controllers_first) {
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
        machine.step(own.clock.at(self.world.now()), input, &mut effects);
        let (index, life) = (host - self.controllers_first, own.life);
        for effect in effects {
            match effect {
                Effect::Keep(member) => self.registry.keep(self.world.now(), index, member, true),
                Effect::Forget(member) => self.registry.keep(self.world.now(), index, member, false),
                Effect::Propose { version, map } => {
                    if self.registry.propose(index, version, map) {
                        let due = self.world.now() + self.world.random.wait(self.shape.latency);
                        self.world.at(due, SimEvent::Propose { host, life });
                    }
                }
                // Nobody looks at statuses here.
                Effect::Refuse | Effect::Silent(_) => {}
                Effect::Log(event) => self.world.note(|| log(host, &event)),
            }
        }
    }

    /// What a controller proposed reaches the store, or will be tried again.
    pub(crate) fn proposed(&mut self, host: HostId, life: u32) {
        if self.hosts[host].life != life {
            return;
        }
        match self.registry.carry(self.world.now(), host - self.controllers_first) {
            Ok(None) => {}
            Ok(Some(map)) => {
                let epoch = map.epoch;
                self.watch.maps += 1;
                self.world.event(11, host);
                self.world.trace.word(u64::from(epoch));
            }
            Err(()) => self.world.at(self.world.now() + RETRY, SimEvent::Propose { host, life }),
        }
    }

    pub(crate) fn adopt(&mut self, host: HostId, life: u32, told: Told) {
        let Told { history, placement } = told;
        let own = &mut self.hosts[host];
        if own.life != life || placement.epoch() <= own.follower.placement.epoch() {
            return;
        }
        (own.follower.placement, own.follower.history) = (Arc::clone(&placement), history);
        self.world.event(4, host);
        self.world.trace.word(u64::from(placement.epoch()));
        match &self.hosts[host].machine {
            Some(Machine::Node(_)) => self.step_node(host, protocol::node::Input::Map(placement)),
            Some(Machine::Shim(_)) => self.step_shim(host, protocol::shim::Input::Map(placement)),
            Some(Machine::Router(_)) => self.step_router(host, protocol::router::Input::Map(placement)),
            Some(Machine::Controller(_)) | None => {}
        }
    }
}

fn log(host: HostId, event: &controller::Event<CastRoster>) -> String {
    let shares = |map: &StoredMap<CastRoster>| {
        map.nodes.iter().map(|owned| owned.share.to_string()).collect::<Vec<_>>()
    };
    match event {
        controller::Event::Taken(map) => {
            let (by, shares) = (&map.by, shares(map).join(" "));
            format!("{host} takes the store's map {} of {:x} by {by}: {shares}", map.epoch, map.history)
        }
        other => format!("{host}: {other:?}"),
    }
}

//! Messages reach hosts, machines step, and what they want goes on its way. Decides nothing that a machine decides.

use std::sync::Arc;

use protocol::migration::Departures;
use protocol::storage::StorageEvent;
use protocol::storage::network::StorageInput;
use protocol::{node, router, shim};
use wire::{Message, Peer};

use crate::cluster::Cluster;
use crate::event::{Effects, SimEvent};
use crate::host::Machine;
use crate::network::{HostId, Place};
use crate::random::SimRandom;
use crate::storms::Storm;

/// What is slow takes so many times as long as the rest.
const SLOWNESS: u64 = 10;
/// A dialled link takes so many times the latency of a message to be made.
const HANDSHAKE: u64 = 3;

impl Cluster {
    pub(crate) fn deliver(&mut self, place: Place, life: u32) {
        let Some(message) = self.network.take(place, life) else { return };
        let link = &self.network.links[place.link];
        let (to, from) = (link.hosts[1 - place.from], link.peers[place.from]);
        self.handle(to, from, message);
    }

    pub(crate) fn late(&mut self, link: usize, from: usize, life: Option<u32>, message: Message) {
        let link = &self.network.links[link];
        let (to, from_peer) = (link.hosts[1 - from], link.peers[from]);
        if link.is_linked(1 - from) && life.is_none_or(|life| life == link.life) {
            self.handle(to, from_peer, message);
        }
    }

    fn handle(&mut self, to: HostId, from: Peer, message: Message) {
        self.world.event(1, to);
        self.world.trace.message(&message);
        self.world.note(|| format!("{from:?} > {to}: {message:?}"));
        let key = match &message {
            Message::Fill(fill) => Some(fill.key.clone()),
            Message::Commit(commit) => Some(commit.key.clone()),
            _ => None,
        };
        let lease = matches!(message, Message::Grant(_));
        let birth = self.birth_of(to, from, &message).map(|birth| (birth, self.taken(to)));
        match &self.hosts[to].machine {
            Some(Machine::Node(_)) => self.step_node(to, node::Input::Message { from, message }),
            Some(Machine::Shim(_)) => return self.step_shim(to, shim::Input::Message { from, message }),
            Some(Machine::Router(_)) => self.step_router(to, router::Input::Message { from, message }),
            Some(Machine::Controller(_)) | None => return,
        }
        if let Some(((held, birth), taken)) = birth
            && self.taken(to) > taken
        {
            self.births.bear(held, birth);
        }
        if let Some(key) = key {
            self.check_servable(to, &key);
        } else if lease {
            self.check_lease(to, from);
        }
    }

    pub(crate) fn tell(&mut self, link: usize, side: usize, life: u32, up: bool) {
        if self.network.tell(link, side, life, up).is_some() {
            let (host, of) = (self.network.links[link].hosts[side], self.network.links[link].peers[1 - side]);
            self.world.event(if up { 2 } else { 3 }, host);
            self.world.note(|| {
                format!("{host} hears that the link to {of:?} is {}", if up { "up" } else { "down" })
            });
            match &self.hosts[host].machine {
                Some(Machine::Node(_)) => {
                    let input = if up { node::Input::Linked(of) } else { node::Input::Unlinked(of) };
                    self.step_node(host, input);
                }
                Some(Machine::Shim(_)) => {
                    let input = if up { shim::Input::Linked(of) } else { shim::Input::Unlinked(of) };
                    self.step_shim(host, input);
                }
                Some(Machine::Router(_)) => {
                    let input = if up { router::Input::Linked(of) } else { router::Input::Unlinked(of) };
                    self.step_router(host, input);
                }
                Some(Machine::Controller(_)) | None => {}
            }
        }
        if self.network.links[link].is_idle() {
            let due = self.world.soon(self.redial());
            self.world.at(due, SimEvent::Dial { link });
        }
    }

    fn redial(&self) -> u64 {
        self.shape.lease / 20
    }

    /// Makes a link if both ends are there and reach each other; tries again otherwise.
    pub(crate) fn dial(&mut self, index: usize) {
        let link = &self.network.links[index];
        if !link.is_idle() {
            return;
        }
        let (dialer, mut listener) = (link.hosts[0], link.hosts[1]);
        if let Peer::Shim(shim) = link.peers[1] {
            // A shim's successor has its address.
            listener = self.servers[usize::from(shim.0)].current;
        }
        let now = self.world.now();
        let cut = self.network.cut_until(now, dialer, listener).is_some()
            || self.network.cut_until(now, listener, dialer).is_some();
        let ready = |host: HostId| self.hosts[host].is_awake(now);
        if cut || !ready(dialer) || !ready(listener) {
            let due = now + self.redial();
            return self.world.at(due, SimEvent::Dial { link: index });
        }
        self.network.links[index].hosts[1] = listener;
        let latency = self.shape.latency * HANDSHAKE;
        let told_at = [now + self.world.random.wait(latency), now + self.world.random.wait(latency)];
        let life = self.network.heal(index, told_at);
        for (side, at) in told_at.into_iter().enumerate() {
            self.world.at(at, SimEvent::Tell { link: index, side, life, up: true });
        }
    }

    pub(crate) fn break_link(&mut self, index: usize) {
        let life = self.network.links[index].life;
        let noticed = self.network.break_link(index, self.world.now(), &mut self.world.random);
        for (side, at) in noticed.into_iter().enumerate() {
            let Some(at) = at else { continue };
            let at = at + self.world.random.wait(self.shape.lease / 10);
            self.world.at(at, SimEvent::Tell { link: index, side, life, up: false });
        }
    }

    /// The links of a process that ends.
    pub(crate) fn cut_links(&mut self, host: HostId) {
        for index in 0..self.network.links.len() {
            let Some(side) = self.network.links[index].hosts.iter().position(|other| *other == host) else {
                continue;
            };
            self.break_link(index);
            self.network.forget(index, side);
            if self.network.links[index].is_idle() {
                let due = self.world.soon(self.redial());
                self.world.at(due, SimEvent::Dial { link: index });
            }
        }
    }

    pub(crate) fn pause(&mut self, host: HostId, until: u64) {
        if !self.hosts[host].is_awake(self.world.now()) {
            return;
        }
        if self.world.random.percent(50) {
            self.hosts[host].pause_in_hand = Some(until);
        } else {
            self.begin_pause(host, until);
        }
    }

    fn begin_pause(&mut self, host: HostId, until: u64) {
        self.world.note(|| format!("{host} is paused until {until}"));
        self.hosts[host].paused_until = until;
        let life = self.hosts[host].life;
        self.world.at(until, SimEvent::Wake { host, life });
    }

    pub(crate) fn step_node(&mut self, host: HostId, input: node::Input) {
        let own = &mut self.hosts[host];
        let Some(Machine::Node(node)) = &mut own.machine else { return };
        let mut effects = Vec::new();
        node.step(own.clock.at(self.world.now()), input, &mut effects);
        self.do_or_hold(host, Effects::Node(effects));
    }

    pub(crate) fn step_shim(&mut self, host: HostId, input: shim::Input) {
        let own = &mut self.hosts[host];
        let Some(Machine::Shim(shim)) = &mut own.machine else { return };
        let mut effects = Vec::new();
        let answered = match &input {
            shim::Input::Storage(StorageEvent::Replies { ticket, .. }) => Some(*ticket),
            _ => None,
        };
        shim.step(own.clock.at(self.world.now()), input, &mut effects);
        for effect in &effects {
            if let (shim::Effect::Send { message: Message::Fill(fill), .. }, Some(ticket)) =
                (effect, answered)
                && fill.granted
            {
                self.births.note_fill(host, ticket, fill);
            }
        }
        self.do_or_hold(host, Effects::Shim(effects));
    }

    pub(crate) fn step_router(&mut self, host: HostId, input: router::Input) {
        let own = &mut self.hosts[host];
        let Some(Machine::Router(router)) = &mut own.machine else { return };
        let mut effects = Vec::new();
        router.step(own.clock.at(self.world.now()), input, &mut effects);
        self.do_or_hold(host, Effects::Router(effects));
    }

    fn do_or_hold(&mut self, host: HostId, effects: Effects) {
        let until = self.hosts[host].pause_in_hand.take().filter(|until| *until > self.world.now());
        if let Some(until) = until {
            let life = self.hosts[host].life;
            // Before the wake: what came later waits behind it.
            self.world.at(until, SimEvent::Effects { host, life, effects });
            return self.begin_pause(host, until);
        }
        self.carry_out(host, effects);
    }

    pub(crate) fn carry_out(&mut self, host: HostId, effects: Effects) {
        match effects {
            Effects::Node(effects) => {
                for node::Effect::Send { to, message } in effects {
                    self.send(host, to, message);
                }
            }
            Effects::Shim(effects) => {
                for effect in effects {
                    match effect {
                        shim::Effect::Send { to, message } => self.send(host, to, message),
                        shim::Effect::Store(store) => {
                            self.births.note_stored(host, store.ticket, self.world.now());
                            self.step_storage(host, StorageInput::Store(store));
                        }
                        shim::Effect::Release { number, clean } => {
                            self.step_storage(host, StorageInput::Release { number, clean });
                        }
                        shim::Effect::Control { ticket, control } => {
                            self.step_storage(host, StorageInput::Control { ticket, control });
                        }
                        shim::Effect::Vacant { gone } => {
                            self.step_storage(host, StorageInput::Vacant { gone })
                        }
                        shim::Effect::HandOver => self.step_storage(host, StorageInput::HandOver),
                        // Processes of one shim are not linked to each other here, so that none hands over and stays.
                        shim::Effect::Renew => {}
                        shim::Effect::Migrate { keys, destinations, again } => {
                            let departures = Arc::new(keys);
                            let input = StorageInput::Migrate { departures, destinations, again };
                            self.step_storage(host, input);
                        }
                        shim::Effect::Prepare { keys, again } => {
                            let departures = keys.map(|keys| Arc::new(keys) as Arc<dyn Departures>);
                            self.step_storage(host, StorageInput::Prepare { departures, again });
                        }
                        shim::Effect::EndMigration => self.step_storage(host, StorageInput::EndMigration),
                        shim::Effect::Purged { number, .. } => self.check_purged(host, number),
                    }
                }
            }
            Effects::Router(effects) => {
                for effect in effects {
                    match effect {
                        router::Effect::Send { to, message } => self.send(host, to, message),
                        router::Effect::Reply { client, bytes } => self.answered(host, client, &bytes),
                        router::Effect::Close { client, .. } => {
                            self.step_router(host, router::Input::Closed { client });
                            self.closed_by_router(host, client);
                        }
                        router::Effect::Push { client, bytes } => self.pushed(host, client, &bytes),
                        // Its values are small, and it has one thread.
                        router::Effect::Part { .. }
                        | router::Effect::Resume { .. }
                        | router::Effect::Tell { .. } => {}
                    }
                }
            }
        }
    }

    fn send(&mut self, host: HostId, to: Peer, message: Message) {
        let Some(own) = self.hosts[host].role.peer() else { return };
        let Some(link) = self.network.between(own, to) else { return };
        let from = self.network.links[link].side_of(own);
        // A shim that was replaced has no links any more.
        if self.network.links[link].hosts[from] != host {
            return;
        }
        let place = Place { link, from, channel: usize::from(message.is_control()) };
        let latency = self.shape.latency * if self.network.is_slow(place) { SLOWNESS } else { 1 };
        let mut arrives_at = self.world.now() + self.world.random.wait(latency);
        arrives_at += self.storm_delay();
        let life = self.network.links[link].life;
        if place.channel == 1 && self.disturb(place, life, arrives_at, &message) {
            return;
        }
        if let Some(arrives_at) = self.network.send(place, arrives_at, message) {
            self.world.at(arrives_at, SimEvent::Deliver { place, life });
        }
    }

    fn storm_delay(&mut self) -> u64 {
        if self.storms.delay_until <= self.world.now() {
            0
        } else {
            self.world.random.below(self.storms.delay)
        }
    }

    /// What befalls a control message before it is on its way; true if it does not leave in its order.
    fn disturb(&mut self, place: Place, life: u32, arrives_at: u64, message: &Message) -> bool {
        let now = self.world.now();
        let struck =
            |storm: Storm, random: &mut SimRandom| storm.until > now && random.per_mille(storm.per_mille);
        let Place { link, from, .. } = place;
        if struck(self.storms.duplicates, &mut self.world.random) {
            let due = arrives_at + self.world.random.below(self.shape.lease * 2);
            self.world.at(due, SimEvent::Late { link, from, life: None, message: message.clone() });
        }
        if struck(self.storms.loss, &mut self.world.random) {
            self.watch.messages_lost += 1;
            return true;
        }
        if struck(self.storms.reordering, &mut self.world.random) {
            let due = arrives_at + self.world.random.below(self.shape.lease / 2);
            self.world.at(due, SimEvent::Late { link, from, life: Some(life), message: message.clone() });
            return true;
        }
        false
    }
}

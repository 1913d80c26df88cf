//! Clients ask, are connected, and go away. Not what they make of answers.

use linearize::What;
use protocol::router;
use smallvec::SmallVec;
use wire::resp::Command;

use crate::clients::AskedCommand;
use crate::cluster::Cluster;
use crate::commands::{self, DrawnCommand, StorageAnswers};
use crate::event::SimEvent;
use crate::network::HostId;
use crate::tracker::{Tracker, TrackingChoice};

/// Commands that a client sends at once.
const BURST_MAX: u64 = 6;

fn nothing(command: Command, answers: StorageAnswers) -> DrawnCommand {
    DrawnCommand { command, effects: Vec::new(), answers, blocks: false }
}

impl Cluster {
    pub(crate) fn client_acts(&mut self, client: usize) {
        if self.quiet {
            return;
        }
        let next = self.world.now() + self.world.random.wait(self.shape.think);
        self.world.at(next, SimEvent::Client { client });
        self.lose_patience(client);
        if !self.clients[client].asked.is_empty() || !self.connect(client) {
            return;
        }
        self.begin_tracking(client);
        let burst = self.shape.traffic.pipelines && self.world.random.percent(25);
        let length = if burst { self.world.random.between(2, BURST_MAX) } else { 1 };
        let mut near = None;
        let mut before: Vec<(usize, u32)> = Vec::new();
        for _ in 0..length {
            let Some(router) = self.hosts[self.clients[client].router].router() else { return };
            if !router.ready(self.clients[client].id) {
                return;
            }
            self.serial += 1;
            let drawn = if self.storms.evicts(self.world.now()) && self.world.random.percent(50) {
                commands::cold(&mut self.world.random)
            } else {
                commands::draw(&self.shape.traffic, &self.keys, near, self.serial, &mut self.world.random)
            };
            let drawn = self.unless_settled(drawn);
            if self.has_kept(client, &drawn) {
                continue;
            }
            self.choose_tracking(client);
            let blocks = drawn.blocks;
            near = drawn.effects.first().map(|(key, _)| *key).filter(|_| self.world.random.percent(70));
            self.ask(client, drawn, &mut before);
            if blocks {
                return;
            }
        }
    }

    /// Sends a command; `before` has the latest operation on each key that this burst has sent.
    pub(crate) fn ask(&mut self, client: usize, drawn: DrawnCommand, before: &mut Vec<(usize, u32)>) {
        let mut operations = SmallVec::new();
        let first = self.clients[client].asked.is_empty();
        let writes = first && drawn.effects.iter().any(|(_, what)| !what.reads());
        let everywhere = drawn.effects.iter().any(|(_, what)| *what == What::Clear);
        for (key, what) in drawn.effects {
            let after = before.iter().find(|(other, _)| *other == key).map(|(_, place)| *place);
            let frame = (!what.reads()).then(|| drawn.command.frame().clone());
            let id = self.history.begin(self.world.now(), key, what, after, frame);
            before.retain(|(other, _)| *other != key);
            before.push((key, id.place));
            operations.push(id);
        }
        let (answers, blocks, since) = (drawn.answers, drawn.blocks, self.world.now());
        let keeps = self.asks_to_keep(client, answers);
        self.world.note(|| format!("client {client} asks {:?} as {operations:?}", drawn.command));
        let own = &mut self.clients[client];
        own.asked.push_back(AskedCommand { operations, answers, since, blocks, everywhere, writes, keeps });
        let (host, connection) = (own.router, own.connection);
        if blocks {
            let due = self.world.soon(self.shape.lease);
            self.world.at(due, SimEvent::Cancel { client, connection });
        }
        self.watch.operations += 1;
        let command = drawn.command;
        match self.hosts[host].parks(self.world.now()) {
            true => {
                let event = SimEvent::Command { host, client, connection, command };
                self.hosts[host].parked.push_back(event);
            }
            false => self.commanded(host, client, connection, command),
        }
    }

    pub(crate) fn commanded(&mut self, host: HostId, client: usize, connection: u32, command: Command) {
        let own = &self.clients[client];
        if own.connection == connection && own.connected {
            let client = own.id;
            self.step_router(host, router::Input::Command { client, command });
        }
    }

    /// Whether the client is connected now.
    pub(crate) fn connect(&mut self, client: usize) -> bool {
        let own = &self.clients[client];
        if own.connected {
            return true;
        }
        let (host, id, resp3) = (own.router, own.id, own.resp3);
        if !self.hosts[host].is_awake(self.world.now()) {
            return false;
        }
        self.clients[client].connected = true;
        self.step_router(host, router::Input::Opened { client: id });
        if resp3 {
            let command = Command::from_args(&["HELLO", "3"]);
            let answers = StorageAnswers::Nothing;
            let drawn = DrawnCommand { command, effects: Vec::new(), answers, blocks: false };
            self.ask(client, drawn, &mut Vec::new());
        }
        true
    }

    /// A client that has waited for longer than any lease takes starts anew.
    fn lose_patience(&mut self, client: usize) {
        let patience = self.shape.stall_max() + self.shape.lease / 2 + self.slack();
        let own = &self.clients[client];
        let Some(first) = own.asked.front().filter(|first| first.since + patience < self.world.now()) else {
            return;
        };
        let (host, id, writes) = (own.router, own.id, first.writes && !first.blocks);
        let since = first.since;
        if !self.hosts[host].is_awake(self.world.now()) || self.calm {
            return;
        }
        self.watch.waited(writes, since, self.world.now());
        self.world.note(|| format!("client {client} has waited since {since} and goes away"));
        self.disconnected(client);
        self.step_router(host, router::Input::Closed { client: id });
    }

    /// A client that has waited too long for something to happen goes away.
    pub(crate) fn give_up(&mut self, client: usize, connection: u32) {
        let own = &self.clients[client];
        let waits = own.asked.iter().any(|asked| asked.blocks);
        if own.connection != connection || !own.connected || !waits {
            return;
        }
        let (host, id) = (own.router, own.id);
        if self.hosts[host].is_paused(self.world.now()) {
            let due = self.hosts[host].paused_until;
            return self.world.at(due, SimEvent::Cancel { client, connection });
        }
        self.world.note(|| format!("client {client} goes away"));
        self.disconnected(client);
        self.step_router(host, router::Input::Closed { client: id });
    }

    /// Reads again what has changed.
    pub(crate) fn refresh(&mut self, client: usize, key: usize) {
        let own = &self.clients[client];
        let ready = self.hosts[own.router].router().is_some_and(|router| router.ready(own.id()));
        if ready && !self.quiet && own.asked.is_empty() && self.connect(client) {
            let drawn = self.read_of(key);
            self.begin_tracking(client);
            self.choose_tracking(client);
            self.ask(client, drawn, &mut Vec::new());
        }
    }

    /// Says what it wants to be told of, unless that is settled.
    fn begin_tracking(&mut self, client: usize) {
        let Some(tracker) = &mut self.clients[client].tracker else { return };
        if !tracker.confirmed {
            tracker.said = false;
            let drawn = nothing(tracker.command(), StorageAnswers::Tracking);
            self.ask(client, drawn, &mut Vec::new());
        }
    }

    /// What precedes a command: whether its reply is to be kept.
    fn choose_tracking(&mut self, client: usize) {
        let Some(tracker) = &mut self.clients[client].tracker else { return };
        let (word, chance) = match tracker.choice {
            TrackingChoice::OptIn => ("YES", 60),
            TrackingChoice::OptOut => ("NO", 30),
            _ => return,
        };
        if !tracker.said && self.world.random.percent(chance) {
            tracker.said = true;
            let command = Command::from_args(&["CLIENT", "CACHING", word]);
            self.ask(client, nothing(command, StorageAnswers::Nothing), &mut Vec::new());
        }
    }

    /// Whether it has all that it would ask for.
    fn has_kept(&self, client: usize, drawn: &DrawnCommand) -> bool {
        let Some(tracker) = &self.clients[client].tracker else { return false };
        let kept = |(key, what): &(usize, What)| {
            let form = self.keys[*key].reads.iter().position(|form| form.what == *what);
            form.is_some_and(|form| tracker.kept.contains_key(&(*key, form)))
        };
        !drawn.effects.is_empty() && drawn.effects.iter().all(kept)
    }

    fn asks_to_keep(&mut self, client: usize, answers: StorageAnswers) -> bool {
        let speaks = matches!(answers, StorageAnswers::All | StorageAnswers::Elements | StorageAnswers::Null);
        speaks && self.clients[client].tracker.as_mut().is_some_and(Tracker::keeps)
    }

    /// A read in place of a command that writes what nobody writes any more.
    pub(crate) fn unless_settled(&mut self, drawn: DrawnCommand) -> DrawnCommand {
        let settled =
            |(key, what): &&(usize, What)| !what.reads() && self.settled_at[*key] <= self.world.now();
        match drawn.effects.iter().find(settled) {
            Some(&(key, _)) => self.read_of(key),
            None => drawn,
        }
    }

    fn read_of(&mut self, key: usize) -> DrawnCommand {
        let form = &self.keys[key].reads[self.world.random.index(self.keys[key].reads.len())];
        let (command, effects) = (form.command.clone(), vec![(key, form.what.clone())]);
        DrawnCommand { command, effects, answers: StorageAnswers::All, blocks: false }
    }
}

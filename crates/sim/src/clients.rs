//! Clients of the routers: when they ask, and what becomes of it. Not what they ask for.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::router::{self, ClientId};
use smallvec::SmallVec;
use wire::resp::{Command, Value};

use crate::cluster::{Cluster, SimEvent};
use crate::commands::{self, CommandVerdict, DrawnCommand, StorageAnswers};
pub(crate) use crate::commands::{TestKey, keys};
use crate::history::OperationId;
use crate::model::What;
use crate::network::HostId;
use crate::random::SimRandom;
use crate::shape::Shape;
use crate::tracking::Tracker;

/// Commands that a client sends at once.
const BURST_MAX: u64 = 6;
const NULL: &[u8] = b"$-1\r\n";

/// A command without its reply.
#[derive(Clone, Debug)]
pub(crate) struct AskedCommand {
    pub(crate) operations: SmallVec<[OperationId; 2]>,
    answers: StorageAnswers,
    pub(crate) since: u64,
    pub(crate) blocks: bool,
    /// Every error leaves its outcome open, since it ran at several servers.
    everywhere: bool,
    /// A write that nothing of its client holds up: how long it takes is its own affair.
    pub(crate) writes: bool,
    /// Its reply may be kept until the client hears of a change.
    keeps: bool,
}

#[derive(Debug)]
pub(crate) struct SimClient {
    pub(crate) router: HostId,
    id: ClientId,
    resp3: bool,
    connected: bool,
    /// Counts connections.
    connection: u32,
    /// In the order of asking, which is that of the replies.
    pub(crate) asked: VecDeque<AskedCommand>,
    /// If it keeps what it reads.
    pub(crate) tracker: Option<Tracker>,
}

impl SimClient {
    pub(crate) fn id(&self) -> ClientId {
        self.id
    }
}

pub(crate) fn clients(shape: &Shape, routers_first: HostId, random: &mut SimRandom) -> Vec<SimClient> {
    let mut client = |index: usize| SimClient {
        tracker: None,
        router: routers_first + index % shape.routers,
        id: ClientId((index / shape.routers) as u32),
        resp3: shape.traffic.resp3 && random.percent(40),
        connected: false,
        connection: 0,
        asked: VecDeque::new(),
    };
    let mut clients: Vec<SimClient> = (0..shape.clients).map(&mut client).collect();
    for client in clients.iter_mut().take(shape.trackers) {
        (client.resp3, client.tracker) = (true, Some(Tracker::draw(random)));
    }
    clients
}

impl Cluster {
    pub(crate) fn client_acts(&mut self, client: usize) {
        if self.quiet {
            return;
        }
        let next = self.now + self.random.wait(self.shape.think);
        self.at(next, SimEvent::Client { client });
        self.lose_patience(client);
        if !self.clients[client].asked.is_empty() || !self.connect(client) {
            return;
        }
        self.begin_tracking(client);
        let burst = self.shape.traffic.pipelines && self.random.percent(25);
        let length = if burst { self.random.between(2, BURST_MAX) } else { 1 };
        let mut near = None;
        let mut before: Vec<(usize, u32)> = Vec::new();
        for _ in 0..length {
            let Some(router) = self.hosts[self.clients[client].router].router() else { return };
            if !router.ready(self.clients[client].id) {
                return;
            }
            self.serial += 1;
            let wish = if self.storms.evicts(self.now) && self.random.percent(50) {
                commands::cold(&mut self.random)
            } else {
                commands::wish(&self.shape.traffic, &self.keys, near, self.serial, &mut self.random)
            };
            let wish = self.unless_settled(wish);
            if self.has_kept(client, &wish) {
                continue;
            }
            self.choose_tracking(client);
            let blocks = wish.blocks;
            near = wish.effects.first().map(|(key, _)| *key).filter(|_| self.random.percent(70));
            self.ask(client, wish, &mut before);
            if blocks {
                return;
            }
        }
    }

    /// Sends a command; `before` has the latest operation on each key that this burst has sent.
    pub(crate) fn ask(&mut self, client: usize, wish: DrawnCommand, before: &mut Vec<(usize, u32)>) {
        let mut operations = SmallVec::new();
        let first = self.clients[client].asked.is_empty();
        let writes = first && wish.effects.iter().any(|(_, what)| !what.reads());
        let everywhere = wish.effects.iter().any(|(_, what)| *what == What::Clear);
        for (key, what) in wish.effects {
            let after = before.iter().find(|(other, _)| *other == key).map(|(_, place)| *place);
            let frame = (!what.reads()).then(|| wish.command.frame().clone());
            let id = self.history.begin(self.now, key, what, after, frame);
            before.retain(|(other, _)| *other != key);
            before.push((key, id.place));
            operations.push(id);
        }
        let (answers, blocks, since) = (wish.answers, wish.blocks, self.now);
        let keeps = self.asks_to_keep(client, answers);
        self.note(|| format!("client {client} asks {:?} as {operations:?}", wish.command));
        let own = &mut self.clients[client];
        own.asked.push_back(AskedCommand { operations, answers, since, blocks, everywhere, writes, keeps });
        let (host, connection) = (own.router, own.connection);
        if blocks {
            let due = self.soon(self.shape.lease);
            self.at(due, SimEvent::Cancel { client, connection });
        }
        self.watch.operations += 1;
        self.fire(SimEvent::Command { host, client, connection, command: wish.command });
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
        if !self.hosts[host].is_awake(self.now) {
            return false;
        }
        self.clients[client].connected = true;
        self.step_router(host, router::Input::Opened { client: id });
        if resp3 {
            let command = Command::from_args(&["HELLO", "3"]);
            let answers = StorageAnswers::Nothing;
            let wish = DrawnCommand { command, effects: Vec::new(), answers, blocks: false };
            self.ask(client, wish, &mut Vec::new());
        }
        true
    }

    pub(crate) fn index_of(&self, host: HostId, client: ClientId) -> usize {
        client.0 as usize * self.shape.routers + (host - self.routers_first)
    }

    pub(crate) fn answered(&mut self, host: HostId, client: ClientId, bytes: &Bytes) {
        let client = self.index_of(host, client);
        self.trace.event(self.now, 8, client);
        self.trace.bytes(bytes);
        let Some(asked) = self.clients[client].asked.pop_front() else {
            return self.fail(format!("client {client} was told {bytes:?}, which it had not asked"));
        };
        self.note(|| format!("client {client} is told {bytes:?} for {:?}", asked.operations));
        if asked.answers == StorageAnswers::Tracking {
            return self.tracking_answered(client, bytes);
        }
        let verdict = match commands::verdict(bytes) {
            Ok(verdict) => verdict,
            Err(failure) => return self.fail(failure),
        };
        self.watch.answered(&asked, &verdict, self.now);
        if verdict != CommandVerdict::Told {
            for operation in asked.operations {
                self.keep(client, operation, None, false);
                match verdict {
                    CommandVerdict::NoEffect if !asked.everywhere => self.history.void(operation),
                    _ => self.history.lost(operation),
                }
            }
            return;
        }
        if asked.answers == StorageAnswers::Nothing {
            return;
        }
        let replies = match self.replies(client, asked.answers, bytes) {
            Ok(replies) => replies,
            Err(failure) => return self.fail(failure),
        };
        for (index, operation) in asked.operations.iter().enumerate() {
            let place = if asked.answers == StorageAnswers::Elements { index } else { 0 };
            match replies.get(place) {
                Some(reply) => {
                    self.history.told(self.now, *operation, reply.clone());
                    self.keep(client, *operation, Some(reply), asked.keeps);
                }
                None => self.fail(format!("client {client} was told too little: {bytes:?}")),
            }
        }
        if asked.answers == StorageAnswers::Null && replies[0] != NULL {
            self.fail(format!("a key that nobody writes is said to hold {bytes:?}"));
        }
    }

    /// The parts of a reply as RESP2 has them.
    fn replies(&self, client: usize, answers: StorageAnswers, bytes: &Bytes) -> Result<Vec<Vec<u8>>, String> {
        if answers != StorageAnswers::Elements && !self.clients[client].resp3 {
            return Ok(vec![bytes.to_vec()]);
        }
        let value =
            Value::parse(bytes).map_err(|error| format!("client {client} cannot read {bytes:?}: {error}"))?;
        let written = |value: &Value| {
            let mut out = Vec::new();
            value.write(false, &mut out);
            out
        };
        match answers {
            StorageAnswers::Elements => {
                let elements = value.elements().ok_or_else(|| format!("{bytes:?} is no array"))?;
                Ok(elements.iter().map(written).collect())
            }
            _ => Ok(vec![written(&value)]),
        }
    }

    /// The router's process is gone, and with it all that its clients waited for.
    pub(crate) fn disconnect_clients(&mut self, host: HostId) {
        for client in 0..self.clients.len() {
            if self.clients[client].router == host {
                self.disconnected(client);
            }
        }
    }

    fn disconnected(&mut self, client: usize) {
        let own = &mut self.clients[client];
        own.connected = false;
        own.connection += 1;
        own.tracker.iter_mut().for_each(Tracker::disconnected);
        for asked in std::mem::take(&mut own.asked) {
            for operation in asked.operations {
                self.history.lost(operation);
            }
        }
    }

    pub(crate) fn closed_by_router(&mut self, host: HostId, client: ClientId) {
        let client = self.index_of(host, client);
        self.fail(format!("client {client} was cut off"));
    }

    /// A client that has waited for longer than any lease takes starts anew.
    fn lose_patience(&mut self, client: usize) {
        let patience = self.shape.stall_max() + self.shape.lease / 2 + self.slack();
        let own = &self.clients[client];
        let Some(first) = own.asked.front().filter(|first| first.since + patience < self.now) else { return };
        let (host, id, writes) = (own.router, own.id, first.writes && !first.blocks);
        let since = first.since;
        if !self.hosts[host].is_awake(self.now) || self.calm {
            return;
        }
        self.watch.waited(writes, since, self.now);
        self.note(|| format!("client {client} has waited since {since} and goes away"));
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
        if self.hosts[host].is_paused(self.now) {
            let due = self.hosts[host].paused_until;
            return self.at(due, SimEvent::Cancel { client, connection });
        }
        self.note(|| format!("client {client} goes away"));
        self.disconnected(client);
        self.step_router(host, router::Input::Closed { client: id });
    }
}

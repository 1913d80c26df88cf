//! The production machines that fence and take over a Redis server, several processes of one shim before one server, in
//! trouble. Not what a shim does with its storage.
//!
//! A seed decides everything. What must hold is what `protocol::storage` promises the shim: a command that was said to be
//! unsent is never carried out; what was lost is not carried out after `Fenced`; no earlier incarnation's command is
//! carried out once a later one is up; and somebody is up again once the trouble is over.

mod network;
mod server;
mod ticket;
mod trouble;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use protocol::storage::network::{Backend, ConnectionId, Endpoint, StorageInput};
use protocol::storage::redis::{Redis, RedisSettings};
use protocol::storage::{Lane, Reach, StorageEvent, Store, Wish};
use protocol::time::Time;
use wire::resp::{Command, Limits, take_command};

use crate::queue::Queue;
use crate::random::Random;
use network::{Action, Links};
use server::Server;
use ticket::{Book, Ended};
use trouble::Trouble;

/// Of one way, mostly; microseconds, as all times here.
const LATENCY: u64 = 500;
const TICK: u64 = 10_000;
/// A server that is silent for this long is taken for lost.
const PATIENCE: Duration = Duration::from_millis(300);
const PROCESSES_MAX: usize = 3;
/// Numbers for the connections of one process.
const CONNECTIONS: u64 = 1 << 32;
/// A process that was replaced looks no less often whether its successor is still there.
const RECOVERY: u64 = 60_000_000;

#[derive(Debug)]
enum Event {
    Connected(ConnectionId),
    /// The kernel takes more of what a process has to write.
    Flush(ConnectionId),
    /// Bytes reach the server.
    Arrive(ConnectionId, Bytes),
    /// The server sees that the other end has gone.
    End(ConnectionId),
    /// The server gets to the next command of a connection.
    Execute(ConnectionId),
    /// Bytes reach the process.
    Deliver(ConnectionId, Bytes),
    /// The process sees that the connection is no more.
    Broken(ConnectionId),
    Tick(usize),
    Work(usize),
    /// Somebody does what was put off.
    GoOn(Party),
    Trouble,
    Heal(Trouble),
}

/// Who may do nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Party {
    Server,
    Process(usize),
}

/// What was meant for somebody who does nothing, in its order.
#[derive(Debug, Default)]
struct Pause {
    until: u64,
    put_off: VecDeque<Event>,
}

/// A connection between a process and the server, in both directions in order.
#[derive(Debug)]
struct Wire {
    client: Option<u64>,
    /// At the server, not a whole command yet.
    received: BytesMut,
    arrives_at: u64,
    delivers_at: u64,
}

struct Process {
    /// None once it has ended.
    machine: Option<Redis>,
    links: Links,
    /// Under which commands may be sent now.
    up: Option<u64>,
    /// Why it was not up last.
    reason: String,
    watches: u64,
}

/// What a run met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub executed: u64,
    /// Carried out although the process had been told that the command was lost.
    pub late: u64,
    pub incarnations: u64,
    pub fences: u64,
}

pub(crate) struct World {
    now: u64,
    queue: Queue<Event>,
    random: Random,
    server: Server,
    pauses: BTreeMap<Party, Pause>,
    wires: BTreeMap<ConnectionId, Wire>,
    processes: Vec<Process>,
    book: Book,
    troubled_until: u64,
    /// When the server was the same, with the same data, for the last time.
    changed_at: u64,
}

/// Several processes before one server for `seconds` of trouble, and until it must be over.
///
/// # Errors
/// What was broken, and when.
pub fn run(seed: u64, seconds: u64) -> Result<Tally, String> {
    let mut world = World::new(seed, seconds * 1_000_000);
    world.run().map_err(|what| format!("seed {seed}, {:.6} s: {what}", world.now as f64 / 1e6))
}

impl World {
    fn new(seed: u64, troubled_until: u64) -> World {
        let mut world = World {
            now: 1,
            queue: Queue::new(),
            random: Random::new(seed),
            server: Server::new(),
            pauses: BTreeMap::new(),
            wires: BTreeMap::new(),
            processes: Vec::new(),
            book: Book::default(),
            troubled_until,
            changed_at: 0,
        };
        world.start_process();
        world.queue.push(1, Event::Trouble);
        world
    }

    fn run(&mut self) -> Result<Tally, String> {
        let end = self.troubled_until + RECOVERY;
        while let Some((now, event)) = self.queue.pop(end) {
            self.now = now;
            self.take(event)?;
        }
        let up: Vec<usize> = (0..self.processes.len()).filter(|index| self.is_up(*index)).collect();
        let alive = self.processes.iter().any(|process| process.machine.is_some());
        match (up.len(), alive) {
            (1, _) => {
                let incarnation = self.processes[up[0]].up.unwrap_or_default();
                match self.book.since(incarnation) < self.changed_at {
                    true => Err("what is up now was up before another state of the server".to_owned()),
                    false => Ok(self.book.tally),
                }
            }
            (0, false) => Ok(self.book.tally),
            (0, true) => {
                let alive = self.processes.iter().filter(|process| process.machine.is_some());
                let reasons: Vec<&str> = alive.map(|process| process.reason.as_str()).collect();
                Err(format!("nobody is up although all trouble is over: {}", reasons.join("; ")))
            }
            _ => Err(format!("processes {up:?} are up at once")),
        }
    }

    fn is_up(&self, process: usize) -> bool {
        self.processes[process].machine.as_ref().is_some_and(Backend::is_up)
    }

    fn start_process(&mut self) {
        let process = self.processes.len();
        let settings = RedisSettings {
            endpoint: Endpoint::Configured,
            address: "the server".to_owned(),
            tls: false,
            user: None,
            password: None,
            cluster: "c".to_owned(),
            shim: "s".to_owned(),
            cluster_mode: false,
            timeout: PATIENCE,
            pinned_max: 4,
            seed: self.random.number(),
        };
        self.processes.push(Process {
            machine: Some(Redis::new(settings)),
            links: Links::new(process as u64 * CONNECTIONS + 1),
            up: None,
            reason: String::new(),
            watches: 0,
        });
        self.queue.push(self.now + 1, Event::Tick(process));
        self.queue.push(self.now + 1, Event::Work(process));
    }

    fn take(&mut self, event: Event) -> Result<(), String> {
        let Some(party) = self.party(&event) else { return self.carry_out(event) };
        let pause = self.pauses.entry(party).or_default();
        if pause.until <= self.now && pause.put_off.is_empty() {
            return self.carry_out(event);
        }
        pause.put_off.push_back(event);
        Ok(())
    }

    /// Whoever does something now does nothing for so long, or longer if it already rests.
    fn pause(&mut self, party: Party, time: u64) {
        let until = self.now + time;
        let pause = self.pauses.entry(party).or_default();
        if pause.until <= self.now {
            self.queue.push(until, Event::GoOn(party));
        }
        pause.until = pause.until.max(until);
    }

    fn go_on(&mut self, party: Party) -> Result<(), String> {
        let pause = self.pauses.entry(party).or_default();
        if pause.until > self.now {
            self.queue.push(pause.until, Event::GoOn(party));
            return Ok(());
        }
        std::mem::take(&mut pause.put_off).into_iter().try_for_each(|event| self.carry_out(event))
    }

    fn carry_out(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Connected(connection) => self.tell(connection, StorageInput::Connected(connection)),
            Event::Flush(connection) => {
                self.flush(connection);
                Ok(())
            }
            Event::Arrive(connection, bytes) => {
                self.arrive(connection, &bytes);
                Ok(())
            }
            Event::End(connection) => {
                if let Some(client) = self.wires.get(&connection).and_then(|wire| wire.client) {
                    self.server.end(client);
                }
                Ok(())
            }
            Event::Execute(connection) => self.execute(connection),
            Event::Deliver(connection, bytes) => self.deliver(connection, &bytes),
            Event::Broken(connection) => {
                let reason = "the connection broke".to_owned();
                self.tell(connection, StorageInput::Closed { connection, reason })?;
                let process = self.owner(connection);
                self.processes[process].links.forget(connection);
                Ok(())
            }
            Event::Tick(process) => {
                if self.processes[process].machine.is_some() {
                    let due = self.now + TICK / 2 + self.random.below(TICK);
                    self.queue.push(due, Event::Tick(process));
                }
                self.step(process, StorageInput::Tick)
            }
            Event::Work(process) => self.work(process),
            Event::GoOn(party) => self.go_on(party),
            Event::Trouble => self.trouble(),
            Event::Heal(trouble) => {
                self.heal(trouble);
                Ok(())
            }
        }
    }

    /// Whose doing it is.
    fn party(&self, event: &Event) -> Option<Party> {
        match event {
            Event::Arrive(..) | Event::End(_) | Event::Execute(_) => Some(Party::Server),
            Event::Connected(connection) | Event::Deliver(connection, _) | Event::Broken(connection) => {
                Some(Party::Process(self.owner(*connection)))
            }
            Event::Tick(process) | Event::Work(process) => Some(Party::Process(*process)),
            Event::Flush(_) | Event::GoOn(_) | Event::Trouble | Event::Heal(_) => None,
        }
    }

    fn owner(&self, connection: ConnectionId) -> usize {
        (connection.0 / CONNECTIONS) as usize
    }

    fn latency(&mut self) -> u64 {
        1 + self.random.wait(LATENCY)
    }

    /// Tells a process about a connection that it still has.
    fn tell(&mut self, connection: ConnectionId, input: StorageInput) -> Result<(), String> {
        let process = self.owner(connection);
        match self.processes[process].links.has(connection) {
            true => self.step(process, input),
            false => Ok(()),
        }
    }

    fn step(&mut self, process: usize, input: StorageInput) -> Result<(), String> {
        let own = &mut self.processes[process];
        let Some(machine) = &mut own.machine else { return Ok(()) };
        let mut events = Vec::new();
        machine.step(Time(self.now), input, &mut own.links, &mut events);
        for event in events {
            self.heard(process, event)?;
        }
        for action in self.processes[process].links.take_actions() {
            self.act(action)?;
        }
        for connection in self.processes[process].links.writing() {
            self.flush(connection);
        }
        Ok(())
    }

    /// What a machine reports to its shim.
    fn heard(&mut self, process: usize, event: StorageEvent) -> Result<(), String> {
        match event {
            StorageEvent::Up { incarnation, .. } => {
                self.processes[process].up = Some(incarnation);
                self.book.up(incarnation, self.now)
            }
            StorageEvent::Down { reason } => {
                let own = &mut self.processes[process];
                (own.up, own.reason) = (None, reason);
                Ok(())
            }
            StorageEvent::Replies { ticket, replies } => self.book.end(ticket, &Ended::Replied(&replies[0])),
            StorageEvent::Lost { ticket, sent } => self.book.end(ticket, &Ended::Lost { sent }),
            StorageEvent::Fenced => {
                self.book.fenced(process);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Dial(connection) => {
                let wire = Wire {
                    client: Some(self.server.accept()),
                    received: BytesMut::new(),
                    arrives_at: 0,
                    delivers_at: 0,
                };
                self.wires.insert(connection, wire);
                let due = self.now + self.latency();
                self.queue.push(due, Event::Connected(connection));
            }
            Action::Close(connection, rest) => {
                self.send(connection, rest);
                let arrives_at = self.wires.get(&connection).map_or(0, |wire| wire.arrives_at);
                let due = arrives_at.max(self.now) + self.latency();
                self.queue.push(due, Event::End(connection));
            }
            Action::Resume(connection) => return self.deliver(connection, &Bytes::new()),
        }
        Ok(())
    }

    /// The kernel takes what a process has to write, or now and then a part of it.
    fn flush(&mut self, connection: ConnectionId) {
        let part = self.random.percent(5);
        let bytes = if part { self.random.index(200) } else { usize::MAX };
        let process = self.owner(connection);
        let written = self.processes[process].links.write(connection, bytes);
        self.send(connection, written);
        if part {
            let due = self.now + self.random.below(200_000);
            self.queue.push(due, Event::Flush(connection));
        }
    }

    fn send(&mut self, connection: ConnectionId, bytes: Bytes) {
        let latency = self.latency();
        let Some(wire) = self.wires.get_mut(&connection).filter(|_| !bytes.is_empty()) else { return };
        wire.arrives_at = wire.arrives_at.max(self.now + latency);
        self.queue.push(wire.arrives_at, Event::Arrive(connection, bytes));
    }

    fn arrive(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        let Some(client) = wire.client else { return };
        wire.received.extend_from_slice(bytes);
        let mut received = wire.received.split().freeze();
        let mut commands = Vec::new();
        while let Ok(Some(command)) = take_command(&mut received, &Limits::default()) {
            commands.push(command);
        }
        wire.received.extend_from_slice(&received);
        let (idle, any) = (!self.server.has_work(client), !commands.is_empty());
        self.server.read(client, commands);
        if idle && any {
            self.plan(connection);
        }
    }

    /// When the server gets to a connection: soon, or when it has done everything else.
    fn plan(&mut self, connection: ConnectionId) {
        let troubled = self.now < self.troubled_until;
        let late = troubled && self.random.percent(2);
        let wait = if late { self.random.below(400_000) } else { self.latency() };
        self.queue.push(self.now + wait, Event::Execute(connection));
    }

    fn execute(&mut self, connection: ConnectionId) -> Result<(), String> {
        let Some(client) = self.wires.get(&connection).and_then(|wire| wire.client) else { return Ok(()) };
        let Some((command, outcome)) = self.server.execute(client) else { return Ok(()) };
        if outcome.wrote {
            self.book.executed(&command)?;
        }
        self.answer(connection, outcome.reply);
        self.cut(&outcome.killed);
        if self.server.has_work(client) {
            self.plan(connection);
        }
        Ok(())
    }

    fn answer(&mut self, connection: ConnectionId, bytes: Bytes) {
        let latency = self.latency();
        let Some(wire) = self.wires.get_mut(&connection) else { return };
        wire.delivers_at = wire.delivers_at.max(self.now + latency);
        self.queue.push(wire.delivers_at, Event::Deliver(connection, bytes));
    }

    /// The server has closed these connections: their other ends see it behind what was answered before.
    fn cut(&mut self, clients: &[u64]) {
        let cut = |wire: &Wire| wire.client.is_some_and(|client| clients.contains(&client));
        let wires: Vec<ConnectionId> =
            self.wires.iter().filter(|(_, wire)| cut(wire)).map(|(connection, _)| *connection).collect();
        for connection in wires {
            let latency = self.latency();
            if let Some(wire) = self.wires.get_mut(&connection) {
                wire.client = None;
                let due = wire.delivers_at.max(self.now + latency);
                self.queue.push(due, Event::Broken(connection));
            }
        }
    }

    fn deliver(&mut self, connection: ConnectionId, bytes: &[u8]) -> Result<(), String> {
        let process = self.owner(connection);
        match self.processes[process].links.come(connection, bytes) {
            Some(bytes) => self.step(process, StorageInput::Data { connection, bytes }),
            None => Ok(()),
        }
    }

    /// A process asks something of its storage.
    fn work(&mut self, process: usize) -> Result<(), String> {
        if self.processes[process].machine.is_none() {
            return Ok(());
        }
        let due = self.now + self.random.wait(5_000) + 1;
        self.queue.push(due, Event::Work(process));
        let Some(incarnation) = self.processes[process].up else { return Ok(()) };
        if let Some(ticket) = self.book.pinned_of(process).filter(|_| self.random.percent(5)) {
            return self.step(process, StorageInput::Wish { ticket, wish: Wish::Abort });
        }
        let watches = &mut self.processes[process].watches;
        if *watches > 0 && self.random.percent(5) {
            let (number, clean) = (*watches, self.random.percent(50));
            return self.step(process, StorageInput::Release { number, clean });
        }
        let resp3 = self.random.percent(20);
        let lane = match self.random.below(10) {
            0 => Lane::Pinned { resp3 },
            1 => Lane::Scripts { resp3 },
            2 => {
                *watches += 1;
                Lane::Watching { number: *watches, resp3 }
            }
            _ => Lane::Shared { resp3 },
        };
        let ticket = self.book.issue(process, incarnation, matches!(lane, Lane::Pinned { .. }));
        let frame = Command::from_args(&["SET", &ticket.to_string()]).into_frame();
        let store = Store { ticket, lane, reach: Reach::Whole, commands: [frame].into_iter().collect() };
        self.step(process, StorageInput::Store(store))
    }
}

#[cfg(test)]
mod tests {
    use super::{Tally, run};

    #[test]
    fn nobody_writes_who_has_been_fenced() {
        let mut sum = Tally::default();
        for case in cases::seeds(40) {
            let tally = run(case.seed, 20).unwrap_or_else(|what| panic!("{what}"));
            sum.executed += tally.executed;
            sum.late += tally.late;
            sum.incarnations += tally.incarnations;
            sum.fences += tally.fences;
        }
        if !cases::alone() {
            let enough = sum.executed > 10_000 && sum.late > 10 && sum.incarnations > 100 && sum.fences > 100;
            assert!(enough, "{sum:?}");
        }
    }
}

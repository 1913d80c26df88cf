//! The production machines that fence and take over a Redis server, several processes of one shim before one server, in
//! trouble. Not what a shim does with its storage.
//!
//! A seed decides everything. What must hold is what `protocol::storage` promises the shim: a command that was said to be
//! unsent is never carried out; what was lost is not carried out after `Fenced`; no earlier incarnation's command is
//! carried out once a later one is up; and somebody is up again once the trouble is over.

mod ticket;
mod trouble;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use protocol::storage::network::{Backend, ConnectionId, StorageInput};
use protocol::storage::redis::{Redis, RedisSettings};
use protocol::storage::{Lane, Reach, StorageEvent, Store, Wish};
use protocol::time::Time;
use wire::resp::Command;

use crate::queue::Queue;
use crate::random::Random;
use crate::storage::links::{Action, Links};
use crate::storage::site::{Doer, Habits, Moment, Site, WireEvent};
use crate::storage::{Effect, settings};
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
/// Everybody knows by then that the server has another state, whatever else goes wrong.
const NOTICED: u64 = 10_000_000;
/// Of this it needs no more before one serves for good: two looks at a successor that is gone, and a takeover.
const SETTLING: u64 = 40_000_000;
const HABITS: Habits = Habits { part_percent: 20, part_delay: 200_000, late_percent: 2, late_delay: 400_000 };

#[derive(Debug)]
enum Event {
    Wire(WireEvent),
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
    site: Site,
    pauses: BTreeMap<Party, Pause>,
    processes: Vec<Process>,
    book: Book,
    troubled_until: u64,
    /// Nothing more goes wrong before.
    alone_until: u64,
    /// When the server became another one, or one with other data.
    changes: Vec<u64>,
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
            site: Site::new(HABITS),
            pauses: BTreeMap::new(),
            processes: Vec::new(),
            book: Book::default(),
            troubled_until,
            alone_until: 0,
            changes: Vec::new(),
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
                match self.book.since(incarnation) < self.changed_before(self.now) {
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

    /// When the server became another one for the last time until `time`.
    fn changed_before(&self, time: u64) -> u64 {
        self.changes.iter().rev().find(|change| **change <= time).copied().unwrap_or(0)
    }

    fn is_up(&self, process: usize) -> bool {
        self.processes[process].machine.as_ref().is_some_and(Backend::is_up)
    }

    fn start_process(&mut self) {
        let process = self.processes.len();
        let settings = settings("the server".to_owned(), PATIENCE, self.random.number());
        let settings = RedisSettings { pinned_max: 4, ..settings };
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
            Event::Wire(event) => self.wire_event(event),
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
            Event::Heal(trouble) => self.heal(trouble),
        }
    }

    /// Whose doing it is.
    fn party(&self, event: &Event) -> Option<Party> {
        match event {
            Event::Wire(event) => match event.doer() {
                Doer::Server => Some(Party::Server),
                Doer::Process(connection) => Some(Party::Process(self.owner(connection))),
                Doer::Kernel => None,
            },
            Event::Tick(process) | Event::Work(process) => Some(Party::Process(*process)),
            Event::GoOn(_) | Event::Trouble | Event::Heal(_) => None,
        }
    }

    fn owner(&self, connection: ConnectionId) -> usize {
        (connection.0 / CONNECTIONS) as usize
    }

    /// Does something at the server and its connections, and plans what follows.
    fn at_site<T>(&mut self, act: impl FnOnce(&mut Site, &mut Moment<'_>) -> T) -> T {
        let mut at = Moment { now: self.now, random: &mut self.random, latency: LATENCY };
        let done = act(&mut self.site, &mut at);
        for (due, event) in self.site.take_due() {
            self.queue.push(due, Event::Wire(event));
        }
        done
    }

    fn wire_event(&mut self, event: WireEvent) -> Result<(), String> {
        match event {
            WireEvent::Connected(connection) => self.tell(connection, StorageInput::Connected(connection)),
            WireEvent::Flush(connection) => {
                self.flush(connection);
                Ok(())
            }
            WireEvent::Arrive(connection, bytes) => {
                self.at_site(|site, at| site.arrive(at, connection, &bytes));
                Ok(())
            }
            WireEvent::End(connection) => {
                self.site.end(connection);
                Ok(())
            }
            WireEvent::Execute(connection) => self.execute(connection),
            WireEvent::TurnEnds => {
                self.at_site(Site::turn_ends);
                Ok(())
            }
            WireEvent::Deliver { connection, bytes, .. } => self.deliver(connection, &bytes),
            WireEvent::Broken(connection) => {
                let reason = "the connection broke".to_owned();
                self.tell(connection, StorageInput::Closed { connection, reason })?;
                let process = self.owner(connection);
                self.processes[process].links.forget(connection);
                Ok(())
            }
        }
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
            StorageEvent::Up { .. } if self.now > self.troubled_until + SETTLING => {
                Err(format!("process {process} comes up long after all trouble, and not for the first time"))
            }
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
        match self.at_site(|site, at| site.act(at, action)) {
            Some(connection) => self.deliver(connection, &[]),
            None => Ok(()),
        }
    }

    fn flush(&mut self, connection: ConnectionId) {
        let process = self.owner(connection);
        let mut links = std::mem::take(&mut self.processes[process].links);
        self.at_site(|site, at| site.flush(at, &mut links, connection));
        self.processes[process].links = links;
    }

    fn execute(&mut self, connection: ConnectionId) -> Result<(), String> {
        let now_ms = self.now / 1000;
        match self.at_site(|site, at| site.execute(at, now_ms, connection)) {
            Some(done) if done.outcome.effect != Effect::Read => {
                let stale_before = self.changed_before(self.now.saturating_sub(NOTICED));
                self.book.executed(&done.outcome.command, stale_before)
            }
            _ => Ok(()),
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
        let number = ticket.to_string();
        let frame = Command::from_args(&["INCRBY", &number, &number]).into_frame();
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

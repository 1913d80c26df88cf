//! Processes of one shim, their machines for storage, and the loop over what happens to them and their servers. Not which
//! servers these are.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::storage::network::{Backend, ConnectionId, Endpoint, StorageInput};
use protocol::storage::{CommandControl, Lane, Reach, StorageEvent, Store};
use protocol::time::Time;
use wire::resp::Command;

use super::ticket::{Asked, Book, Ended, Moments, Place, Tally};
use crate::queue::EventQueue;
use crate::random::SimRandom;
use crate::storage::links::{Action, Links};
use crate::storage::redis::Outcome;
use crate::storage::site::{Doer, Done, Habits, Moment, Server, Site, WireEvent};

/// Time of one way, mostly; microseconds, as all times here.
const LATENCY: u64 = 500;
const TICK: u64 = 10_000;
/// Numbers for the connections of one process.
const CONNECTIONS: u64 = 1 << 32;
/// A process that was replaced looks no less often whether its successor is still there.
const RECOVERY: u64 = 60_000_000;
/// Time after which one serves for good, at the latest: two looks at a successor that is gone, and a takeover.
const SETTLING: u64 = 40_000_000;
/// Time by which every answer that a serving machine owes is given.
const ANSWERED: u64 = 10_000_000;

/// Connections are often slow, and the server is sometimes late.
pub(super) const HABITS: Habits =
    Habits { part_percent: 20, part_delay: 200_000, late_percent: 2, late_delay: 400_000 };

/// Servers, the machine that uses them, and what goes wrong with them.
pub(super) trait Scene: Sized {
    type Server: Server;
    /// What happens in this scene alone.
    type Own;

    /// There is more than one way to send a command.
    const LANES: bool;
    /// Everybody knows by then that a server has another state, whatever else goes wrong.
    const NOTICED: u64;

    fn build(random: &mut SimRandom) -> (Self, Vec<Site<Self::Server>>);

    /// The machine of a new process.
    fn machine(&self, seed: u64) -> Box<dyn Backend>;

    /// Which server is there.
    fn site(&self, endpoint: Endpoint) -> usize;

    /// Whether a server holds data.
    fn is_storage(_site: usize) -> bool {
        true
    }

    /// Whether what a server takes now is still there later.
    fn stays(&self, _site: usize) -> bool {
        true
    }

    /// The command with this number, and its reply.
    fn request(number: u64) -> Command;
    fn reply(number: u64) -> Bytes;

    /// The number of a command that was carried out.
    fn number(outcome: &Outcome) -> Option<u64>;

    /// What goes wrong with a server, besides what may always go wrong; `draw` is below 100.
    fn trouble(world: &mut World<Self>, draw: u64) -> Result<(), String>;

    /// Nothing is wrong with the servers any more.
    fn end_trouble(world: &mut World<Self>) -> Result<(), String>;

    fn happens(world: &mut World<Self>, what: Self::Own) -> Result<(), String>;

    /// A server carries something out.
    fn executes(_world: &mut World<Self>, _site: usize, _done: &Done) {}

    /// A process hears something over a connection.
    fn hears(&mut self, _process: usize, _connection: ConnectionId) {}

    /// A process is told that no copy of its incarnation can be served any more.
    fn hands_over(_world: &mut World<Self>, _process: usize) {}

    /// A process has just come up, and is told of earlier leases.
    fn comes_up(
        _world: &mut World<Self>,
        _process: usize,
        _earlier: EarlierIncarnations,
    ) -> Result<(), String> {
        Ok(())
    }

    /// A process says that others have made so many changes.
    fn foreign_writes(_world: &mut World<Self>, _count: u64) -> Result<(), String> {
        Ok(())
    }

    /// Whether what the only process serves is what it should, when all is over.
    fn check_served(_world: &World<Self>, _process: usize) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Debug)]
pub(super) enum Event<O> {
    Wire(usize, WireEvent),
    Tick(usize),
    Work(usize),
    /// It has handed over, and ends.
    Left(usize),
    /// Somebody does what was put off.
    GoOn(Party),
    Trouble,
    /// What only this scene has.
    Own(O),
}

/// Who may do nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Server(usize),
    Process(usize),
}

/// What was meant for somebody who does nothing, in its order.
#[derive(Debug)]
pub(super) struct Pause<O> {
    until: u64,
    put_off: VecDeque<Event<O>>,
}

pub(super) struct Process {
    /// The machine; `None` once it has ended.
    pub(super) machine: Option<Box<dyn Backend>>,
    pub(super) links: Links,
    /// The server that it dialled last of those that it may use.
    pub(super) server: usize,
    /// Under which commands may be sent now.
    pub(super) up: Option<u64>,
    /// Why it was not up last.
    pub(super) reason: String,
    pub(super) watches: u64,
    /// The last of them still watches.
    pub(super) watching: bool,
    /// It asks nothing more.
    pub(super) leaves: bool,
}

pub(super) struct World<S: Scene> {
    pub(super) now: u64,
    pub(super) queue: EventQueue<Event<S::Own>>,
    pub(super) random: SimRandom,
    pub(super) scene: S,
    pub(super) sites: Vec<Site<S::Server>>,
    /// Where each connection leads.
    pub(super) routes: BTreeMap<ConnectionId, usize>,
    /// When its server said what came over each connection last: whoever hears it may have rested since.
    said: BTreeMap<ConnectionId, u64>,
    pub(super) pauses: BTreeMap<Party, Pause<S::Own>>,
    pub(super) processes: Vec<Process>,
    pub(super) book: Book,
    pub(super) troubled_until: u64,
    /// Nothing more goes wrong before.
    pub(super) alone_until: u64,
    /// When which server became another one, or one with other data.
    pub(super) changes: Vec<(u64, usize)>,
}

impl<S: Scene> World<S> {
    /// One process before the servers of a scene.
    pub(super) fn new(seed: u64, troubled_until: u64) -> World<S> {
        let mut random = SimRandom::new(seed);
        let (scene, sites) = S::build(&mut random);
        let mut world = World {
            now: 1,
            queue: EventQueue::new(),
            random,
            scene,
            sites,
            routes: BTreeMap::new(),
            said: BTreeMap::new(),
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

    /// Until all trouble must be over. The error says what was broken, and when.
    pub(super) fn run(mut self) -> Result<Tally, String> {
        let end = self.troubled_until + RECOVERY;
        let broken = |now: u64, what: String| format!("{:.6} s: {what}", now as f64 / 1e6);
        while let Some((now, event)) = self.queue.pop(end) {
            self.now = now;
            self.take(event).map_err(|what| broken(now, what))?;
        }
        self.check_end().map(|()| self.book.tally).map_err(|what| broken(self.now, what))
    }

    /// Whether one serves, and serves what it should, if any process is left.
    fn check_end(&self) -> Result<(), String> {
        let up: Vec<usize> = (0..self.processes.len()).filter(|index| self.is_up(*index)).collect();
        let alive: Vec<&Process> =
            self.processes.iter().filter(|process| process.machine.is_some()).collect();
        match (&up[..], alive.is_empty()) {
            (&[process], _) => {
                let incarnation = self.processes[process].up.unwrap_or_default();
                let server = self.processes[process].server;
                if self.book.since(incarnation) < self.changed_before(server, self.now) {
                    return Err("what is up now was up before another state of the server".to_owned());
                }
                self.book.check_answered(process, self.now - ANSWERED)?;
                S::check_served(self, process)
            }
            ([], true) => Ok(()),
            ([], false) => {
                let reasons: Vec<&str> = alive.iter().map(|process| process.reason.as_str()).collect();
                Err(format!("nobody is up although all trouble is over: {}", reasons.join("; ")))
            }
            _ => Err(format!("processes {up:?} are up at once")),
        }
    }

    /// When a server became another one for the last time until `time`.
    fn changed_before(&self, server: usize, time: u64) -> u64 {
        let own = self.changes.iter().rev().find(|(change, whose)| *whose == server && *change <= time);
        own.map_or(0, |(change, _)| *change)
    }

    pub(super) fn is_up(&self, process: usize) -> bool {
        self.processes[process].machine.as_ref().is_some_and(|machine| machine.is_up())
    }

    pub(super) fn start_process(&mut self) {
        let process = self.processes.len();
        let machine = self.scene.machine(self.random.number());
        self.processes.push(Process {
            machine: Some(machine),
            links: Links::new(process as u64 * CONNECTIONS + 1),
            server: 0,
            up: None,
            reason: String::new(),
            watches: 0,
            watching: false,
            leaves: false,
        });
        self.queue.push(self.now + 1, Event::Tick(process));
        self.queue.push(self.now + 1, Event::Work(process));
    }

    fn take(&mut self, event: Event<S::Own>) -> Result<(), String> {
        let Some(party) = self.party(&event) else { return self.carry_out(event) };
        if let Some(pause) = self.pauses.get_mut(&party)
            && (pause.until > self.now || !pause.put_off.is_empty())
        {
            pause.put_off.push_back(event);
            return Ok(());
        }
        self.carry_out(event)
    }

    /// Lets the party do nothing for so long, or longer if it already rests.
    pub(super) fn pause(&mut self, party: Party, time: u64) {
        let until = self.now + time;
        let pause = self.pauses.entry(party).or_insert(Pause { until: 0, put_off: VecDeque::new() });
        if pause.until <= self.now {
            self.queue.push(until, Event::GoOn(party));
        }
        pause.until = pause.until.max(until);
    }

    /// When somebody who does nothing now goes on.
    pub(super) fn rests_until(&self, party: Party) -> Option<u64> {
        self.pauses.get(&party).map(|pause| pause.until).filter(|until| *until > self.now)
    }

    fn go_on(&mut self, party: Party) -> Result<(), String> {
        let Some(pause) = self.pauses.get_mut(&party) else { return Ok(()) };
        if pause.until > self.now {
            self.queue.push(pause.until, Event::GoOn(party));
            return Ok(());
        }
        std::mem::take(&mut pause.put_off).into_iter().try_for_each(|event| self.carry_out(event))
    }

    fn carry_out(&mut self, event: Event<S::Own>) -> Result<(), String> {
        match event {
            Event::Wire(site, event) => self.wire_event(site, event),
            Event::Tick(process) => {
                if self.processes[process].machine.is_some() {
                    let due = self.now + TICK / 2 + self.random.below(TICK);
                    self.queue.push(due, Event::Tick(process));
                }
                self.step(process, StorageInput::Tick)
            }
            Event::Work(process) => self.work(process),
            Event::Left(process) => {
                self.step(process, StorageInput::Leave)?;
                self.end_process(process);
                Ok(())
            }
            Event::GoOn(party) => self.go_on(party),
            Event::Trouble => self.trouble(),
            Event::Own(own) => S::happens(self, own),
        }
    }

    /// Whose doing it is.
    fn party(&self, event: &Event<S::Own>) -> Option<Party> {
        match event {
            Event::Wire(site, event) => match event.doer() {
                Doer::Server => Some(Party::Server(*site)),
                Doer::Process(connection) => Some(Party::Process(self.owner(connection))),
                Doer::Kernel => None,
            },
            Event::Tick(process) | Event::Work(process) | Event::Left(process) => {
                Some(Party::Process(*process))
            }
            Event::GoOn(_) | Event::Trouble | Event::Own(_) => None,
        }
    }

    fn owner(&self, connection: ConnectionId) -> usize {
        (connection.0 / CONNECTIONS) as usize
    }

    /// Does something at a server and its connections, and plans what follows.
    pub(super) fn at_site<T>(
        &mut self,
        site: usize,
        act: impl FnOnce(&mut Site<S::Server>, &mut Moment<'_>) -> T,
    ) -> T {
        let mut at = Moment { now: self.now, random: &mut self.random, latency: LATENCY };
        let done = act(&mut self.sites[site], &mut at);
        for (due, event) in self.sites[site].take_due() {
            self.queue.push(due, Event::Wire(site, event));
        }
        done
    }

    fn wire_event(&mut self, site: usize, event: WireEvent) -> Result<(), String> {
        match event {
            WireEvent::Connected(connection) => self.tell(connection, StorageInput::Connected(connection)),
            WireEvent::Flush(connection) => {
                self.flush(connection);
                Ok(())
            }
            WireEvent::Arrive(connection, bytes) => {
                self.at_site(site, |site, at| site.arrive(at, connection, &bytes));
                Ok(())
            }
            WireEvent::End(connection) => {
                self.sites[site].end(connection);
                Ok(())
            }
            WireEvent::Execute(connection) => self.execute(site, connection),
            // Nobody tracks here.
            WireEvent::TurnEnds => Ok(()),
            WireEvent::Deliver { connection, bytes, said, .. } => {
                self.said.insert(connection, said);
                self.deliver(connection, &bytes)
            }
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

    pub(super) fn step(&mut self, process: usize, input: StorageInput) -> Result<(), String> {
        let own = &mut self.processes[process];
        let Some(machine) = &mut own.machine else { return Ok(()) };
        let left = matches!(input, StorageInput::Leave);
        let over = match &input {
            StorageInput::Data { connection, .. } => Some(*connection),
            _ => None,
        };
        let mut events = Vec::new();
        machine.step(Time(self.now), input, &mut own.links, &mut events);
        for event in events {
            self.heard(process, over, event)?;
        }
        if self.processes[process].up.is_some() != self.is_up(process) && !left {
            return Err(format!("process {process} was told something else than its machine has"));
        }
        for action in self.processes[process].links.take_actions() {
            self.act(process, action)?;
        }
        for connection in self.processes[process].links.writing() {
            self.flush(connection);
        }
        Ok(())
    }

    /// What a machine reports to its shim. `over`: it has just been told something over this connection.
    fn heard(
        &mut self,
        process: usize,
        over: Option<ConnectionId>,
        event: StorageEvent,
    ) -> Result<(), String> {
        match event {
            StorageEvent::Up { .. } if self.now > self.troubled_until + SETTLING => {
                Err(format!("process {process} comes up long after all trouble, and not for the first time"))
            }
            StorageEvent::Up { incarnation, earlier, .. } => {
                let own = &mut self.processes[process];
                own.up = Some(incarnation);
                let server = own.server;
                // Neither time nor anybody else can tell that the server is free.
                let Some(own_server) = over.filter(|connection| self.routes[connection] == server) else {
                    return Err(format!("process {process} comes up without a word of server {server}"));
                };
                let said = self.said[&own_server];
                self.book.up(incarnation, server, Moments { now: self.now, said })?;
                S::comes_up(self, process, earlier)
            }
            StorageEvent::Down { reason, .. } => {
                let own = &mut self.processes[process];
                (own.up, own.reason) = (None, reason);
                Ok(())
            }
            StorageEvent::Replies { ticket, replies } => {
                let is_right = replies[0] == S::reply(ticket);
                self.book.end(ticket, &Ended::Replied { reply: &replies[0], is_right })
            }
            StorageEvent::Lost { ticket, sent } => self.book.end(ticket, &Ended::Lost { sent }),
            StorageEvent::Fenced => {
                self.book.fenced(process, self.processes[process].server);
                Ok(())
            }
            StorageEvent::Left => {
                self.queue.push(self.now + 1, Event::Left(process));
                Ok(())
            }
            StorageEvent::ForeignWrites { count, .. } => S::foreign_writes(self, count),
            _ => Ok(()),
        }
    }

    fn act(&mut self, process: usize, action: Action) -> Result<(), String> {
        let site = match &action {
            Action::Dial(connection, to) => {
                let site = self.scene.site(*to);
                self.routes.insert(*connection, site);
                if S::is_storage(site) {
                    self.processes[process].server = site;
                }
                site
            }
            Action::Close(connection, _) | Action::Resume(connection) => self.routes[connection],
        };
        match self.at_site(site, |site, at| site.act(at, action)) {
            Some(connection) => self.deliver(connection, &[]),
            None => Ok(()),
        }
    }

    fn flush(&mut self, connection: ConnectionId) {
        let process = self.owner(connection);
        let mut links = std::mem::take(&mut self.processes[process].links);
        self.at_site(self.routes[&connection], |site, at| site.flush(at, &mut links, connection));
        self.processes[process].links = links;
    }

    fn execute(&mut self, site: usize, connection: ConnectionId) -> Result<(), String> {
        let now_ms = self.now / 1000;
        let Some(done) = self.at_site(site, |site, at| site.execute(at, now_ms, connection)) else {
            return Ok(());
        };
        S::executes(self, site, &done);
        match S::number(&done.outcome) {
            Some(number) => {
                let stale_before = self.changed_before(site, self.now.saturating_sub(S::NOTICED));
                self.book.executed(
                    number,
                    Place { server: site, connection, stays: self.scene.stays(site) },
                    stale_before,
                )
            }
            None => Ok(()),
        }
    }

    fn deliver(&mut self, connection: ConnectionId, bytes: &[u8]) -> Result<(), String> {
        let process = self.owner(connection);
        match self.processes[process].links.come(connection, bytes) {
            Some(bytes) => {
                self.scene.hears(process, connection);
                self.step(process, StorageInput::Data { connection, bytes })
            }
            None => Ok(()),
        }
    }

    /// A process asks something of its storage.
    fn work(&mut self, process: usize) -> Result<(), String> {
        if self.processes[process].machine.is_none() || self.processes[process].leaves {
            return Ok(());
        }
        let mean = if self.now < self.troubled_until { 5_000 } else { 50_000 };
        let due = self.now + self.random.wait(mean) + 1;
        self.queue.push(due, Event::Work(process));
        let Some(incarnation) = self.processes[process].up else { return Ok(()) };
        if let Some(ticket) = self.book.pinned_of(process).filter(|_| self.random.percent(5)) {
            return self.step(process, StorageInput::Control { ticket, control: CommandControl::Abort });
        }
        if self.processes[process].watching && self.random.percent(5) {
            let (number, clean) = (self.processes[process].watches, self.random.percent(50));
            self.processes[process].watching = false;
            return self.step(process, StorageInput::Release { number, clean });
        }
        let lane = if S::LANES { self.lane(process) } else { Lane::Shared { resp3: false } };
        let ticket = self.book.issue(Asked { process, incarnation, lane, since: self.now });
        let commands = [S::request(ticket).into_frame()].into_iter().collect();
        self.step(process, StorageInput::Store(Store { ticket, lane, reach: Reach::Whole, commands }))
    }

    fn lane(&mut self, process: usize) -> Lane {
        let resp3 = self.random.percent(20);
        match self.random.below(10) {
            0 => Lane::Pinned { resp3 },
            1 => Lane::Scripts { resp3 },
            2 => {
                let own = &mut self.processes[process];
                // A client that watches asks more than once.
                own.watches += u64::from(!own.watching || self.random.percent(30));
                own.watching = true;
                Lane::Watching { number: own.watches, resp3 }
            }
            _ => Lane::Shared { resp3 },
        }
    }
}

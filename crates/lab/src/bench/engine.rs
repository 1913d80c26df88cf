//! The loop that keeps connections busy and counts what comes back. Not what is asked, and not how it is shown.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use protocol::time::Time;
use runtime::reactor::{ConnectionId, Driver, Event, Io};
use wire::foreign::Foreign;
use wire::resp::ProtocolError;

use super::arrivals::Arrivals;
use super::connection::{BenchConnection, SentRequest};
use super::frames::Frames;
use super::plan::{BenchLength, BenchOutcome, BenchPlan, Ending, Live, Pace, RequestEnd, RequestFate};
use super::requests::Requests;
use super::schedule::Schedule;
use super::series::Series;
use super::tally::BenchTally;
use super::target::BenchTarget;

/// How long a connection that broke stays down: long enough not to flood a server that restarts.
const DIAL_AGAIN: Duration = Duration::from_millis(100);
/// How long replies may come in after the end. Whoever is slower is reported as unanswered.
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// A server that says nothing for this long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What answers is no server of Redis' protocol.
fn stranger(target: &BenchTarget, reply: &[u8], error: &ProtocolError) -> anyhow::Error {
    match wire::foreign::speaks(reply) {
        Some(Foreign::Tls) => anyhow!("--target {target}: RESP expected, this speaks TLS: write rediss://"),
        Some(foreign) => anyhow!("--target {target}: RESP expected, this speaks {foreign}"),
        None => anyhow!("--target {target}: the server does not speak RESP: {error}"),
    }
}

pub(crate) struct BenchDriver<'a> {
    plan: &'a BenchPlan,
    requests: Requests,
    exhausted: bool,
    frames: &'a Frames,
    live: Live,
    connections: Vec<BenchConnection>,
    /// By the index of a connection id: its place in `connections`.
    places: Vec<usize>,
    /// How many connections have been up; the run starts when all have.
    opened: usize,
    clock: Option<BenchClock>,
    pool: Option<Pool>,
    /// Counted requests that are still to be sent or, in an open loop, to become due.
    left: u64,
    /// Counted requests without a reply, those included that are due and not sent.
    outstanding: u64,
    last_reply: Time,
    last_counted: Time,
    tally: BenchTally,
    failed: Vec<u64>,
    pub(crate) fatal: Option<anyhow::Error>,
}

/// Fixed when the first request may go out.
#[derive(Clone, Copy)]
struct BenchClock {
    count_from: Time,
    end: Time,
    /// Open loop whose requests are dealt round.
    schedule: Option<Schedule>,
    /// And the next of them to become due.
    next: u64,
}

/// Open loop at random times: whichever connection has room takes the request that has been due for longest.
struct Pool {
    arrivals: Arrivals,
    start: Time,
    next: Time,
    /// Due and not sent.
    waiting: VecDeque<Time>,
    /// Where the next connection with room is looked for.
    place: usize,
}

impl<'a> BenchDriver<'a> {
    /// Starts to connect; the rest follows from events.
    pub(crate) fn new(
        plan: &'a BenchPlan,
        requests: Requests,
        frames: &'a Frames,
        live: Live,
        io: &mut Io,
    ) -> BenchDriver<'a> {
        let mut connections = Vec::with_capacity(plan.connections);
        let mut places = Vec::new();
        for place in 0..plan.connections {
            let id = io.dial_tls(&plan.target.address, plan.target.tls.as_ref());
            set_place(&mut places, id, place);
            connections.push(BenchConnection::new(id, plan.pipeline));
        }
        BenchDriver {
            plan,
            requests,
            exhausted: false,
            frames,
            live,
            connections,
            places,
            opened: 0,
            clock: None,
            pool: None,
            left: match plan.length {
                BenchLength::Requests(requests) => requests,
                BenchLength::Time(_) => u64::MAX,
            },
            outstanding: 0,
            last_reply: Time::default(),
            last_counted: Time::default(),
            tally: BenchTally::new(),
            failed: Vec::new(),
            fatal: None,
        }
    }

    pub(crate) fn tally(&self) -> &BenchTally {
        &self.tally
    }

    /// Time of measurement so far; nothing while connecting or warming up.
    pub(crate) fn measured(&self, now: Time) -> Option<Duration> {
        let clock = self.clock.filter(|clock| now >= clock.count_from)?;
        Some(now.since(clock.count_from))
    }

    /// Whether every connection has been up, so that `start` may be called.
    pub(crate) fn is_open(&self) -> bool {
        self.opened == self.connections.len()
    }

    pub(crate) fn has_started(&self) -> bool {
        self.clock.is_some()
    }

    pub(crate) fn start(&mut self, io: &mut Io, now: Time) {
        let count_from = now.after(self.plan.warmup);
        let end = match self.plan.length {
            BenchLength::Time(time) => count_from.after(time),
            BenchLength::Requests(_) => Time(u64::MAX),
        };
        let schedule = match &self.plan.pace {
            Pace::Even(rate) => Some(Schedule::new(now, *rate, self.connections.len())),
            Pace::Closed | Pace::Random(_) => None,
        };
        if let Pace::Random(arrivals) = &self.plan.pace {
            let mut arrivals = arrivals.clone();
            let next = now.after(arrivals.next_due());
            self.pool = Some(Pool { arrivals, start: now, next, waiting: VecDeque::new(), place: 0 });
        }
        self.clock = Some(BenchClock { count_from, end, schedule, next: 0 });
        let start_unix = unix_now() + self.plan.warmup;
        self.tally.series = self.plan.slice.map(|slice| Series::new(slice, count_from, start_unix));
        self.last_reply = now;
        for index in 0..self.connections.len() {
            self.fill(io, index, now);
        }
    }

    /// Sends what has become due. To be called after every batch of events; a closed loop needs none of it.
    pub(crate) fn release(&mut self, io: &mut Io, now: Time) {
        let Some(mut clock) = self.clock else { return };
        self.release_pool(io, now, clock);
        if let Some(schedule) = clock.schedule {
            while self.left > 0 && schedule.due(clock.next) <= now && schedule.due(clock.next) < clock.end {
                let index = schedule.connection(clock.next);
                if schedule.due(clock.next) >= clock.count_from {
                    self.left -= 1;
                    self.outstanding += 1;
                }
                self.connections[index].released += 1;
                self.live.became_due();
                clock.next += 1;
                self.fill(io, index, now);
            }
            self.clock = Some(clock);
        }
    }

    fn release_pool(&mut self, io: &mut Io, now: Time, clock: BenchClock) {
        let Some(pool) = &mut self.pool else { return };
        while self.left > 0 && pool.next <= now && pool.next < clock.end {
            if pool.next >= clock.count_from {
                self.left -= 1;
                self.outstanding += 1;
            }
            self.live.became_due();
            pool.waiting.push_back(pool.next);
            pool.next = pool.start.after(pool.arrivals.next_due());
        }
        while let Some(pool) = &mut self.pool
            && !pool.waiting.is_empty()
        {
            let (count, pipeline) = (self.connections.len(), self.plan.pipeline);
            let mut places = (pool.place..count).chain(0..pool.place);
            let Some(place) = places.find(|place| self.connections[*place].has_room(pipeline)) else {
                return;
            };
            pool.place = (place + 1) % count;
            self.fill(io, place, now);
            if self.exhausted {
                return;
            }
        }
    }

    /// Why the run is over, if it is.
    pub(crate) fn ending(&self, now: Time) -> Option<Ending> {
        let clock = self.clock?;
        if now.since(self.last_reply) > SILENCE_MAX && self.outstanding > 0 {
            return Some(Ending::Silent);
        }
        let sent_all = match self.plan.length {
            BenchLength::Time(_) => now >= clock.end,
            BenchLength::Requests(_) => self.left == 0 || self.exhausted,
        };
        let drained = self.outstanding == 0 || now >= clock.end.after(DRAIN_MAX);
        (sent_all && drained).then_some(Ending::Done)
    }

    /// Ends the run: what is still outstanding is counted as unanswered.
    pub(crate) fn finish(mut self, ending: Ending, now: Time) -> BenchOutcome {
        if let Some(clock) = self.clock {
            for (index, connection) in self.connections.iter().enumerate() {
                let waiting = connection.in_flight.iter().map(|sent| sent.since);
                let due = (connection.sent..connection.released)
                    .filter_map(|turn| clock.schedule.map(|schedule| schedule.due_on(index, turn)));
                for since in waiting.chain(due).filter(|since| *since >= clock.count_from) {
                    self.tally.unanswered(since, now);
                    self.live.ended(RequestFate::new(None, since, now, RequestEnd::Unanswered));
                }
                if self.requests.is_load() {
                    self.failed.extend(connection.in_flight.iter().map(|sent| sent.key));
                }
            }
            let waiting = self.pool.iter().flat_map(|pool| &pool.waiting);
            for since in waiting.copied().filter(|since| *since >= clock.count_from) {
                self.tally.unanswered(since, now);
                self.live.ended(RequestFate::new(None, since, now, RequestEnd::Unanswered));
            }
            let end = match self.plan.length {
                BenchLength::Time(_) => now.min(clock.end).max(self.last_counted),
                BenchLength::Requests(_) if self.last_counted > Time::default() => self.last_counted,
                BenchLength::Requests(_) => now,
            };
            self.tally.elapsed = end.since(clock.count_from);
        }
        BenchOutcome { tally: self.tally, ending, failed: self.failed }
    }

    /// A connection may be used.
    fn opened(&mut self, io: &mut Io, place: usize, now: Time) {
        self.connections[place].up = true;
        if self.clock.is_none() {
            self.opened += 1;
        }
        self.fill(io, place, now);
    }

    /// Takes the answer to the login off `bytes`, once it is whole.
    fn logged_in(&mut self, place: usize, bytes: &mut Bytes) -> Result<bool> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(false) };
        let line = bytes.split_to(end + 1);
        anyhow::ensure!(
            line.starts_with(b"+"),
            "the login was refused: {}",
            String::from_utf8_lossy(&line).trim_end()
        );
        self.connections[place].logging_in = false;
        Ok(true)
    }

    /// Puts requests on a connection until its pipeline is full or nothing may be sent.
    fn fill(&mut self, io: &mut Io, index: usize, now: Time) {
        let Some(clock) = self.clock else { return };
        let connection = &mut self.connections[index];
        if !connection.has_room(self.plan.pipeline) {
            return;
        }
        let out = io.out(connection.id);
        while connection.in_flight.len() < self.plan.pipeline {
            let since = match (&mut self.pool, clock.schedule) {
                (Some(pool), _) => match pool.waiting.pop_front() {
                    Some(due) => due,
                    None => return,
                },
                (None, Some(schedule)) if connection.sent < connection.released => {
                    schedule.due_on(index, connection.sent)
                }
                (None, None) if now < clock.end && self.left > 0 && !self.exhausted => now,
                _ => return,
            };
            let Some(key) = self.requests.next(self.frames, out) else {
                self.exhausted = true;
                return;
            };
            self.live.sent(key);
            connection.sent += 1;
            let is_closed = clock.schedule.is_none() && self.pool.is_none();
            if is_closed && since >= clock.count_from {
                self.left -= 1;
                self.outstanding += 1;
            }
            connection.in_flight.push_back(SentRequest { since, key });
        }
    }

    /// Takes the whole replies off `bytes`; gives back what follows them.
    fn replies(&mut self, index: usize, mut bytes: Bytes, now: Time) -> Result<Bytes> {
        let count_from = self.clock.map_or(Time(u64::MAX), |clock| clock.count_from);
        let connection = &mut self.connections[index];
        let (mut answered, mut errors, mut offset) = (0, 0, 0);
        while offset < bytes.len() {
            let reply = &bytes[offset..];
            let length = match connection.scanner.scan(reply) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(error) => return Err(stranger(&self.plan.target, reply, &error)),
            };
            let Some(sent) = connection.in_flight.pop_front() else {
                return Err(anyhow!("the server sent a reply that nobody asked for"));
            };
            let is_error = reply[0] == b'-';
            answered += 1;
            errors += u64::from(is_error);
            let end = if is_error { RequestEnd::Failed } else { RequestEnd::Answered };
            self.live.ended(RequestFate::new(Some(sent.key), sent.since, now, end));
            if sent.since >= count_from {
                self.outstanding -= 1;
                self.last_counted = now;
                self.tally.answered(sent.since, now, is_error);
                if is_error {
                    self.tally.note(&reply[..length]);
                }
            }
            if is_error && self.requests.is_load() {
                self.failed.push(sent.key);
            }
            offset += length;
        }
        self.live.add(answered, errors);
        self.last_reply = now;
        Ok(bytes.split_off(offset))
    }

    /// A connection is gone: its requests are lost, and it is dialled again a little later.
    fn lost(&mut self, index: usize, reason: &str, now: Time) {
        let count_from = self.clock.map_or(Time(u64::MAX), |clock| clock.count_from);
        let connection = &mut self.connections[index];
        connection.up = false;
        connection.logging_in = false;
        connection.scanner = wire::resp::ReplyScanner::new();
        connection.dial_at = Some(now.after(DIAL_AGAIN));
        for sent in connection.in_flight.iter().filter(|sent| sent.since >= count_from) {
            self.outstanding -= 1;
            self.tally.lost(sent.since);
            self.live.ended(RequestFate::new(Some(sent.key), sent.since, now, RequestEnd::Failed));
        }
        if self.requests.is_load() {
            self.failed.extend(connection.in_flight.iter().map(|sent| sent.key));
        }
        connection.in_flight.clear();
        self.tally.note(format!("connection lost: {reason}").as_bytes());
    }

    fn dial_again(&mut self, io: &mut Io, now: Time) {
        for (place, connection) in self.connections.iter_mut().enumerate() {
            if connection.dial_at.is_some_and(|at| at <= now) {
                connection.dial_at = None;
                connection.id = io.dial_tls(&self.plan.target.address, self.plan.target.tls.as_ref());
                set_place(&mut self.places, connection.id, place);
            }
        }
    }
}

impl Driver for BenchDriver<'_> {
    fn event(&mut self, io: &mut Io, event: Event) {
        match event {
            Event::Connected(id) => {
                let place = self.places[id.index()];
                match &self.plan.target.login {
                    Some(login) => {
                        self.connections[place].logging_in = true;
                        io.out(id).extend_from_slice(login);
                    }
                    None => self.opened(io, place, io.now()),
                }
            }
            Event::Data { connection, mut bytes, now } => {
                let place = self.places[connection.index()];
                if self.connections[place].logging_in {
                    match self.logged_in(place, &mut bytes) {
                        Ok(true) => self.opened(io, place, now),
                        Ok(false) => return io.unread(connection, bytes),
                        Err(error) => self.fatal = Some(error.context(format!("{}", self.plan.target))),
                    }
                }
                match self.replies(place, bytes, now) {
                    Ok(rest) => {
                        io.unread(connection, rest);
                        self.fill(io, place, now);
                    }
                    Err(error) => self.fatal = Some(error.context(format!("{}", self.plan.target))),
                }
            }
            Event::Closed { connection, error } => {
                let reason = reason(error);
                if self.clock.is_none() {
                    self.fatal = Some(anyhow!("cannot connect to {}: {reason}", self.plan.target));
                } else {
                    self.lost(self.places[connection.index()], &reason, io.now());
                }
            }
            Event::Tick => self.dial_again(io, io.now()),
            Event::Accepted { .. } | Event::Writable(_) | Event::Woken => {}
        }
    }
}

fn set_place(places: &mut Vec<usize>, id: ConnectionId, place: usize) {
    if places.len() <= id.index() {
        places.resize(id.index() + 1, 0);
    }
    places[id.index()] = place;
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn reason(error: Option<std::io::Error>) -> String {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    match error {
        None => "closed by the server".to_owned(),
        Some(error) if matches!(error.kind(), ConnectionRefused | NotFound) => {
            format!("{error}; is the server running there?")
        }
        Some(error) => error.to_string(),
    }
}

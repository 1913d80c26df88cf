//! One state: the machine, its two servers, what clients wait for, and what may yet go wrong. Not what may happen in it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::migration::{
    Departures, Effect, Input, Migration, MigrationConfig, MigrationPhase, MigrationPlace,
};
use protocol::storage::{Lane, Reach, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use smallvec::SmallVec;
use wire::ShimId;
use wire::resp::Command;

use super::config::{Ask, Moving, MovingBudget, MovingEvent};
use super::server::{MovingServer, SentCommands, run};
use crate::steps::words;

pub(super) const KEY: &str = "k";
const DESTINATION: ShimId = ShimId(3);
/// Places of servers in a state.
pub(super) const HOME: usize = 0;
pub(super) const THERE: usize = 1;
/// What the home has at first.
const FIRST: &str = "0";
/// Longer than what is waited for after a key was not taken.
const SECOND: Duration = Duration::from_secs(1);

/// What must not happen, whatever is done afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MovingBroken {
    /// No server that has had all commands alone answers so.
    WrongReply {
        ask: Ask,
        reply: String,
        possible: BTreeSet<Possible>,
    },
    OutOfOrder(Ask),
    /// Something that was lost may still be carried out.
    FencedTooEarly,
    Panicked(String),
}

/// What the key may be now that all commands with an answer are carried out, and which of those that were lost are not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Possible {
    pub(super) value: Option<String>,
    lost: Vec<Ask>,
}

#[derive(Debug)]
struct All;

impl Departures for All {
    fn destination(&self, _: &[u8]) -> Option<ShimId> {
        Some(DESTINATION)
    }
}

#[derive(Clone)]
pub(crate) struct MovingState {
    /// The machine of the process that lives.
    pub(super) machine: Option<Arc<Migration>>,
    pub(super) seconds: u8,
    pub(super) process: u64,
    pub(super) servers: [MovingServer; 2],
    /// Commands without a reply, in their order.
    pub(super) open: Vec<(u64, Ask)>,
    pub(super) asked: usize,
    pub(super) possible: BTreeSet<Possible>,
    /// No command follows.
    pub(super) closed: bool,
    /// The machine has nothing to do with the key any more.
    pub(super) ended: bool,
    pub(super) budget: MovingBudget,
    pub(super) broken: Option<MovingBroken>,
}

impl Moving {
    pub(super) fn start(&self) -> MovingState {
        let mut state = MovingState {
            machine: None,
            seconds: 0,
            process: 0,
            servers: Default::default(),
            open: Vec::new(),
            asked: 0,
            possible: BTreeSet::from([Possible { value: Some(FIRST.to_owned()), lost: Vec::new() }]),
            closed: false,
            ended: false,
            budget: self.budget.clone(),
            broken: None,
        };
        state.servers[HOME].value = Some(FIRST.to_owned());
        self.begin(&mut state);
        state
    }

    /// A process takes over: it fences the home before anything, and the destination once it is told to.
    pub(super) fn begin(&self, state: &mut MovingState) {
        let again = state.process > 0;
        if again && state.servers.iter().all(|server| server.value.is_some()) {
            self.note(MovingEvent::Inherited);
        }
        state.process += 1;
        let config = MigrationConfig {
            patience: SECOND * 2,
            transfers_max: 2,
            transfers_beside_max: 1,
            keys_per_second_max: 0,
        };
        state.machine = Some(Arc::new(Migration::new(config)));
        self.bring_up(state, HOME);
        let destinations = vec![DESTINATION];
        self.step(state, Input::Begin { departures: Arc::new(All), destinations, again });
        self.step(state, Input::Recorded);
    }

    /// The process has a server, and nothing of earlier ones is carried out there any more.
    pub(super) fn bring_up(&self, state: &mut MovingState, place: usize) {
        let server = &mut state.servers[place];
        server.fence();
        (server.up, server.awaited) = (true, false);
        state.settle();
        let server = &state.servers[place];
        // Each process has a user of its own there.
        let incarnation = server.incarnation << 8 | state.process;
        let (traits, earlier) = (StorageTraits::default(), EarlierIncarnations::NONE);
        self.event(state, place, StorageEvent::Up { incarnation, traits, earlier });
    }

    pub(super) fn event(&self, state: &mut MovingState, place: usize, event: StorageEvent) {
        match place {
            HOME => self.step(state, Input::Home(event)),
            _ => self.step(state, Input::Destination { shim: DESTINATION, event }),
        }
    }

    pub(super) fn step(&self, state: &mut MovingState, input: Input) {
        let Some(machine) = &state.machine else { return };
        let mut machine = Migration::clone(machine);
        let mut effects = Vec::new();
        let now = Time(u64::from(state.seconds) * SECOND.as_micros() as u64);
        let result = catch_unwind(AssertUnwindSafe(|| machine.step(now, input, &mut effects)));
        if machine.waiting_count() > 0 && machine.phase() >= MigrationPhase::Moving {
            self.note(MovingEvent::Waited);
        }
        if machine.progress().stuck > 0 {
            self.note(MovingEvent::Stuck);
        }
        state.machine = Some(Arc::new(machine));
        if let Err(panic) = result {
            state.broken = Some(MovingBroken::Panicked(words(&*panic)));
            return;
        }
        let mut answered = Vec::new();
        for effect in effects {
            match effect {
                Effect::Store { place, store } => {
                    let place = index(place);
                    answered.extend(send(&mut state.servers[place], store).map(|event| (place, event)));
                }
                Effect::Report(StorageEvent::Replies { ticket, replies }) => {
                    self.replied(state, ticket, &replies);
                }
                Effect::Report(StorageEvent::Lost { ticket, sent }) => lost(state, ticket, sent),
                Effect::Report(StorageEvent::Fenced) => {
                    self.note(MovingEvent::Fenced);
                    if state.servers.iter().any(|server| !server.late.is_empty()) {
                        state.broken = Some(MovingBroken::FencedTooEarly);
                    }
                }
                Effect::Report(StorageEvent::Migrated) => self.note(MovingEvent::Migrated),
                Effect::Report(StorageEvent::MigrationEnded) => {
                    self.note(MovingEvent::Ended);
                    state.ended = true;
                }
                Effect::Connect { .. } => state.servers[THERE].awaited = true,
                Effect::Leave { .. } => state.servers[THERE].up = false,
                Effect::Report(_) | Effect::Control { .. } | Effect::Release { .. } => {}
            }
        }
        for (place, event) in answered {
            self.event(state, place, event);
        }
    }

    fn replied(&self, state: &mut MovingState, ticket: u64, replies: &[Bytes]) {
        let Some(position) = state.open.iter().position(|(open, _)| *open == ticket) else { return };
        let (_, ask) = state.open.remove(position);
        let reply = String::from_utf8_lossy(&replies[0]).into_owned();
        if ["-TRYAGAIN", "-ERR DistCache"].iter().any(|word| reply.starts_with(word)) {
            return;
        }
        if position > 0 {
            state.broken = Some(MovingBroken::OutOfOrder(ask));
            return;
        }
        let fits = carried_out(&state.possible, ask).filter(|(_, given)| *given == reply);
        let after = with_late(fits.map(|(possible, _)| possible).collect());
        if after.is_empty() {
            let possible = std::mem::take(&mut state.possible);
            state.broken = Some(MovingBroken::WrongReply { ask, reply, possible });
        }
        state.possible = after;
        state.settle();
    }

    pub(super) fn ask(&self, state: &mut MovingState) {
        let ask = self.asks[state.asked];
        state.asked += 1;
        let ticket = state.asked as u64;
        state.open.push((ticket, ask));
        let text = text(ask);
        let frame = Command::from_args(&text.split(' ').collect::<Vec<_>>()).frame().clone();
        let (lane, commands) = (Lane::Shared { resp3: true }, SmallVec::from_elem(frame, 1));
        self.step(state, Input::Store(Store { ticket, lane, reach: Reach::Whole, commands }));
    }

    /// The process is gone, and nobody knows what of it was carried out.
    pub(super) fn die(&self, state: &mut MovingState) {
        for server in &mut state.servers {
            (0..server.lanes.len()).for_each(|lane| _ = server.strand(lane));
            (server.up, server.awaited) = (false, false);
        }
        state.machine = None;
        for (ticket, _) in state.open.clone() {
            lost(state, ticket, true);
        }
    }

    /// A server is another one than before; its machine hears first that it is gone.
    pub(super) fn restart(&self, state: &mut MovingState, place: usize) {
        if place == HOME && (state.servers[HOME].value.is_some() || state.servers[THERE].value.is_none()) {
            // The key is its own, and what was acknowledged last is lost with it.
            state.possible.insert(Possible { value: Some(FIRST.to_owned()), lost: Vec::new() });
        }
        let server = &mut state.servers[place];
        let tickets: Vec<u64> = (0..server.lanes.len()).flat_map(|lane| server.strand(lane)).collect();
        server.fence();
        server.incarnation += 1;
        (server.up, server.awaited) = (false, true);
        if place == HOME {
            server.value = Some(FIRST.to_owned());
        }
        state.settle();
        for ticket in tickets {
            self.event(state, place, StorageEvent::Lost { ticket, sent: true });
        }
        self.event(state, place, StorageEvent::Down { reason: "it has ended".into(), gone: true });
    }

    pub(super) fn break_connection(&self, state: &mut MovingState, place: usize, lane: usize) {
        let tickets = state.servers[place].strand(lane);
        state.servers[place].owes_fence |= !tickets.is_empty();
        for ticket in tickets {
            self.event(state, place, StorageEvent::Lost { ticket, sent: true });
        }
    }
}

fn index(place: MigrationPlace) -> usize {
    match place {
        MigrationPlace::Home => HOME,
        MigrationPlace::Destination(_) => THERE,
    }
}

/// Connections that no client's command uses are answered at once.
fn send(server: &mut MovingServer, store: Store) -> Option<StorageEvent> {
    let Store { ticket, lane, commands, .. } = store;
    let commands: Vec<String> = commands.iter().map(spoken).collect();
    let Lane::Shared { resp3 } = lane else {
        let replies = server.run_all(KEY, &commands).into_iter().map(Bytes::from).collect();
        return Some(StorageEvent::Replies { ticket, replies });
    };
    server.lanes[usize::from(resp3)].push(SentCommands { ticket, commands, replies: None });
    None
}

fn spoken(frame: &Bytes) -> String {
    let command = Command::parse(frame.clone()).expect("a command of the machine");
    command.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ")
}

fn text(ask: Ask) -> String {
    match ask {
        Ask::Get => format!("GET {KEY}"),
        Ask::Append(more) => format!("APPEND {KEY} {more}"),
        Ask::Delete => format!("DEL {KEY}"),
    }
}

/// What the command makes of each, and what it answers.
fn carried_out(possible: &BTreeSet<Possible>, ask: Ask) -> impl Iterator<Item = (Possible, String)> {
    possible.iter().map(move |possible| {
        let mut after = possible.clone();
        let reply = run(&mut after.value, false, KEY, &text(ask));
        (after, reply)
    })
}

/// Each that was lost may be carried out before anything else.
fn with_late(mut possible: BTreeSet<Possible>) -> BTreeSet<Possible> {
    let mut fresh: Vec<Possible> = possible.iter().cloned().collect();
    while let Some(Possible { value, lost }) = fresh.pop() {
        for index in 0..lost.len() {
            let mut late = Possible { value: value.clone(), lost: lost.clone() };
            let ask = late.lost.remove(index);
            run(&mut late.value, false, KEY, &text(ask));
            if possible.insert(late.clone()) {
                fresh.push(late);
            }
        }
    }
    possible
}

fn lost(state: &mut MovingState, ticket: u64, sent: bool) {
    let Some(position) = state.open.iter().position(|(open, _)| *open == ticket) else { return };
    let (_, ask) = state.open.remove(position);
    if sent && ask != Ask::Get {
        let with = |possible: Possible| {
            let Possible { value, mut lost } = possible;
            lost.push(ask);
            lost.sort();
            Possible { value, lost }
        };
        state.possible = with_late(std::mem::take(&mut state.possible).into_iter().map(with).collect());
        state.settle();
    }
}

impl MovingState {
    pub(super) fn phase(&self) -> Option<MigrationPhase> {
        self.machine.as_ref().map(|machine| machine.phase())
    }

    /// Nothing that was lost is carried out any more, once that is so; what is open may have been carried out before it was.
    pub(super) fn settle(&mut self) {
        if self.open.is_empty() && self.servers.iter().all(|server| server.late.is_empty()) {
            let all = std::mem::take(&mut self.possible);
            self.possible = all.into_iter().map(|each| Possible { lost: Vec::new(), ..each }).collect();
        }
    }

    fn digest(&self) -> u64 {
        let mut digest = DefaultHasher::new();
        self.hash(&mut digest);
        digest.finish()
    }
}

impl Hash for MovingState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(machine) = &self.machine {
            machine.fingerprint(state);
        }
        (self.machine.is_some(), self.seconds, self.process, &self.servers, &self.open).hash(state);
        (self.asked, &self.possible, self.closed, self.ended).hash(state);
        (&self.budget, &self.broken).hash(state);
    }
}

/// States are told apart by what they are hashed by.
impl PartialEq for MovingState {
    fn eq(&self, other: &MovingState) -> bool {
        self.digest() == other.digest()
    }
}

impl std::fmt::Debug for MovingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [home, there] = &self.servers;
        write!(f, "{:?}: home {:?}, there {:?}", self.phase(), home.value, there.value)?;
        write!(f, ", open {:?}, possible {:?}", self.open, self.possible)?;
        self.broken.as_ref().map_or(Ok(()), |broken| write!(f, ", {broken:?}"))
    }
}

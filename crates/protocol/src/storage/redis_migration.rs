//! Storage on a Redis server whose keys may leave for those of other shims while they are served: carries out what
//! `crate::migration` wants. Not which key is where.

use std::collections::{BTreeMap, VecDeque};

use wire::ShimId;

use super::network::{Backend, ConnectionId, Network, StorageInput};
use super::step::StorageStep;
use super::{Lane, StorageEvent};
use crate::migration::{
    Effect, Input, Leftovers, LeftoversEffect, Migration, MigrationConfig, MigrationPhase, MigrationPlace,
    MigrationProgress,
};
use crate::time::Time;

/// The connections by which keys are brought to another shim's server.
pub type Guests = Box<dyn Fn(ShimId) -> Box<dyn Backend> + Send>;

/// Why nothing moves yet.
const UNMARKED: &str = "the server has not kept on record yet that its keys are being divided (FUNCTION LOAD, for which it takes \
                        Redis 7 or Valkey, and +function for the storage user)";

pub struct RedisMigration {
    home: Box<dyn Backend>,
    guests: BTreeMap<ShimId, Box<dyn Backend>>,
    open: Guests,
    migration: Migration,
    /// What `migration` has not been told yet.
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
    heard: Vec<StorageEvent>,
    /// Nothing leaves before that is on record.
    waits: bool,
    /// It is to be put on record now.
    marks: bool,
    /// The incarnation of its home for which it was.
    marked: Option<u64>,
    /// That its home is up, until it is on record there.
    held_up: Option<StorageEvent>,
    /// It is over once that is on record.
    ends: bool,
    /// The server was on record to be divided before this process wanted it.
    was_divided: bool,
    leftovers: Leftovers,
}

impl Backend for RedisMigration {
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        let step = &mut StorageStep { now, network, events };
        match input {
            StorageInput::Store(store) if self.is_idle() && is_shared(store.lane) => {
                self.step_home(step, StorageInput::Store(store));
            }
            StorageInput::Store(store) => self.inputs.push_back(Input::Store(store)),
            StorageInput::Control { ticket, control } => {
                self.inputs.push_back(Input::Control { ticket, control });
            }
            StorageInput::Release { number, clean } => {
                self.inputs.push_back(Input::Release { number, clean });
            }
            StorageInput::Migrate { departures, destinations, again } => {
                if !destinations.is_empty() {
                    let again = again || self.was_divided || !self.home.is_up();
                    self.inputs.push_back(Input::Begin { departures, destinations, again });
                    self.waits = true;
                }
                self.marks = true;
            }
            StorageInput::Prepare { departures: Some(departures), again } => {
                let mut effects = Vec::new();
                self.leftovers.begin(now, departures, again, &mut effects);
                self.clear(step, effects);
            }
            StorageInput::Prepare { departures: None, .. } => self.leftovers.end(),
            StorageInput::Record { .. } => self.step_home(step, input),
            StorageInput::EndMigration => self.inputs.push_back(Input::Close),
            StorageInput::Connected(connection)
            | StorageInput::Data { connection, .. }
            | StorageInput::Closed { connection, .. } => {
                let guest = self.guests.iter().find(|(_, guest)| guest.owns(connection));
                match guest.map(|(shim, _)| *shim) {
                    Some(shim) => self.step_guest(step, shim, input),
                    None => self.step_home(step, input),
                }
            }
            StorageInput::Tick => {
                self.step_guests(step, &input);
                self.step_home(step, input);
                let mut effects = Vec::new();
                self.leftovers.tick(now, &mut effects);
                self.clear(step, effects);
                self.inputs.push_back(Input::Tick);
            }
            StorageInput::HandOver | StorageInput::Leave => {
                self.dismiss_guests(step);
                self.step_home(step, input);
            }
            StorageInput::Vacant { .. } => self.step_home(step, input),
        }
        self.carry_on(step);
    }

    fn owns(&self, id: ConnectionId) -> bool {
        self.home.owns(id) || self.guests.values().any(|guest| guest.owns(id))
    }

    fn is_up(&self) -> bool {
        self.home.is_up()
    }

    fn refusal(&self) -> Option<&str> {
        self.home.refusal()
    }

    fn is_replaced(&self) -> bool {
        self.home.is_replaced()
    }

    fn reconnects(&self) -> u64 {
        self.home.reconnects()
    }

    fn pending_count(&self) -> usize {
        let guests = self.guests.values().map(|guest| guest.pending_count());
        self.home.pending_count() + guests.sum::<usize>() + self.migration.waiting_count()
    }

    fn migration(&self) -> Option<MigrationProgress> {
        if self.waits || self.leftovers.is_gone() || self.leftovers.is_busy() {
            let reason = if self.leftovers.is_busy() { self.leftovers.reason() } else { Some(UNMARKED) };
            let reason = reason.map(str::to_owned);
            return Some(MigrationProgress {
                phase: MigrationPhase::Connecting,
                reason,
                ..Default::default()
            });
        }
        let refused = self.guests.values().find_map(|guest| guest.refusal());
        (!self.is_idle()).then(|| {
            let progress = self.migration.progress();
            MigrationProgress { reason: refused.map(str::to_owned).or(progress.reason.clone()), ..progress }
        })
    }
}

impl RedisMigration {
    pub fn new(config: MigrationConfig, home: Box<dyn Backend>, open: Guests) -> RedisMigration {
        RedisMigration {
            home,
            guests: BTreeMap::new(),
            open,
            migration: Migration::new(config),
            inputs: VecDeque::new(),
            effects: Vec::new(),
            heard: Vec::new(),
            waits: false,
            marks: false,
            marked: None,
            held_up: None,
            ends: false,
            was_divided: false,
            leftovers: Leftovers::default(),
        }
    }

    fn is_idle(&self) -> bool {
        self.migration.phase() == MigrationPhase::Idle
    }

    fn step_home(&mut self, step: &mut StorageStep<'_>, input: StorageInput) {
        self.home.step(step.now, input, step.network, &mut self.heard);
        for event in std::mem::take(&mut self.heard) {
            let ticket = ticket(&event);
            if ticket.is_none_or(Leftovers::owns) {
                let mut effects = Vec::new();
                self.leftovers.event(step.now, &event, &mut effects);
                self.clear(step, effects);
            }
            if ticket.is_some_and(Leftovers::owns) {
                continue;
            }
            let Some(event) = self.on_record(step, event) else { continue };
            if self.inputs.is_empty() && !self.migration.is_concerned(&event) {
                step.events.push(event);
            } else {
                self.inputs.push_back(Input::Home(event));
            }
        }
    }

    /// Carries out what clears the server of leftovers.
    fn clear(&mut self, step: &mut StorageStep<'_>, effects: Vec<LeftoversEffect>) {
        for effect in effects {
            match effect {
                LeftoversEffect::Store(store) => self.step_home(step, StorageInput::Store(store)),
                LeftoversEffect::Gone => self.marks = true,
            }
        }
    }

    /// Nothing moves before it is on record at home, also at one that has come back, perhaps without the record; and nobody else has
    /// what has left before that is. Gives back what is for others, too.
    fn on_record(&mut self, step: &mut StorageStep<'_>, event: StorageEvent) -> Option<StorageEvent> {
        match event {
            StorageEvent::Marked => {
                if std::mem::take(&mut self.waits) {
                    self.inputs.push_back(Input::Recorded);
                }
                if std::mem::take(&mut self.ends) {
                    step.events.push(StorageEvent::MigrationEnded);
                }
                if self.leftovers.is_gone() {
                    self.leftovers.end();
                    step.events.push(StorageEvent::Migrated);
                }
                return self.held_up.take();
            }
            StorageEvent::Up { incarnation, traits, .. } => {
                if self.is_idle() {
                    self.was_divided = traits.divided;
                }
                let is_new = self.marked.replace(incarnation) != Some(incarnation);
                self.invite_guests(step, is_new);
                self.marks |= self.waits || self.leftovers.is_gone() || is_new && !self.is_idle();
                if is_new && !self.is_idle() {
                    self.held_up = Some(event);
                    return None;
                }
            }
            StorageEvent::Down { gone, .. } => {
                self.held_up = None;
                if !gone {
                    // Perhaps for another process, whose guests these would keep out.
                    self.dismiss_guests(step);
                }
            }
            _ => {}
        }
        Some(event)
    }

    /// Guests come in the name of an incarnation of the home, and none of one that another process may have displaced stays.
    fn invite_guests(&mut self, step: &mut StorageStep<'_>, is_new: bool) {
        if is_new {
            self.dismiss_guests(step);
        }
        if !self.home.is_up() {
            return;
        }
        for shim in self.migration.destinations() {
            self.guests.entry(shim).or_insert_with(|| (self.open)(shim));
        }
    }

    fn dismiss_guests(&mut self, step: &mut StorageStep<'_>) {
        self.step_guests(step, &StorageInput::Leave);
        for shim in std::mem::take(&mut self.guests).into_keys() {
            let event = StorageEvent::Down { reason: "its home is away".to_owned(), gone: true };
            self.inputs.push_back(Input::Destination { shim, event });
        }
    }

    fn step_guest(&mut self, step: &mut StorageStep<'_>, shim: ShimId, input: StorageInput) {
        if let Some(guest) = self.guests.get_mut(&shim) {
            guest.step(step.now, input, step.network, &mut self.heard);
        }
        self.inputs.extend(self.heard.drain(..).map(|event| Input::Destination { shim, event }));
    }

    fn step_guests(&mut self, step: &mut StorageStep<'_>, input: &StorageInput) {
        for shim in self.guests.keys().copied().collect::<Vec<_>>() {
            self.step_guest(step, shim, input.clone());
        }
    }

    /// Until nothing more follows from anything.
    fn carry_on(&mut self, step: &mut StorageStep<'_>) {
        loop {
            if std::mem::take(&mut self.marks) {
                self.step_home(step, StorageInput::Record { left: false });
            }
            let Some(input) = self.inputs.pop_front() else { return };
            self.migration.step(step.now, input, &mut self.effects);
            for effect in std::mem::take(&mut self.effects) {
                self.carry_out(step, effect);
            }
        }
    }

    fn carry_out(&mut self, step: &mut StorageStep<'_>, effect: Effect) {
        let (place, input) = match effect {
            Effect::Report(StorageEvent::MigrationEnded) => {
                self.ends = true;
                return self.step_home(step, StorageInput::Record { left: true });
            }
            Effect::Report(event) => return step.events.push(event),
            Effect::Connect { .. } => return self.invite_guests(step, false),
            Effect::Leave { shim } => {
                self.step_guest(step, shim, StorageInput::Leave);
                self.guests.remove(&shim);
                return;
            }
            Effect::Store { place, store } => (place, StorageInput::Store(store)),
            Effect::Control { place, ticket, control } => (place, StorageInput::Control { ticket, control }),
            Effect::Release { place, number, clean } => (place, StorageInput::Release { number, clean }),
        };
        match place {
            MigrationPlace::Home => self.step_home(step, input),
            MigrationPlace::Destination(shim) => self.step_guest(step, shim, input),
        }
    }
}

fn ticket(event: &StorageEvent) -> Option<u64> {
    match event {
        StorageEvent::Replies { ticket, .. }
        | StorageEvent::Lost { ticket, .. }
        | StorageEvent::Large { ticket }
        | StorageEvent::Part { ticket, .. } => Some(*ticket),
        _ => None,
    }
}

/// Whether commands there are answered in their order, so that nobody has to remember them.
fn is_shared(lane: Lane) -> bool {
    !matches!(lane, Lane::Pinned { .. } | Lane::Watching { .. })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use bytes::Bytes;
    use smallvec::SmallVec;
    use wire::ShimId;

    use super::RedisMigration;
    use crate::coherence::lease::EarlierIncarnations;
    use crate::migration::{Departures, MigrationConfig};
    use crate::storage::network::{Backend, ConnectionId, Endpoint, Network, StorageInput};
    use crate::storage::{Lane, Reach, StorageEvent, StorageTraits, Store};
    use crate::time::Time;

    /// What happens to servers, in words.
    type Log = Arc<Mutex<Vec<&'static str>>>;

    /// A server that reports what the test gives it.
    #[derive(Default)]
    struct Fake {
        up: bool,
        log: Option<Log>,
        told: Arc<Mutex<Vec<StorageEvent>>>,
    }

    impl Backend for Fake {
        fn step(
            &mut self,
            _: Time,
            input: StorageInput,
            _: &mut dyn Network,
            events: &mut Vec<StorageEvent>,
        ) {
            match (&input, &self.log) {
                (StorageInput::Leave, Some(log)) => log.lock().unwrap().push("the guest leaves"),
                (StorageInput::Store(store), Some(log)) if store.commands[0].ends_with(b"DBSIZE\r\n") => {
                    log.lock().unwrap().push("keys are counted");
                }
                _ => {}
            }
            for event in self.told.lock().unwrap().drain(..) {
                match event {
                    StorageEvent::Up { .. } => self.up = true,
                    StorageEvent::Down { .. } => self.up = false,
                    _ => {}
                }
                events.push(event);
            }
        }

        fn is_up(&self) -> bool {
            self.up
        }
    }

    struct NoNetwork;

    const UNREAL: &str = "servers are not real";

    impl Network for NoNetwork {
        fn dial(&mut self, _: Endpoint, _: bool) -> ConnectionId {
            unreachable!("{UNREAL}")
        }

        fn out(&mut self, _: ConnectionId) -> &mut Vec<u8> {
            unreachable!("{UNREAL}")
        }

        fn unwritten_bytes(&self, _: ConnectionId) -> usize {
            unreachable!("{UNREAL}")
        }

        fn unread(&mut self, _: ConnectionId, _: Bytes) {}

        fn pause(&mut self, _: ConnectionId) {}

        fn resume(&mut self, _: ConnectionId) {}

        fn close(&mut self, _: ConnectionId) {}

        fn close_confirmed(&mut self, _: ConnectionId) {}

        fn own_address(&self, _: ConnectionId) -> Option<SocketAddr> {
            unreachable!("{UNREAL}")
        }
    }

    #[derive(Debug)]
    struct Everything;

    impl Departures for Everything {
        fn destination(&self, _: &[u8]) -> Option<ShimId> {
            Some(ShimId(1))
        }
    }

    fn up(incarnation: u64) -> StorageEvent {
        let traits = StorageTraits::default();
        StorageEvent::Up { incarnation, traits, earlier: EarlierIncarnations::NONE }
    }

    /// The machine before a server, and what the test gives that one and its guests to report.
    struct World {
        machine: RedisMigration,
        log: Log,
        home: Arc<Mutex<Vec<StorageEvent>>>,
        guest: Arc<Mutex<Vec<StorageEvent>>>,
    }

    impl World {
        fn new() -> World {
            let (log, home) = (Log::default(), Arc::<Mutex<Vec<StorageEvent>>>::default());
            let guest = Arc::<Mutex<Vec<StorageEvent>>>::default();
            let (opened, told) = (Arc::clone(&log), Arc::clone(&guest));
            let open = move |_| -> Box<dyn Backend> {
                opened.lock().unwrap().push("a guest comes");
                let (log, told) = (Some(Arc::clone(&opened)), Arc::clone(&told));
                Box::new(Fake { log, told, ..Fake::default() })
            };
            let config = MigrationConfig {
                patience: Duration::from_secs(1),
                transfers_max: 1,
                transfers_beside_max: 1,
                keys_per_second_max: 0,
            };
            let server = Fake { log: Some(Arc::clone(&log)), told: Arc::clone(&home), ..Fake::default() };
            World { machine: RedisMigration::new(config, Box::new(server), Box::new(open)), log, home, guest }
        }

        fn step(&mut self, input: StorageInput) -> Vec<&'static str> {
            self.machine.step(Time(1), input, &mut NoNetwork, &mut Vec::new());
            std::mem::take(&mut *self.log.lock().unwrap())
        }

        fn migrate(&mut self) {
            let departures = Arc::new(Everything);
            self.step(StorageInput::Migrate { departures, destinations: vec![ShimId(1)], again: false });
        }

        fn home(&mut self, event: StorageEvent) -> Vec<&'static str> {
            self.home.lock().unwrap().push(event);
            self.step(StorageInput::Tick)
        }
    }

    #[test]
    fn a_guest_is_at_another_server_as_long_as_its_home_is_this_process_s() {
        let mut world = World::new();
        world.migrate();
        let down = |gone| StorageEvent::Down { reason: "it is away".into(), gone };
        assert_eq!(world.home(up(1)), [""; 0], "that is not on record yet");
        assert_eq!(world.home(StorageEvent::Marked), ["a guest comes"]);
        assert_eq!(world.home(down(true)), [""; 0], "it may be the same when it is back");
        assert_eq!(world.home(up(1)), [""; 0]);
        assert_eq!(world.home(down(true)), [""; 0]);
        assert_eq!(world.home(up(2)), ["the guest leaves", "a guest comes"]);
        assert_eq!(world.home(down(false)), ["the guest leaves"], "another process has the home");
        assert_eq!(world.home(up(2)), ["a guest comes"]);
    }

    #[test]
    fn what_was_lost_before_anything_leaves_is_fenced_before_anything_leaves() {
        let mut world = World::new();
        world.home(up(1));
        let blocks = Bytes::from_static(b"*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n");
        let lane = Lane::Pinned { resp3: false };
        let store = Store { ticket: 5, lane, reach: Reach::Whole, commands: SmallVec::from_elem(blocks, 1) };
        world.step(StorageInput::Store(store));
        world.home(StorageEvent::Lost { ticket: 5, sent: true });
        world.home(StorageEvent::Fenced);
        world.migrate();
        world.home(StorageEvent::Marked);
        world.guest.lock().unwrap().push(up(7));
        let asked = |world: &mut World, ticket: u64, reply: &'static [u8]| {
            let replies = SmallVec::from_elem(Bytes::from_static(reply), 1);
            world.home(StorageEvent::Replies { ticket, replies })
        };
        let first = 1 << 63;
        world.step(StorageInput::Tick);
        // No functions, and then nothing that was begun before.
        let mut said = asked(&mut world, first, b"*0\r\n");
        for lane in 0..8 {
            said.extend(asked(&mut world, first | lane, b"+PONG\r\n"));
        }
        assert_eq!(said, ["keys are counted"]);
    }
}

//! Storage on a Redis server whose keys may leave for those of other shims while they are served: carries out what
//! `crate::migration` wants. Not which key is where.

use std::collections::{BTreeMap, VecDeque};

use wire::ShimId;

use super::network::{Backend, ConnectionId, Network, StorageInput};
use super::step::StorageStep;
use super::{Lane, StorageEvent};
use crate::migration::{
    Effect, Input, Migration, MigrationConfig, MigrationPhase, MigrationPlace, MigrationProgress,
};
use crate::time::Time;

/// The connections by which keys are brought to another shim's server.
pub type Guests = Box<dyn Fn(ShimId) -> Box<dyn Backend> + Send>;

pub struct RedisMigration {
    home: Box<dyn Backend>,
    guests: BTreeMap<ShimId, Box<dyn Backend>>,
    open: Guests,
    migration: Migration,
    /// What `migration` has not been told yet.
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
    heard: Vec<StorageEvent>,
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
            StorageInput::Migrate { departures, destinations } => {
                self.inputs.push_back(Input::Begin { departures, destinations });
            }
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
                self.inputs.push_back(Input::Tick);
            }
            StorageInput::HandOver | StorageInput::Leave => {
                self.step_guests(step, &StorageInput::Leave);
                self.guests.clear();
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
        }
    }

    fn is_idle(&self) -> bool {
        self.migration.phase() == MigrationPhase::Idle
    }

    fn step_home(&mut self, step: &mut StorageStep<'_>, input: StorageInput) {
        self.home.step(step.now, input, step.network, &mut self.heard);
        for event in self.heard.drain(..) {
            if self.inputs.is_empty() && !self.migration.is_concerned(&event) {
                step.events.push(event);
            } else {
                self.inputs.push_back(Input::Home(event));
            }
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
        while let Some(input) = self.inputs.pop_front() {
            self.migration.step(step.now, input, &mut self.effects);
            for effect in std::mem::take(&mut self.effects) {
                self.carry_out(step, effect);
            }
        }
    }

    fn carry_out(&mut self, step: &mut StorageStep<'_>, effect: Effect) {
        let (place, input) = match effect {
            Effect::Report(event) => return step.events.push(event),
            Effect::Connect { shim } => {
                self.guests.insert(shim, (self.open)(shim));
                return;
            }
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

/// Whether commands there are answered in their order, so that nobody has to remember them.
fn is_shared(lane: Lane) -> bool {
    !matches!(lane, Lane::Pinned { .. } | Lane::Watching { .. })
}

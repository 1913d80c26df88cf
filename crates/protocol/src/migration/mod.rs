//! Keys that change their server while they are served, as a machine between a shim and its storage: each key has one home at each
//! instant, and commands follow it there. Not which keys have to move, nor who has them in the end.
//!
//! A key that moves is at its old home as long as it is there. Its home changes when the old one says that it is deleted: until then
//! it was restored at the new one, where nobody has asked for it. So a process that dies anywhere in between leaves a key whose home
//! the next one can see, and what it does again changes nothing.

mod inspect;
mod leftovers;
mod libraries;
mod moving_key;
mod route;
mod scan;
mod servers;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use slab::Slab;
use smallvec::SmallVec;
use wire::ShimId;

use crate::coherence::lease::EarlierIncarnations;
use crate::storage::{CommandControl, Reach, StorageEvent, Store};
use crate::time::Time;
pub use leftovers::{Leftovers, LeftoversEffect};
use libraries::Libraries;
use moving_key::{MovingKey, Settled};
use scan::Scan;
pub use servers::MigrationPlace;
use servers::MigrationServer;

/// Which keys leave a shim's storage, and to whose they go; which come to it is said only where some may.
pub trait Departures: fmt::Debug + Send + Sync {
    /// The shim whose storage has the key in the end; none if it stays.
    fn destination(&self, key: &[u8]) -> Option<ShimId>;

    /// Whether another shim has the key, and it is to come to this one's storage.
    fn arrives(&self, _: &[u8]) -> bool {
        false
    }

    /// Whether the shim has had no keys, so that its storage has none.
    fn is_first(&self) -> bool {
        false
    }

    /// How many shims give keys to each of those to which these go, this one among them; at least one.
    fn givers(&self) -> usize {
        1
    }
}

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
pub struct MigrationConfig {
    /// How long a command may wait for the server that has its key.
    pub patience: Duration,
    /// Keys on their way at the same time for whom nobody waits, while nobody asks for commands.
    pub transfers_max: usize,
    /// The same while somebody does, of all that give keys to one destination together; at least one of each. The next ones begin when
    /// all of these have ended: so they share reads and writes, and are as slow as the servers and this machine are busy.
    pub transfers_beside_max: usize,
    /// How many of these may begin in a second; 0 is no limit.
    pub keys_per_second_max: u32,
}

/// All that the machine can see.
#[derive(Clone, Debug)]
pub enum Input {
    Store(Store),
    Control {
        ticket: u64,
        control: CommandControl,
    },
    Release {
        number: u64,
        clean: bool,
    },
    /// From the connections to the storage of the shim itself.
    Home(StorageEvent),
    /// From the connections to another shim's.
    Destination {
        shim: ShimId,
        event: StorageEvent,
    },
    /// Keys leave from now on, for the storage of `destinations`. `again`: an earlier process may have begun with it.
    Begin {
        departures: Arc<dyn Departures>,
        destinations: Vec<ShimId>,
        again: bool,
    },
    /// The home keeps on record that keys leave. Nothing leaves before.
    Recorded,
    /// No command for a key that leaves comes any more.
    Close,
    Tick,
}

/// All that it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// To the shim's machine.
    Report(StorageEvent),
    /// Connect to another shim's storage and fence earlier processes of this shim there.
    Connect {
        shim: ShimId,
    },
    Leave {
        shim: ShimId,
    },
    Store {
        place: MigrationPlace,
        store: Store,
    },
    Control {
        place: MigrationPlace,
        ticket: u64,
        control: CommandControl,
    },
    Release {
        place: MigrationPlace,
        number: u64,
        clean: bool,
    },
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationPhase {
    /// Nothing moves.
    #[default]
    Idle,
    /// Not every destination can be reached yet, or has the functions that the home has. Everything is at home, unless an earlier
    /// process has begun: then commands for what leaves wait.
    Connecting,
    /// What was asked at home before has not been answered.
    Draining,
    Moving,
    /// Nothing that leaves is at home any more.
    Moved,
    /// As `Moved`, and nothing more comes: what is on its way ends.
    Closing,
}

/// What there is to tell people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationProgress {
    pub phase: MigrationPhase,
    /// Keys that were moved by this process.
    pub moved: u64,
    /// How many keys the server had when they were gone through last, and how many have been looked at since.
    pub keys: u64,
    pub seen: u64,
    /// Keys that the destination does not take, and the last reason.
    pub stuck: u64,
    pub reason: Option<String>,
}

/// Commands that wait for their keys.
#[derive(Clone, Debug)]
struct HeldCommands {
    store: Store,
    keys: SmallVec<[Bytes; 1]>,
    shim: ShimId,
    since: Time,
}

/// Commands of the shim that a destination has.
#[derive(Clone, Debug)]
struct Sent {
    shim: ShimId,
    /// Indexes of commands that were for the home alone, so that their replies are missing.
    left_out: SmallVec<[usize; 2]>,
    count: usize,
}

/// A question of the machine's own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MoveQuestion {
    /// The libraries of functions at home, and one of them for a destination.
    Libraries,
    Load,
    /// Everything that was asked before on its connection has been answered.
    Drain(usize),
    Count,
    /// The next keys, in this round.
    Scan(u64),
    Dump(Bytes),
    Restore(Bytes),
    /// Whether the destination has it although it takes nothing.
    Exists(Bytes),
    /// `restored`: the destination has it from this process.
    Delete {
        key: Bytes,
        restored: bool,
    },
    /// What was restored goes again, as the old home does not let go of it.
    Undo(Bytes),
    /// A connection watches nothing any more.
    Unwatch,
}

#[derive(Clone)]
pub struct Migration {
    config: MigrationConfig,
    phase: MigrationPhase,
    departures: Option<Arc<dyn Departures>>,
    unconnected: Vec<ShimId>,
    /// An earlier process may have begun.
    again: bool,
    recorded: bool,
    libraries: Libraries,
    home: MigrationServer,
    destinations: BTreeMap<ShimId, MigrationServer>,
    /// Commands on connections of their own, at home.
    apart: BTreeMap<u64, Store>,
    /// Which of them were told to end, to be asked again.
    recalled: BTreeSet<u64>,
    /// Connections that watch, elsewhere than at home.
    watches: BTreeMap<u64, ShimId>,
    watch_last: u64,
    /// Up to here they have watched what may have gone elsewhere since.
    watch_void: u64,
    drains: BTreeSet<usize>,
    questions: Slab<(MigrationPlace, MoveQuestion)>,
    units: Slab<HeldCommands>,
    sent: BTreeMap<u64, Sent>,
    keys: BTreeMap<Bytes, MovingKey>,
    /// Keys whose transfer waits for a server.
    halted: Vec<Bytes>,
    /// The same of the next tick.
    later: Vec<Bytes>,
    settled: Settled,
    /// Commands at home for keys that could not be moved.
    at_home: BTreeMap<u64, SmallVec<[Bytes; 1]>>,
    /// Units that have their keys and wait for a server alone.
    held: BTreeSet<usize>,
    scan: Scan,
    /// When somebody asked for commands last.
    asked: Option<Time>,
    progress: MigrationProgress,
    /// What incarnation the shim was told of.
    told: Option<u64>,
    /// Its next one has another number, since a server is another one than it was; and a destination was that.
    is_void: bool,
    other_data: bool,
}

/// One step: when it is taken and what it does.
struct MigrationStep<'a> {
    now: Time,
    effects: &'a mut Vec<Effect>,
}

impl MigrationStep<'_> {
    fn report(&mut self, event: StorageEvent) {
        self.effects.push(Effect::Report(event));
    }
}

impl Migration {
    pub fn new(config: MigrationConfig) -> Migration {
        Migration {
            config,
            phase: MigrationPhase::Idle,
            departures: None,
            unconnected: Vec::new(),
            again: false,
            recorded: false,
            libraries: Libraries::default(),
            home: MigrationServer::default(),
            destinations: BTreeMap::new(),
            apart: BTreeMap::new(),
            recalled: BTreeSet::new(),
            watches: BTreeMap::new(),
            watch_last: 0,
            watch_void: 0,
            drains: BTreeSet::new(),
            questions: Slab::new(),
            units: Slab::new(),
            sent: BTreeMap::new(),
            keys: BTreeMap::new(),
            halted: Vec::new(),
            later: Vec::new(),
            settled: Settled::default(),
            at_home: BTreeMap::new(),
            held: BTreeSet::new(),
            scan: Scan::default(),
            asked: None,
            progress: MigrationProgress::default(),
            told: None,
            is_void: false,
            other_data: false,
        }
    }

    pub fn progress(&self) -> MigrationProgress {
        let reason = self.progress.reason.clone().or_else(|| Some(self.waits_for()?.to_owned()));
        let (phase, stuck) = (self.phase, self.stuck_count() as u64);
        MigrationProgress { phase, stuck, reason, ..self.progress }
    }

    /// Why no key moves yet, or just now.
    fn waits_for(&self) -> Option<&'static str> {
        let are_up = self.destinations.values().all(MigrationServer::is_up);
        match self.phase {
            MigrationPhase::Connecting if !are_up => Some("a server that keys go to is not connected yet"),
            MigrationPhase::Connecting => Some("functions are being loaded where keys go to"),
            MigrationPhase::Draining => Some("commands that were begun before are waited for"),
            MigrationPhase::Moving if self.owes_fence() => {
                Some("commands whose connection broke may still be carried out, and are waited for")
            }
            _ => None,
        }
    }

    /// Whose servers it is connected to, or wants to be.
    pub fn destinations(&self) -> impl Iterator<Item = ShimId> {
        self.destinations.keys().copied()
    }

    pub fn phase(&self) -> MigrationPhase {
        self.phase
    }

    /// Whether an event of its home is not the shim's alone.
    pub fn is_concerned(&self, event: &StorageEvent) -> bool {
        match event {
            // What was lost of commands on connections of their own is owed, also before anything leaves.
            StorageEvent::Up { .. } | StorageEvent::Down { .. } | StorageEvent::Fenced => true,
            StorageEvent::Replies { ticket, .. }
            | StorageEvent::Lost { ticket, .. }
            | StorageEvent::Part { ticket, .. } => {
                self.phase != MigrationPhase::Idle || self.apart.contains_key(ticket)
            }
            _ => self.phase != MigrationPhase::Idle,
        }
    }

    /// Commands that are at no server.
    pub fn waiting_count(&self) -> usize {
        self.units.len()
    }

    pub fn step(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        let step = &mut MigrationStep { now, effects };
        match input {
            Input::Store(store) => {
                if store.reach != Reach::Proof {
                    self.asked = Some(now);
                }
                self.store(step, store);
            }
            Input::Control { ticket, control } => self.control(step, ticket, control),
            Input::Release { number, clean } => {
                let place =
                    self.watches.remove(&number).map_or(MigrationPlace::Home, MigrationPlace::Destination);
                step.effects.push(Effect::Release { place, number, clean });
            }
            Input::Home(event) => self.server_event(step, MigrationPlace::Home, event),
            Input::Destination { shim, event } => {
                self.server_event(step, MigrationPlace::Destination(shim), event);
            }
            Input::Begin { departures, destinations, again } => self.begin(departures, destinations, again),
            Input::Recorded => self.recorded = true,
            Input::Close => {
                if self.phase == MigrationPhase::Moved {
                    self.phase = MigrationPhase::Closing;
                }
            }
            Input::Tick => {
                self.give_up(step);
                self.halted.append(&mut self.later);
            }
        }
        self.advance(step);
    }

    fn begin(&mut self, departures: Arc<dyn Departures>, destinations: Vec<ShimId>, again: bool) {
        if self.phase != MigrationPhase::Idle {
            return;
        }
        self.phase = MigrationPhase::Connecting;
        self.departures = Some(departures);
        self.progress = MigrationProgress::default();
        self.unconnected = destinations;
        (self.again, self.recorded, self.libraries) = (again, false, Libraries::default());
    }

    /// Only who has the home may displace others at the destinations.
    fn connect(&mut self, step: &mut MigrationStep<'_>) {
        for shim in std::mem::take(&mut self.unconnected) {
            self.destinations.insert(shim, MigrationServer::default());
            step.effects.push(Effect::Connect { shim });
        }
    }

    /// From one phase to the next as soon as it is over.
    fn advance(&mut self, step: &mut MigrationStep<'_>) {
        if self.home.is_up() && self.recorded {
            self.connect(step);
        }
        let reached =
            self.recorded && self.home.is_up() && self.destinations.values().all(MigrationServer::is_up);
        if self.phase == MigrationPhase::Connecting && reached && self.has_loaded(step) {
            self.drain(step);
        }
        if self.phase == MigrationPhase::Draining && self.is_drained() {
            self.phase = MigrationPhase::Moving;
            self.scan = Scan::default();
            // Proofs are the home's from now on, whoever else answers.
            self.tell_up(step, EarlierIncarnations::NONE);
        }
        if matches!(self.phase, MigrationPhase::Moving | MigrationPhase::Moved | MigrationPhase::Closing) {
            self.resume(step);
            self.pump_units(step);
            self.carry_on(step);
        }
        if self.phase == MigrationPhase::Closing && self.is_quiet() {
            self.leave(step);
        }
    }

    /// Nothing is anywhere but at home.
    fn is_quiet(&self) -> bool {
        let owes = self.destinations.values().any(|server| server.owes_fence);
        self.units.is_empty() && self.sent.is_empty() && self.questions.is_empty() && !owes
    }

    fn leave(&mut self, step: &mut MigrationStep<'_>) {
        for shim in std::mem::take(&mut self.destinations).into_keys() {
            step.effects.push(Effect::Leave { shim });
        }
        self.phase = MigrationPhase::Idle;
        self.departures = None;
        self.settled = Settled::default();
        self.keys.clear();
        self.watches.clear();
        step.report(StorageEvent::MigrationEnded);
        self.tell_up(step, EarlierIncarnations::NONE);
    }
}

#[cfg(test)]
mod tests;

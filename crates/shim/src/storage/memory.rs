//! The embedded store as a shim's storage: always up, answers at once. Not the store itself.

use std::time::Duration;

use protocol::coherence::lease::{EarlierIncarnations, Unrecorded};
use protocol::storage::network::{Backend, Network, StorageInput};
use protocol::storage::{StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use runtime::clock;

use super::embedded::table::KeyTable;
use super::embedded::{Embedded, StoreClock};
use super::served::Served;

pub(crate) struct Memory {
    served: Served<KeyTable>,
    /// From the Unix epoch to when CLOCK_BOOTTIME was zero, sampled once: steps of the wall clock must not move deadlines.
    epoch: Duration,
    /// The data lives and ends with this value, so it has one incarnation.
    incarnation: u64,
    announced: bool,
    /// No process of this shim has held other data before.
    is_first: bool,
}

impl Backend for Memory {
    /// Nothing is ever under way there, and nothing blocks; it refuses WATCH and tells of no large reply.
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        _network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        match input {
            StorageInput::Store(store) => self.store(now, store, events),
            StorageInput::Tick => self.tick(now, events),
            StorageInput::HandOver => events.push(StorageEvent::Left),
            _ => {}
        }
    }

    fn is_up(&self) -> bool {
        true
    }
}

impl Memory {
    pub(super) fn new(seed: u64, is_first: bool) -> Memory {
        Memory {
            served: Served::new(Embedded::new(seed)),
            epoch: clock::epoch(),
            incarnation: seed,
            announced: false,
            is_first,
        }
    }

    fn store(&mut self, now: Time, store: Store, events: &mut Vec<StorageEvent>) {
        let now = (now.0 / 1000) as i64;
        let clock = StoreClock { now, unix: now + self.epoch.as_millis() as i64 };
        self.served.store(clock, store, events);
    }

    fn tick(&mut self, now: Time, events: &mut Vec<StorageEvent>) {
        if !self.announced {
            self.announced = true;
            let traits =
                StorageTraits { short_leases: true, reports_no_changes: true, ..StorageTraits::default() };
            let earlier = match self.is_first {
                true => EarlierIncarnations::NONE,
                false => EarlierIncarnations::unrecorded(Unrecorded::Within(Duration::ZERO)),
            };
            events.push(StorageEvent::Up { incarnation: self.incarnation, traits, earlier });
        }
        self.served.expire((now.0 / 1000) as i64);
    }
}

//! The embedded store as a shim's storage: always up, answers at once. Not the store itself.

use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, Unrecorded};
use protocol::storage::network::{Backend, Network, StorageInput};
use protocol::storage::{Lane, StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use runtime::clock;
use smallvec::SmallVec;
use wire::resp::transaction::MULTI;
use wire::resp::{Command, reply};

use super::embedded::Embedded;
use super::topics::StoreTopics;

pub(crate) struct Memory {
    store: Embedded,
    topics: StoreTopics,
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
            store: Embedded::new(seed),
            topics: StoreTopics::default(),
            epoch: clock::epoch(),
            incarnation: seed,
            announced: false,
            is_first,
        }
    }

    fn store(&mut self, now: Time, store: Store, events: &mut Vec<StorageEvent>) {
        let resp3 = match store.lane {
            Lane::Shared { resp3 }
            | Lane::Scripts { resp3 }
            | Lane::Pinned { resp3 }
            | Lane::Watching { resp3, .. } => resp3,
            Lane::Subscriber | Lane::Feed | Lane::ReadFeed => true,
        };
        let now_ms = now.0 / 1000;
        let unix_ms = now_ms + self.epoch.as_millis() as u64;
        let execute = |frame: Bytes| match Command::parse(frame) {
            // Nobody else can write here, so there is nothing to report.
            Ok(command) if store.lane == Lane::Feed && command.name() == b"CLIENT" => {
                Bytes::from_static(reply::OK)
            }
            Ok(command) if store.lane == Lane::Subscriber => {
                let answered = self.topics.execute(&command, events);
                answered.unwrap_or_else(|| self.store.execute(now_ms, unix_ms, &command, resp3))
            }
            Ok(command) => self.store.execute(now_ms, unix_ms, &command, resp3),
            Err(error) => Bytes::from(format!("-ERR {error}\r\n")),
        };
        let replies = match &store.commands[..] {
            [multi, queued @ .., _] if multi == MULTI => transaction(queued.iter().cloned().map(execute)),
            _ => store.commands.into_iter().map(execute).collect(),
        };
        events.push(StorageEvent::Replies { ticket: store.ticket, replies });
    }

    fn tick(&mut self, now: Time, events: &mut Vec<StorageEvent>) {
        if !self.announced {
            self.announced = true;
            let traits = StorageTraits { short_leases: true, ..StorageTraits::default() };
            let earlier = match self.is_first {
                true => EarlierIncarnations::NONE,
                false => EarlierIncarnations::unrecorded(Unrecorded::Within(Duration::ZERO)),
            };
            events.push(StorageEvent::Up { incarnation: self.incarnation, traits, earlier });
        }
        self.store.expire(now.0 / 1000);
    }
}

/// The replies from MULTI's to EXEC's: whole batches are carried out, so nothing can come in between.
fn transaction(replies: impl ExactSizeIterator<Item = Bytes>) -> SmallVec<[Bytes; 2]> {
    let mut all = SmallVec::with_capacity(replies.len() + 2);
    all.push(Bytes::from_static(reply::OK));
    let mut exec = Vec::new();
    reply::array_header(replies.len(), &mut exec);
    for reply in replies {
        all.push(Bytes::from_static(b"+QUEUED\r\n"));
        exec.extend_from_slice(&reply);
    }
    all.push(exec.into());
    all
}

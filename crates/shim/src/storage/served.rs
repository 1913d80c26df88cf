//! An embedded store as a shim asks it: batches of commands on its lanes, and topics. Not where the keys are.

use bytes::Bytes;
use protocol::storage::{Lane, StorageEvent, Store};
use smallvec::SmallVec;
use wire::resp::transaction::MULTI;
use wire::resp::{Command, reply};

use super::embedded::keyspace::Keyspace;
use super::embedded::{Embedded, StoreClock};
use super::topics::StoreTopics;

pub(crate) struct Served<K> {
    store: Embedded<K>,
    topics: StoreTopics,
}

impl<K: Keyspace> Served<K> {
    pub(crate) fn new(store: Embedded<K>) -> Served<K> {
        Served { store, topics: StoreTopics::default() }
    }

    pub(crate) fn keys(&mut self) -> &mut K {
        self.store.keys()
    }

    /// Carries out all commands of a batch.
    pub(crate) fn store(&mut self, clock: StoreClock, store: Store, events: &mut Vec<StorageEvent>) {
        let resp3 = match store.lane {
            Lane::Shared { resp3 }
            | Lane::Scripts { resp3 }
            | Lane::Pinned { resp3 }
            | Lane::Watching { resp3, .. } => resp3,
            Lane::Subscriber | Lane::Feed | Lane::ReadFeed => true,
        };
        let execute = |frame: Bytes| match Command::parse(frame) {
            // Nobody else can write here, so there is nothing to report.
            Ok(command) if store.lane == Lane::Feed && command.name() == b"CLIENT" => {
                Bytes::from_static(reply::OK)
            }
            Ok(command) if store.lane == Lane::Subscriber => {
                let answered = self.topics.execute(&command, events);
                answered.unwrap_or_else(|| self.store.execute(clock, &command, resp3))
            }
            Ok(command) => self.store.execute(clock, &command, resp3),
            Err(error) => Bytes::from(format!("-ERR {error}\r\n")),
        };
        let replies = match &store.commands[..] {
            [multi, queued @ .., _] if multi == MULTI => transaction(queued.iter().cloned().map(execute)),
            _ => store.commands.into_iter().map(execute).collect(),
        };
        events.push(StorageEvent::Replies { ticket: store.ticket, replies });
    }

    /// Removes what has expired.
    pub(crate) fn expire(&mut self, now: i64) {
        self.store.expire(now);
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

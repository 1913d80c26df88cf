//! When copies were asked for and read, and which purges are under way. Not what follows from their age.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::shim::PurgeTarget;
use protocol::storage::network::ConnectionId;
use wire::message::Fill;
use wire::{Key, View};

use crate::network::HostId;
use crate::storage::redis::Outcome;

/// When what nodes hold was asked for at the shims, and read in storage.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// By node, session and fill.
    pub(crate) asked: BTreeMap<(HostId, u64, u64), u64>,
    /// By shim and ticket: when the shim gave storage what it did last under that ticket.
    stored: BTreeMap<(HostId, u64), u64>,
    /// By session and fill: when the shim gave storage the read that the fill is of.
    read_from: BTreeMap<(u64, u64), u64>,
    /// By key: reads for copies.
    read: BTreeMap<Vec<u8>, Vec<CopyRead>>,
    /// By connection: the key, and which of its reads has begun there.
    reading: BTreeMap<ConnectionId, (Vec<u8>, usize)>,
    pub(crate) born: BTreeMap<HeldCopy, Birth>,
    /// By number: since when, and what.
    pub(crate) purges: BTreeMap<u64, (u64, PurgeTarget)>,
    pub(crate) purged: u64,
}

/// A node, the digest of a key, and a view of it.
pub(crate) type HeldCopy = (HostId, u128, View);

/// When storage carried out the PTTL that every read for a copy begins with, and what it answered to the command after it.
#[derive(Debug)]
struct CopyRead {
    time: u64,
    reply: Option<Bytes>,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth {
    pub(crate) version: u64,
    pub(crate) asked: u64,
    /// Not before this: of two reads for copies of one key that found the same the earlier one is taken for both.
    pub(crate) read: u64,
}

impl Births {
    /// A value that came with COMMIT stays where a FILL of the same version follows that was asked for before.
    pub(crate) fn bear(&mut self, held: HeldCopy, birth: Birth) {
        let born = self.born.entry(held).or_insert(birth);
        *born = match born.version == birth.version {
            true => Birth { asked: born.asked.max(birth.asked), read: born.read.max(birth.read), ..birth },
            false => birth,
        };
    }

    /// A shim gives storage commands.
    pub(crate) fn note_stored(&mut self, shim: HostId, ticket: u64, now: u64) {
        self.stored.insert((shim, ticket), now);
    }

    /// A shim sends a fill because of the replies to a ticket.
    pub(crate) fn note_fill(&mut self, shim: HostId, ticket: u64, fill: &Fill) {
        if let Some(stored) = self.stored.get(&(shim, ticket)) {
            self.read_from.insert((fill.session, fill.fill), *stored);
        }
    }

    /// When storage was read at the earliest for a fill that was asked for then.
    pub(crate) fn read_of(&mut self, fill: &Fill, asked: u64) -> u64 {
        let stored = self.read_from.remove(&(fill.session, fill.fill)).unwrap_or(asked);
        self.read_since(&fill.key, asked.max(stored), &fill.value)
    }

    pub(crate) fn note_execution(&mut self, connection: ConnectionId, outcome: &Outcome, now: u64) {
        if let (b"PTTL", Some(key)) = (outcome.command.name(), outcome.command.get(1)) {
            let reads = self.read.entry(key.to_vec()).or_default();
            self.reading.insert(connection, (key.to_vec(), reads.len()));
            reads.push(CopyRead { time: now, reply: None });
        } else if let Some((key, number)) = self.reading.remove(&connection) {
            self.read.entry(key).or_default()[number].reply = Some(outcome.reply.clone());
        }
    }

    /// The first time that storage was read for a copy of the key, since then, and answered so. Where no reply is the same in form,
    /// whatever it answered.
    fn read_since(&self, key: &Key, asked: u64, reply: &Bytes) -> u64 {
        let reads = self.read.get(&*key.bytes).map_or(&[][..], Vec::as_slice);
        let since = &reads[reads.partition_point(|read| read.time < asked)..];
        let same = since.iter().find(|read| read.reply.as_ref() == Some(reply));
        same.or(since.first()).map_or(asked, |read| read.time)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use protocol::storage::network::ConnectionId;
    use wire::message::Fill;
    use wire::resp::Command;
    use wire::{Degree, Digest, Key, LayerSet, Status, View};

    use super::Births;
    use crate::storage::Effect;
    use crate::storage::redis::Outcome;

    fn fill_of(key: &Key) -> Fill {
        Fill {
            session: 1,
            fill: 2,
            key: key.clone(),
            view: View::GET,
            version: 0,
            granted: true,
            status: Status::Ok,
            cached: LayerSet::default(),
            degree: Degree(0),
            ttl_ms: None,
            stale_ms: 0,
            value: Bytes::new(),
        }
    }

    /// Reads of others that were ahead of it in the queue found something else.
    #[test]
    fn a_copy_is_of_the_first_read_that_found_what_it_holds() {
        let mut births = Births::default();
        let mut run = |connection, words: &[&str], reply: &'static str, now| {
            let outcome = Outcome {
                command: Command::from_args(words),
                reply: Bytes::from_static(reply.as_bytes()),
                killed: Vec::new(),
                effect: Effect::Read,
                tracked: None,
            };
            births.note_execution(ConnectionId(connection), &outcome, now);
        };
        for (connection, value, at) in [(1, "old", 10), (2, "old", 20), (1, "new", 30), (2, "new", 40)] {
            run(connection, &["PTTL", "k"], ":-1", at);
            run(3, &["GET", "k"], "nobody asked for a copy", at);
            run(connection, &["GET", "k"], value, at + 1);
        }
        run(1, &["PTTL", "k"], ":-1", 50);
        let key = Key { digest: Digest(1), database: 0, bytes: Bytes::from_static(b"k") };
        // The shim has given it to storage between two others that found the same.
        births.note_stored(7, 0, 35);
        let fill = Fill { value: Bytes::from_static(b"new"), ..fill_of(&key) };
        births.note_fill(7, 0, &fill);
        let of_ticket = births.read_of(&fill, 15);
        let read = |asked, found: &'static str| {
            births.read_since(&key, asked, &Bytes::from_static(found.as_bytes()))
        };
        assert_eq!((read(15, "new"), read(15, "old"), read(35, "new"), of_ticket), (30, 20, 40, 40));
        assert_eq!((read(15, "another form"), read(60, "new")), (20, 60), "the earliest that it may be");
    }
}

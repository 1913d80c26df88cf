//! When copies were asked for and read, and which purges are under way. Not what follows from their age.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::shim::PurgeTarget;
use protocol::storage::network::ConnectionId;
use wire::{Key, View};

use crate::network::HostId;
use crate::storage::redis::Outcome;

/// When what nodes hold was asked for at the shims, and read in storage.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// By node, session and fill.
    pub(crate) asked: BTreeMap<(HostId, u64, u64), u64>,
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

    pub(crate) fn note_execution(&mut self, connection: ConnectionId, outcome: &Outcome, now: u64) {
        if let (b"PTTL", Some(key)) = (outcome.command.name(), outcome.command.get(1)) {
            let reads = self.read.entry(key.to_vec()).or_default();
            self.reading.insert(connection, (key.to_vec(), reads.len()));
            reads.push(CopyRead { time: now, reply: None });
        } else if let Some((key, number)) = self.reading.remove(&connection) {
            self.read.entry(key).or_default()[number].reply = Some(outcome.reply.clone());
        }
    }

    /// The first time that storage was read for a copy of the key, after this one was asked for, and answered so. Where no reply is
    /// the same in form, whatever it answered.
    pub(crate) fn read_since(&self, key: &Key, asked: u64, reply: &Bytes) -> u64 {
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
    use wire::resp::Command;
    use wire::{Digest, Key};

    use super::Births;
    use crate::storage::Effect;
    use crate::storage::redis::Outcome;

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
        let read = |asked, found: &'static str| {
            births.read_since(&key, asked, &Bytes::from_static(found.as_bytes()))
        };
        assert_eq!((read(15, "new"), read(15, "old"), read(35, "new")), (30, 20, 40));
        assert_eq!((read(15, "another form"), read(60, "new")), (20, 60), "the earliest that it may be");
    }
}

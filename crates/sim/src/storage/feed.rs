//! What a server reports of changes to connections that track, gathered as Redis does. Not what shims make of it.
//!
//! Redis gathers the keys that change during a turn of its loop and sends them at its end. What has arrived when the
//! turn begins is answered within it, before the report; what arrives later is answered in a later turn.

use std::collections::BTreeSet;

use bytes::Bytes;
use protocol::storage::{Lane, StorageEvent};
use wire::resp::{Command, reply};

use super::connection::{Connection, Output};
use super::data::Changes;
use crate::cluster::{Cluster, Event};
use crate::network::HostId;

/// A turn of a server's loop in which something has changed.
#[derive(Debug)]
pub(super) struct Turn {
    since: u64,
    ends: u64,
    changed: BTreeSet<Vec<u8>>,
}

fn push(keys: Option<&BTreeSet<Vec<u8>>>) -> Bytes {
    let mut out = Vec::new();
    reply::push_header(2, true, &mut out);
    reply::bulk(b"invalidate", &mut out);
    match keys {
        None => reply::null(true, &mut out),
        Some(keys) => {
            reply::array_header(keys.len(), &mut out);
            keys.iter().for_each(|key| reply::bulk(key, &mut out));
        }
    }
    Bytes::from(out)
}

impl Cluster {
    /// Connections of a server that track, with their slots.
    fn tracking(&mut self, server: usize) -> impl Iterator<Item = (HostId, &mut Connection)> {
        let first = self.slots_first + 2 * server;
        let backends = self.backends[2 * server..2 * server + 2].iter_mut().enumerate();
        backends.flat_map(move |(index, backend)| {
            let tracking = backend.connections.iter_mut().filter(|one| one.tracks);
            tracking.map(move |one| (first + index, one))
        })
    }

    /// Keys have changed at a server, whoever changed them.
    pub(super) fn report_changes(&mut self, server: usize, changes: Changes) {
        let now = self.now;
        let mut heard = false;
        for (_, connection) in self.tracking(server) {
            connection.unheard.push_back(now);
            heard = true;
        }
        if !heard {
            return;
        }
        if changes.all {
            // Told at once, whatever has been gathered.
            return self.send_report(server, &push(None));
        }
        if self.servers[server].turn.is_none() {
            let ends = now + self.storage_wait(server) / 2;
            self.servers[server].turn = Some(Turn { since: now, ends, changed: BTreeSet::new() });
            self.at(ends, Event::TurnEnds { server });
        }
        if let Some(turn) = &mut self.servers[server].turn {
            turn.changed.extend(changes.keys);
        }
    }

    pub(super) fn turn_ends(&mut self, server: usize) {
        if self.servers[server].paused_until > self.now {
            let due = self.servers[server].paused_until;
            if let Some(turn) = &mut self.servers[server].turn {
                turn.ends = due;
            }
            return self.at(due, Event::TurnEnds { server });
        }
        if let Some(turn) = self.servers[server].turn.take() {
            self.send_report(server, &push(Some(&turn.changed)));
        }
    }

    fn send_report(&mut self, server: usize, bytes: &Bytes) {
        let (now, wait) = (self.now, self.storage_wait(server));
        let mut due = Vec::new();
        for (slot, connection) in self.tracking(server) {
            connection.outputs.push_back(Output::Push { made: now, bytes: bytes.clone() });
            connection.answers_at = connection.answers_at.max(now + wait);
            due.push((connection.answers_at, slot, connection.number));
        }
        for (due, slot, connection) in due {
            let life = self.hosts[slot].life;
            self.at(due, Event::Answer { slot, life, connection });
        }
    }

    /// A command of a feed. `None`: it has arrived since the turn began, and waits for the next.
    pub(super) fn execute_on_feed(&mut self, slot: HostId, index: usize) -> Option<Bytes> {
        let server = self.server_of(slot);
        let connection = &self.backend(slot).connections[index];
        let (number, since, read_in) = (connection.number, connection.sent_at(), connection.read_in);
        if let Some(turn) = &self.servers[server].turn {
            // A connection is read once in a turn, with all that has come by then.
            let reading = (turn.since, self.now);
            if since > turn.since && read_in != Some(reading) {
                let due = turn.ends.max(self.now + 1);
                self.at(due, Event::Execute { slot, connection: number });
                return None;
            }
            self.backend(slot).connections[index].read_in = Some(reading);
        }
        let connection = &mut self.backend(slot).connections[index];
        let command = Command::parse(connection.head()?).expect("the shim sends whole commands");
        let mut out = Vec::new();
        if command.name() == b"PING" {
            reply::simple(b"PONG", &mut out);
        } else {
            connection.tracks = command.arg(2) == b"ON";
            connection.unheard.clear();
            reply::simple(b"OK", &mut out);
        }
        Some(Bytes::from(out))
    }

    /// A report reaches the shim. Until then it must not have claimed to know of what is in it.
    pub(super) fn hear(&mut self, slot: HostId, index: usize, made: u64, bytes: Bytes) {
        self.check_exported(slot);
        let connection = &mut self.backend(slot).connections[index];
        while connection.unheard.front().is_some_and(|changed| *changed <= made) {
            connection.unheard.pop_front();
        }
        self.watch.reports += 1;
        self.storage_says(slot, StorageEvent::Changed(bytes));
    }

    /// When the oldest change was made of which this shim's feed has not told it.
    pub(crate) fn oldest_unheard(&self, slot: HostId) -> Option<u64> {
        let backend = &self.backends[slot - self.slots_first];
        backend.connections.iter().find(|one| one.tracks)?.unheard.front().copied()
    }

    fn feed_of(&mut self, slot: HostId) -> Option<usize> {
        self.backend(slot).connections.iter().position(|one| one.lane == Lane::Feed)
    }

    pub(crate) fn lose_feed(&mut self, slot: HostId) -> bool {
        let Some(index) = self.feed_of(slot) else { return false };
        self.watch.feed_trouble = self.watch.feed_trouble.max(self.now);
        self.lose_connection(slot, index);
        true
    }

    /// Nothing comes over the feed until then, unless somebody loses patience before.
    pub(crate) fn hang_feed(&mut self, slot: HostId, until: u64) -> bool {
        let Some(index) = self.feed_of(slot) else { return false };
        self.watch.feed_trouble = self.watch.feed_trouble.max(until + self.shape.storage_timeout());
        let connection = &mut self.backend(slot).connections[index];
        connection.answers_at = connection.answers_at.max(until);
        true
    }
}

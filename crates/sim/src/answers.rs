//! What clients are told, and what they make of it. Not when they ask.

use bytes::Bytes;
use protocol::router::ClientId;
use wire::resp::Value;

use crate::cluster::Cluster;
use crate::commands::{self, CommandVerdict, StorageAnswers};
use crate::event::SimEvent;
use crate::history::OperationId;
use crate::network::HostId;
use crate::tracker::Tracker;

const NULL: &[u8] = b"$-1\r\n";

impl Cluster {
    fn index_of(&self, host: HostId, client: ClientId) -> usize {
        client.0 as usize * self.shape.routers + (host - self.routers_first)
    }

    pub(crate) fn answered(&mut self, host: HostId, client: ClientId, bytes: &Bytes) {
        let client = self.index_of(host, client);
        self.world.event(8, client);
        self.world.trace.bytes(bytes);
        let Some(asked) = self.clients[client].asked.pop_front() else {
            return self.world.fail(format!("client {client} was told {bytes:?}, which it had not asked"));
        };
        self.world.note(|| format!("client {client} is told {bytes:?} for {:?}", asked.operations));
        if asked.answers == StorageAnswers::Tracking {
            return self.tracking_answered(client, bytes);
        }
        let verdict = match commands::verdict(bytes) {
            Ok(verdict) => verdict,
            Err(failure) => return self.world.fail(failure),
        };
        self.watch.answered(&asked, &verdict, self.world.now());
        if verdict != CommandVerdict::Told {
            for operation in asked.operations {
                self.keep(client, operation, None, false);
                match verdict {
                    CommandVerdict::NoEffect if !asked.everywhere => self.history.void(operation),
                    _ => self.history.lost(operation),
                }
            }
            return;
        }
        if asked.answers == StorageAnswers::Nothing {
            return;
        }
        let replies = match self.replies(client, asked.answers, bytes) {
            Ok(replies) => replies,
            Err(failure) => return self.world.fail(failure),
        };
        for (index, operation) in asked.operations.iter().enumerate() {
            let place = if asked.answers == StorageAnswers::Elements { index } else { 0 };
            match replies.get(place) {
                Some(reply) => {
                    self.history.told(self.world.now(), *operation, reply.clone());
                    self.keep(client, *operation, Some(reply), asked.keeps);
                }
                None => self.world.fail(format!("client {client} was told too little: {bytes:?}")),
            }
        }
        if asked.answers == StorageAnswers::Null && replies[0] != NULL {
            self.world.fail(format!("a key that nobody writes is said to hold {bytes:?}"));
        }
    }

    /// The parts of a reply as RESP2 has them.
    pub(crate) fn replies(
        &self,
        client: usize,
        answers: StorageAnswers,
        bytes: &Bytes,
    ) -> Result<Vec<Vec<u8>>, String> {
        if answers != StorageAnswers::Elements && !self.clients[client].resp3 {
            return Ok(vec![bytes.to_vec()]);
        }
        let value =
            Value::parse(bytes).map_err(|error| format!("client {client} cannot read {bytes:?}: {error}"))?;
        let written = |value: &Value| {
            let mut out = Vec::new();
            value.write(false, &mut out);
            out
        };
        match answers {
            StorageAnswers::Elements => {
                let elements = value.elements().ok_or_else(|| format!("{bytes:?} is no array"))?;
                Ok(elements.iter().map(written).collect())
            }
            _ => Ok(vec![written(&value)]),
        }
    }

    fn tracking_answered(&mut self, client: usize, reply: &[u8]) {
        if let Some(tracker) = &mut self.clients[client].tracker {
            tracker.confirmed = reply == b"+OK\r\n";
        }
    }

    /// A reply to one operation; nothing, if it was an error.
    pub(crate) fn keep(&mut self, client: usize, operation: OperationId, reply: Option<&[u8]>, keeps: bool) {
        let what = &self.history.get(operation).what;
        let key = operation.key;
        let form = self.keys[key].reads.iter().position(|form| form.what == *what);
        let writes = !what.reads();
        let Some(tracker) = &mut self.clients[client].tracker else { return };
        if writes {
            // It knows what it has done itself.
            tracker.kept.retain(|(other, _), _| *other != key);
        } else if let (Some(form), Some(reply), true, true) = (form, reply, keeps, tracker.confirmed) {
            tracker.kept.insert((key, form), reply.to_vec());
            self.watch.kept += 1;
        }
    }

    pub(crate) fn pushed(&mut self, host: HostId, client: ClientId, bytes: &Bytes) {
        let client = self.index_of(host, client);
        self.world.event(11, client);
        self.world.trace.bytes(bytes);
        self.world.note(|| format!("client {client} hears {bytes:?}"));
        let names = match Value::parse(bytes) {
            Ok(Value::Push(values)) => match &values[..] {
                [Value::Bulk(word), Value::Null] if word.as_ref() == b"invalidate" => None,
                [Value::Bulk(word), Value::Array(keys)] if word.as_ref() == b"invalidate" => {
                    Some(keys.iter().filter_map(|key| key.bytes().cloned()).collect::<Vec<_>>())
                }
                _ => return self.world.fail(format!("client {client} was sent {bytes:?}")),
            },
            _ => return self.world.fail(format!("client {client} was sent {bytes:?}")),
        };
        self.watch.pushes += 1;
        let keys = &self.keys;
        let Some(tracker) = &mut self.clients[client].tracker else {
            return self.world.fail(format!("client {client} tracks nothing and hears {bytes:?}"));
        };
        let told = |key: usize| names.as_ref().is_none_or(|names| names.contains(&keys[key].key.bytes));
        tracker.kept.retain(|(key, _), _| !told(*key));
        let told = (0..keys.len()).find(|key| told(*key)).filter(|_| self.world.random.percent(50));
        if let Some(key) = told {
            let due = self.world.soon(self.shape.latency / 2);
            self.world.at(due, SimEvent::Refresh { client, key });
        }
    }

    /// The router's process is gone, and with it all that its clients waited for.
    pub(crate) fn disconnect_clients(&mut self, host: HostId) {
        for client in 0..self.clients.len() {
            if self.clients[client].router == host {
                self.disconnected(client);
            }
        }
    }

    pub(crate) fn disconnected(&mut self, client: usize) {
        let own = &mut self.clients[client];
        own.connected = false;
        own.connection += 1;
        own.tracker.iter_mut().for_each(Tracker::disconnected);
        for asked in std::mem::take(&mut own.asked) {
            for operation in asked.operations {
                self.history.lost(operation);
            }
        }
    }

    pub(crate) fn closed_by_router(&mut self, host: HostId, client: ClientId) {
        let client = self.index_of(host, client);
        self.world.fail(format!("client {client} was cut off"));
    }
}

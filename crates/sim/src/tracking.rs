//! Clients that keep what they read and are told of changes (CLIENT TRACKING): what they keep, and what makes them drop
//! it. They ask for nothing that they have.

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::router::ClientId;
use wire::resp::{Command, Value};

use crate::cluster::{Cluster, SimEvent};
use crate::commands::{DrawnCommand, StorageAnswers};
use crate::history::OperationId;
use crate::model::What;
use crate::network::HostId;
use crate::random::SimRandom;
use crate::shape::Shape;
use crate::storage::RECONNECT;

/// A client that does not hear of its own writes may miss others' that storage reports together with them, or takes for
/// them (decision 21): until this long after.
const OWN_WRITE_US: u64 = 10_000_000;

/// Until when half of the keys have come to rest.
const SETTLED_US: u64 = 30_000_000;

/// What a client wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackingChoice {
    /// What it reads.
    All,
    /// What it reads behind CLIENT CACHING YES.
    OptIn,
    /// What it reads, but not behind CLIENT CACHING NO.
    OptOut,
    /// All keys.
    Broadcast,
}

#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    choice: TrackingChoice,
    noloop: bool,
    /// On this connection.
    confirmed: bool,
    /// CLIENT CACHING was said, about the next command.
    said: bool,
    /// Replies as RESP2 has them, by key and form of reading.
    kept: BTreeMap<(usize, usize), Vec<u8>>,
    /// By key: when it was told of its last write.
    wrote: BTreeMap<usize, u64>,
}

impl Tracker {
    pub(crate) fn draw(random: &mut SimRandom) -> Tracker {
        let choice = random.pick(&[
            TrackingChoice::All,
            TrackingChoice::All,
            TrackingChoice::OptIn,
            TrackingChoice::OptOut,
            TrackingChoice::Broadcast,
        ]);
        let (kept, wrote) = (BTreeMap::new(), BTreeMap::new());
        Tracker { choice, noloop: random.percent(30), confirmed: false, said: false, kept, wrote }
    }

    /// Its connection is gone, and nobody will tell it of changes.
    pub(crate) fn disconnected(&mut self) {
        (self.confirmed, self.said) = (false, false);
        self.kept.clear();
        self.wrote.clear();
    }

    /// Whether the reply to the next command may be kept.
    fn keeps(&mut self) -> bool {
        let said = std::mem::take(&mut self.said);
        match self.choice {
            TrackingChoice::All | TrackingChoice::Broadcast => true,
            TrackingChoice::OptIn => said,
            TrackingChoice::OptOut => !said,
        }
    }

    fn command(&self) -> Command {
        let mut words = vec!["CLIENT", "TRACKING", "ON"];
        words.extend(match self.choice {
            TrackingChoice::All => None,
            TrackingChoice::OptIn => Some("OPTIN"),
            TrackingChoice::OptOut => Some("OPTOUT"),
            TrackingChoice::Broadcast => Some("BCAST"),
        });
        words.extend(self.noloop.then_some("NOLOOP"));
        Command::from_args(&words)
    }
}

/// Half of the keys come to rest, if clients keep what they read; what storage has of them expires all the same.
pub(crate) fn settled_at(shape: &Shape, keys: usize, random: &mut SimRandom) -> Vec<u64> {
    let mut at = |key: usize| match shape.trackers > 0 && key % 4 < 2 {
        true => random.below(SETTLED_US),
        false => u64::MAX,
    };
    (0..keys).map(&mut at).collect()
}

fn nothing(command: Command, answers: StorageAnswers) -> DrawnCommand {
    DrawnCommand { command, effects: Vec::new(), answers, blocks: false }
}

impl Cluster {
    /// A read in place of a command that writes what nobody writes any more.
    pub(crate) fn unless_settled(&mut self, wish: DrawnCommand) -> DrawnCommand {
        let settled = |(key, what): &&(usize, What)| !what.reads() && self.settled_at[*key] <= self.now;
        match wish.effects.iter().find(settled) {
            Some(&(key, _)) => self.read_of(key),
            None => wish,
        }
    }

    fn read_of(&mut self, key: usize) -> DrawnCommand {
        let form = &self.keys[key].reads[self.random.index(self.keys[key].reads.len())];
        let (command, effects) = (form.command.clone(), vec![(key, form.what.clone())]);
        DrawnCommand { command, effects, answers: StorageAnswers::All, blocks: false }
    }

    /// Reads again what has changed.
    pub(crate) fn refresh(&mut self, client: usize, key: usize) {
        let own = &self.clients[client];
        let ready = self.hosts[own.router].router().is_some_and(|router| router.ready(own.id()));
        if ready && !self.quiet && own.asked.is_empty() && self.connect(client) {
            let wish = self.read_of(key);
            self.begin_tracking(client);
            self.choose_tracking(client);
            self.ask(client, wish, &mut Vec::new());
        }
    }

    /// Says what it wants to be told of, unless that is settled.
    pub(crate) fn begin_tracking(&mut self, client: usize) {
        let Some(tracker) = &mut self.clients[client].tracker else { return };
        if !tracker.confirmed {
            tracker.said = false;
            let wish = nothing(tracker.command(), StorageAnswers::Tracking);
            self.ask(client, wish, &mut Vec::new());
        }
    }

    /// What precedes a command: whether its reply is to be kept.
    pub(crate) fn choose_tracking(&mut self, client: usize) {
        let Some(tracker) = &mut self.clients[client].tracker else { return };
        let (word, chance) = match tracker.choice {
            TrackingChoice::OptIn => ("YES", 60),
            TrackingChoice::OptOut => ("NO", 30),
            _ => return,
        };
        if !tracker.said && self.random.percent(chance) {
            tracker.said = true;
            let command = Command::from_args(&["CLIENT", "CACHING", word]);
            self.ask(client, nothing(command, StorageAnswers::Nothing), &mut Vec::new());
        }
    }

    /// Whether it has all that it would ask for.
    pub(crate) fn has_kept(&self, client: usize, wish: &DrawnCommand) -> bool {
        let Some(tracker) = &self.clients[client].tracker else { return false };
        let kept = |(key, what): &(usize, What)| {
            let form = self.keys[*key].reads.iter().position(|form| form.what == *what);
            form.is_some_and(|form| tracker.kept.contains_key(&(*key, form)))
        };
        !wish.effects.is_empty() && wish.effects.iter().all(kept)
    }

    pub(crate) fn asks_to_keep(&mut self, client: usize, answers: StorageAnswers) -> bool {
        let speaks = matches!(answers, StorageAnswers::All | StorageAnswers::Elements | StorageAnswers::Null);
        speaks && self.clients[client].tracker.as_mut().is_some_and(Tracker::keeps)
    }

    pub(crate) fn tracking_answered(&mut self, client: usize, reply: &[u8]) {
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
            tracker.wrote.insert(key, self.now);
            tracker.kept.retain(|(other, _), _| *other != key);
        } else if let (Some(form), Some(reply), true, true) = (form, reply, keeps, tracker.confirmed) {
            tracker.kept.insert((key, form), reply.to_vec());
            self.watch.kept += 1;
        }
    }

    pub(crate) fn pushed(&mut self, host: HostId, client: ClientId, bytes: &Bytes) {
        let client = self.index_of(host, client);
        self.trace.event(self.now, 11, client);
        self.trace.bytes(bytes);
        self.note(|| format!("client {client} hears {bytes:?}"));
        let names = match Value::parse(bytes) {
            Ok(Value::Push(values)) => match &values[..] {
                [Value::Bulk(word), Value::Null] if word.as_ref() == b"invalidate" => None,
                [Value::Bulk(word), Value::Array(keys)] if word.as_ref() == b"invalidate" => {
                    Some(keys.iter().filter_map(|key| key.bytes().cloned()).collect::<Vec<_>>())
                }
                _ => return self.fail(format!("client {client} was sent {bytes:?}")),
            },
            _ => return self.fail(format!("client {client} was sent {bytes:?}")),
        };
        self.watch.pushes += 1;
        let keys = &self.keys;
        let Some(tracker) = &mut self.clients[client].tracker else {
            return self.fail(format!("client {client} tracks nothing and hears {bytes:?}"));
        };
        let told = |key: usize| names.as_ref().is_none_or(|names| names.contains(&keys[key].key.bytes));
        tracker.kept.retain(|(key, _), _| !told(*key));
        let told = (0..keys.len()).find(|key| told(*key)).filter(|_| self.random.percent(50));
        if let Some(key) = told {
            let due = self.soon(self.shape.latency / 2);
            self.at(due, SimEvent::Refresh { client, key });
        }
    }

    /// Storage removes what has expired, whether or not anybody asks for it.
    pub(crate) fn sweep(&mut self) {
        for server in 0..self.servers.len() {
            if self.shape.has_feed() && self.servers[server].paused_until <= self.now {
                let now_ms = self.servers[server].now_ms(self.now);
                self.servers[server].data().sweep(now_ms);
                self.changed(server);
            }
        }
    }

    /// Nothing goes on any more: what clients keep is what storage holds.
    pub(crate) fn check_kept(&mut self) {
        self.check_kept_since(crate::checkers::INSPECT_US + self.slack());
    }

    /// Nothing has held reports up for a while: what had changed before has been told.
    pub(crate) fn check_kept_in_calm(&mut self) {
        let calm = self.slack() + self.shape.lease / 2 + RECONNECT;
        let disturbances = self.watch.disturbances.iter().map(|other| other.until);
        let trouble = disturbances.max().unwrap_or(0).max(self.watch.feed_trouble);
        if self.shape.trackers > 0 && trouble + calm < self.now {
            self.check_kept_since(crate::checkers::INSPECT_US + calm);
        }
    }

    fn check_kept_since(&mut self, age: u64) {
        let since = self.now.saturating_sub(age);
        let mut stale = None;
        for (index, client) in self.clients.iter().enumerate() {
            let Some(tracker) = &client.tracker else { continue };
            for ((key, form), reply) in &tracker.kept {
                if self.versions.explain(*key, *form, reply, since, self.now) {
                    continue;
                }
                let replaced = self.versions.replaced_at(*key, *form, reply).unwrap_or(0);
                let own = tracker.wrote.get(key).is_some_and(|wrote| wrote + OWN_WRITE_US > replaced);
                if tracker.noloop && own {
                    continue;
                }
                stale = Some(format!(
                    "client {index} ({:?}, noloop: {}) still keeps {} for {:?}, which was replaced at {replaced} us, \
                     and was not told",
                    tracker.choice,
                    tracker.noloop,
                    String::from_utf8_lossy(reply).replace("\r\n", " "),
                    self.keys[*key].reads[*form].command
                ));
            }
        }
        if let Some(stale) = stale {
            self.fail(stale);
        }
    }
}

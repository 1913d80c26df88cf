//! How old copies are: nothing is served that was purged, or for longer than rules and mode `bounded` allow.

use std::collections::BTreeMap;

use protocol::shim::PurgeTarget;
use wire::message::Fill;
use wire::resp::Command;
use wire::{Key, Message, Peer, View};

use crate::cluster::Cluster;
use crate::network::HostId;

/// When what nodes hold was asked for at the shims, and read in storage.
#[derive(Debug, Default)]
pub(crate) struct Births {
    /// By node, session and fill.
    asked: BTreeMap<(HostId, u64, u64), u64>,
    /// By key: when storage carried out the PTTL that every read for a copy begins with.
    read: BTreeMap<Vec<u8>, Vec<u64>>,
    born: BTreeMap<HeldCopy, Birth>,
    /// By number: since when, and what.
    pub(crate) purges: BTreeMap<u64, (u64, PurgeTarget)>,
    pub(crate) purged: u64,
}

/// A node, the digest of a key, and a view of it.
type HeldCopy = (HostId, u128, View);

/// Times in microseconds.
#[derive(Clone, Copy, Debug)]
struct Birth {
    version: u64,
    asked: u64,
    /// Not before this: of two reads for copies of one key the earlier one is taken for both.
    read: u64,
}

impl Births {
    /// A value that came with COMMIT stays where a FILL of the same version follows that was asked for before.
    fn bear(&mut self, held: HeldCopy, birth: Birth) {
        let born = self.born.entry(held).or_insert(birth);
        *born = match born.version == birth.version {
            true => Birth { asked: born.asked.max(birth.asked), read: born.read.max(birth.read), ..birth },
            false => birth,
        };
    }

    pub(crate) fn note_execution(&mut self, command: &Command, now: u64) {
        if let (b"PTTL", Some(key)) = (command.name(), command.get(1)) {
            self.read.entry(key.to_vec()).or_default().push(now);
        }
    }

    /// The first time that storage was read for a copy of the key, after this one was asked for.
    fn read_since(&self, key: &Key, asked: u64) -> u64 {
        let times = self.read.get(&*key.bytes).map_or(&[][..], Vec::as_slice);
        times.get(times.partition_point(|time| *time < asked)).copied().unwrap_or(asked)
    }
}

impl Cluster {
    pub(crate) fn note_birth(&mut self, to: HostId, from: Peer, message: &Message) {
        match (from, message) {
            (Peer::Node(node), Message::Fetch(fetch)) => {
                let asked = (usize::from(node.0), fetch.session, fetch.fill);
                self.births.asked.entry(asked).or_insert(self.now);
            }
            (Peer::Shim(_), Message::Fill(Fill { granted: true, session, fill, key, view, version, .. })) => {
                if let Some(asked) = self.births.asked.remove(&(to, *session, *fill)) {
                    let read = self.births.read_since(key, asked);
                    self.births.bear((to, key.digest.0, *view), Birth { version: *version, asked, read });
                }
            }
            (Peer::Shim(_), Message::Commit(commit)) => {
                let birth = Birth { version: commit.version, asked: self.now, read: self.now };
                self.births.bear((to, commit.key.digest.0, View::GET), birth);
            }
            _ => {}
        }
    }

    /// The births of the copies of a key that a node would serve now.
    fn servable_births(&self, host: HostId, key: usize) -> impl Iterator<Item = Birth> {
        let own = &self.hosts[host];
        let (key, now) = (&self.keys[key], own.clock.at(self.now));
        let node = own.node().filter(|_| !own.is_paused(self.now));
        let servable =
            move |view: &View| node.is_some_and(|node| node.servable(now, &key.key, *view).is_some());
        let views = key.reads.iter().flat_map(|form| form.views).filter(servable);
        views.filter_map(move |view| self.births.born.get(&(host, key.key.digest.0, view)).copied())
    }

    /// A shim says that a purge is done.
    pub(crate) fn check_purged(&mut self, slot: HostId, number: u64) {
        let Some((since, scope)) = self.births.purges.remove(&number) else {
            return self.fail(format!("purge {number}, which nobody asked for, is done"));
        };
        self.births.purged += 1;
        let named = |key: &Key| match &scope {
            PurgeTarget::Key(name) => key.bytes == *name,
            PurgeTarget::Prefix(prefix) => key.bytes.starts_with(prefix),
            PurgeTarget::All => true,
        };
        let server = self.server_of(slot);
        let here = |key: &Key| usize::from(self.placement.shim(key).0) == server;
        let mut left = None;
        for (index, key) in self.keys.iter().enumerate() {
            if !named(&key.key) || !here(&key.key) || self.servers[server].current != slot {
                continue;
            }
            let old = |host: &HostId| self.servable_births(*host, index).any(|birth| birth.read < since);
            if let Some(host) = self.nodes().find(old) {
                left = Some(format!(
                    "purge {number} of {scope:?} is done, and node {host} serves a copy of {:?} from before",
                    key.key.bytes
                ));
            }
        }
        if let Some(left) = left {
            self.fail(left);
        }
    }

    /// Nodes that have had the newest rules for a while hold what these allow, for as long as they do.
    pub(crate) fn check_rules(&mut self) {
        let settled = self.now.saturating_sub(self.shape.stall_max() * 2 + self.slack());
        let mut wrong = None;
        for host in self.nodes() {
            let (since, number) = self.hosts[host].reloaded;
            let ruled = number == self.rules.number && number > 0 && since < settled;
            for index in 0..self.keys.len() {
                let key = &self.keys[index].key;
                let Some(born) = self.servable_births(host, index).map(|birth| birth.asked).min() else {
                    continue;
                };
                let rule = if ruled { self.rules.policies.of(&key.bytes) } else { Default::default() };
                let age = self.shape.bounded.map_or(u64::MAX, |bounded| bounded.age.as_millis() as u64);
                let age = rule.ttl_ms_max.min(age);
                let old = (self.now - born) / 1000 > age.saturating_add(age / 100).saturating_add(1);
                if rule.is_never() || old {
                    wrong = Some(format!(
                        "node {host} serves {:?}, asked for {} us ago, and {rule:?} with an age of {age} ms holds \
                         since {since} us",
                        key.bytes,
                        self.now - born
                    ));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }
}

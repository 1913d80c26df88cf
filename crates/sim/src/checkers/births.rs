//! How old copies are: nothing is served that was purged, or for longer than rules and mode `bounded` allow.

use protocol::shim::PurgeTarget;
use wire::message::Fill;
use wire::{Key, Message, Peer, View};

use crate::cluster::Cluster;
use crate::network::HostId;
use crate::records::{Birth, HeldCopy};

impl Cluster {
    /// When a node asks for a copy; and the copy that a message brings to it, if it takes it.
    pub(crate) fn birth_of(
        &mut self,
        to: HostId,
        from: Peer,
        message: &Message,
    ) -> Option<(HeldCopy, Birth)> {
        let now = self.world.now();
        match (from, message) {
            (_, Message::Fetch(fetch)) => {
                let asked = (self.holder_host(from)?, fetch.session, fetch.fill);
                self.births.asked.entry(asked).or_insert(now);
                None
            }
            (Peer::Shim(_), Message::Fill(fill @ Fill { granted: true, .. })) => {
                let asked = self.births.asked.remove(&(to, fill.session, fill.fill))?;
                let read = self.births.read_of(fill, asked);
                Some(((to, fill.key.digest.0, fill.view), Birth { version: fill.version, asked, read }))
            }
            (Peer::Shim(_), Message::Commit(commit)) => {
                let birth = Birth { version: commit.version, asked: now, read: now };
                Some(((to, commit.key.digest.0, View::GET), birth))
            }
            _ => None,
        }
    }

    /// How many copies a node has taken: what it ignores, as it does a poisoned fill, is none.
    pub(crate) fn taken(&self, host: HostId) -> u64 {
        let statistics = self.hosts[host].holder().map(|node| node.statistics());
        statistics.map_or(0, |statistics| statistics.fills + statistics.commits)
    }

    /// The births of the copies of a key that a node would serve now.
    fn servable_births(&self, host: HostId, key: usize) -> impl Iterator<Item = Birth> {
        let own = &self.hosts[host];
        let (key, now) = (&self.keys[key], own.clock.at(self.world.now()));
        let node = own.holder().filter(|_| !own.is_paused(self.world.now()));
        let servable =
            move |view: &View| node.is_some_and(|node| node.servable(now, &key.key, *view).is_some());
        let views = key.reads.iter().flat_map(|form| form.views).filter(servable);
        views.filter_map(move |view| self.births.born.get(&(host, key.key.digest.0, view)).copied())
    }

    /// A shim says that a purge is done.
    pub(crate) fn check_purged(&mut self, slot: HostId, number: u64) {
        let Some((since, scope)) = self.births.purges.remove(&number) else {
            return self.world.fail(format!("purge {number}, which nobody asked for, is done"));
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
            if let Some(host) = self.holders().find(old) {
                left = Some(format!(
                    "purge {number} of {scope:?} is done, and node {host} serves a copy of {:?} from before",
                    key.key.bytes
                ));
            }
        }
        if let Some(left) = left {
            self.world.fail(left);
        }
    }

    /// Nodes that have had the newest rules for a while hold what these allow, for as long as they do.
    pub(crate) fn check_rules(&mut self) {
        let settled = self.world.now().saturating_sub(self.shape.stall_max() * 2 + self.slack());
        let mut wrong = None;
        for host in self.holders() {
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
                // Older ones answer when storage is gone.
                let age =
                    age.saturating_add(self.shape.staleness_max() / 1000 * u64::from(self.shape.stale > 0));
                let old = (self.world.now() - born) / 1000 > age.saturating_add(age / 100).saturating_add(1);
                if rule.is_never() || old {
                    wrong = Some(format!(
                        "node {host} serves {:?}, asked for {} us ago, and {rule:?} with an age of {age} ms holds \
                         since {since} us",
                        key.bytes,
                        self.world.now() - born
                    ));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.world.fail(wrong);
        }
    }
}

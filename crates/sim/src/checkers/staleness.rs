//! That nobody reads what was replaced for longer than was promised, and that no shim claims to know more than it does, or to have
//! seen others who were not there.

use std::collections::BTreeMap;

use bytes::Bytes;
use linearize::{HistoryOperation, HistoryOutcome};
use protocol::storage::network::ConnectionId;
use wire::Peer;
use wire::resp::Value;

use crate::cluster::Cluster;
use crate::network::HostId;

impl Cluster {
    /// Each read shows what storage held when it was asked for, or as long before as mode `bounded` allows; and nothing
    /// older than what the same client had written ahead of it, or anybody through DistCache before it was asked, unless storage
    /// allows no fence.
    pub(crate) fn check_reads(&mut self, key: usize) {
        let allowed = self.shape.staleness_max();
        let operations = &self.history.keys[key];
        // In the order of storage.
        let mut written: Vec<u64> = operations.iter().filter_map(|one| Some(one.executed?.0)).collect();
        written.sort_unstable();
        // When one of several that storage cannot tell apart was carried out is not known.
        let mut alike: BTreeMap<&Bytes, u32> = BTreeMap::new();
        operations.iter().filter_map(|one| one.frame.as_ref()).for_each(|frame| {
            *alike.entry(frame).or_default() += 1;
        });
        // A predecessor that nobody vouches for binds nobody: it may happen later than what follows it.
        let binds = |one: &&HistoryOperation| {
            let is_told_apart = one.frame.as_ref().is_some_and(|frame| alike[frame] == 1);
            is_told_apart && matches!(one.outcome, HistoryOutcome::Told(_))
        };
        let oldest = |read: &HistoryOperation| {
            let before = written.partition_point(|time| *time <= read.invoked);
            let known = before.checked_sub(1).map_or(0, |place| written[place]);
            let ahead = read.after.map(|place| &operations[place as usize]).filter(binds);
            let ahead = ahead.and_then(|write| write.executed);
            let bound = read.invoked.saturating_sub(allowed);
            // What comes late, or by another shim beside this one, is seen as others' writes are.
            if self.shape.is_unfenced() {
                return bound;
            }
            bound.max(known.min(read.invoked)).max(ahead.map_or(0, |(time, _)| time))
        };
        for read in operations.iter().filter(|one| one.what.reads()) {
            let HistoryOutcome::Told(told) = &read.outcome else { continue };
            let Some(form) = self.keys[key].reads.iter().position(|form| form.what == read.what) else {
                continue;
            };
            let from = oldest(read).min(self.known_lost(key, read.invoked));
            if !self.versions.explain(key, form, told, from, read.returned) {
                let text = String::from_utf8_lossy(told).replace("\r\n", " ");
                let name = &self.keys[key].key.bytes;
                return self.world.fail(format!(
                    "a read of {name:?} ({:?}), asked for at {} us and answered at {}, was told {text}, which storage \
                     did not hold since {from} us",
                    read.what, read.invoked, read.returned
                ));
            }
        }
    }

    /// When storage last held what copies may show at this time although it has lost it.
    pub(crate) fn known_lost(&self, key: usize, at: u64) -> u64 {
        let server = usize::from(self.placement.shim(&self.keys[key].key).0);
        let shown =
            self.servers[server].rollbacks.iter().filter(|(from, until)| (*from..=*until).contains(&at));
        let allowed = self.shape.staleness_max();
        shown.map(|(from, _)| (from - 1).saturating_sub(allowed)).min().unwrap_or(u64::MAX)
    }

    /// Whatever the node would serve now is what storage holds, or held less than the bound ago.
    pub(crate) fn check_fresh(&mut self, host: HostId, key: usize) {
        if self.hosts[host].is_paused(self.world.now()) {
            return;
        }
        let own = &self.hosts[host];
        let Some(node) = own.holder() else { return };
        let local = own.clock.at(self.world.now());
        let since = self.world.now().saturating_sub(self.shape.staleness_max());
        let since = since.min(self.known_lost(key, self.world.now()));
        let mut stale = None;
        for (index, form) in self.keys[key].reads.iter().enumerate() {
            for view in form.views {
                let Some(served) = node.servable(local, &self.keys[key].key, view) else { continue };
                let told = in_resp2(&served);
                if !self.versions.explain(key, index, &told, since, self.world.now()) {
                    let text = String::from_utf8_lossy(&told).replace("\r\n", " ");
                    stale = Some(format!(
                        "node {host} would answer {:?} with {text}, which storage did not hold since {since} us",
                        form.command
                    ));
                }
            }
        }
        if let Some(stale) = stale {
            self.world.fail(stale);
        }
    }

    /// The staleness that a shim exports is not less than the age of the oldest change that it has not heard of.
    pub(crate) fn check_exported(&mut self, slot: HostId) {
        let own = &self.hosts[slot];
        let (Some(shim), false) = (own.shim(), own.is_paused(self.world.now())) else { return };
        let feed = shim.feed(own.clock.at(self.world.now()));
        let Some(oldest) = self.oldest_unheard(slot).filter(|_| feed.open) else { return };
        let exported = feed.staleness.as_micros() as u64;
        let (exported, age) = (exported + exported / 100 + 1_000, self.world.now() - oldest);
        if exported < age {
            self.world.fail(format!(
                "shim {slot} says that all has been heard of that changed {exported} us ago, and a change of {age} us \
                 ago has not"
            ));
        }
    }

    /// No shim has noticed that others write if nobody does, and none takes its own connections for others'.
    pub(crate) fn check_alarms(&mut self) {
        let seen = self.watch.foreign_writes;
        if seen > 0 && !self.shape.has_outsiders() {
            self.world.fail(format!("{seen} writes are said to be others', and nobody else has written"));
        }
        let shims = self.hosts.iter().filter_map(|host| host.shim());
        let strangers = shims.flat_map(|shim| &shim.foreign_writers().connections).next().cloned();
        if let Some(stranger) = strangers {
            self.world
                .fail(format!("{stranger:?} is said to be a stranger's, and all connections are the shims'"));
        }
    }

    pub(crate) fn inspect_feeds(&mut self) {
        if !self.shape.has_outsiders() {
            return;
        }
        self.slots().for_each(|slot| self.check_exported(slot));
        for host in self.holders() {
            (0..self.keys.len()).for_each(|key| self.check_fresh(host, key));
        }
    }

    /// Whether a shim that must hear of changes does not.
    pub(crate) fn lacks_feed(&self, slot: HostId) -> bool {
        let own = &self.hosts[slot];
        let open = own.shim().is_some_and(|shim| shim.feed(own.clock.at(self.world.now())).open);
        self.shape.bounded.is_some() && matches!(own.role.peer(), Some(Peer::Shim(_))) && !open
    }

    pub(crate) fn feed_of(&self, slot: HostId) -> Option<ConnectionId> {
        let site = &self.servers[self.server_of(slot)].site;
        self.backends[slot - self.slots_first].links.all().find(|connection| site.is_told(*connection))
    }

    /// When the oldest change was made of which this shim's feed has not told it.
    fn oldest_unheard(&self, slot: HostId) -> Option<u64> {
        let connection = self.feed_of(slot)?;
        self.servers[self.server_of(slot)].site.oldest_unheard(connection)
    }
}

/// A cached reply as RESP2 has it; the null reply to GET is kept as nothing.
fn in_resp2(served: &Bytes) -> Vec<u8> {
    if served.is_empty() {
        return b"$-1\r\n".to_vec();
    }
    let mut out = Vec::new();
    match Value::parse(served) {
        Ok(value) => value.write(false, &mut out),
        Err(_) => out.extend_from_slice(served),
    }
    out
}

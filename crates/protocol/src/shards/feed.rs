//! What changes on the servers in use, and what of it was read, as the one feed of each kind that a shim asks for: it is open
//! while each of them reports, and silent only if all of them are. Not what follows from a change.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use wire::resp::{Command, reply};

use super::Shards;
use super::fan::Finish;
use super::step::ShardsStep;
use crate::placement::slot;
use crate::router::flow::gather::Merge;
use crate::router::words;
use crate::shim::changed_keys;
use crate::storage::{StorageEvent, Store};

/// The servers of a feed, if it is open or being opened.
#[derive(Default)]
pub(super) struct Reporters(Option<BTreeSet<SocketAddr>>);

impl Reporters {
    fn open(&mut self, members: &BTreeMap<SocketAddr, u64>) {
        self.0 = Some(members.keys().copied().collect());
    }

    fn close(&mut self) {
        self.0 = None;
    }

    fn servers(&self) -> Option<Vec<SocketAddr>> {
        Some(self.0.as_ref()?.iter().copied().collect())
    }

    fn has(&self, server: &SocketAddr) -> bool {
        self.0.as_ref().is_some_and(|servers| servers.contains(server))
    }

    /// Whether one of the members is not among them. Who is no member any more may be silent.
    fn lacks_any(&mut self, members: &BTreeMap<SocketAddr, u64>) -> bool {
        let Some(servers) = &mut self.0 else { return false };
        servers.retain(|server| members.contains_key(server));
        servers.len() < members.len()
    }
}

impl Shards {
    /// CLIENT TRACKING and PING go to every server in use; one that refuses or is lost speaks for all.
    pub(super) fn feed(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        let command = Command::parse(store.commands[0].clone()).ok();
        let says = |index, word| command.as_ref().is_some_and(|command| words::is(command, index, word));
        if says(2, "ON") {
            self.reporting.open(&self.members);
        }
        let Some(asked) = self.reporting.servers() else {
            let lost = StorageEvent::Lost { ticket: store.ticket, sent: false };
            return step.report(lost);
        };
        if says(2, "OFF") {
            self.reporting.close();
        }
        self.fan_out(step, store, &asked, Finish::Merge(Merge::First));
    }

    /// PING goes to every server in use; each reports what was read on the connections to it.
    pub(super) fn read_feed(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        if self.reporting_reads.servers().is_none() {
            self.reporting_reads.open(&self.members);
        }
        let asked = self.reporting_reads.servers().unwrap_or_default();
        self.fan_out(step, store, &asked, Finish::Merge(Merge::First));
    }

    /// A server that came into use reports nothing yet: the shim has to ask again.
    pub(super) fn check_feeds(&mut self, step: &mut ShardsStep<'_>) {
        if self.reporting.lacks_any(&self.members) {
            self.lose_feed(step);
        }
        if self.reporting_reads.lacks_any(&self.members) {
            self.lose_read_feed(step);
        }
    }

    pub(super) fn feed_down(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        if self.reporting.has(&server) {
            self.lose_feed(step);
        }
    }

    fn lose_feed(&mut self, step: &mut ShardsStep<'_>) {
        self.reporting.close();
        step.report(StorageEvent::FeedDown);
    }

    pub(super) fn read_feed_down(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        if self.reporting_reads.has(&server) {
            self.lose_read_feed(step);
        }
    }

    fn lose_read_feed(&mut self, step: &mut ShardsStep<'_>) {
        self.reporting_reads.close();
        step.report(StorageEvent::ReadFeedDown);
    }

    /// A key that goes to another server changes at this one. Whether its slot moves is asked at once, so that the shim knows
    /// before it hears what else it asks this server.
    pub(super) fn read_changed(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr, push: Bytes) {
        if !self.reporting_reads.has(&server) {
            return;
        }
        let settled = |key: &Bytes| !self.moving.contains_key(&slot::slot(key));
        if changed_keys(&push).flatten().is_some_and(|keys| keys.iter().any(settled)) {
            self.ask_view_anew(step, server);
        }
        step.report(StorageEvent::ReadChanged(push));
    }

    /// Keys of other shims' slots on the same server are left out: those shims hear of them, too.
    pub(super) fn changed(&self, step: &mut ShardsStep<'_>, server: SocketAddr, push: Bytes) {
        if !self.reporting.has(&server) {
            return;
        }
        let push = match changed_keys(&push) {
            Some(Some(keys)) if self.shared => {
                let own = |key: &Bytes| self.is_own(slot::slot(key));
                let keys: Vec<Bytes> = keys.into_iter().filter(own).collect();
                if keys.is_empty() {
                    return;
                }
                invalidate(&keys)
            }
            _ => push,
        };
        step.report(StorageEvent::Changed(push));
    }
}

fn invalidate(keys: &[Bytes]) -> Bytes {
    let mut out = b">2\r\n$10\r\ninvalidate\r\n".to_vec();
    reply::array_header(keys.len(), &mut out);
    keys.iter().for_each(|key| reply::bulk(key, &mut out));
    out.into()
}

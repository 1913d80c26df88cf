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
pub(super) struct Reporters {
    servers: Option<BTreeSet<SocketAddr>>,
    /// What the shim is told when one of them does not report any more.
    down: StorageEvent,
}

impl Reporters {
    pub(super) fn new(down: StorageEvent) -> Reporters {
        Reporters { servers: None, down }
    }

    fn open(&mut self, members: &BTreeMap<SocketAddr, u64>) {
        self.servers = Some(members.keys().copied().collect());
    }

    fn close(&mut self) {
        self.servers = None;
    }

    fn asked(&self) -> Option<Vec<SocketAddr>> {
        Some(self.servers.as_ref()?.iter().copied().collect())
    }

    fn has(&self, server: &SocketAddr) -> bool {
        self.servers.as_ref().is_some_and(|servers| servers.contains(server))
    }

    fn fail(&mut self, step: &mut ShardsStep<'_>) {
        self.close();
        step.report(self.down.clone());
    }

    /// A server has ceased to report.
    pub(super) fn lose(&mut self, step: &mut ShardsStep<'_>, server: &SocketAddr) {
        if self.has(server) {
            self.fail(step);
        }
    }

    /// A server that came into use reports nothing yet: the shim has to ask again. Who is not in use any more may be silent.
    fn check(&mut self, step: &mut ShardsStep<'_>, members: &BTreeMap<SocketAddr, u64>) {
        let Some(servers) = &mut self.servers else { return };
        servers.retain(|server| members.contains_key(server));
        if servers.len() < members.len() {
            self.fail(step);
        }
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
        let Some(asked) = self.reporting.asked() else {
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
        if self.reporting_reads.servers.is_none() {
            self.reporting_reads.open(&self.members);
        }
        let asked = self.reporting_reads.asked().unwrap_or_default();
        self.fan_out(step, store, &asked, Finish::Merge(Merge::First));
    }

    pub(super) fn check_feeds(&mut self, step: &mut ShardsStep<'_>) {
        self.reporting.check(step, &self.members);
        self.reporting_reads.check(step, &self.members);
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

/// A push of a feed that names these keys.
pub(crate) fn invalidate(keys: &[Bytes]) -> Bytes {
    let mut out = b">2\r\n$10\r\ninvalidate\r\n".to_vec();
    reply::array_header(keys.len(), &mut out);
    keys.iter().for_each(|key| reply::bulk(key, &mut out));
    out.into()
}

//! What changes on the servers in use, as the one feed that a shim asks for: it is open while each of them reports, and
//! silent only if all of them are. Not what follows from a change.

use core::net::SocketAddr;

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

impl Shards {
    /// CLIENT TRACKING and PING go to every server in use; one that refuses or is lost speaks for all.
    pub(super) fn feed(&mut self, step: &mut ShardsStep<'_>, store: Store) {
        let command = Command::parse(store.commands[0].clone()).ok();
        let says = |index, word| command.as_ref().is_some_and(|command| words::is(command, index, word));
        if says(2, "ON") {
            self.reporting = Some(self.members.keys().copied().collect());
        }
        let Some(reporting) = &self.reporting else {
            let lost = StorageEvent::Lost { ticket: store.ticket, sent: false };
            return step.report(lost);
        };
        let asked: Vec<SocketAddr> = reporting.iter().copied().collect();
        if says(2, "OFF") {
            self.reporting = None;
        }
        self.fan_out(step, store, &asked, Finish::Merge(Merge::First));
    }

    /// A server that came into use reports nothing yet: the shim has to ask again.
    pub(super) fn check_feed(&mut self, step: &mut ShardsStep<'_>) {
        let Some(reporting) = &mut self.reporting else { return };
        reporting.retain(|server| self.members.contains_key(server));
        if reporting.len() < self.members.len() {
            self.lose_feed(step);
        }
    }

    fn reports(&self, server: &SocketAddr) -> bool {
        self.reporting.as_ref().is_some_and(|reporting| reporting.contains(server))
    }

    pub(super) fn feed_down(&mut self, step: &mut ShardsStep<'_>, server: SocketAddr) {
        if self.reports(&server) {
            self.lose_feed(step);
        }
    }

    fn lose_feed(&mut self, step: &mut ShardsStep<'_>) {
        self.reporting = None;
        step.report(StorageEvent::FeedDown);
    }

    /// Keys of other shims' slots on the same server are left out: those shims hear of them, too.
    pub(super) fn changed(&self, step: &mut ShardsStep<'_>, server: SocketAddr, push: Bytes) {
        if !self.reports(&server) {
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

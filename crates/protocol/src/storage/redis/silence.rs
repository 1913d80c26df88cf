//! How long a server may be silent before it is taken for lost, and whose connections are closed then.

use super::Redis;
use super::line::Line;
use crate::storage::StorageEvent;
use crate::storage::network::{ConnectionId, Network};

/// Redis says that a script runs for too long after five seconds, which is also how long a silent server is waited for:
/// its word has to come first.
const SCRIPT_PATIENCE_US: u64 = 1_000_000;
/// How long a server may be silent that walks all its keys: KEYS on a hundred million takes as long on a slow machine.
const WALK_PATIENCE_US: u64 = 60_000_000;

impl Redis {
    /// How long the server may be silent.
    pub(super) fn patience_us(&self, now_us: u64) -> u64 {
        let timeout_us = self.settings.timeout.as_micros() as u64;
        let lines = || self.shared.iter().flatten().chain(&self.pinned).map(|(_, line)| line);
        let listeners = self.listeners.iter().filter_map(|listener| listener.line.as_ref());
        let silent = self.admin.overdue(now_us, timeout_us)
            || lines().chain(listeners.map(|(_, line)| line)).any(|line| line.overdue(now_us, timeout_us));
        match silent && lines().any(Line::walks) {
            true => timeout_us.max(WALK_PATIENCE_US),
            false => timeout_us,
        }
    }

    /// Closes the connections on which an answer is overdue.
    pub(super) fn close_silent(
        &mut self,
        network: &mut dyn Network,
        now_us: u64,
        timeout_us: u64,
        events: &mut Vec<StorageEvent>,
    ) {
        let listeners = self.listeners.iter().filter_map(|listener| listener.line.as_ref());
        let always = self.shared.iter().flatten().chain(listeners);
        // A script that runs for too long is told of only after a while of silence.
        let script = |(_, line): &&(ConnectionId, Line)| line.runs_scripts() && line.pending_count() > 0;
        let patience_us = if self.pinned.iter().any(|one| script(&one)) { SCRIPT_PATIENCE_US } else { 0 };
        let late_shared: Vec<ConnectionId> = always
            .filter(|(_, line)| line.overdue(now_us, timeout_us + patience_us))
            .map(|(connection, _)| *connection)
            .collect();
        // Blocking commands may take any time, and so may scripts while the server answers others; making their
        // connection may not, nor may what does neither.
        let late_pinned = self.pinned.iter().filter(|(_, line)| {
            let bounded = !line.is_open() || line.watch().is_some();
            let silent = line.runs_scripts() && !late_shared.is_empty();
            (bounded || silent) && line.overdue(now_us, timeout_us)
        });
        let late_pinned: Vec<ConnectionId> = late_pinned.map(|(connection, _)| *connection).collect();
        let late: Vec<ConnectionId> = late_shared.into_iter().chain(late_pinned).collect();
        for connection in late {
            self.closed(
                network,
                connection,
                now_us,
                &format!("no answer within {} ms", timeout_us / 1000),
                events,
            );
        }
    }
}

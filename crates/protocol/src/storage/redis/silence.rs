//! How long a server may be silent before it is taken for lost, and whose connections are closed then.

use std::time::Duration;

use super::Redis;
use super::line::Line;
use crate::storage::network::ConnectionId;
use crate::storage::step::StorageStep;
use crate::time::Time;

/// Redis says that a script runs for too long after five seconds, which is also how long a silent server is waited for:
/// its word has to come first.
const SCRIPT_PATIENCE: Duration = Duration::from_secs(1);
/// How long a server may be silent that walks all its keys: KEYS on a hundred million takes as long on a slow machine.
const WALK_PATIENCE: Duration = Duration::from_secs(60);

impl Redis {
    /// How long the server may be silent.
    pub(super) fn patience(&self, now: Time) -> Duration {
        let timeout = self.settings.timeout;
        let lines = || self.shared.iter().flatten().chain(&self.pinned).map(|(_, line)| line);
        let listeners = self.listeners.iter().filter_map(|listener| listener.line.as_ref());
        let silent = self.admin.overdue(now, timeout)
            || lines().chain(listeners.map(|(_, line)| line)).any(|line| line.overdue(now, timeout));
        match silent && lines().any(Line::walks) {
            true => timeout.max(WALK_PATIENCE),
            false => timeout,
        }
    }

    /// Closes the connections on which an answer is overdue.
    pub(super) fn close_silent(&mut self, step: &mut StorageStep<'_>, timeout: Duration) {
        let listeners = self.listeners.iter().filter_map(|listener| listener.line.as_ref());
        let always = self.shared.iter().flatten().chain(listeners);
        // A script that runs for too long is told of only after a while of silence.
        let script = |(_, line): &&(ConnectionId, Line)| line.runs_scripts() && line.pending_count() > 0;
        let runs_script = self.pinned.iter().any(|one| script(&one));
        let patience = if runs_script { SCRIPT_PATIENCE } else { Duration::ZERO };
        let late_shared: Vec<ConnectionId> = always
            .filter(|(_, line)| line.overdue(step.now, timeout.saturating_add(patience)))
            .map(|(connection, _)| *connection)
            .collect();
        // Blocking commands may take any time, and so may scripts while the server answers others; making their
        // connection may not, nor may what does neither.
        let late_pinned = self.pinned.iter().filter(|(_, line)| {
            let bounded = !line.is_open() || line.watch().is_some();
            let silent = line.runs_scripts() && !late_shared.is_empty();
            (bounded || silent) && line.overdue(step.now, timeout)
        });
        let late_pinned: Vec<ConnectionId> = late_pinned.map(|(connection, _)| *connection).collect();
        let late: Vec<ConnectionId> = late_shared.into_iter().chain(late_pinned).collect();
        for connection in late {
            self.closed(step, connection, &format!("no answer within {} ms", timeout.as_millis()));
        }
    }
}

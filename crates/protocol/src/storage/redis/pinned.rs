//! Connections of their own: for what blocks, for scripts, for clients that watch keys. Not the shared ones.

use super::line::Line;
use super::{IDLE_MAX, Redis};
use crate::storage::network::ConnectionId;
use crate::storage::step::StorageStep;

impl Redis {
    /// An idle pinned connection, or a new one while there may be more.
    pub(super) fn pinned_line(
        &mut self,
        step: &mut StorageStep<'_>,
        resp3: bool,
    ) -> Option<&mut (ConnectionId, Line)> {
        let idle = |(_, line): &(ConnectionId, Line)| line.is_idle() && line.is_resp3() == resp3;
        if let Some(index) = self.pinned.iter().position(idle) {
            return self.pinned.get_mut(index);
        }
        if self.pinned.len() >= self.settings.pinned_max + IDLE_MAX {
            return None;
        }
        let incarnation = self.admin.takeover.incarnation()?;
        let connection = step.network.dial(self.settings.endpoint, true);
        self.pinned.push((connection, Line::new(step.now, resp3, incarnation, step.network.out(connection))));
        self.pinned.last_mut()
    }

    /// The connection for scripts, made for the first of them.
    pub(super) fn scripts_line(
        &mut self,
        step: &mut StorageStep<'_>,
        resp3: bool,
    ) -> Option<&mut (ConnectionId, Line)> {
        let known = self.pinned.iter().position(|(_, line)| line.runs_scripts() && line.is_resp3() == resp3);
        if let Some(index) = known {
            return self.pinned.get_mut(index);
        }
        let incarnation = self.admin.takeover.incarnation()?;
        let connection = step.network.dial(self.settings.endpoint, true);
        let mut line = Line::new(step.now, resp3, incarnation, step.network.out(connection));
        line.set_runs_scripts();
        self.pinned.push((connection, line));
        self.pinned.last_mut()
    }

    /// The connection that watches under this number: a new one for a new number, and never another later.
    pub(super) fn watching_line(
        &mut self,
        step: &mut StorageStep<'_>,
        number: u64,
        resp3: bool,
    ) -> Option<&mut (ConnectionId, Line)> {
        if number > self.watches {
            self.watches = number;
            self.pinned_line(step, resp3)?.1.set_watch(Some(number));
        }
        self.pinned.iter_mut().find(|(_, line)| line.watch() == Some(number))
    }

    pub(super) fn trim_idle(&mut self, step: &mut StorageStep<'_>) {
        self.pinned.retain(|(connection, line)| {
            let done = line.is_retired() && line.pending_count() == 0;
            if done {
                step.network.close(*connection);
            }
            !done
        });
        if self.pinned.len() <= IDLE_MAX {
            return;
        }
        let mut idle = 0;
        self.pinned.retain(|(connection, line)| {
            idle += usize::from(line.is_idle());
            let keep = !line.is_idle() || idle <= IDLE_MAX;
            if !keep {
                step.network.close(*connection);
            }
            keep
        });
    }
}

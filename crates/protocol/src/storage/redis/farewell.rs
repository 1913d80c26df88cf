//! How an incarnation gives its server up: in order, for another process, or because its user was taken away. Not who has it next.

use super::Redis;
use crate::storage::StorageEvent;
use crate::storage::step::StorageStep;

impl Redis {
    /// Takes this incarnation's user away, which no lease is of any more.
    pub(super) fn hand_over(&mut self, step: &mut StorageStep<'_>) {
        if !self.admin.hand_over(step.network, step.now) {
            self.handed_over(step);
        }
    }

    /// One that others stand by for may be the shim again.
    pub(super) fn handed_over(&mut self, step: &mut StorageStep<'_>) {
        step.events.push(StorageEvent::Left);
        self.renounce(step);
        if self.settings.standby.is_some() {
            self.admin.stay_away(step.now);
            self.health.handed_over(step.events);
        }
    }

    /// The user of this incarnation is gone, or is to be taken away by whoever comes next.
    pub(super) fn renounce(&mut self, step: &mut StorageStep<'_>) {
        self.admin.takeover.renounce();
        self.admin.rest(step.now);
        self.close_lines(step);
    }

    /// Takes this incarnation's user away and closes everything.
    pub(super) fn leave(&mut self, step: &mut StorageStep<'_>) {
        self.close_lines(step);
        self.admin.leave(step.network, step.now);
    }
}

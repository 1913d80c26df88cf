//! One step of the shards: when it is taken and what it does. Not what it decides.

use super::Effect;
use crate::storage::StorageEvent;
use crate::time::Time;

#[derive(Debug)]
pub(super) struct ShardsStep<'a> {
    pub(super) now: Time,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl ShardsStep<'_> {
    /// Tells the shim's machine.
    pub(super) fn report(&mut self, event: StorageEvent) {
        self.effects.push(Effect::Report(event));
    }
}

//! Storage that evicts is told that cached keys are in use, because hits never reach it. What it has evicted all the same is a
//! key that has left storage.

use std::time::Duration;

use smallvec::SmallVec;

use super::step::ShimStep;
use super::{Purpose, Shim};
use crate::placement::Custody;
use crate::storage::Lane;

/// How often storage is told that the cached keys are in use (design, section 6: storage that evicts).
const TOUCH_INTERVAL: Duration = Duration::from_secs(10);

impl Shim {
    /// Storage is told that cached keys are in use, a few keys per tick, and fewer while it has too much to do.
    pub(super) fn touch(&mut self, step: &mut ShimStep<'_>) {
        const KEYS_PER_TICK: usize = 32;
        const PAUSE: Duration = Duration::from_millis(50);
        if self.touching.is_empty() && step.now.since(self.touched) >= TOUCH_INTERVAL {
            self.touched = step.now;
            let cached = self.keys.iter().filter(|(_, state)| !state.directory.entries.is_empty());
            self.touching.extend(cached.map(|(key, _)| key.clone()));
        }
        let keys_count = match self.storage_limit.is_limited() {
            true if step.now.since(self.touch_last) < PAUSE => 0,
            true => 1,
            false => KEYS_PER_TICK,
        };
        for _ in 0..keys_count {
            let Some(key) = self.touching.pop() else { break };
            // It may have become another shim's since.
            if self.placement.custody(self.config.id, &key) != Custody::Own {
                continue;
            }
            self.touch_last = step.now;
            let command = self.frame(b"*2\r\n$5\r\nTOUCH\r\n", &key.bytes);
            let (reach, lane) = (self.reach(&key), Lane::Shared { resp3: false });
            let purpose = Purpose::Touch { key };
            self.store(step, purpose, lane, reach, SmallVec::from_elem(command, 1));
        }
    }
}

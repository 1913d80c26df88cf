//! What may change in a node while it serves, and what that does to what it holds. Not where settings come from.

use wire::Key;

use super::{Admission, Effect, HeatConfig, HeavyHitters, Node};
use crate::policy::Policies;
use crate::requests::RequestLimits;
use crate::time::Time;
use rand::RngExt;

/// All of a node's settings that can change while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub objects_max: usize,
    pub bytes_max: u64,
    /// Larger replies pass by uncached.
    pub value_bytes_max: usize,
    pub views_max: usize,
    pub forwarded_max: usize,
    pub requests: RequestLimits,
    pub heat: HeatConfig,
    pub admission: Admission,
    pub policies: Policies,
    /// Nothing is cached.
    pub observes: bool,
}

impl Node {
    /// Acts on `settings` from now on: what they do not allow any more goes, unless its fill is under way, which
    /// removes it when it arrives.
    pub(super) fn adopt(&mut self, now: Time, settings: Settings, effects: &mut Vec<Effect>) {
        let Settings { objects_max, bytes_max, value_bytes_max, views_max, forwarded_max, .. } = settings;
        (self.config.objects_max, self.config.bytes_max) = (objects_max, bytes_max);
        self.config.value_bytes_max = value_bytes_max;
        (self.config.views_max, self.config.forwarded_max) = (views_max, forwarded_max);
        self.limit(settings.requests);
        self.config.admission = settings.admission;
        if settings.observes && !self.observes {
            self.drop_everything(effects);
        }
        self.observes = settings.observes;
        self.agent.set_limits(objects_max, bytes_max, settings.admission);
        if self.config.heat != settings.heat {
            self.config.heat = settings.heat;
            self.heat = HeavyHitters::new(settings.heat, self.random.random());
        }
        let earlier = std::mem::replace(&mut self.policies, settings.policies);
        let outlawed = |key: &Key| self.policies.outlaws(&earlier, &key.bytes);
        let idle = self.objects.iter().filter(|(_, object)| object.fetching.is_empty());
        let mut leaving: Vec<Key> = idle.map(|(key, _)| key).filter(|key| outlawed(key)).cloned().collect();
        leaving.sort_unstable_by_key(|key| key.digest);
        for key in leaving {
            self.evict(&key, effects);
        }
        while self.agent.is_over(self.objects.len(), self.bytes) {
            let coldest = self.agent.coldest_sixteenth(&self.objects);
            if coldest.is_empty() {
                break;
            }
            for key in coldest {
                if self.agent.is_over(self.objects.len(), self.bytes) {
                    self.evict(&key, effects);
                }
            }
        }
        self.agent.rank(now, &self.objects);
    }
}

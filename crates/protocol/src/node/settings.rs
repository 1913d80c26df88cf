//! What may change in a node while it serves, and what that does to what it holds. Not where settings come from.

use std::time::Duration;

use wire::Key;

use super::object::Object;
use super::step::NodeStep;
use super::{Admission, HeatConfig, HeavyHitters, Node};
use crate::policy::Policies;
use crate::requests::RequestLimits;
use rand::RngExt;

/// All of a node's settings that can change while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    pub objects_max: usize,
    pub bytes_max: u64,
    /// Larger replies pass by uncached.
    pub value_bytes_max: usize,
    /// Views that one key may have cached (design, section 5: at most 64).
    pub views_max: usize,
    /// Reads passed on to shims and not yet answered; beyond it readers are told to try elsewhere.
    pub forwarded_max: usize,
    /// Reads that it begins.
    pub requests: RequestLimits,
    pub heat: HeatConfig,
    pub admission: Admission,
    pub policies: Policies,
    /// Nothing is cached.
    pub observes: bool,
}

impl Default for NodeSettings {
    fn default() -> NodeSettings {
        NodeSettings {
            objects_max: 10_000,
            bytes_max: 64 << 20,
            value_bytes_max: 1 << 20,
            views_max: 64,
            forwarded_max: 1 << 16,
            requests: RequestLimits::default(),
            heat: HeatConfig::default(),
            admission: Admission {
                heat_min: 2,
                hysteresis: 250,
                hold_off: Duration::from_secs(5),
                hits_min: 1,
            },
            policies: Policies::default(),
            observes: false,
        }
    }
}

impl Node {
    fn is_over(&self) -> bool {
        self.agent.is_over(self.objects.len(), self.objects.bytes())
    }

    /// Acts on `settings` from now on: what they do not allow any more goes, unless its fill is under way, which
    /// removes it when it arrives.
    pub(super) fn adopt(&mut self, step: &mut NodeStep<'_>, settings: NodeSettings) {
        self.limit(settings.requests);
        if settings.observes && !self.config.settings.observes {
            self.drop_everything(step);
        }
        self.agent.set_limits(settings.objects_max, settings.bytes_max, settings.admission);
        if self.config.settings.heat != settings.heat {
            self.heat = HeavyHitters::new(settings.heat, self.random.random());
        }
        let earlier = std::mem::replace(&mut self.config.settings, settings).policies;
        let policies = &self.config.settings.policies;
        let outlawed = |object: &&Object| policies.outlaws(&earlier, object.key_bytes());
        let idle = self.objects.iter().filter(|object| object.is_idle());
        let mut leaving: Vec<Key> = idle.filter(outlawed).map(Object::key).collect();
        leaving.sort_unstable_by_key(|key| key.digest);
        for key in leaving {
            self.evict(step, &key);
        }
        while self.is_over() {
            let coldest = self.agent.coldest_sixteenth(&self.objects);
            if coldest.is_empty() {
                break;
            }
            for key in coldest {
                if self.is_over() {
                    self.evict(step, &key);
                }
            }
        }
        for object in self.objects.iter() {
            self.agent.rank(object);
        }
        self.agent.end_slice();
        self.agent.end_pass();
        self.objects.begin_pass();
    }
}

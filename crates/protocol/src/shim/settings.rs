//! What may change in a shim while it serves, and what that does to copies. Not where settings come from.

use super::purge::Requester;
use super::{Effect, HeatConfig, HeavyHitters, Shim};
use crate::policy::Policies;
use crate::requests::RequestLimits;
use crate::time::Time;
use rand::RngExt;

/// All of a shim's settings that can change while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub heat: HeatConfig,
    pub heat_min: u32,
    pub operations_max: usize,
    pub key_queue_max: usize,
    pub requests: RequestLimits,
    pub policies: Policies,
    /// How many keys nodes would hold of this shim's, if nothing is to be cached but only observed.
    pub observes: Option<usize>,
}

impl Shim {
    /// Acts on `settings` from now on. Copies that the new policies would not have allowed are invalidated.
    pub(super) fn set(&mut self, now: Time, settings: Settings, effects: &mut Vec<Effect>) {
        let Settings { heat, heat_min, operations_max, key_queue_max, requests, policies, observes } =
            settings;
        self.limit(requests);
        self.observe(now, observes, effects);
        if self.config.heat != heat {
            self.config.heat = heat;
            self.heat = HeavyHitters::new(heat, self.random.random());
        }
        // Nodes say in their next RENEW what they ask of a key themselves.
        let lowest = self.config.heat_min;
        for link in self.links.iter_mut().filter(|link| link.heat_floor == lowest) {
            link.heat_floor = heat_min;
        }
        self.config.heat_min = heat_min;
        (self.config.operations_max, self.config.key_queue_max) = (operations_max, key_queue_max);
        let earlier = std::mem::replace(&mut self.policies, policies);
        if earlier != self.policies {
            let policies = self.policies.clone();
            self.purge_where(now, Requester::Nobody, |key| policies.outlaws(&earlier, &key.bytes), effects);
        }
    }
}

//! What may change in a shim while it serves, and what that does to copies. Not where settings come from.

use super::purge::Requester;
use super::step::ShimStep;
use super::{ForeignWritePolicy, HeatConfig, HeavyHitters, Shim};
use crate::policy::Policies;
use crate::requests::RequestLimits;
use rand::RngExt;

/// All of a shim's settings that can change while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimSettings {
    pub heat: HeatConfig,
    /// Requests per second below which no key is offered to nodes.
    pub heat_min: u32,
    /// Commands queued or at storage; beyond it clients get `-BUSY`.
    pub operations_max: usize,
    /// Commands queued for one key.
    pub key_queue_max: usize,
    pub requests: RequestLimits,
    pub policies: Policies,
    /// How many keys nodes would hold of this shim's, if nothing is to be cached but only observed.
    pub observes: Option<usize>,
    /// The most copies of a key, however hot it is; 0 is no limit but the nodes, and no key has fewer places than one in each layer.
    pub copies_max: usize,
    /// What follows if others write to storage, although only DistCache is to.
    pub foreign_writes: ForeignWritePolicy,
}

impl Default for ShimSettings {
    fn default() -> ShimSettings {
        ShimSettings {
            heat: HeatConfig::default(),
            heat_min: 2,
            operations_max: 1 << 16,
            key_queue_max: 1 << 12,
            requests: RequestLimits::default(),
            policies: Policies::default(),
            observes: None,
            copies_max: 0,
            foreign_writes: ForeignWritePolicy::default(),
        }
    }
}

impl Shim {
    /// Acts on `settings` from now on. Copies that the new policies would not have allowed are invalidated.
    pub(super) fn set(&mut self, step: &mut ShimStep<'_>, settings: ShimSettings) {
        self.limit(settings.requests);
        self.observe(step, settings.observes);
        self.elastic.set_copies_max(settings.copies_max);
        let earlier = std::mem::replace(&mut self.config.settings, settings);
        let ShimSettings { heat, heat_min, policies, .. } = &self.config.settings;
        if earlier.heat != *heat {
            self.heat = HeavyHitters::new(*heat, self.random.random());
        }
        // Nodes say in their next RENEW what they ask of a key themselves.
        for link in self.holders.nodes_mut().iter_mut().filter(|link| link.heat_floor == earlier.heat_min) {
            link.heat_floor = *heat_min;
        }
        if earlier.policies != *policies {
            let (earlier, policies) = (earlier.policies, policies.clone());
            self.purge_where(step, Requester::Nobody, |key| policies.outlaws(&earlier, &key.bytes));
        }
    }
}

//! What machines are told of a configuration, at their start and while they serve. Not what they make of it.

use protocol::node::NodeSettings;
use protocol::placement::{self, MapError, Placement};
use protocol::requests::{Overload, RequestLimits};
use protocol::router::{NearSettings, RouterSettings, SlowLogSettings};
use protocol::shim::{ForeignWritePolicy, ShimSettings};
use wire::{ClusterMap, NodeId, ShimId};

use super::{Config, ForeignWriters, LayerConfig};

/// Replies larger than this pass a node by uncached, whatever it could hold.
const VALUE_BYTES_MAX: u64 = 1 << 20;
/// Requests that routers may have under way at one node. More keeps no node busier, and makes replies queue at the router in
/// front of those of others.
const WINDOW_MAX: usize = 256;

/// A key that is written too often stays out of routers for so many times as long as out of nodes.
const NEAR_HOLD_OFFS: u32 = 6;

impl Config {
    /// Where keys are by `map`, in the cluster of this configuration.
    ///
    /// # Errors
    /// A map that no check of a configuration should have let through.
    pub fn placement(&self, map: ClusterMap) -> Result<Placement, MapError> {
        Placement::new(placement::Secret(self.secret().0), map)
    }

    /// All that may change in the node while it serves.
    pub fn node_settings(&self, id: NodeId) -> NodeSettings {
        let member = self.node(id);
        let bytes_max = member.bytes_max.0;
        let mut settings = NodeSettings {
            objects_max: member.objects_max,
            bytes_max,
            value_bytes_max: VALUE_BYTES_MAX.min(bytes_max / 4) as usize,
            requests: self.request_limits(member.rate_max),
            heat: self.heat.sketch(),
            admission: self.heat.admission(),
            policies: self.rules(),
            observes: self.cluster.observe_only,
            ..NodeSettings::default()
        };
        self.limits.set_node(&mut settings);
        // All nodes together may have half of the room at a shim: what they pass on to it waits there.
        let at_shims = self.limits.shim_queue_max / 2 / self.nodes.len().max(1);
        let window_max = WINDOW_MAX.min(self.limits.node_queue_max).min(at_shims);
        settings.requests.window_max = u32::try_from(window_max).unwrap_or(u32::MAX);
        settings
    }

    /// All that may change in the shim while it serves.
    pub fn shim_settings(&self, id: ShimId) -> ShimSettings {
        let mut settings = ShimSettings {
            heat: self.heat.sketch(),
            heat_min: self.heat.threshold,
            requests: self.request_limits(self.shim(id).rate_max),
            policies: self.rules(),
            observes: self.cluster.observe_only.then(|| self.room()),
            foreign_writes: match self.security.foreign_writers {
                ForeignWriters::Warn => ForeignWritePolicy::Warn,
                ForeignWriters::Refuse => ForeignWritePolicy::Refuse,
            },
            ..ShimSettings::default()
        };
        self.limits.set_shim(&mut settings);
        settings
    }

    /// All that may change in a router while it serves, but for the time at which its clock was zero.
    pub fn router_settings(&self) -> RouterSettings {
        let mut settings = RouterSettings {
            slow_log: SlowLogSettings {
                slower_than_us: self.slowlog.slower_than_us,
                entries_max: self.slowlog.entries_max,
                hides_arguments: self.security.hide_keys,
                ..SlowLogSettings::default()
            },
            spans_one_in: self.tracing.one_in(),
            near: self.near_settings(),
            ..RouterSettings::default()
        };
        self.limits.set_router(&mut settings);
        if let Some(queue_max) = self.queue_max() {
            settings.queue_max = queue_max;
        }
        settings
    }

    fn near_settings(&self) -> NearSettings {
        NearSettings {
            objects_max: self.near.objects_max,
            heat_min: self.near.heat_min,
            hits_min: self.near.hits_min,
            // What a node may hold again soon, many routers would ask for.
            hold_off: self.heat.admission().hold_off * NEAR_HOLD_OFFS,
            policies: self.rules(),
            observes: self.cluster.observe_only,
        }
    }

    fn request_limits(&self, rate_max: u64) -> RequestLimits {
        let overload = match self.queue_max() {
            Some(patience) => Overload::Wait { patience },
            None => Overload::Refuse,
        };
        RequestLimits { rate_max, overload, ..RequestLimits::default() }
    }

    /// How many keys of one shim find room in the nodes: each key has its place in every layer, so the largest layer counts.
    fn room(&self) -> usize {
        let room = |layer: &LayerConfig| {
            let nodes = self.nodes.iter().filter(|node| node.layer == layer.name);
            nodes.map(|node| node.objects_max).sum::<usize>()
        };
        self.layers.iter().map(room).max().unwrap_or(0) / self.shims.len().max(1)
    }
}

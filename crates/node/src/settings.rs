//! What the configuration says of a node that can change while it serves. Not what the machine makes of it.

use std::time::Duration;

use bytes::Bytes;
use config::{Caching, Config, PolicyConfig};
use protocol::heat::HeatConfig;
use protocol::node::{Admission, Settings};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::requests::{Overload, RequestLimits};
use wire::NodeId;

/// Replies larger than this pass by uncached, whatever the node could hold.
const VALUE_BYTES_MAX: u64 = 1 << 20;

pub(crate) fn settings(config: &Config, node: NodeId) -> Settings {
    let (member, heat) = (config.node(node), &config.heat);
    Settings {
        objects_max: member.objects_max,
        bytes_max: member.bytes_max.0,
        value_bytes_max: VALUE_BYTES_MAX.min(member.bytes_max.0 / 4) as usize,
        views_max: config.limits.views_max,
        forwarded_max: config.limits.node_queue_max,
        requests: requests(config, node),
        heat: HeatConfig {
            rows: heat.rows,
            counters: heat.counters,
            filter_rows: heat.filter_rows,
            filter_bits: heat.filter_bits,
            window: heat.window(),
        },
        admission: Admission {
            heat_min: heat.threshold,
            hysteresis: ((heat.hysteresis - 1.0).max(0.0) * 1000.0) as u32,
            hold_off: heat.hold_off().max(Duration::from_millis(1)),
        },
        policies: Policies::new(config.policies.iter().map(policy).collect()),
        observes: config.cluster.observe_only,
    }
}

/// Requests that routers may have under way at one node. More keeps no node busier, and makes replies queue at the router in
/// front of those of others.
const WINDOW_MAX: usize = 256;

/// All nodes together may have half of the room at a shim: what they pass on to it waits there.
fn requests(config: &Config, node: NodeId) -> RequestLimits {
    let limits = &config.limits;
    let at_shims = limits.shim_queue_max / 2 / config.nodes.len().max(1);
    let window_max = u32::try_from(WINDOW_MAX.min(limits.node_queue_max).min(at_shims)).unwrap_or(u32::MAX);
    let rate_max = config.node(node).rate_max;
    let overload = match config.queue_max() {
        Some(patience) => Overload::Wait { patience },
        None => Overload::Refuse,
    };
    RequestLimits { rate_max, queue_max: limits.node_queue_max, window_max, overload }
}

fn policy(policy: &PolicyConfig) -> (Bytes, Rule) {
    let cache = match policy.cache {
        Caching::Never => Eligibility::Never,
        Caching::Always => Eligibility::Always,
        Caching::Heat => Eligibility::Heat,
    };
    let rule = Rule {
        cache,
        ttl_ms_max: policy.ttl_ms_max.unwrap_or(u64::MAX),
        value_bytes_max: policy.value_bytes_max.map_or(usize::MAX, |bytes| bytes.0 as usize),
    };
    (Bytes::from(policy.prefix_bytes()), rule)
}

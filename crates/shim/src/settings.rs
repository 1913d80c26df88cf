//! What the configuration says of a shim that can change while it serves. Not what the machine makes of it.

use bytes::Bytes;
use config::{Caching, Config, LayerConfig, PolicyConfig};
use protocol::heat::HeatConfig;
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::requests::{Overload, RequestLimits};
use protocol::shim::Settings;
use wire::ShimId;

pub(crate) fn settings(config: &Config, shim: ShimId) -> Settings {
    let (heat, limits) = (&config.heat, &config.limits);
    Settings {
        heat: HeatConfig {
            rows: heat.rows,
            counters: heat.counters,
            filter_rows: heat.filter_rows,
            filter_bits: heat.filter_bits,
            window: heat.window(),
        },
        heat_min: heat.threshold,
        operations_max: limits.shim_queue_max,
        key_queue_max: limits.key_queue_max,
        requests: requests(config, shim),
        policies: Policies::new(config.policies.iter().map(policy).collect()),
        observes: config.cluster.observe_only.then(|| room(config)),
    }
}

/// Routers may have half of the room here, and nodes the other half.
fn requests(config: &Config, shim: ShimId) -> RequestLimits {
    let queue_max = config.limits.shim_queue_max;
    let window_max = u32::try_from(queue_max / 2).unwrap_or(u32::MAX);
    let overload = match config.queue_max() {
        Some(patience) => Overload::Wait { patience },
        None => Overload::Refuse,
    };
    RequestLimits { rate_max: config.shim(shim).rate_max, queue_max, window_max, overload }
}

/// How many keys of one shim find room in the nodes: each key has its place in every layer, so the largest layer counts.
fn room(config: &Config) -> usize {
    let room = |layer: &LayerConfig| {
        let nodes = config.nodes.iter().filter(|node| node.layer == layer.name);
        nodes.map(|node| node.objects_max).sum::<usize>()
    };
    config.layers.iter().map(room).max().unwrap_or(0) / config.shims.len().max(1)
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

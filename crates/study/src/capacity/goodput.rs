//! What gets through of an offered rate when some places have more to do than they can. Not how long it takes.

use super::saturation::{crosses_spines, crossing, reads, set_hit_ratios};
use super::{CapacityModel, CopyLayout, SeedOutcome};

/// `saturated` is the same layout's outcome at saturation, for everything but the rates.
pub(super) fn get_through(model: &CapacityModel, layout: &CopyLayout, saturated: SeedOutcome) -> SeedOutcome {
    let offered = model.target();
    let rate = offered * through_spines(model, offered);
    let crossing = crossing(model, layout);
    let passes = |load: f64, capacity: f64| if load > capacity { capacity / load } else { 1.0 };
    let mut capacities = layout.capacities.clone();
    let mut leaf_passes = vec![1.0; model.racks as usize];
    for (leaf, share) in crossing.iter().enumerate() {
        let transit = share * rate;
        leaf_passes[leaf] = passes(transit, model.leaf_rate);
        capacities[leaf] -= transit.min(model.leaf_rate);
    }
    let hits = reads(model, layout, capacities).max_flow(rate);
    let servers = layout.server_loads(model);
    let served = servers.iter().enumerate().map(|(server, (requests, cost))| {
        let arriving = rate * leaf_passes[server / model.servers_per_rack as usize];
        arriving * requests * passes(arriving * cost, model.server_rate)
    });
    let mut outcome = SeedOutcome { throughput: hits.carried + served.sum::<f64>(), ..saturated };
    set_hit_ratios(&mut outcome, model, &hits.loads, offered);
    outcome
}

/// The share of all requests that gets through the spine which it crosses.
fn through_spines(model: &CapacityModel, offered: f64) -> f64 {
    if !crosses_spines(model) {
        return 1.0;
    }
    let unknown = if model.remap { 0 } else { model.failed_spines };
    let alive = 1.0 - f64::from(unknown) / f64::from(model.spines);
    alive.min(model.spine_rate * f64::from(model.spines_live()) / offered)
}

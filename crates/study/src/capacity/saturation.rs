//! The largest rate at which nobody is overloaded, exactly, and who is full then. Not what happens beyond it.

use super::layout::loses_by_copy;
use super::{Accounting, Bottleneck, CapacityModel, CopyLayout, Mechanism, SeedOutcome};
use crate::flow::{FlowScale, Graph};

/// Rates are a little below saturation where they are carried, so that rounding overloads nobody.
const JUST_BELOW: f64 = 1.0 - 1e-9;

pub(super) fn saturate(model: &CapacityModel, layout: &CopyLayout) -> SeedOutcome {
    let fullest = layout.server_loads(model).iter().map(|load| load.1).fold(0.0, f64::max);
    let mut best = (model.server_rate / fullest, Bottleneck::Server);
    let mut graph = reads(model, layout, layout.capacities.clone());
    let transit = crossing(model, layout);
    for (leaf, rate) in transit.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
        graph.add(&[leaf as u32], *rate);
    }
    let scale = graph.max_scale();
    if scale.factor < best.0 {
        best = (scale.factor, binding(model, layout, &scale));
    }
    let spines = model.spine_rate * f64::from(model.spines_live());
    if crosses_spines(model) && spines < best.0 {
        best = (spines, Bottleneck::Spine);
    }
    let (throughput, binding) = best;
    let mut outcome = describe(model, layout, throughput, binding);
    outcome.bound = bound(model, layout, graph.rate());
    let loads = graph.max_flow(throughput * JUST_BELOW).loads;
    let hits = loads.iter().zip(transit.iter().chain(std::iter::repeat(&0.0)));
    let hits: Vec<f64> = hits.map(|(load, transit)| load - transit * throughput * JUST_BELOW).collect();
    set_hit_ratios(&mut outcome, model, &hits, throughput);
    outcome
}

/// What all nodes and all servers allow, if these and those are equally full; `asked` of the nodes, of one request.
fn bound(model: &CapacityModel, layout: &CopyLayout, asked: f64) -> f64 {
    let cost: f64 = layout.server_loads(model).iter().map(|load| load.1).sum();
    let nodes: f64 = layout.capacities.iter().sum();
    let spines = model.spine_rate * f64::from(model.spines_live());
    let crossing = if crosses_spines(model) { spines } else { f64::INFINITY };
    (model.ideal() / cost).min(nodes / asked).min(crossing)
}

/// The reads of every cached object and where they may go, of one request to the cluster.
pub(super) fn reads(model: &CapacityModel, layout: &CopyLayout, capacities: Vec<f64>) -> Graph {
    let mut graph = Graph::new(capacities);
    for object in &layout.objects {
        let places = layout.places(object);
        let lost = if loses_by_copy(model) { object.lost } else { 0.0 };
        let rate = object.popularity * (1.0 - model.write_ratio) * (1.0 - lost);
        if !places.is_empty() && rate > 0.0 {
            graph.add(places, rate);
        }
    }
    graph
}

/// What counts at each leaf besides hits.
pub(super) fn crossing(model: &CapacityModel, layout: &CopyLayout) -> Vec<f64> {
    match model.accounting {
        Accounting::A if model.mechanism != Mechanism::NoCache => layout.transit(model),
        _ => vec![0.0; model.racks as usize],
    }
}

/// Whether every request counts at a spine.
pub(super) fn crosses_spines(model: &CapacityModel) -> bool {
    model.mechanism != Mechanism::NoCache && model.accounting != Accounting::C
}

pub(super) fn describe(
    model: &CapacityModel,
    layout: &CopyLayout,
    throughput: f64,
    binding: Bottleneck,
) -> SeedOutcome {
    let write_cost = layout.uncached.iter().chain(&layout.write_cost).sum();
    SeedOutcome {
        throughput,
        bound: 0.0,
        binding,
        hit_ratio_leaf: 0.0,
        hit_ratio_spine: 0.0,
        distinct_objects: layout.objects.len() as u64,
        copies: layout.copies,
        copies_extra: layout.copies_extra,
        degree_max: layout.degree_max.max(u32::from(model.mechanism != Mechanism::NoCache)),
        write_cost,
    }
}

/// `hits` by node; `rate` is that of all requests.
pub(super) fn set_hit_ratios(outcome: &mut SeedOutcome, model: &CapacityModel, hits: &[f64], rate: f64) {
    let reads = rate * (1.0 - model.write_ratio);
    if reads > 0.0 {
        let (leaves, spines) = hits.split_at(model.racks as usize);
        outcome.hit_ratio_leaf = leaves.iter().sum::<f64>().max(0.0) / reads;
        outcome.hit_ratio_spine = spines.iter().sum::<f64>().max(0.0) / reads;
    }
}

/// The set of full nodes by name: one object's places, or else the layer that has more of its capacity.
fn binding(model: &CapacityModel, layout: &CopyLayout, scale: &FlowScale) -> Bottleneck {
    let inside = |places: &[u32]| places.iter().all(|place| scale.binding.binary_search(place).is_ok());
    let hottest = layout.objects.iter().find(|object| {
        let places = layout.places(object);
        !places.is_empty() && inside(places)
    });
    let capacity: f64 = scale.binding.iter().map(|node| layout.capacities[*node as usize]).sum();
    if let Some(object) = hottest {
        let rate = object.popularity * (1.0 - model.write_ratio) * scale.factor;
        // An object with all nodes lacks nodes, not copies.
        let places = layout.places(object).len();
        let has_all = model.elastic && places == model.nodes_live() as usize;
        if places == scale.binding.len() && rate > capacity / 2.0 && !has_all {
            return Bottleneck::Object;
        }
    }
    let leaves = scale.binding.iter().filter(|node| **node < model.racks);
    let leaves: f64 = leaves.map(|node| layout.capacities[*node as usize]).sum();
    if leaves >= capacity / 2.0 { Bottleneck::Leaf } else { Bottleneck::Spine }
}

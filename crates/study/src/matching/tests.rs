//! Rates under a cap and the largest alpha, against the definition of a perfect matching. Not the flow solver.

use proptest::prelude::*;
use trace::Distribution;

use super::{HALF, LayeredModel, ModelError, ModelLayer, RoutingPolicy, alpha_max};
use crate::flow::Graph;
use crate::{Popularity, seeds};

const POLICIES: [RoutingPolicy; 4] = [
    RoutingPolicy::Matching,
    RoutingPolicy::RandomOfTwo,
    RoutingPolicy::OneHash,
    RoutingPolicy::OneHashOverAll,
];

fn model(nodes: &[(u32, f64)], law: Distribution, objects: u64, cap_half: bool) -> LayeredModel {
    let layers = nodes.iter().map(|&(nodes, rate)| ModelLayer { nodes, rate }).collect();
    LayeredModel::new(layers, &Popularity::new(law, objects).unwrap(), cap_half).unwrap()
}

/// Whether the nodes carry all of alpha, by the definitions alone.
fn carried(model: &LayeredModel, policy: RoutingPolicy, seed: u64, alpha: f64) -> bool {
    let Ok(rates) = model.rates(alpha) else { return false };
    let places = model.places(policy, seed);
    let count = model.places_count(policy);
    if policy == RoutingPolicy::Matching {
        let mut graph = Graph::new(model.capacities());
        for (object, &rate) in rates.iter().enumerate() {
            graph.add(&places[object * count..(object + 1) * count], rate);
        }
        return graph.max_flow(1.0).carried >= rates.iter().sum::<f64>() * (1.0 - 1e-12);
    }
    let mut left = model.capacities();
    for (object, rate) in rates.iter().enumerate() {
        let places = &places[object * count..(object + 1) * count];
        places.iter().for_each(|&place| left[place as usize] -= rate / count as f64);
    }
    left.iter().all(|left| *left >= -1e-12)
}

proptest! {
    #![proptest_config(cases::proptest(256))]

    #[test]
    fn a_cap_clips_the_hottest_and_keeps_the_proportions_of_the_others(
        exponent in 0.1..2.0f64, objects in 1u64..300, nodes in 1u32..40, part in 0.01..1.0f64,
    ) {
        let model = model(&[(nodes, 1.0)], Distribution::Zipf(exponent), objects, true);
        let alpha = HALF * objects as f64 / f64::from(nodes) * part;
        let rates = model.rates(alpha).unwrap();
        let whole = alpha * f64::from(nodes);
        prop_assert!((rates.iter().sum::<f64>() / whole - 1.0).abs() < 1e-9);
        prop_assert!(rates.iter().all(|rate| (0.0..=HALF * (1.0 + 1e-12)).contains(rate)));
        prop_assert!(rates.windows(2).all(|pair| pair[0] >= pair[1] * (1.0 - 1e-12)));
        let free: Vec<usize> = (0..rates.len()).filter(|&rank| rates[rank] < HALF * (1.0 - 1e-9)).collect();
        for pair in free.windows(2) {
            let due = model.probabilities[pair[0]] / model.probabilities[pair[1]];
            prop_assert!((rates[pair[0]] / rates[pair[1]] / due - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_largest_alpha_is_carried_and_a_thousandth_more_is_not(
        seed in 0u64..1000, exponent in 0.1..1.5f64, cap_half: bool, objects in 1u64..200,
        leaf in 1u32..20, spine in 1u32..20, rate in 0.5..3.0f64, more in 0usize..3,
    ) {
        let layers = [(leaf, 1.0), (spine, rate), (spine, rate), (leaf, 2.0)];
        let model = model(&layers[..2 + more], Distribution::Zipf(exponent), objects, cap_half);
        for policy in POLICIES {
            let alpha = alpha_max(&model, policy, seed);
            prop_assert!(carried(&model, policy, seed, alpha * (1.0 - 1e-9)), "{policy:?} at {alpha}");
            prop_assert!(!carried(&model, policy, seed, alpha + 0.001), "{policy:?} above {alpha}");
        }
    }
}

#[test]
fn a_matching_is_at_least_what_any_policy_has() {
    let model = model(&[(32, 1.0), (32, 1.0)], Distribution::Uniform, 111, false);
    for case in cases::seeds(50) {
        let seed = case.seed;
        let best = alpha_max(&model, RoutingPolicy::Matching, seed);
        assert!(best >= alpha_max(&model, RoutingPolicy::RandomOfTwo, seed) * (1.0 - 1e-9));
        assert!(best >= alpha_max(&model, RoutingPolicy::OneHash, seed) * (1.0 - 1e-9));
        assert_eq!(best, alpha_max(&model, RoutingPolicy::TwoChoices, seed));
    }
}

#[test]
fn alphas_of_known_seeds() {
    let model = model(&[(32, 1.0), (32, 1.0)], Distribution::Zipf(0.99), 111, true);
    let of = |policy| seeds::each(1, 3, |seed| (alpha_max(&model, policy, seed) * 1e4).round() / 1e4);
    // 1.7344 = 111 / 64: there all objects are at their cap.
    let matching = [1.7073, 1.7344, 1.7344];
    let others = [[0.5967, 0.7241, 0.8214], [0.2307, 0.2935, 0.415], [0.4414, 0.6166, 0.3797]];
    assert_eq!(POLICIES.map(of), [matching, others[0], others[1], others[2]]);
}

#[test]
fn places_lie_in_their_layers_and_are_the_same_for_all_policies() {
    let model = model(&[(3, 1.0), (5, 1.0), (2, 1.0)], Distribution::Uniform, 500, false);
    let all = model.places(RoutingPolicy::Matching, 4);
    let layers = [0..3, 3..8, 8..10];
    assert!(
        all.chunks(3).all(|places| places.iter().zip(&layers).all(|(place, layer)| layer.contains(place)))
    );
    for node in 0..10 {
        assert!(all.contains(&node), "{node}");
    }
    let first: Vec<u32> = all.iter().step_by(3).copied().collect();
    assert_eq!(model.places(RoutingPolicy::OneHash, 4), first);
    let over_all = model.places(RoutingPolicy::OneHashOverAll, 4);
    assert!(over_all.len() == 500 && (0..10).all(|node| over_all.contains(&node)));
    assert_ne!(all, model.places(RoutingPolicy::Matching, 5));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let check = |nodes: &[(u32, f64)], objects: u64, due: &str| {
        let layers = nodes.iter().map(|&(nodes, rate)| ModelLayer { nodes, rate }).collect();
        let popularity = Popularity::new(Distribution::Uniform, objects).unwrap();
        let error = LayeredModel::new(layers, &popularity, false).unwrap_err().to_string();
        assert!(error.contains(due), "{error}");
    };
    check(&[], 5, "0 layers");
    check(&[(1, 1.0); 5], 5, "5 layers");
    check(&[(4, 1.0), (0, 1.0)], 5, "has 0 nodes");
    check(&[(40_000, 1.0), (40_000, 1.0)], 5, "has 80000 nodes");
    check(&[(4, -1.0)], 5, "rate of -1");
    check(&[(4, 1.0)], 10_000_001, "10000001 objects");
    let capped = model(&[(10, 1.0)], Distribution::Uniform, 10, true);
    assert!(matches!(capped.rates(0.6), Err(ModelError::Capped { objects: 10, .. })));
    assert_eq!(capped.rates(0.5).unwrap(), [HALF; 10]);
    assert_eq!(capped.alpha_bound(), 0.5);
}

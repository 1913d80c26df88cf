//! DistCache's lemmas 1 to 3 (section 3.2, appendix A) on small clusters with fixed seeds. Not a proof.

use study::matching::{LayeredModel, ModelLayer, RoutingPolicy, alpha_max};
use study::stability::{StabilitySettings, Telemetry, run};
use study::{Popularity, seeds};
use trace::Distribution;

fn model(m: u32, law: Distribution, objects: u64) -> LayeredModel {
    let layer = ModelLayer { nodes: m, rate: 1.0 };
    LayeredModel::new(vec![layer; 2], &Popularity::new(law, objects).unwrap(), true).unwrap()
}

fn mlogm(m: u32) -> u64 {
    (f64::from(m) * f64::from(m).ln()).ceil() as u64
}

const LAWS: [Distribution; 4] =
    [Distribution::Uniform, Distribution::Zipf(0.9), Distribution::Zipf(0.99), Distribution::Zipf(1.2)];

/// Lemma 1: with no object above T/2, a perfect matching exists for R close to m T, whatever the distribution.
#[test]
fn a_matching_exists_for_any_distribution() {
    for m in [16, 32, 64, 128] {
        for law in LAWS {
            let model = model(m, law, mlogm(m));
            let alphas = seeds::each(1, 30, |seed| alpha_max(&model, RoutingPolicy::Matching, seed));
            let least = alphas.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(least >= 1.0, "alpha {least} with {m} nodes per layer and {law}");
        }
    }
}

/// Lemma 5, step 1a of the proof: alpha m objects of nearly T each. The proof needs alpha < 1/(2 e^2); what is true
/// is that a matching is nearly sure up to alpha = 1, where random graphs become dense, and gets less sure with m beyond.
#[test]
fn objects_of_a_whole_node_are_matched_up_to_one_per_node() {
    let counts = |per_node: f64| {
        [4u32, 16, 64, 256].map(|m| {
            let objects = (per_node * f64::from(m)) as u64;
            let popularity = Popularity::new(Distribution::Uniform, objects).unwrap();
            let model =
                LayeredModel::new(vec![ModelLayer { nodes: m, rate: 1.0 }; 2], &popularity, false).unwrap();
            let alpha = objects as f64 / f64::from(m) * (1.0 - 1e-6);
            let matched =
                seeds::each(1, 400, |seed| alpha_max(&model, RoutingPolicy::Matching, seed) >= alpha);
            matched.iter().filter(|matched| **matched).count()
        })
    };
    let (sparse, dense) = (counts(0.5), counts(1.5));
    assert!(sparse.iter().all(|&matched| matched >= 396), "{sparse:?} of 400");
    assert!(dense.is_sorted_by(|a, b| a >= b) && dense[3] == 0, "{dense:?} of 400");
}

fn settings(model: &LayeredModel, policy: RoutingPolicy, alpha: f64) -> StabilitySettings {
    StabilitySettings {
        model: model.clone(),
        policy,
        alpha,
        telemetry: Telemetry::Exact,
        aging: None,
        routers: 1,
        node_rate: 1000.0,
        seconds: 30.0,
        queue_max: 10_000,
    }
}

/// How many of the seeds 1 to 6 are stationary at this part of their own optimum.
fn stationary(model: &LayeredModel, policy: RoutingPolicy, part: f64) -> usize {
    let one = |seed| {
        let alpha = alpha_max(model, RoutingPolicy::Matching, seed) * part;
        run(&settings(model, policy, alpha), seed).unwrap().stationary
    };
    seeds::each(1, 6, one).into_iter().filter(|stationary| *stationary).count()
}

/// Lemma 2: two choices are stationary wherever a matching exists, and cannot be beyond.
#[test]
fn two_choices_find_the_matching() {
    for law in [Distribution::Uniform, Distribution::Zipf(0.99)] {
        let model = model(8, law, 40);
        assert_eq!(stationary(&model, RoutingPolicy::TwoChoices, 0.98), 6, "{law}");
        assert_eq!(stationary(&model, RoutingPolicy::TwoChoices, 1.0 / 0.99), 0, "{law}");
    }
}

/// Lemma 3 and section 3.3: at a rate at which two choices live, everything else dies.
#[test]
fn life_or_death() {
    let model = model(8, Distribution::Zipf(0.99), 40);
    assert_eq!(stationary(&model, RoutingPolicy::TwoChoices, 0.9), 6);
    for policy in [RoutingPolicy::RandomOfTwo, RoutingPolicy::OneHash, RoutingPolicy::OneHashOverAll] {
        assert_eq!(stationary(&model, policy, 0.9), 0, "{policy:?}");
    }
}

/// Lemma 3's proof: at any rate below a half of all nodes, some node of a single hash is too full with a probability
/// that does not vanish as m grows, where a matching has it in ever fewer cases.
#[test]
fn one_hash_fails_at_any_size() {
    for m in [16, 64, 256] {
        let model = model(m, Distribution::Uniform, mlogm(m));
        for policy in [RoutingPolicy::RandomOfTwo, RoutingPolicy::OneHash, RoutingPolicy::OneHashOverAll] {
            let failed = seeds::each(1, 60, |seed| alpha_max(&model, policy, seed) < 0.95);
            let failed = failed.iter().filter(|failed| **failed).count();
            assert!(failed >= 12, "{policy:?} fails for {failed} of 60 with {m} nodes per layer");
        }
        let least = seeds::each(1, 60, |seed| alpha_max(&model, RoutingPolicy::Matching, seed));
        assert!(least.iter().all(|alpha| *alpha > 1.3), "{m}: {least:?}");
    }
}

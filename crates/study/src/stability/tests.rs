//! Queues against formulas and against a chain that is solved by iteration. The lemmas are in the crate's tests folder.

use std::time::Duration;

use trace::Distribution;

use super::{StabilityRun, StabilitySettings, Telemetry, alpha_stationary, run};
use crate::matching::{LayeredModel, ModelLayer, RoutingPolicy, alpha_max};
use crate::{Popularity, seeds};

fn settings(nodes: &[(u32, f64)], objects: u64, policy: RoutingPolicy, alpha: f64) -> StabilitySettings {
    let layers = nodes.iter().map(|&(nodes, rate)| ModelLayer { nodes, rate }).collect();
    let popularity = Popularity::new(Distribution::Uniform, objects).unwrap();
    StabilitySettings {
        model: LayeredModel::new(layers, &popularity, false).unwrap(),
        policy,
        alpha,
        telemetry: Telemetry::Exact,
        aging: Some(Duration::from_secs(1)),
        routers: 1,
        node_rate: 1000.0,
        seconds: 20.0,
        queue_max: 10_000,
    }
}

#[test]
fn one_queue_is_as_long_as_the_formula_says() {
    for (load, rate) in [(0.3, 1.0), (0.7, 1.0), (0.9, 1.0), (1.6, 2.0)] {
        let run = run(&settings(&[(1, rate)], 1, RoutingPolicy::OneHash, load), 1).unwrap();
        let due = load / rate / (1.0 - load / rate);
        assert!((run.queue_mean / due - 1.0).abs() < 0.1, "{} at {load}, not {due}", run.queue_mean);
        assert!((run.goodput / (1000.0 * load) - 1.0).abs() < 0.03, "{run:?}");
        assert!(run.stationary && run.drops == 0, "{run:?}");
    }
}

/// Mean number of requests in two equal queues when each request joins the shorter one, by iterating the chain.
fn two_shortest_queues(load: f64) -> f64 {
    const SIZE: usize = 48;
    let arrive = load / (load + 1.0);
    let serve = 0.5 / (load + 1.0);
    let mut state = vec![0.0; SIZE * SIZE];
    state[0] = 1.0;
    for _ in 0..4000 {
        let mut next = vec![0.0; SIZE * SIZE];
        for (index, part) in state.iter().enumerate().filter(|(_, part)| **part > 0.0) {
            let (a, b) = (index / SIZE, index % SIZE);
            let mut to = |a: usize, b: usize, rate: f64| {
                next[a.min(SIZE - 1) * SIZE + b.min(SIZE - 1)] += part * rate;
            };
            to(a.saturating_sub(1), b, serve);
            to(a, b.saturating_sub(1), serve);
            match a.cmp(&b) {
                std::cmp::Ordering::Less => to(a + 1, b, arrive),
                std::cmp::Ordering::Greater => to(a, b + 1, arrive),
                std::cmp::Ordering::Equal => {
                    to(a + 1, b, arrive / 2.0);
                    to(a, b + 1, arrive / 2.0);
                }
            }
        }
        state = next;
    }
    state.iter().enumerate().map(|(index, part)| part * (index / SIZE + index % SIZE) as f64).sum()
}

#[test]
fn the_shorter_of_two_queues_is_joined() {
    for load in [0.5, 0.8] {
        let due = two_shortest_queues(load);
        let settings = settings(&[(1, 1.0), (1, 1.0)], 1, RoutingPolicy::TwoChoices, 2.0 * load);
        let settings = StabilitySettings { seconds: 60.0, ..settings };
        let run = run(&settings, 3).unwrap();
        assert!((run.queue_mean / due - 1.0).abs() < 0.08, "{} at {load}, not {due}", run.queue_mean);
    }
}

#[test]
fn an_overload_shows_as_growth_even_when_queues_are_full() {
    let free = settings(&[(1, 1.0)], 1, RoutingPolicy::OneHash, 1.2);
    let run_free = run(&free, 1).unwrap();
    assert!(!run_free.stationary && run_free.drops == 0, "{run_free:?}");
    let bounded = run(&StabilitySettings { queue_max: 50, ..free }, 1).unwrap();
    assert!(!bounded.stationary && bounded.drops > 0 && bounded.queue_max == 50, "{bounded:?}");
    for StabilityRun { growth_per_s, goodput, .. } in [run_free, bounded] {
        assert!((growth_per_s - 200.0).abs() < 40.0, "{growth_per_s}");
        assert!((goodput - 1000.0).abs() < 30.0, "{goodput}");
    }
}

#[test]
fn halving_finds_the_exact_limit() {
    let settings = settings(&[(8, 1.0), (8, 1.0)], 20, RoutingPolicy::TwoChoices, 1.0);
    let settings = StabilitySettings { seconds: 10.0, ..settings };
    for (policy, seed) in
        (1..9).map(|seed| (RoutingPolicy::TwoChoices, seed)).chain([(RoutingPolicy::RandomOfTwo, 1)])
    {
        let settings = StabilitySettings { policy, ..settings.clone() };
        let (found, due) =
            (alpha_stationary(&settings, seed, 0.001).unwrap(), alpha_max(&settings.model, policy, seed));
        assert!((-0.005..0.01).contains(&(found / due - 1.0)), "{policy:?} {seed}: {found}, not {due}");
    }
}

#[test]
fn replies_are_enough_to_choose_by() {
    let exact = settings(&[(8, 1.0), (8, 1.0)], 40, RoutingPolicy::TwoChoices, 1.2);
    let mean = |telemetry, routers, aging| {
        let settings = StabilitySettings { telemetry, routers, aging, ..exact.clone() };
        let runs = seeds::each(1, 4, |seed| run(&settings, seed).unwrap());
        assert!(runs.iter().all(|run| run.drops == 0));
        (
            runs.iter().filter(|run| run.stationary).count(),
            runs.iter().map(|run| run.queue_mean).sum::<f64>() / 4.0,
        )
    };
    let second = Some(Duration::from_secs(1));
    let (truth, sliding) = (mean(Telemetry::Exact, 1, second), mean(Telemetry::Sliding, 4, second));
    let completed = mean(Telemetry::Completed, 4, second);
    assert_eq!((truth.0, sliding.0), (4, 4));
    assert!(truth.1 < sliding.1 && sliding.1 < completed.1, "{truth:?} {sliding:?} {completed:?}");
}

#[test]
fn a_run_is_the_same_everywhere() {
    let settings = settings(&[(8, 1.0), (4, 2.0)], 40, RoutingPolicy::TwoChoices, 1.2);
    let settings = StabilitySettings { telemetry: Telemetry::Sliding, routers: 3, seconds: 4.0, ..settings };
    let run = run(&settings, 7).unwrap();
    assert_eq!((run.goodput, run.drops, run.queue_max), (9683.5, 0, 29), "{run:?}");
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let good = settings(&[(2, 1.0)], 2, RoutingPolicy::OneHash, 0.5);
    let check = |settings: StabilitySettings, due: &str| {
        let error = run(&settings, 1).unwrap_err().to_string();
        assert!(error.contains(due), "{error}");
    };
    check(StabilitySettings { alpha: -1.0, ..good.clone() }, "a rate of -1");
    check(StabilitySettings { alpha: f64::NAN, ..good.clone() }, "a rate of NaN");
    check(StabilitySettings { routers: 0, ..good.clone() }, "0 routers");
    check(StabilitySettings { node_rate: 0.0, ..good.clone() }, "0 requests/s per node");
    check(StabilitySettings { seconds: 0.0, ..good.clone() }, "0 seconds");
    check(StabilitySettings { queue_max: 0, ..good.clone() }, "queue of 0");
    check(StabilitySettings { policy: RoutingPolicy::Matching, ..good }, "computed and not simulated");
}

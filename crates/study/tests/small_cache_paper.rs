//! Small Cache, Big Effect: the numbers of its text and the shapes of its figures. Where one does not come out, the test says so.

use study::small_cache::{Backends, BinsOutcome, Experiment, normalized_load};
use study::{Popularity, PopularitySpec};

/// The testbed of section 5: nodes of 10,000 requests/s, 100,000 keys for each of 85 nodes.
const RATE: f64 = 10_000.0;
const KEYS: u64 = 8_500_000;

fn backends(nodes: u64) -> Backends {
    Backends::new(nodes, 1.0, 2.0).unwrap()
}

fn experiment(nodes: u64, cached: u64, dist: &str) -> Experiment {
    let popularity: Popularity = dist.parse::<PopularitySpec>().unwrap().popularity(KEYS).unwrap();
    Experiment::new(backends(nodes), popularity, cached)
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// Mean throughput of cache and nodes.
fn throughput(nodes: u64, cached: u64, dist: &str, runs: usize) -> (f64, f64) {
    let experiment = experiment(nodes, cached, dist);
    let served: Vec<_> = experiment
        .runs(1, runs)
        .iter()
        .map(|outcome| experiment.throughput(outcome, RATE).unwrap())
        .collect();
    (mean(served.iter().map(|one| one.cache)), mean(served.iter().map(|one| one.backends)))
}

fn within(own: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&own), "{own} is not in {low}..{high}");
}

#[test]
fn a_factor_of_8_leaves_the_most_loaded_node_20_percent_above_the_average() {
    within(normalized_load(8.0, 2.0), 1.195, 1.215);
}

#[test]
fn a_hundred_nodes_with_entries_of_1_kib_need_about_4_mb() {
    within(backends(100).cache(8.0) * 1024.0, 3.6e6, 4.2e6);
}

/// Figure 4: the bound with alpha = 2 is above every one of 1000 runs, for every x, and by less than half.
#[test]
fn the_bound_holds_in_simulation_and_the_gap_is_small() {
    let bound = backends(100);
    let worst = bound.worst_x(1000.0).unwrap().round() as u64;
    let mut means = Vec::new();
    for x in [1100, 1500, 2000, 3000, worst, 6000, 10_000, 20_000, 50_000] {
        let runs = experiment(100, 1000, &format!("adversary:{x}")).runs(1, 1000);
        let loads: Vec<f64> = runs.iter().map(BinsOutcome::max_load).collect();
        let highest = loads.iter().copied().fold(0.0, f64::max);
        let limit = bound.load_at(1000.0, x as f64);
        assert!(highest < limit, "x = {x}: {highest} above {limit}");
        means.push((x, mean(loads.into_iter())));
        assert!(limit < 2.0 * means[means.len() - 1].1, "x = {x}: {limit} is far from {means:?}");
    }
    let (_, at_worst) = means[4];
    let (_, most) = means.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(at_worst > 0.95 * most, "Eq. 14 is not near the maximum: {means:?}");
}

/// Figure 7a: without a cache uniform scales, Zipf 1.01 flattens, the adversary is served by one node.
#[test]
fn without_a_cache_only_uniform_load_scales() {
    let of = |nodes, dist| throughput(nodes, 0, dist, 3).1;
    within(of(10, "uniform"), 0.98 * 10.0 * RATE, 10.0 * RATE);
    within(of(85, "uniform"), 0.98 * 85.0 * RATE, 85.0 * RATE);
    let zipf = [10, 40, 85].map(|nodes| of(nodes, "zipf:1.01"));
    assert!(zipf[1] < 3.0 * zipf[0] && zipf[2] < 1.4 * zipf[1], "{zipf:?}");
    assert!((of(85, "adversary:1") - RATE).abs() < 1e-6);
}

/// Figure 7b, with a cache of 8 n ln n + 1: the paper has every workload at uniform's throughput at least. Zipf is far above it;
/// the adversary with the worst of several x is far above the bound, but 3 to 4 % below uniform.
#[test]
fn with_a_cache_every_workload_scales_but_the_adversary_stays_a_little_below_uniform() {
    for nodes in [10, 40, 85] {
        let bound = backends(nodes);
        let cache = bound.cache(8.0).ceil();
        let of = |dist: &str, runs| {
            let (cache, backends) = throughput(nodes, cache as u64, dist, runs);
            (cache + backends) / (nodes as f64 * RATE)
        };
        within(of("uniform", 1), 0.98, 1.01);
        within(of("zipf:1.01", 1), 1.4, 3.0);
        let worst = bound.worst_x(cache).unwrap();
        let adversary = [0.5, 0.7, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
            .map(|factor| of(&format!("adversary:{}", (worst * factor).round()), 20));
        let least = adversary.into_iter().fold(f64::INFINITY, f64::min);
        assert!(least > bound.throughput(cache).unwrap() / nodes as f64, "{adversary:?}");
        within(least, 0.95, 0.98);
    }
}

/// Figure 8: 28 of 85 nodes without a key, when 100 are asked for. The mean is 85 (84/85)^100 = 26.0; 28 is an ordinary run.
#[test]
fn a_hundred_keys_leave_28_of_85_nodes_idle() {
    let idle: Vec<f64> =
        experiment(85, 0, "adversary:100").runs(1, 1000).iter().map(|run| run.idle() as f64).collect();
    within(mean(idle.iter().copied()), 25.7, 26.3);
    let as_many = idle.iter().filter(|idle| **idle >= 28.0).count();
    within(as_many as f64, 150.0, 400.0);
    let four = experiment(85, 0, "adversary:100").runs(1, 1000);
    assert!(
        mean(four.iter().map(|run| run.max_load() * 100.0 / 85.0)) > 4.0,
        "some nodes have four keys or more"
    );
    assert_eq!(experiment(85, 0, "adversary:10").run(1).idle(), 75);
    assert_eq!(experiment(85, 0, "adversary:10000").run(1).idle(), 0);
}

/// Figure 9: from one node's rate at x = 1 to nearly all nodes' at a million keys.
#[test]
fn without_a_cache_throughput_grows_with_the_number_of_keys() {
    let of = |x: u64| throughput(85, 0, &format!("adversary:{x}"), 20).1 / RATE;
    let curve = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000].map(of);
    assert!(curve.is_sorted(), "{curve:?}");
    within(curve[0], 0.999, 1.001);
    within(curve[4], 60.0, 75.0);
    within(curve[6], 82.0, 85.0);
}

/// Figure 10, c = 3000: the cache's part falls, the nodes' part rises, and the sum is never below the bound.
#[test]
fn cache_and_nodes_together_never_fall_below_the_bound() {
    let bound = backends(85).throughput(3000.0).unwrap() * RATE;
    let curve = [3_100, 4_000, 6_000, 10_000, 20_000, 50_000, 200_000, 1_000_000]
        .map(|x: u64| throughput(85, 3000, &format!("adversary:{x}"), 20));
    assert!(curve.is_sorted_by(|a, b| a.0 > b.0), "{curve:?}");
    assert!(curve.is_sorted_by(|a, b| a.1 < b.1), "{curve:?}");
    assert!(curve.iter().all(|(cache, nodes)| cache + nodes > bound), "{curve:?}, bound {bound}");
    let (cache, nodes) = curve[7];
    within((cache + nodes) / RATE, 81.0, 85.0);
}

/// Figure 11: the worst of ten x for each cache is above the bound. In the paper the smallest cache is below it, which has c far
/// below n ln n; without the testbed's queues it is above as well.
#[test]
fn the_worst_case_is_above_the_bound_for_every_cache_the_smallest_too() {
    for cached in [10, 100, 500, 1000, 2000, 3000, 5000] {
        let bound = backends(85);
        let worst = bound.worst_x(cached as f64).unwrap();
        let factors = [0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 4.0, 10.0, 50.0];
        let least = factors
            .map(|factor| {
                let x = (cached as f64 + (worst - cached as f64) * factor).ceil() as u64;
                let (cache, nodes) = throughput(85, cached, &format!("adversary:{}", x.max(cached + 1)), 20);
                cache + nodes
            })
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let promised = bound.throughput(cached as f64).unwrap() * RATE;
        assert!(least > promised, "c = {cached}: {least}, promised {promised}");
    }
}

/// Section 4.4: a cache larger by v + v log_n v bounds nodes of unequal capacity as well.
#[test]
fn unequal_nodes_are_bounded_with_a_larger_cache() {
    for virtual_nodes in [1.5, 3.0, 6.0] {
        let bound = Backends::new(85, virtual_nodes, 2.0).unwrap();
        let larger = (bound.cache(8.0) - 1.0) / (backends(85).cache(8.0) - 1.0);
        let due = virtual_nodes + virtual_nodes * virtual_nodes.ln() / 85f64.ln();
        assert!((larger / due - 1.0).abs() < 1e-9);
        let cache = bound.cache(8.0);
        let x = bound.worst_x(cache).unwrap().round();
        let popularity =
            format!("adversary:{x}").parse::<PopularitySpec>().unwrap().popularity(KEYS).unwrap();
        let runs = Experiment::new(bound, popularity, cache.ceil() as u64).runs(1, 50);
        let highest = runs.iter().map(BinsOutcome::max_load).fold(0.0, f64::max);
        assert!(highest < normalized_load(8.0, 2.0), "v = {virtual_nodes}: {highest}");
    }
}

//! S4 and S5: how keys of equal rate fall on 85 nodes without and with a cache (figures 8 to 11). Bounds are checked elsewhere.

use trace::Distribution;

use super::small_cache::{KEYS, NODE_RATE, backends, law, spread, throughputs, worst_throughput};
use super::{Axis, ClaimCheck, ClaimVerdict, Effort, Evidence, Figure, FigureSeries, Style};
use crate::small_cache::Experiment;

pub(super) const CHECKS: [ClaimCheck; 2] = [
    ClaimCheck { id: "S4", cost: 15.0, run: without_cache },
    ClaimCheck { id: "S5", cost: 25.0, run: with_cache },
];

const NODES: u64 = 85;

fn asked_for(keys: u64, cached: u64) -> Experiment {
    Experiment::new(backends(NODES), law(Distribution::Adversary(keys), KEYS), cached)
}

fn without_cache(effort: Effort) -> Evidence {
    let runs = effort.pick(100, 1000);
    let hundred = asked_for(100, 0);
    let idle: Vec<f64> = hundred.runs(1, runs).iter().map(|outcome| outcome.idle() as f64).collect();
    let (mean, low, high) = spread(&idle);
    let keys = [1u64, 2, 5, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000];
    let total = |&keys: &u64| {
        let (mean, low, high) = spread(&throughputs(&asked_for(keys, 0), effort.pick(5, 20)).0);
        (keys as f64, mean, low, high)
    };
    let totals: Vec<(f64, f64, f64, f64)> = keys.iter().map(total).collect();
    let grows = totals.windows(2).all(|pair| pair[1].1 >= pair[0].1 * 0.98);
    let (first, last) = (totals[0].1, totals[totals.len() - 1].1);
    let snapshot = |keys: u64| {
        let experiment = asked_for(keys, 0);
        let mut loads = experiment.run(1).loads;
        loads.sort_by(f64::total_cmp);
        let most = loads[loads.len() - 1];
        let points = loads.iter().zip(1..).map(|(load, node)| (f64::from(node), load / most * NODE_RATE));
        FigureSeries::new(format!("x = {keys}"), Style::Line, points.collect::<Vec<_>>())
    };
    let y = || Axis::from_zero("throughput (requests/s)");
    Evidence {
        ours: format!(
            "x = 1: {first:.0} requests/s; x = 1,000,000: {last:.0} of {:.0}. At x = 100, {mean:.1} nodes are idle on \
             average ({low:.0} to {high:.0} in {runs} placements), so the paper's 28 is one of them.",
            NODES as f64 * NODE_RATE
        ),
        verdict: ClaimVerdict::of(
            grows && (first - NODE_RATE).abs() < 1.0 && last > 0.9 * NODES as f64 * NODE_RATE,
            (low..=high).contains(&28.0) && (mean - 28.0).abs() < 5.0,
        ),
        command: "distcache study small-cache simulate --n 85 --c 0 --x 100".to_owned(),
        figures: vec![
            Figure {
                id: "small-cache-8".to_owned(),
                title: "Small Cache, figure 8: throughput of each node without a cache".to_owned(),
                x: Axis::from_zero("node, from the least loaded to the most loaded"),
                y: y(),
                series: [10, 100, 10_000, 100_000].map(snapshot).to_vec(),
            },
            Figure {
                id: "small-cache-9".to_owned(),
                title:
                    "Small Cache, figure 9: throughput without a cache against the keys asked for (85 nodes)"
                        .to_owned(),
                x: Axis::logarithmic("x, keys asked for"),
                y: y(),
                series: vec![FigureSeries::with_ranges("no cache", Style::Line, totals)],
            },
        ],
    }
}

fn with_cache(effort: Effort) -> Evidence {
    const CACHE: u64 = 3000;
    let runs = effort.pick(5, 20);
    let keys = [3100u64, 3500, 4000, 5000, 7000, 10_000, 20_000, 50_000, 100_000, 300_000, 1_000_000];
    let split: Vec<(f64, f64, f64)> = keys
        .iter()
        .map(|&keys| {
            let (totals, nodes) = throughputs(&asked_for(keys, CACHE), runs);
            (keys as f64, spread(&totals).0, spread(&nodes).0)
        })
        .collect();
    let parts: Vec<f64> = split.iter().map(|(_, total, nodes)| 1.0 - nodes / total).collect();
    let shrinks = parts.windows(2).all(|pair| pair[1] < pair[0]);
    let (least, last) =
        (split.iter().map(|one| one.1).fold(f64::INFINITY, f64::min), split[split.len() - 1].1);
    let whole = NODES as f64 * NODE_RATE;
    let sizes = [10u64, 30, 100, 300, 1000, 3000, 10_000];
    let promised: Vec<(f64, f64)> = sizes
        .iter()
        .map(|&size| {
            let nodes = backends(NODES).throughput(size as f64).expect("more than one object");
            (size as f64, nodes * NODE_RATE)
        })
        .collect();
    let worst: Vec<(f64, f64)> = sizes
        .iter()
        .map(|&size| (size as f64, worst_throughput(NODES, size, effort.pick(10, 100))))
        .collect();
    let below: Vec<u64> = sizes
        .into_iter()
        .zip(worst.iter().zip(&promised))
        .filter(|(_, (own, due))| own.1 < due.1)
        .map(|(size, _)| size)
        .collect();
    Evidence {
        ours: format!(
            "c = {CACHE}: the cache's share falls from {:.0} % at x = {} to {:.1} % at x = {}, the total is never below \
             {:.0} and ends at {:.0} of {:.0} thousand requests/s. Worst of ten x against Eq. 12: below it for {} of 7 \
             cache sizes{}.",
            100.0 * parts[0],
            keys[0],
            100.0 * parts[parts.len() - 1],
            keys[keys.len() - 1],
            least / 1e3,
            last / 1e3,
            whole / 1e3,
            below.len(),
            if below.is_empty() { String::new() } else { format!(" (c = {below:?})") }
        ),
        verdict: ClaimVerdict::of(
            shrinks && below.iter().all(|size| *size == sizes[0]),
            last > 0.9 * whole && last < 1.1 * whole,
        ),
        command: "distcache study small-cache throughput --n 85 --c 3000 --x 10000 --node-rate 10000"
            .to_owned(),
        figures: cache_figures(&split, worst, promised),
    }
}

fn cache_figures(
    split: &[(f64, f64, f64)],
    worst: Vec<(f64, f64)>,
    promised: Vec<(f64, f64)>,
) -> Vec<Figure> {
    let line = |name: &str, of: &dyn Fn(&(f64, f64, f64)) -> f64| {
        FigureSeries::new(name, Style::Line, split.iter().map(|one| (one.0, of(one))).collect::<Vec<_>>())
    };
    vec![
        Figure {
            id: "small-cache-10".to_owned(),
            title: "Small Cache, figure 10: throughput of cache and nodes (85 nodes, c = 3000)".to_owned(),
            x: Axis::logarithmic("x, keys asked for"),
            y: Axis::from_zero("throughput (requests/s)"),
            series: vec![line("cache and nodes", &|one| one.1), line("nodes", &|one| one.2)],
        },
        Figure {
            id: "small-cache-11".to_owned(),
            title: "Small Cache, figure 11: worst case against the cache size (85 nodes)".to_owned(),
            x: Axis::logarithmic("cache size c (entries)"),
            y: Axis::from_zero("throughput (requests/s)"),
            series: vec![
                FigureSeries::new("worst of ten x", Style::Line, worst),
                FigureSeries::new("lower bound, Eq. 12", Style::Curve, promised),
            ],
        },
    ]
}

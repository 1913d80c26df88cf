//! D8 and D9: whether queues grow under two choices, under a random one of two, and under one hash. Matchings are elsewhere.

use trace::Distribution;

use super::matching::{mlogm, model};
use super::{Axis, ClaimCheck, ClaimVerdict, Effort, Evidence, Figure, FigureSeries, Style};
use crate::matching::{RoutingPolicy, alpha_max};
use crate::seeds;
use crate::stability::{StabilityRun, StabilitySettings, Telemetry, run};

pub(super) const CHECKS: [ClaimCheck; 2] = [
    ClaimCheck { id: "D8", cost: 40.0, run: two_choices },
    ClaimCheck { id: "D9", cost: 80.0, run: life_or_death },
];

const POLICIES: [(RoutingPolicy, &str); 3] = [
    (RoutingPolicy::TwoChoices, "two choices"),
    (RoutingPolicy::RandomOfTwo, "a random one of two"),
    (RoutingPolicy::OneHash, "one hash"),
];

/// Time is in mean service times.
fn settings(
    model: crate::matching::LayeredModel,
    policy: RoutingPolicy,
    alpha: f64,
    seconds: f64,
) -> StabilitySettings {
    let (telemetry, aging, routers, node_rate, queue_max) = (Telemetry::Exact, None, 1, 1.0, 10_000);
    StabilitySettings { model, policy, alpha, telemetry, aging, routers, node_rate, seconds, queue_max }
}

fn simulated(settings: &StabilitySettings, seed: u64) -> StabilityRun {
    run(settings, seed).expect("settings of the paper")
}

fn two_choices(effort: Effort) -> Evidence {
    let (m, count, seconds) = (32, effort.pick(8, 40), effort.pick(10_000.0, 20_000.0));
    let laws = [
        ("equal rates", Distribution::Uniform),
        ("Zipf 0.9", Distribution::Zipf(0.9)),
        ("Zipf 0.99", Distribution::Zipf(0.99)),
    ];
    let factors = [0.9, 0.97, 1.1, 1.3];
    let (mut series, mut texts, mut main, mut rest) = (Vec::new(), Vec::new(), true, true);
    for (name, law) in laws {
        let model = model(&[(m, 1.0), (m, 1.0)], law, mlogm(m), false);
        let share = |factor: f64| {
            let stationary = seeds::each(1, count, |seed| {
                let alpha = factor * alpha_max(&model, RoutingPolicy::Matching, seed);
                simulated(&settings(model.clone(), RoutingPolicy::TwoChoices, alpha, seconds), seed)
                    .stationary
            });
            stationary.into_iter().filter(|stationary| *stationary).count() as f64 / count as f64
        };
        let shares = factors.map(share);
        main &= shares[0] >= 0.95 && shares[3] <= 0.05;
        rest &= shares[1] >= 0.9 && shares[2] <= 0.1;
        texts.push(format!("{name} {}", shares.map(|share| format!("{:.0} %", 100.0 * share)).join(", ")));
        series.push(FigureSeries::new(name, Style::Line, factors.into_iter().zip(shares)));
    }
    Evidence {
        ours: format!(
            "m = {m}, k = m ln m, {count} seeds of {seconds} service times: runs that are stationary at 0.90, 0.97, 1.10 and \
             1.30 times the largest rate that each seed's matching carries: {}.",
            texts.join("; ")
        ),
        verdict: ClaimVerdict::of(main, rest),
        command:
            "distcache study stability --m 32 --k mlogm --dist zipf:0.99 --policy two-choices --rate 0.6"
                .to_owned(),
        figures: vec![Figure {
            id: "distcache-lemma-2".to_owned(),
            title: "DistCache, lemma 2: two choices at rates below and above what a matching carries"
                .to_owned(),
            x: Axis::linear("rate (of the largest with a perfect matching)"),
            y: Axis::linear("share of stationary runs").between(0.0, 1.05),
            series,
        }],
    }
}

fn life_or_death(effort: Effort) -> Evidence {
    let (m, count, seconds) = (32, effort.pick(8, 20), effort.pick(4000.0, 10_000.0));
    let alphas: Vec<f64> =
        effort.pick(vec![0.3, 0.6, 0.9, 1.2], (1..=14).map(|step| 0.1 * f64::from(step)).collect());
    let steady = model(&[(m, 1.0), (m, 1.0)], Distribution::Uniform, mlogm(m), false);
    let (mut shares, mut growths) = (Vec::new(), Vec::new());
    for (policy, name) in POLICIES {
        let at = |&alpha: &f64| {
            let settings = settings(steady.clone(), policy, alpha, seconds);
            let runs = seeds::each(1, count, |seed| simulated(&settings, seed));
            let stationary = runs.iter().filter(|run| run.stationary).count() as f64 / count as f64;
            (alpha, stationary, runs.iter().map(|run| run.growth_per_s.max(0.0)).sum::<f64>() / count as f64)
        };
        let found: Vec<(f64, f64, f64)> = alphas.iter().map(at).collect();
        shares.push(FigureSeries::new(
            name,
            Style::Line,
            found.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>(),
        ));
        growths.push(FigureSeries::new(
            name,
            Style::Line,
            found.iter().map(|one| (one.0, one.2)).collect::<Vec<_>>(),
        ));
    }
    let (exact, figure) = lemma_3(effort);
    let apart = alphas.iter().position(|alpha| (alpha - 1.2).abs() < 1e-9).expect("one of the rates");
    let [two, random, one] = [0, 1, 2].map(|policy: usize| shares[policy].points[apart].y);
    Evidence {
        ours: format!(
            "m = {m}, k = m ln m equal rates, R = 1.2 m T: stationary runs {:.0} % with two choices, {:.0} % with a random \
             one of two, {:.0} % with one hash. Lemma 3's own case (k = m, p_i R = T/2), computed: {}. The lemma's second \
             half, as printed, calls two choices stationary with probability o(1): non-stationary is meant.",
            100.0 * two,
            100.0 * random,
            100.0 * one,
            exact.0
        ),
        verdict: ClaimVerdict::of(two > 0.9 && random < 0.5 && one < 0.1, exact.1),
        command: "distcache study stability --m 32 --k mlogm --dist uniform --rate 1.2 --policy one-hash"
            .to_owned(),
        figures: vec![
            Figure {
                id: "distcache-life-or-death".to_owned(),
                title: "DistCache, section 3.3: runs whose queues do not grow".to_owned(),
                x: Axis::linear("alpha = R / (m T)"),
                y: Axis::linear("share of stationary runs").between(0.0, 1.05),
                series: shares,
            },
            Figure {
                id: "distcache-growth".to_owned(),
                title: "DistCache, section 3.3: how fast queues grow".to_owned(),
                x: Axis::linear("alpha = R / (m T)"),
                y: Axis::from_zero("growth of all queues (requests per service time)"),
                series: growths,
            },
            figure,
        ],
    }
}

/// Half a node's rate for each of m objects: who is stationary with which probability as m grows, from exact limits.
fn lemma_3(effort: Effort) -> ((String, bool), Figure) {
    let sizes: Vec<u32> = effort.pick(vec![16, 64, 256], vec![8, 16, 32, 64, 128, 256, 512, 1024]);
    let count = effort.pick(50, 200);
    let policies =
        [POLICIES[0], POLICIES[1], POLICIES[2], (RoutingPolicy::OneHashOverAll, "one hash over all nodes")];
    let probability = |policy, m: u32| {
        let model = model(&[(m, 1.0), (m, 1.0)], Distribution::Uniform, u64::from(m), false);
        let alphas = seeds::each(1, count, |seed| alpha_max(&model, policy, seed));
        // A node that is asked for exactly what it can do has queues without end.
        alphas.iter().filter(|&&alpha| alpha > 0.5 * (1.0 + 1e-9)).count() as f64 / count as f64
    };
    let series: Vec<FigureSeries> = policies
        .into_iter()
        .map(|(policy, name)| {
            let points = sizes.iter().map(|&m| (f64::from(m), probability(policy, m)));
            FigureSeries::new(name, Style::Line, points.collect::<Vec<_>>())
        })
        .collect();
    let ends: Vec<f64> = series.iter().map(|series| series.points[series.points.len() - 1].y).collect();
    let texts: Vec<String> = series
        .iter()
        .zip(&ends)
        .map(|(series, end)| format!("{} {:.0} %", series.name, 100.0 * end))
        .collect();
    let text = format!("stationary at m = {}: {}", sizes[sizes.len() - 1], texts.join(", "));
    let holds = ends[0] > 0.95 && ends[1..].iter().all(|end| *end < 0.05);
    let figure = Figure {
        id: "distcache-lemma-3".to_owned(),
        title: "DistCache, lemma 3: probability of a stationary system (k = m, p_i R = T/2, exact)"
            .to_owned(),
        x: Axis::logarithmic("m, nodes per layer"),
        y: Axis::linear("probability").between(0.0, 1.05),
        series,
    };
    ((text, holds), figure)
}

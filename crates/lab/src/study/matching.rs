//! `distcache study matching`: how much load the nodes can carry for good, and with which probability.

use serde::Serialize;
use study::matching::{HALF, LayeredModel, RoutingPolicy, alpha_max};
use study::stability::{self, StabilityError, StabilitySettings, Telemetry};

use super::model::{Flags, PolicyFlag};
use super::{bad_input, positive, print_json};
use crate::terminal::print;

/// The tolerance of alpha where it is found by halving.
const TOLERANCE: f64 = 0.001;
/// Like `--queue-max` of `study stability`.
const QUEUE_MAX: u32 = 10_000;

/// Show how large a load caches in layers can carry: whether a perfect matching exists (DistCache, section 3.2)
#[derive(Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct MatchingArguments {
    #[command(flatten)]
    flags: Flags,

    /// Where a request is served; two-choices is a simulation of queues, the others are computed
    #[arg(long, value_name = "P", default_value = "matching")]
    policy: PolicyFlag,

    /// The probability over seeds that R = ALPHA m T can be carried (lemma 1), with T and m of layer 0
    #[arg(long, value_name = "ALPHA", conflicts_with = "find_max", value_parser = positive)]
    rate: Option<f64>,

    /// The largest alpha = R/(m T) of each seed; the default without --rate
    #[arg(long)]
    find_max: bool,

    /// Length of a simulation of two-choices, in mean service times 1/T; a short one may not tell which nodes are full first
    #[arg(long, value_name = "N", default_value_t = 10_000.0, value_parser = positive)]
    seconds: f64,
}

#[derive(Serialize)]
struct MatchingReport {
    /// Share of the seeds whose rate is carried (lemma 1); `None` without a rate.
    probability: Option<f64>,
    /// Mean of the seeds' largest alpha; `None` for simulated queues at a given rate.
    alpha_mean: Option<f64>,
    alpha_min: Option<f64>,
    alpha_max: Option<f64>,
    alpha_sd: Option<f64>,
    nodes: usize,
    objects: usize,
    /// The hottest object's rate in T, at the given rate or else at the mean alpha.
    hottest: f64,
    /// Whether that is at most 1/2, as lemma 1 needs.
    condition: bool,
}

pub(crate) fn run(arguments: &MatchingArguments) -> anyhow::Result<()> {
    let model = arguments.flags.model()?;
    let rate = arguments.rate;
    if let Some(rate) = rate {
        model.rates(rate).map_err(bad_input)?;
    }
    let (carried, alphas) = if arguments.policy == PolicyFlag::TwoChoices {
        simulated(arguments, &model).map_err(bad_input)?
    } else {
        let policy = RoutingPolicy::from(arguments.policy);
        let alphas = arguments.flags.each(|seed| alpha_max(&model, policy, seed));
        let carries = |rate: f64| alphas.iter().filter(|alpha| rate <= **alpha * (1.0 + 1e-9)).count();
        (rate.map(carries), alphas)
    };
    let report = MatchingReport::new(arguments, &model, carried, &alphas);
    if arguments.flags.json {
        return print_json(&report);
    }
    show(arguments, &model, &report);
    Ok(())
}

/// How many seeds are stationary at the rate, or else the largest alpha of each.
fn simulated(
    arguments: &MatchingArguments,
    model: &LayeredModel,
) -> Result<(Option<usize>, Vec<f64>), StabilityError> {
    let settings = StabilitySettings {
        model: model.clone(),
        policy: RoutingPolicy::TwoChoices,
        alpha: arguments.rate.unwrap_or(1.0),
        telemetry: Telemetry::Exact,
        aging: None,
        routers: 1,
        node_rate: 1.0,
        seconds: arguments.seconds,
        queue_max: QUEUE_MAX,
    };
    if arguments.rate.is_none() {
        let alphas = arguments.flags.each(|seed| stability::alpha_stationary(&settings, seed, TOLERANCE));
        return Ok((None, alphas.into_iter().collect::<Result<_, _>>()?));
    }
    let runs: Result<Vec<_>, _> =
        arguments.flags.each(|seed| stability::run(&settings, seed)).into_iter().collect();
    Ok((Some(runs?.iter().filter(|run| run.stationary).count()), Vec::new()))
}

impl MatchingReport {
    fn new(
        arguments: &MatchingArguments,
        model: &LayeredModel,
        carried: Option<usize>,
        alphas: &[f64],
    ) -> MatchingReport {
        let count = alphas.len() as f64;
        let some = |value: f64| (!alphas.is_empty()).then_some(value);
        let mean = alphas.iter().sum::<f64>() / count;
        let variance =
            alphas.iter().map(|alpha| (alpha - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let rates = model.rates(arguments.rate.unwrap_or(mean));
        let hottest = rates.expect("the rate was checked, and a mean is below the bound")[0];
        MatchingReport {
            probability: carried.map(|carried| carried as f64 / f64::from(arguments.flags.seeds)),
            alpha_mean: some(mean),
            alpha_min: some(alphas.iter().copied().fold(f64::INFINITY, f64::min)),
            alpha_max: some(alphas.iter().copied().fold(0.0, f64::max)),
            alpha_sd: some(variance.sqrt()),
            nodes: model.capacities().len(),
            objects: model.objects(),
            hottest,
            condition: hottest <= HALF * (1.0 + 1e-9),
        }
    }
}

fn show(arguments: &MatchingArguments, model: &LayeredModel, report: &MatchingReport) {
    print(&arguments.flags.describe(model));
    if let (Some(rate), Some(probability)) = (arguments.rate, report.probability) {
        print(&format!("alpha {rate}: carried with probability {probability:.3}"));
    }
    if let (Some(mean), Some(min), Some(max)) = (report.alpha_mean, report.alpha_min, report.alpha_max) {
        print(&format!("largest alpha: {mean:.4} on average, {min:.4} to {max:.4}"));
    }
    let condition = if report.condition { "holds" } else { "does not hold" };
    print(&format!("hottest object: {:.4} T; the condition p R <= T/2 {condition}", report.hottest));
}

//! Runs explorations, prints how far each went, and fails where one found something, stopped short, or saw too little.

use std::collections::BTreeMap;
use std::time::Duration;

use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model};

use super::config::{Config, Scale};
use super::setup::Cluster;
use super::table;
use super::trace;

/// One that should end and takes longer is reported as not complete.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Two, because the checker looks at its limit of time only where it has work to share.
const THREADS: usize = 2;

#[derive(Default)]
struct Figures {
    states: usize,
    unique: usize,
    depth: usize,
    taken: Duration,
}

impl Reporter<Cluster> for Figures {
    fn report_checking(&mut self, data: ReportData) {
        *self = Figures {
            states: data.total_states,
            unique: data.unique_states,
            depth: data.max_depth,
            taken: data.duration,
        };
    }

    fn report_discoveries(&mut self, _: &Cluster, _: BTreeMap<&'static str, ReportDiscovery<Cluster>>) {}

    fn delay(&self) -> Duration {
        Duration::from_millis(20)
    }
}

/// `MODEL` names what to run: `small` (the default), `ci`, `deep`, or configurations one by one. `MODEL_SECONDS`
/// bounds each.
pub(crate) fn chosen() {
    let asked = std::env::var("MODEL").unwrap_or_else(|_| "small".into());
    let asked: Vec<&str> = asked.split(',').collect();
    let scale = match asked[..] {
        ["small"] => Some(Scale::Small),
        ["ci"] => Some(Scale::Ci),
        ["deep"] => Some(Scale::Deep),
        _ => None,
    };
    let patience =
        std::env::var("MODEL_SECONDS").ok().map(|text| text.parse().expect("MODEL_SECONDS in seconds"));
    let patience = patience.map_or(PATIENCE, Duration::from_secs);
    let all = table::configs();
    for name in asked.iter().filter(|_| scale.is_none()) {
        assert!(all.iter().any(|config| config.name == *name), "no configuration is called {name:?}");
    }
    let mut failures = Vec::new();
    println!("{:<28} {:>12} {:>12} {:>6} {:>8}", "configuration", "states", "unique", "depth", "seconds");
    for config in all {
        if scale.map_or(asked.contains(&config.name), |scale| config.scale <= scale) {
            failures.extend(explore(config, patience));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// What is wrong with this exploration.
fn explore(config: Config, patience: Duration) -> Option<String> {
    let (name, expected) = (config.name, config.expected);
    let mut figures = Figures::default();
    let checker = Cluster::new(config).checker().threads(THREADS).timeout(patience);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join_and_report(&mut figures);
    let (cluster, discoveries) = (checker.model(), checker.discoveries());
    let complete = figures.taken + Duration::from_secs(1) < patience;
    let broken =
        discoveries.iter().find(|(name, _)| cluster.property(name).expectation.discovery_is_failure());
    let outcome = match (broken, complete) {
        (Some(_), _) => "violated",
        (None, true) => "complete",
        (None, false) => "not complete",
    };
    println!(
        "{name:<28} {:>12} {:>12} {:>6} {:>8.1}  {outcome}",
        figures.states,
        figures.unique,
        figures.depth,
        figures.taken.as_secs_f64()
    );
    if let Some((property, path)) = broken {
        let steps = path.clone().into_actions().len();
        println!("counterexample: {property}; {steps} steps\n{}", trace::tell(cluster, path.clone()));
        return Some(format!("{name}: violated after {steps} steps: {property}"));
    }
    if !complete {
        return Some(format!("{name}: not complete after {} s", patience.as_secs()));
    }
    let unseen = expected.iter().find(|event| !cluster.coverage.has(**event))?;
    Some(format!(
        "{name}: says little, because {unseen:?} never happened; seen: {:?}",
        cluster.coverage.seen()
    ))
}

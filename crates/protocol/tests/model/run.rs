//! Runs explorations, prints how far each went, and fails where one found something, stopped short, or saw too little.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model, Path};

use super::config::Scale;
use super::moving;
use super::setup::Cluster;
use super::table;
use super::trace;

/// One that should end and takes longer is reported as not complete.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Two, because the checker looks at its limit of time only where it has work to share.
const THREADS: usize = 2;

/// One model, all of whose states are looked at.
pub(crate) trait Exploration:
    Model<State: ExploredState, Action: ExploredAction> + Send + Sync + 'static
{
    fn name(&self) -> &'static str;

    fn scale(&self) -> Scale;

    /// What should have happened in it and has not, so that it says little.
    fn unseen(&self) -> Option<String>;

    /// A counterexample in words.
    fn tell(&self, path: Path<Self::State, Self::Action>) -> String;
}

/// What the checker needs of states.
pub(crate) trait ExploredState: Clone + Debug + Hash + PartialEq + Send + Sync {}
impl<T: Clone + Debug + Hash + PartialEq + Send + Sync> ExploredState for T {}

/// What the checker needs of actions.
pub(crate) trait ExploredAction: Clone + Debug + PartialEq + Send + Sync {}
impl<T: Clone + Debug + PartialEq + Send + Sync> ExploredAction for T {}

#[derive(Default)]
struct Figures {
    states: usize,
    unique: usize,
    depth: usize,
    taken: Duration,
}

impl<M: Model> Reporter<M> for Figures {
    fn report_checking(&mut self, data: ReportData) {
        *self = Figures {
            states: data.total_states,
            unique: data.unique_states,
            depth: data.max_depth,
            taken: data.duration,
        };
    }

    fn report_discoveries(&mut self, _: &M, _: BTreeMap<&'static str, ReportDiscovery<M>>)
    where
        M::Action: std::fmt::Debug,
        M::State: std::fmt::Debug + std::hash::Hash,
    {
    }

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
    let (clusters, moving) = (table::configs(), moving::configs());
    let known = || clusters.iter().map(|config| config.name).chain(moving.iter().map(Exploration::name));
    for name in asked.iter().filter(|_| scale.is_none()) {
        assert!(known().any(|known| known == *name), "no configuration is called {name:?}");
    }
    let mut failures = Vec::new();
    println!("{:<28} {:>12} {:>12} {:>6} {:>8}", "configuration", "states", "unique", "depth", "seconds");
    let chosen = |name, own| scale.map_or(asked.contains(&name), |scale| own <= scale);
    for config in clusters.iter().filter(|config| chosen(config.name, config.scale)) {
        failures.extend(explore(Cluster::new(config.clone()), patience));
    }
    for moving in moving.into_iter().filter(|moving| chosen(moving.name(), moving.scale())) {
        failures.extend(explore(moving, patience));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// What is wrong with this exploration.
fn explore<M: Exploration>(model: M, patience: Duration) -> Option<String> {
    let name = model.name();
    let mut figures = Figures::default();
    let checker = model.checker().threads(THREADS).timeout(patience);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join_and_report(&mut figures);
    let (model, discoveries) = (checker.model(), checker.discoveries());
    let complete = figures.taken + Duration::from_secs(1) < patience;
    let broken = discoveries.iter().find(|(name, _)| model.property(name).expectation.discovery_is_failure());
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
        println!("counterexample: {property}; {steps} steps\n{}", model.tell(path.clone()));
        return Some(format!("{name}: violated after {steps} steps: {property}"));
    }
    if !complete {
        return Some(format!("{name}: not complete after {} s", patience.as_secs()));
    }
    model.unseen().map(|unseen| format!("{name}: says little, because {unseen}"))
}

impl Exploration for Cluster {
    fn name(&self) -> &'static str {
        self.config.name
    }

    fn scale(&self) -> Scale {
        self.config.scale
    }

    fn unseen(&self) -> Option<String> {
        let unseen = self.config.expected.iter().find(|event| !self.coverage.has(**event))?;
        Some(format!("{unseen:?} never happened; seen: {:?}", self.coverage.seen()))
    }

    fn tell(&self, path: Path<Self::State, Self::Action>) -> String {
        trace::tell(self, path)
    }
}

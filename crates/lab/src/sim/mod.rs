//! `distcache sim`: runs simulated clusters seed by seed and tells what they did. Simulates nothing itself.

mod arguments;
mod output;
mod workers;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;

pub use arguments::SimArguments;
use output::{SeedTable, SimSummary};

/// One seed's report with what it took here.
pub(crate) struct Finished {
    pub(crate) report: ::sim::SimReport,
    pub(crate) wall: Duration,
    /// Whether a second run of it, if there was one, gave another trace.
    pub(crate) differs: bool,
}

pub fn run(arguments: &SimArguments) -> anyhow::Result<()> {
    let plan = arguments.plan().map_err(crate::terminal::mistake)?;
    if let Some(path) = &arguments.trace {
        return trace(&plan, path);
    }
    workers::announce_panics(&plan);
    let started = Instant::now();
    let mut table = SeedTable::new(arguments.json, &plan);
    let mut summary = SimSummary::new(&plan);
    workers::run(&plan, |finished| {
        table.row(&finished);
        summary.add(&finished);
    });
    summary.finish(started.elapsed(), arguments.json);
    let failed = summary.failed();
    anyhow::ensure!(failed == 0, "{failed} of {} seeds fail", plan.seeds.end - plan.seeds.start);
    Ok(())
}

/// Runs one seed and writes down all that happened in it.
fn trace(plan: &arguments::SimPlan, path: &std::path::Path) -> anyhow::Result<()> {
    let seed = plan.seeds.start;
    let (report, text) = ::sim::run(seed, &::sim::SimSettings { with_text: true, ..plan.settings });
    let mut file = std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))?;
    let text = text.unwrap_or_default();
    file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))?;
    crate::terminal::print(&format!("{}: {} events of seed {seed}", path.display(), report.events));
    for violation in &report.violations {
        crate::terminal::say(violation);
    }
    anyhow::ensure!(report.violations.is_empty(), "seed {seed} fails");
    Ok(())
}

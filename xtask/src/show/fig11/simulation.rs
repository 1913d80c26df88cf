//! Figure 11 at the paper's scale, simulated: 32 leaf and 32 spine switches, 32 racks of 32 servers. Placement, choice,
//! heat and remapping are the production code; the network and the queues are a model.
//!
//! The paper's network: every read crosses a spine switch, be it on its way to a leaf, so that a spine switch carries
//! 1/32 of all throughput, and what crosses a failed one is lost until the controller has reacted. DistCache in software
//! has no such crossing, and a router notices that a node is gone by its broken connection.

use serde_json::json;

use super::network::{ModelledNetwork, Setup};
use crate::show::Stage;
use crate::show::finding::Finding;
use crate::show::plot::{Plot, PlotLine};

/// Requests per second that 32 spine switches can carry.
const CARRIED: f64 = 32.0 * super::network::SWITCH_RATE;
/// Full load is a little more than can be carried, so that every spine switch is always busy.
const FULL: f64 = 1.1;
const FAILURES: u64 = 4;
/// Seconds: of the first failure, between two, of the recovery, of the return, and of the end.
const FAIL: u64 = 10;
const STEP: u64 = 10;
const RECOVER: u64 = FAIL + STEP * FAILURES;
const RETURN: u64 = RECOVER + 20;
const END: u64 = RETURN + 20;
/// Seconds after a change until a level is looked at; a returning node takes its partition in four steps of a second.
const SETTLING: u64 = 3;
const RETURNING: u64 = 8;
const TOLERANCE: f64 = 0.015;

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let paper = |share: f64| Setup { crossing: true, notices: false, rate: CARRIED * share };
    let runs = [
        ("full", "as in the paper, full load", run(&paper(FULL))),
        ("half", "as in the paper, half load", run(&paper(0.5))),
        (
            "software",
            "in software, half load",
            run(&Setup { crossing: false, notices: true, rate: CARRIED * 0.5 }),
        ),
    ];
    keep(stage, &runs.each_ref().map(|(name, text, run)| (*name, *text, run.as_slice())))?;
    let levels = runs.each_ref().map(|(.., run)| levels(run));
    let [full, half, software] = &levels;
    let due: Vec<f64> = (0..=FAILURES).map(|failed| (32 - failed) as f64 / 32.0).collect();
    let show =
        |levels: &[f64]| levels.iter().map(|level| format!("{level:.3}")).collect::<Vec<_>>().join(", ");
    finding.say("32 leaves, 32 spines, 32 x 32 servers, simulated; with 32, 31, 30, 29, 28 spines, recovered, returned:");
    let steps = |levels: &[f64]| {
        due.iter().zip(levels).all(|(due, level)| *level >= due - TOLERANCE && *level <= 1.0 + TOLERANCE)
    };
    let falls = full[4] <= due[4] + TOLERANCE && full[5] <= due[4] + 2.0 * TOLERANCE;
    finding.bound(
        steps(full) && falls && full[6] >= 1.0 - TOLERANCE,
        format!("as in the paper, full load: {}; 28/32 is {:.3}", show(full), due[4]),
    );
    finding.bound(
        steps(half) && half[4] < 1.0 - TOLERANCE && half[5] >= 0.99 && half[6] >= 0.99,
        format!("as in the paper, half load: {}; whole again after the recovery", show(half)),
    );
    finding.bound(
        software.iter().all(|level| *level >= 0.99),
        format!("in software, half load: {}; never below 0.99", show(software)),
    );
    finding.figure("simulated", json!({ "full": full, "half": half, "software": software, "due": due }));
    Ok(())
}

/// Reads answered in each second.
fn run(setup: &Setup) -> Vec<u64> {
    let mut network = ModelledNetwork::new(setup);
    for failed in 0..FAILURES {
        network.run_until(FAIL + failed * STEP);
        network.fail(failed as usize);
    }
    network.run_until(RECOVER);
    // As in the paper, the recovery begins when all of them have failed.
    (0..FAILURES).for_each(|failed| network.drain(failed as usize, true));
    network.run_until(RETURN);
    (0..FAILURES).for_each(|failed| network.restore(failed as usize));
    network.run_until(END);
    network.answered()
}

/// Throughput of each step once it has settled, relative to the first.
fn levels(answered: &[u64]) -> Vec<f64> {
    let mean = |from: u64, to: u64| {
        let seconds = &answered[from as usize..to as usize];
        seconds.iter().sum::<u64>() as f64 / seconds.len() as f64
    };
    let whole = mean(SETTLING, FAIL);
    let failed = (0..FAILURES).map(|failed| FAIL + failed * STEP).map(|at| mean(at + SETTLING, at + STEP));
    let after = [mean(RECOVER + SETTLING, RETURN), mean(RETURN + RETURNING, END)];
    std::iter::once(whole).chain(failed).chain(after).map(|level| level / whole).collect()
}

fn keep(stage: &Stage<'_>, runs: &[(&str, &'static str, &[u64]); 3]) -> anyhow::Result<()> {
    let mut csv = format!("second,{}\n", runs.map(|(name, ..)| name).join(","));
    for second in 0..END as usize {
        let cells = runs.map(|(.., answered)| answered[second].to_string());
        csv.push_str(&format!("{second},{}\n", cells.join(",")));
    }
    std::fs::write(stage.runs.join("show-fig11-simulation.csv"), csv)?;
    let line = |(_, text, answered): &(&str, &'static str, &[u64])| {
        let whole =
            answered[SETTLING as usize..FAIL as usize].iter().sum::<u64>() as f64 / (FAIL - SETTLING) as f64;
        let points =
            answered.iter().enumerate().map(|(second, count)| (second as f64, *count as f64 / whole));
        PlotLine { name: text, points: points.collect() }
    };
    let failures = (0..FAILURES).map(|failed| (FAIL + failed * STEP) as f64);
    Plot {
        title: "Four of 32 spines fail one by one, the controller reacts, they come back (simulated)",
        x: "seconds",
        y: "throughput, 1 with all nodes",
        lines: runs.iter().map(line).collect(),
        marks: failures.chain([RECOVER as f64, RETURN as f64]).collect(),
    }
    .write(&stage.runs.join("show-fig11-simulation.svg"))
}

#[cfg(test)]
mod tests {
    use super::super::network::{ModelledNetwork, Setup};

    /// The first spine fails after five of ten seconds.
    fn answered() -> Vec<u64> {
        let mut network = ModelledNetwork::new(&Setup { crossing: true, notices: false, rate: 5000.0 });
        network.run_until(5);
        network.fail(0);
        network.run_until(10);
        network.answered()
    }

    #[test]
    fn a_run_is_the_same_each_time_and_a_failure_shows() {
        let first = answered();
        assert_eq!(first, answered());
        // One part in 32 is lost, which is many times the noise of so many requests. The first second fills the queues.
        let (before, after): (u64, u64) = (first[1..5].iter().sum(), first[6..10].iter().sum());
        assert!(after < before - before / 100, "{first:?}");
    }
}

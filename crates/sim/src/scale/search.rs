//! Experiments: the rate at which the first member is full, what is served of a rate, a series in which spines fail. Not
//! what they are run on.

use super::cluster::ScaleCluster;
use super::measure::{ScaleOutcome, Second};
use super::{Layers, Population, ScaleTurn, Scenario, ScenarioError};

/// Routers and meters forget what was before within a second.
const SETTLE_US: u64 = 1_500_000;
/// Agents take about eight seconds to see that an object is written more than read.
const SETTLE_WRITES_US: u64 = 16_000_000;
/// A key has as many places as its heat needs after a few seconds, each of which multiplies them by four at most.
const SETTLE_ELASTIC_US: u64 = 5_000_000;
/// Before traffic: until sessions are open and what was offered has been fetched.
const FILL_US: u64 = 100_000;
/// As close to its limit as the busiest member must come, in the last measurement.
const TOLERANCE: f64 = 0.01;
const ROUNDS_MAX: usize = 5;
const SECOND_US: u64 = 1_000_000;

/// Measures how loads follow from the rate, goes to the rate at which the busiest member would be just full, and looks
/// again. Members do whatever they are asked for: who would be overloaded is counted, not slowed down.
pub fn saturation(scenario: &Scenario) -> Result<ScaleOutcome, ScenarioError> {
    scenario.check()?;
    let mut rate = scenario.servers() as f64;
    let mut cluster = populated(scenario, rate);
    let (mut requests, mut populated_for) = (0, rate);
    for round in 1.. {
        if scenario.population == Population::Found && !(0.5..2.0).contains(&(rate / populated_for)) {
            // Agents would remember for long what another rate has taught them.
            requests += cluster.totals.offered;
            (cluster, populated_for) = (populated(scenario, rate), rate);
        }
        let outcome = measured(&mut cluster, rate);
        let most = outcome.load_max;
        if most == 0.0 {
            return Err(ScenarioError("nobody was asked for anything; measure for longer".to_owned()));
        }
        if (most - 1.0).abs() < TOLERANCE || round == ROUNDS_MAX {
            let requests = requests + outcome.requests;
            return Ok(ScaleOutcome { throughput: rate / most, offered: rate, requests, ..outcome });
        }
        rate /= most;
    }
    unreachable!("the last round returns")
}

/// Members do no more than they can.
pub fn goodput(scenario: &Scenario, offered: f64) -> Result<ScaleOutcome, ScenarioError> {
    scenario.check()?;
    let mut cluster = populated(scenario, offered);
    cluster.limit(true);
    Ok(measured(&mut cluster, offered))
}

/// So many clients ask for one thing after the other, of members that do no more than they can; what is too much waits.
pub fn closed_loop(scenario: &Scenario, clients: u32) -> Result<ScaleOutcome, ScenarioError> {
    scenario.check()?;
    let capacity = scenario.capacity();
    let mut cluster = populated(scenario, capacity);
    cluster.closed = true;
    cluster.limit(true);
    cluster.begin_clients(clients);
    cluster.run_for(settle_us(scenario));
    let before = cluster.snapshot();
    cluster.run_for(u64::from(cluster.scenario.seconds) * SECOND_US);
    Ok(cluster.outcome(&before, capacity))
}

fn measured(cluster: &mut ScaleCluster, rate: f64) -> ScaleOutcome {
    cluster.offer(rate);
    cluster.run_for(settle_us(&cluster.scenario));
    let before = cluster.snapshot();
    cluster.run_for(u64::from(cluster.scenario.seconds) * SECOND_US);
    cluster.outcome(&before, rate)
}

/// Second by second, while spines fail and come back when `turns` say so. `told` hears of every second.
pub fn series(
    scenario: &Scenario,
    offered: f64,
    turns: &[(u32, ScaleTurn)],
    mut told: impl FnMut(Second),
) -> Result<Vec<Second>, ScenarioError> {
    scenario.check()?;
    // Nodes that get others' partitions have to find out what is hot there.
    let scenario = Scenario { population: Population::Found, spines_failed: 0, ..scenario.clone() };
    let mut cluster = populated(&scenario, offered);
    cluster.limit(true);
    cluster.offer(offered);
    cluster.run_for(SETTLE_US);
    let mut failed = 0;
    let mut seconds = Vec::new();
    for second in 0..scenario.seconds {
        for (_, turn) in turns.iter().filter(|(at, _)| *at == second) {
            match turn {
                ScaleTurn::Fail if failed + 1 < usize::from(scenario.spines) => {
                    cluster.fail(failed);
                    failed += 1;
                }
                ScaleTurn::Fail => {}
                ScaleTurn::Remap => cluster.remap(failed),
                ScaleTurn::Return => cluster.restore(std::mem::take(&mut failed)),
            }
        }
        let before = cluster.totals;
        cluster.run_for(SECOND_US);
        let per_second = |count: u64| count as f64 / cluster.server_rate();
        let (offered, served) =
            (cluster.totals.offered - before.offered, cluster.totals.served - before.served);
        let point = Second { second, offered: per_second(offered), throughput: per_second(served) };
        told(point);
        seconds.push(point);
    }
    Ok(seconds)
}

/// A cluster whose nodes hold what they would at this rate, after the scenario's failures, and whose routers know.
fn populated(scenario: &Scenario, rate: f64) -> ScaleCluster {
    let mut cluster = ScaleCluster::new(scenario);
    if scenario.layers == Layers::Both {
        let failed = usize::from(scenario.spines_failed);
        (0..failed).for_each(|spine| cluster.fail(spine));
        if scenario.remap {
            cluster.remap(failed);
        }
    }
    let offered = cluster.populate(rate);
    cluster.run_for(FILL_US);
    cluster.teach(&offered);
    cluster
}

fn settle_us(scenario: &Scenario) -> u64 {
    match scenario.population {
        _ if scenario.elastic => SETTLE_ELASTIC_US,
        Population::Found if scenario.write_ratio > 0.0 => SETTLE_WRITES_US,
        _ => SETTLE_US,
    }
}

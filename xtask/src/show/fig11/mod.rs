//! `show fig11`: figure 11 of the paper, throughput while spine nodes fail one by one and come back. On real processes
//! at a small scale, and simulated at the paper's.

mod network;
mod processes;
mod simulation;

use super::Stage;
use super::finding::Finding;

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    simulation::show(stage, &mut finding)?;
    processes::show(stage, &mut finding)?;
    Ok(finding)
}

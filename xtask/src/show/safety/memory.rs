//! Clients that hoard, before members that may have little memory: nobody is aborted, and those who behave are served. Not what
//! each attack does to their latency.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::{Layout, ProcessCluster};
use crate::show::Stage;
use crate::show::finding::Finding;
use crate::show::hostile::{self, Attackers};

/// Data of each member, as `ulimit -d` has it.
const MEMBER_MIB: u64 = 256;
const ATTACKS: [&str; 6] =
    ["hoarders", "giant-headers", "slow-readers", "strangers", "many-arguments", "connection-flood"];
const SECONDS: u64 = 10;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let layout = Layout { member_mib_max: Some(MEMBER_MIB), ..hostile::layout("") };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    hostile::prepare(&cluster)?;
    let mut figures = Vec::new();
    for name in ATTACKS {
        let attack = hostile::named(name)?;
        let attackers = Attackers::start(attack, cluster.router(0))?;
        let (begun, mut served, mut refused, mut resident) = (Instant::now(), 0_u64, 0_u64, 0);
        while begun.elapsed() < Duration::from_secs(SECONDS) && cluster.fallen().is_empty() {
            // A router that has no more memory closes connections, and never ends.
            match hostile::ask_well(&cluster) {
                Ok(()) => served += 1,
                Err(_) => refused += 1,
            }
            // None where it has just fallen, which is told below.
            resident = resident.max(cluster.process("router-0")?.resident_bytes().unwrap_or_default());
            std::thread::sleep(PAUSE);
        }
        let attempts = attackers.finish()?.attempts;
        let fallen = cluster.fallen();
        anyhow::ensure!(attempts > 0, "{name}: nobody attacked");
        let after = hostile::ask_well(&cluster).is_ok();
        let mib = resident >> 20;
        finding.bound(
            fallen.is_empty() && after && served > 0,
            format!(
                "{MEMBER_MIB} MiB for each member, {name} ({attempts} attempts): every process lives{}; {served} requests \
                 of others were served and {refused} refused meanwhile, at least one served; the router took at most {mib} MiB",
                fallen.concat()
            ),
        );
        figures.push(json!({
            "attack": name, "attempts": attempts, "served": served, "refused": refused, "router_mib_max": mib,
            "fallen": fallen,
        }));
        if !fallen.is_empty() {
            break;
        }
    }
    finding.figure("memory", figures);
    Ok(())
}

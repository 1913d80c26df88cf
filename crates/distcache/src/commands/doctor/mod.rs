//! `distcache doctor`: asks the living storage and members of a configuration whether they are as they must be. It changes
//! nothing, but makes and deletes one user without rights where it may.

mod finding;
mod members;
mod modes;
mod placement;
mod redis;
mod storage;
mod store;
mod talk;

use std::time::Duration;

use config::HostRisk;

use super::ConfigArguments;
use crate::launch::Loaded;
use finding::{DoctorFindings, Level};
use lab::terminal::{BadInput, print};

/// Check the living storage and members of a configuration, and say what to do about what is wrong
///
/// Looks at every storage server (version, role, which mode its permissions allow, eviction, persistence, clock, TLS), at
/// whether a sample of keys lies where it is looked for and which `[placement]` fits if not, and at every link of every member, as they
/// are reached from this machine. Exit code 1 if something is wrong; warnings are none.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// Only the storage: members need not run yet
    #[arg(long)]
    storage_only: bool,

    /// How long to wait for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,

    /// Print the findings as one JSON array
    #[arg(long)]
    json: bool,
}

/// Certificates are renewed before that.
const EXPIRES_S_MIN: i64 = 14 * 86_400;

pub(crate) fn run(arguments: &DoctorArguments) -> anyhow::Result<()> {
    let Loaded { config, certificates } = arguments.config.look()?;
    router::users(&config).map_err(BadInput::of)?;
    let patience = Duration::from_secs(arguments.timeout);
    let mut findings = DoctorFindings::default();
    for tls in certificates.status() {
        let subject = format!("[tls.{}]", tls.table);
        match tls.expires_in_s.map(|seconds| (seconds, seconds / 86_400)) {
            Some((..=0, _)) => {
                findings.wrong(&subject, "its certificate has expired", "renew it, then distcache reload");
            }
            Some((..EXPIRES_S_MIN, days)) => {
                let what = format!("its certificate expires in {days} days");
                findings.doubt(&subject, &what, "renew it, then distcache reload");
            }
            Some((_, days)) => {
                findings.good(&subject, &format!("its certificate holds for another {days} days"));
            }
            None => {}
        }
    }
    for HostRisk { what, advice } in config.host_risks() {
        findings.doubt("[[host]]", &what, &advice);
    }
    storage::check(&config, &certificates, patience, &mut findings)?;
    placement::check(&config, &certificates, patience, &mut findings)?;
    if !arguments.storage_only {
        members::check(&config, &certificates, patience, &mut findings)?;
    }
    print(&match arguments.json {
        true => serde_json::to_string(&findings.0)?,
        false => findings.report(),
    });
    match findings.count(Level::Wrong) {
        0 => Ok(()),
        count => anyhow::bail!("{}: {count} things are wrong", arguments.config.config.display()),
    }
}

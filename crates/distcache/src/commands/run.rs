//! `distcache run`: one member of a configuration in this process. How it starts is `launch`'s business.

use runtime::stop::Stop;
use runtime::upgrade::Predecessor;

use super::StartArguments;
use crate::guard::{self, GuardDemand};
use crate::launch;
use lab::terminal::BadInput;

/// Run one member of a configuration
///
/// Prints `ready` once every listener accepts. SIGTERM and SIGINT stop it gracefully; a second one at once. SIGUSR2 has another
/// process take its place, of the program that lies now where this one was started from: new clients are its, and this one ends
/// once its clients have left, or after `retire_ms_max` of the router.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// Which member: its id in the file
    #[arg(long, env = "DISTCACHE_ID", value_name = "ID")]
    id: String,

    #[command(flatten)]
    start: StartArguments,
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let loaded = arguments.start.load()?;
    let config = &loaded.config;
    let id = arguments.id.as_str();
    if config.member(id).is_none() {
        return Err(BadInput::of(format!(
            "--id {id:?}: {} has no such member; it has: {}",
            arguments.start.config.config.display(),
            config.member_ids().collect::<Vec<_>>().join(", ")
        )));
    }
    crate::logging::follow(config);
    let _process = crate::logging::process(config, &[id]).entered();
    let (stop, upgrade) = (Stop::on_signals()?, runtime::stop::on_upgrade()?);
    let predecessor = Predecessor::find()?;
    let started = super::reload::on_hangup(config, &[id])?;
    guard::check(&loaded, &[id], GuardDemand::Plausible, &stop)?;
    let running = match predecessor {
        Some(predecessor) => launch::launch_after(predecessor, &loaded, &[id], &stop)?,
        None => launch::launch(&loaded, &[id], &stop)?,
    };
    // Nobody else sets it.
    let _ = started.set(running.reloader());
    launch::tell_ready();
    running.wait(&stop, &upgrade)
}

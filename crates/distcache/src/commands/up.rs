//! `distcache up`: every member of a configuration in this process. How they start is `launch`'s business.

use runtime::stop::Stop;
use runtime::upgrade::Predecessor;

use super::StartArguments;
use crate::guard::{self, GuardDemand};
use crate::launch;
use lab::terminal::say;

/// Run every member of a configuration in this process
///
/// Prints `ready` once every listener accepts. SIGTERM and SIGINT stop it gracefully; a second one at once. SIGUSR2 has another
/// process take its place, of the program that lies now where this one was started from: new clients are its, and this one ends
/// once its clients have left, or after `retire_ms_max` of the router.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    start: StartArguments,
}

pub(crate) fn run(arguments: &UpArguments) -> anyhow::Result<()> {
    let loaded = arguments.start.load()?;
    let config = &loaded.config;
    let ids: Vec<&str> = config.member_ids().collect();
    crate::logging::follow(config);
    let _process = crate::logging::process(config, &ids).entered();
    let (stop, upgrade) = (Stop::on_signals()?, runtime::stop::on_upgrade()?);
    let predecessor = Predecessor::find()?;
    let started = super::reload::on_hangup(config, &ids)?;
    guard::check(&loaded, &ids, GuardDemand::Plausible, &stop)?;
    let running = match predecessor {
        Some(predecessor) => launch::launch_after(predecessor, &loaded, &ids, &stop)?,
        None => launch::launch(&loaded, &ids, &stop)?,
    };
    // Nobody else sets it.
    let _ = started.set(running.reloader());
    if !config.assumed().is_empty() {
        let clients = config
            .routers
            .iter()
            .flat_map(|router| router.listens().map(|listen| listen.address.to_string()));
        let clients: Vec<String> = clients.collect();
        say(&format!(
            "clients connect to {}; `distcache check` lists what the file leaves out and is assumed",
            clients.join(", ")
        ));
    }
    launch::tell_ready();
    running.wait(&stop, &upgrade)
}

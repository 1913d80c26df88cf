//! `distcache up`: every member of a configuration, or of one of its hosts, in this process. How they start is `launch`'s
//! business.

use config::Config;
use runtime::stop::Stop;
use runtime::upgrade::Predecessor;

use super::StartArguments;
use crate::guard::{self, GuardDemand};
use crate::launch;
use lab::terminal::{BadInput, say};

/// Run every member of a configuration in this process, or those of one host
///
/// Prints `ready` once every listener accepts. SIGTERM and SIGINT stop it gracefully; a second one at once. SIGUSR2 has another
/// process take its place, of the program that lies now where this one was started from: new clients are its, and this one ends
/// once its clients have left, or after `retire_ms_max` of the router.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct UpArguments {
    /// Only the members with this `host`: the name of a `[[host]]` in the file
    #[arg(long, env = "DISTCACHE_HOST", value_name = "NAME")]
    host: Option<String>,

    #[command(flatten)]
    start: StartArguments,
}

pub(crate) fn run(arguments: &UpArguments) -> anyhow::Result<()> {
    let loaded = arguments.start.load()?;
    let config = &loaded.config;
    let ids: Vec<&str> = match &arguments.host {
        Some(host) => members_on(config, host).map_err(|why| {
            BadInput::of(format!("--host {host:?}: {} {why}", arguments.start.config.config.display()))
        })?,
        None => config.member_ids().collect(),
    };
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
        let routers = config.routers.iter().filter(|router| ids.contains(&router.id.as_str()));
        let clients = routers.flat_map(|router| router.listens().map(|listen| listen.address.to_string()));
        let clients: Vec<String> = clients.collect();
        say(&format!(
            "clients connect to {}; `distcache check` lists what the file leaves out and is assumed",
            if clients.is_empty() { "other processes".to_owned() } else { clients.join(", ") }
        ));
    }
    launch::tell_ready();
    running.wait(&stop, &upgrade)
}

/// The members of a host, or why there are none.
fn members_on<'a>(config: &'a Config, host: &str) -> Result<Vec<&'a str>, String> {
    if config.hosts.is_empty() {
        return Err(
            "has no [[host]]: add one for each machine, with name and address, and `host` to each member"
                .to_owned(),
        );
    }
    if !config.hosts.iter().any(|known| known.name == host) {
        let names: Vec<String> = config.hosts.iter().map(|known| format!("{:?}", known.name)).collect();
        return Err(format!("has no such [[host]]; it has {}", names.join(", ")));
    }
    match config.members_on(host) {
        none if none.is_empty() => {
            Err(format!("has no member there: write host = {host:?} to those that it is to run"))
        }
        members => Ok(members),
    }
}

//! `distcache reload`: every process reads its configuration file again, and the controller takes the members that were
//! added. It decides nothing.

use std::sync::{Arc, OnceLock};

use config::Config;
use controller::{RELOAD_PATH, Reload, ReloadView};
use runtime::admin::CommandToken;
use runtime::reload::Reloader;
use runtime::stop;

use super::ask::{CommandArguments, ControllerArguments};
use lab::terminal::print;

/// Let all members read their configuration files again while they serve
///
/// Settings that can change are acted on at once; for the others it says that a restart is needed. The controller takes
/// nodes, layers and routers that were added at the end of their kind; start them with `distcache run` then. Storage
/// servers cannot be added, because nobody would move their data.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReloadArguments {
    #[command(flatten)]
    command: CommandArguments,
}

/// The reloader of a process, once its members have started.
pub(crate) type Started = Arc<OnceLock<Arc<Reloader>>>;

/// SIGHUP reads the certificates and the configuration of this process again; a controller among `ids` takes members that
/// were added. It does nothing before the process has `Started`, and never ends it.
pub(crate) fn on_hangup(config: &Arc<Config>, ids: &[&str]) -> std::io::Result<Started> {
    let started = Started::default();
    let reloader = Arc::clone(&started);
    let here = config.controllers.iter().filter(|controller| ids.contains(&controller.id.as_str()));
    let controllers: Vec<_> =
        here.map(|controller| ControllerArguments::of(config, controller.listen)).collect();
    let token = CommandToken::derive(config.secret());
    stop::on_hangup(move || {
        tracing::info!("SIGHUP: reading certificates and configuration again");
        // What is wrong with them is in the log already. What is starting has just read them.
        if reloader.get().is_none_or(|reloader| reloader.reload().is_err()) {
            return;
        }
        for controller in &controllers {
            let itself = Reload { members: false };
            if let Err(error) = controller.post::<ReloadView>(&token, RELOAD_PATH, &itself) {
                tracing::error!("the members in use stay: {error:#}");
            }
        }
    })?;
    Ok(started)
}

pub(crate) fn run(arguments: &ReloadArguments) -> anyhow::Result<()> {
    let reloaded: ReloadView = arguments.command.post(RELOAD_PATH, &Reload { members: true })?;
    print(&match arguments.command.controller.json {
        true => serde_json::to_string(&reloaded)?,
        false => report(&reloaded),
    });
    Ok(())
}

fn report(reloaded: &ReloadView) -> String {
    let map = &reloaded.map;
    let layers: Vec<String> =
        map.layers.iter().map(|layer| format!("{} ({})", layer.name, layer.nodes.len())).collect();
    let mut lines = vec![format!("map epoch {}, layers (nodes) {}", map.epoch, layers.join(", "))];
    for (id, reloaded) in &reloaded.members {
        let changed = match reloaded.changed.as_slice() {
            [] => "nothing has changed".to_owned(),
            names => format!("changed: {}", names.join(", ")),
        };
        let restart = match reloaded.restart_needed.as_slice() {
            [] => String::new(),
            names => format!("; restart needed for {}", names.join(", ")),
        };
        lines.push(format!("  {id}: {changed}{restart}"));
    }
    let unheard = reloaded.unheard.iter();
    lines.extend(
        unheard.map(|id| format!("  {id}: nothing is heard of it; it reads its file when it starts")),
    );
    lines.join("\n")
}

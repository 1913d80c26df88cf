//! `distcache reload`: the controller reads its configuration file again and takes the members that were added. It
//! decides nothing.

use std::sync::Arc;

use controller::{MapView, RELOAD_PATH};
use runtime::config::Config;
use runtime::stop;

use super::ask::ControllerArguments;
use super::print;

/// Let the controller read its configuration file again, to add nodes, layers and routers while it serves
///
/// Add them at the end of their kind in the file, run this, then start them with `distcache run`. Nothing else can
/// change while serving; storage servers cannot be added, because nobody would move their data.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    controller: ControllerArguments,
}

/// SIGHUP reads the certificates of this process again and, if a controller is among `ids`, does what this command does.
pub(crate) fn on_hangup(config: &Arc<Config>, ids: &[&str]) -> std::io::Result<()> {
    let certificates = config.certificates();
    let here = config.controllers.iter().filter(|controller| ids.contains(&controller.id.as_str()));
    let controllers: Vec<_> = here.map(|controller| ControllerArguments::of(controller.listen)).collect();
    stop::on_hangup(move || {
        tracing::info!("SIGHUP: reading certificates and configuration again");
        // What is wrong with them is in the log already.
        let _ = certificates.reload();
        for controller in &controllers {
            if let Err(error) = controller.post::<MapView>(RELOAD_PATH, &()) {
                tracing::error!("the configuration in use stays: {error:#}");
            }
        }
    })
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let map: MapView = arguments.controller.post(RELOAD_PATH, &())?;
    if arguments.controller.json {
        print(&serde_json::to_string(&map)?);
        return Ok(());
    }
    let layers: Vec<String> =
        map.layers.iter().map(|layer| format!("{} ({})", layer.name, layer.nodes.len())).collect();
    print(&format!("map epoch {}, layers (nodes) {}", map.epoch, layers.join(", ")));
    Ok(())
}

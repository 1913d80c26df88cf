//! `distcache reload`: the controller reads its configuration file again and takes the members that were added. It
//! decides nothing.

use controller::{MapView, RELOAD_PATH};

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

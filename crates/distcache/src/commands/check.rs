//! `distcache check`: validates a configuration file. It starts and contacts nothing.

use config::HostRisk;

use super::ConfigArguments;
use crate::launch::Loaded;
use lab::terminal::{BadInput, print};

/// Validate a configuration file, and print what it leaves out and is assumed
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    config: ConfigArguments,
}

pub(crate) fn run(arguments: &CheckArguments) -> anyhow::Result<()> {
    let Loaded { config, .. } = arguments.config.look()?;
    router::users(&config)
        .map_err(|error| BadInput::of(format!("{}: {error}", arguments.config.config.display())))?;
    let layers: Vec<String> = config
        .layers
        .iter()
        .map(|layer| {
            let nodes = config.nodes.iter().filter(|node| node.layer == layer.name).count();
            format!("{} ({nodes})", layer.name)
        })
        .collect();
    let placement = match config.is_laid_out_by_others() {
        true => format!(", keys laid out by {}", config.placement_word()),
        false => String::new(),
    };
    print(&format!(
        "{}: ok: cluster {:?}{placement}, layers (nodes) {}, {} shims in {} racks, {} routers",
        arguments.config.config.display(),
        config.cluster.name,
        layers.join(", "),
        config.shims.len(),
        config.racks().len(),
        config.routers.len()
    ));
    for host in &config.hosts {
        let members = config.members_on(&host.name);
        print(&format!("host {} ({}): {}", host.name, host.address, members.join(", ")));
    }
    for HostRisk { what, advice } in config.host_risks() {
        print(&format!("warning: {what}; {advice}"));
    }
    config.assumed().iter().for_each(|assumed| print(&format!("assumed: {assumed}")));
    Ok(())
}

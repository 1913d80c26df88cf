//! `distcache inspect`: where one key lives and whether it is hot. The controller knows; this shows it.

use controller::Inspection;

use super::ask::ControllerArguments;
use lab::terminal::print;

/// Show where a key is stored, where it may be cached, and whether it is hot
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct InspectArguments {
    /// The key; bytes that are no text as \xNN
    #[arg(value_name = "KEY")]
    key: String,

    #[command(flatten)]
    controller: ControllerArguments,
}

pub(crate) fn run(arguments: &InspectArguments) -> anyhow::Result<()> {
    let found: Inspection = arguments.controller.get("/v1/inspect", &[("key", &arguments.key)])?;
    print(&if arguments.controller.json { serde_json::to_string(&found)? } else { report(&found) });
    Ok(())
}

fn report(found: &Inspection) -> String {
    let mut lines = vec![
        format!("key {} (map epoch {})", found.key, found.epoch),
        format!("  stored behind {} in rack {}", found.shim, found.rack),
    ];
    for place in &found.places {
        let node = place.node.as_deref().unwrap_or("no node: none that could hold it is up");
        let heat = place.heat.map(|heat| format!(", {heat} requests/s there")).unwrap_or_default();
        lines.push(format!("  layer {}: {node}{heat}", place.layer));
    }
    if !found.further.is_empty() {
        let further = found.further.iter().map(|further| format!("{} ({}/s)", further.node, further.heat));
        let further = further.collect::<Vec<_>>().join(", ");
        lines.push(format!("  too hot for these alone, and also in {further}"));
    }
    if !found.near.is_empty() {
        let near = found.near.iter().map(|near| format!("{} ({}/s)", near.router, near.heat));
        lines.push(format!("  held by routers themselves: {}", near.collect::<Vec<_>>().join(", ")));
    }
    lines.push(match found.hot {
        true => format!("  hot: {} requests/s", found.heat),
        false => "  not among the hottest keys of any member".to_owned(),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::report;
    use controller::{FurtherPlace, Inspection, KeyPlace, NearPlace};

    #[test]
    fn every_place_has_a_line() {
        let place = |layer: &str, node: Option<&str>, heat| KeyPlace {
            layer: layer.to_owned(),
            node: node.map(str::to_owned),
            heat,
        };
        let found = Inspection {
            key: "k".to_owned(),
            epoch: 2,
            shim: "shim-0".to_owned(),
            rack: "r0".to_owned(),
            places: vec![place("leaf", Some("leaf-0"), Some(7)), place("spine", None, None)],
            further: ["leaf-1", "leaf-3"].map(|node| FurtherPlace { node: node.to_owned(), heat: 6 }).into(),
            near: vec![NearPlace { router: "router-0".to_owned(), heat: 9 }],
            hot: true,
            heat: 28,
        };
        let expected = "\
key k (map epoch 2)
  stored behind shim-0 in rack r0
  layer leaf: leaf-0, 7 requests/s there
  layer spine: no node: none that could hold it is up
  too hot for these alone, and also in leaf-1 (6/s), leaf-3 (6/s)
  held by routers themselves: router-0 (9/s)
  hot: 28 requests/s";
        assert_eq!(report(&found), expected);
    }
}

//! `distcache drain`: takes a node's keys away before it is stopped for good, and waits until it holds none. The
//! controller decides; this asks and watches.

use std::time::{Duration, Instant};

use anyhow::bail;
use config::ByteSize;
use controller::{DRAIN_PATH, Drain, MapView};
use runtime::status::ClusterStatus;
use serde::Serialize;

use super::ask::{CommandArguments, Commander};
use lab::terminal::print;

/// How often it looks whether the nodes are done.
const LOOK: Duration = Duration::from_millis(100);

/// Take the keys of nodes away, so that they can be stopped for good; the others take them over
///
/// Waits until the nodes hold nothing. They stay in the map with nothing of their own until --undo gives them their
/// part back, in steps, as to a node that returns.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DrainArguments {
    /// Which nodes: ids of the configuration. All nodes of a layer take the layer away
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    /// Let the nodes have their part again
    #[arg(long)]
    undo: bool,

    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,

    #[command(flatten)]
    command: CommandArguments,
}

/// What became of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DrainOutcome {
    node: String,
    drained: bool,
    /// The map since which it is so.
    epoch: u32,
    /// How much of its partition it owns.
    share: f64,
    /// What it holds; none if it does not run.
    objects: Option<u64>,
    bytes: Option<u64>,
}

pub(crate) fn run(arguments: &DrainArguments) -> anyhow::Result<()> {
    let start = Instant::now();
    let deadline = start + Duration::from_secs(arguments.timeout);
    let commander = arguments.command.open()?;
    let mut outcomes = Vec::new();
    for id in &arguments.ids {
        outcomes.push(wait(&commander, arguments, id, deadline)?);
    }
    if arguments.command.controller.json {
        print(&serde_json::to_string(&outcomes)?);
    } else {
        outcomes.iter().for_each(|outcome| print(&report(outcome)));
    }
    Ok(())
}

/// Asks until the map shows it: another controller's map may have come between.
fn wait(
    commander: &Commander,
    arguments: &DrainArguments,
    id: &str,
    deadline: Instant,
) -> anyhow::Result<DrainOutcome> {
    let request = Drain { node: id.to_owned(), drained: !arguments.undo };
    loop {
        let map: MapView = commander.post(DRAIN_PATH, &request)?;
        let status: ClusterStatus = commander.get("/v1/status")?;
        let outcome = outcome(id, &map, &status);
        match outcome {
            Some((outcome, true)) if outcome.drained != arguments.undo => return Ok(outcome),
            _ if Instant::now() < deadline => std::thread::park_timeout(LOOK),
            Some((DrainOutcome { objects: Some(objects), .. }, _)) => {
                bail!(
                    "{id} still holds {objects} objects after {} s; it goes on: ask again, or give it a longer --timeout",
                    arguments.timeout
                )
            }
            _ => bail!(
                "{id}: the map does not show the change after {} s; ask again, or give it a longer --timeout",
                arguments.timeout
            ),
        }
    }
}

/// How it stands with the node, and whether that is final.
fn outcome(id: &str, map: &MapView, status: &ClusterStatus) -> Option<(DrainOutcome, bool)> {
    let node = map.layers.iter().flat_map(|layer| &layer.nodes).find(|node| node.id == id)?;
    let running = status.nodes.iter().find(|node| node.id == id);
    // What it says of an earlier map does not count: it may have fetched something since.
    let empty = running.is_none_or(|running| running.epoch >= map.epoch && running.statistics.objects == 0);
    let outcome = DrainOutcome {
        node: id.to_owned(),
        drained: node.drained,
        epoch: map.epoch,
        share: node.share,
        objects: running.map(|running| running.statistics.objects),
        bytes: running.map(|running| running.statistics.bytes),
    };
    Some((outcome, !node.drained || (node.share == 0.0 && empty)))
}

fn report(outcome: &DrainOutcome) -> String {
    let DrainOutcome { node, drained, epoch, .. } = outcome;
    let held = match (outcome.objects, outcome.bytes) {
        (Some(objects), Some(bytes)) => format!("holds {objects} objects ({})", ByteSize(bytes)),
        _ => "does not run".to_owned(),
    };
    match drained {
        true => format!("{node}: drained in map epoch {epoch}; {held}"),
        false => format!("{node}: takes its part of the keys again, from map epoch {epoch} on; {held}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{outcome, report};
    use controller::{LayerView, MapView, NodeView};
    use protocol::node::NodeStatistics;
    use runtime::status::{ClusterStatus, NodeStatus};

    fn map(share: f64, drained: bool) -> MapView {
        let node = NodeView { id: "n".to_owned(), rack: None, capacity: 1.0, share, drained };
        let (name, partition) = ("spine".to_owned(), "hash".to_owned());
        let layer = LayerView { name, partition, nodes: vec![node] };
        MapView { epoch: 4, layers: vec![layer], shims: Vec::new() }
    }

    fn status(epoch: u32, objects: u64) -> ClusterStatus {
        let statistics = NodeStatistics { objects, ..NodeStatistics::default() };
        let node = NodeStatus { id: "n".to_owned(), epoch, statistics, ..NodeStatus::default() };
        ClusterStatus { nodes: vec![node], ..ClusterStatus::default() }
    }

    #[test]
    fn a_node_is_drained_when_it_acts_on_that_map_and_is_empty() {
        let done =
            |map: &MapView, status: &ClusterStatus| outcome("n", map, status).is_some_and(|(_, done)| done);
        assert!(!done(&map(0.0, true), &status(3, 0)));
        assert!(!done(&map(0.0, true), &status(4, 1)));
        assert!(done(&map(0.0, true), &status(4, 0)));
        assert!(done(&map(0.0, true), &ClusterStatus::default()), "a node that does not run holds nothing");
        assert!(done(&map(0.25, false), &status(3, 7)));
        assert!(outcome("x", &map(0.0, true), &status(4, 0)).is_none());

        let (drained, _) = outcome("n", &map(0.0, true), &status(4, 0)).unwrap();
        assert_eq!(report(&drained), "n: drained in map epoch 4; holds 0 objects (0B)");
        let (back, _) = outcome("n", &map(0.0, false), &ClusterStatus::default()).unwrap();
        let expected = "n: takes its part of the keys again, from map epoch 4 on; does not run";
        assert_eq!(report(&back), expected);
    }
}

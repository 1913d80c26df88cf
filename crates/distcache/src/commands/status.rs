//! `distcache status`: the members and their counters, as a table or as JSON. It computes nothing.

use std::collections::BTreeMap;

use config::ByteSize;
use controller::{MemberState, MemberView};
use runtime::status::{ClusterStatus, NodeStatus, RouterStatus, ShimStatus};
use serde::Serialize;

use super::MembersLost;
use super::ask::ControllerArguments;
use lab::terminal::print;

/// Show the members of a cluster, how they are and what they do
///
/// Health: up; late (two heartbeats have not come); lost (its lease has ended; exit code 3); refused (its file places data
/// elsewhere; exit code 3); draining and drained (its keys were taken away by `distcache drain`). Nodes that nobody has asked for anything have no hit ratio and no leases.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    controller: ControllerArguments,
}

/// What `--json` prints: the statuses of those who are heard of, and how everybody is.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    status: &'a ClusterStatus,
    members: &'a [MemberView],
}

pub(crate) fn run(arguments: &StatusArguments) -> anyhow::Result<()> {
    let status: ClusterStatus = arguments.controller.get("/v1/status", &[])?;
    let members: Vec<MemberView> = arguments.controller.get("/v1/members", &[])?;
    print(&match arguments.controller.json {
        true => serde_json::to_string(&Whole { status: &status, members: &members })?,
        false => report(&status, &members),
    });
    let lost = members.iter().any(|member| {
        matches!(member.state, MemberState::Lost | MemberState::Down) || member.disagreement.is_some()
    });
    if lost { Err(MembersLost.into()) } else { Ok(()) }
}

fn report(status: &ClusterStatus, members: &[MemberView]) -> String {
    let mut parts = vec![format!("map epoch {}{}", status.epoch, releases(status))];
    let of = |role: &str| members.iter().filter(|member| member.role == role).collect::<Vec<_>>();
    let head = ["NODE", "HEALTH", "LAYER", "LOAD/S", "REQUESTS", "HIT RATIO", "OBJECTS", "BYTES", "LEASES"];
    parts.extend(part(&head, &of("node"), |id| status.nodes.iter().find(|node| node.id == id), node_cells));
    let head = ["SHIM", "HEALTH", "RACK", "LOAD/S", "READS", "WRITES", "COPIES", "INVALIDATED", "STORAGE"];
    parts.extend(part(&head, &of("shim"), |id| status.shims.iter().find(|shim| shim.id == id), shim_cells));
    let head = [
        "ROUTER",
        "HEALTH",
        "LOAD/S",
        "REQUESTS",
        "NEAR HITS",
        "TO NODES",
        "TO SHIMS",
        "CLIENTS",
        "P50",
        "P99",
    ];
    let find = |id: &str| status.routers.iter().find(|router| router.id == id);
    parts.extend(part(&head, &of("router"), find, router_cells));
    let absent = |state, word: &str| {
        // Why nothing is heard of one that is refused is told above.
        let silent = members.iter().filter(|member| member.state == state && member.disagreement.is_none());
        let ids: Vec<&str> = silent.map(|member| member.id.as_str()).collect();
        (!ids.is_empty()).then(|| format!("{word}: {}", ids.join(", ")))
    };
    parts.extend(refused(status));
    parts.extend(foreign_writers(status));
    parts.extend(disagreeing(status, members));
    parts.extend(absent(MemberState::Lost, "no heartbeat from"));
    parts.extend(absent(MemberState::Down, "no heartbeat from, partition taken over"));
    parts.extend(absent(MemberState::Drained, "drained, partition taken over"));
    parts.join("\n\n")
}

/// The releases of the members, one that is everybody's by its number, several with who is of which.
fn releases(status: &ClusterStatus) -> String {
    let mut told: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, release) in &status.releases {
        told.entry(release).or_default().push(id);
    }
    let told: Vec<String> = match told.len() {
        0 => return String::new(),
        1 => told.into_keys().map(str::to_owned).collect(),
        _ => told.into_iter().map(|(release, ids)| format!("{release} ({})", ids.join(", "))).collect(),
    };
    format!(", release {}, feature level {}", told.join(" and "), status.level)
}

/// What clients were refused since the members started, by rule.
fn refused(status: &ClusterStatus) -> Option<String> {
    let routers = status.routers.iter().map(|router| (&router.id, &router.sheds_total));
    let nodes = status.nodes.iter().map(|node| (&node.id, &node.sheds_total));
    let shims = status.shims.iter().map(|shim| (&shim.id, &shim.sheds_total));
    let told = routers.chain(nodes).chain(shims).flat_map(|(id, rules)| {
        let rules = rules.iter().filter(|(_, count)| **count > 0);
        rules.map(move |(rule, count)| format!("{id} {rule} {count}"))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("refused since the start: {}", told.join(", ")))
}

/// Who writes to storage beside DistCache, as far as it shows, and storage that evicts: a line for each.
fn foreign_writers(status: &ClusterStatus) -> Option<String> {
    let told = status.shims.iter().flat_map(|shim| {
        let refused = if shim.caching_refused { "; nothing of it is cached" } else { "" };
        let changes = Some(shim.statistics.foreign_writes).filter(|changes| *changes > 0);
        let writers = Some(&shim.foreign_writers).filter(|writers| !writers.is_empty());
        let others = (changes.is_some() || writers.is_some()).then(|| {
            let changes = changes.map(|changes| format!("cached keys changed {changes} times so far"));
            let writers = writers.map(|writers| format!("now {writers}"));
            let told: Vec<String> = changes.into_iter().chain(writers).collect();
            format!("others write to the storage of {}: {}{refused}", shim.id, told.join(", "))
        });
        let evicts = shim.eviction.as_ref();
        let evicts = evicts.map(|policy| format!("the storage of {} evicts ({policy}){refused}", shim.id));
        let unfenced = (shim.statistics.storage_unfenced > 0).then(|| {
            format!(
                "the storage of {} refuses what would fence earlier processes off: they are followed like others who write",
                shim.id
            )
        });
        others.into_iter().chain(evicts).chain(unfenced)
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// Members that are refused because their configurations differ, each with what differs.
fn disagreeing(status: &ClusterStatus, members: &[MemberView]) -> Option<String> {
    let heartbeats = members.iter().filter_map(|member| {
        let reason = member.disagreement.as_ref()?;
        Some(format!("the controller refuses {}: {reason}", member.id))
    });
    let routers = status.routers.iter().map(|router| (&router.id, &router.links));
    let nodes = status.nodes.iter().map(|node| (&node.id, &node.links));
    let shims = status.shims.iter().map(|shim| (&shim.id, &shim.links));
    let links = routers.chain(nodes).chain(shims);
    let links =
        links.flat_map(|(id, links)| links.links_refused.iter().map(move |why| format!("{id}: {why}")));
    let told: Vec<String> = heartbeats.chain(links).collect();
    (!told.is_empty()).then(|| told.join("\n"))
}

/// The table of one role. Who is not heard of has a row as well, without numbers.
fn part<'a, S: 'a>(
    head: &[&str],
    members: &[&MemberView],
    find: impl Fn(&str) -> Option<&'a S>,
    cells: impl Fn(&S) -> Vec<String>,
) -> Option<String> {
    let row = |member: &&MemberView| {
        let status = find(&member.id);
        let known = status.map(&cells).unwrap_or_else(|| vec!["-".to_owned(); head.len() - 2]);
        let holds = head[0] == "NODE" && status.is_some() && known[4] != "0";
        [vec![member.id.clone(), health(member, holds).to_owned()], known].concat()
    };
    (!members.is_empty()).then(|| table(head, members.iter().map(row).collect()))
}

fn health(member: &MemberView, holds: bool) -> &'static str {
    match member.state {
        _ if member.disagreement.is_some() => "refused",
        MemberState::Up => "up",
        MemberState::Late => "late",
        MemberState::Lost | MemberState::Down => "lost",
        MemberState::Drained if holds => "draining",
        MemberState::Drained => "drained",
    }
}

fn node_cells(node: &NodeStatus) -> Vec<String> {
    let counted = &node.statistics;
    let held = node.leases.iter().filter(|lease| lease.held).count();
    // Leases are there only while there are copies.
    let idle = held == 0 && counted.objects == 0;
    vec![
        node.layer.clone(),
        counted.load.to_string(),
        counted.requests.to_string(),
        percent(counted.hits, counted.hits + counted.misses),
        counted.objects.to_string(),
        size(counted.bytes),
        if idle { "idle".to_owned() } else { format!("{held}/{}", node.leases.len()) },
    ]
}

fn shim_cells(shim: &ShimStatus) -> Vec<String> {
    let counted = &shim.statistics;
    vec![
        shim.rack.clone(),
        counted.load.to_string(),
        counted.storage_reads.to_string(),
        counted.storage_writes.to_string(),
        counted.copies.to_string(),
        counted.invalidated_copies.to_string(),
        match (shim.standing_by, shim.storage_up, counted.hold_milliseconds) {
            (true, ..) => "standby".to_owned(),
            _ if counted.stale_milliseconds > 0 => {
                format!("down, stale for {} s", counted.stale_milliseconds.div_ceil(1000))
            }
            (false, true, 0) => "up".to_owned(),
            (false, true, hold) => format!("writes wait {} s", hold.div_ceil(1000)),
            (false, false, _) => "down".to_owned(),
        },
    ]
}

fn router_cells(router: &RouterStatus) -> Vec<String> {
    let counted = &router.statistics;
    vec![
        counted.load.to_string(),
        counted.requests.to_string(),
        counted.near_hits.to_string(),
        counted.reads_to_nodes.to_string(),
        counted.reads_to_shims.to_string(),
        router.clients.to_string(),
        format!("{} us", router.latency.p50_us),
        format!("{} us", router.latency.p99_us),
    ]
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// Exact sizes are for machines; the table rounds to three digits.
fn size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1}{name}", bytes as f64 / *unit as f64),
        None => ByteSize(bytes).to_string(),
    }
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    let head = line(&mut head.iter().copied());
    let rows = rows.iter().map(|row| line(&mut row.iter().map(String::as_str)));
    std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{releases, report};
    use controller::{MemberState, MemberView};
    use protocol::node::NodeStatistics;
    use runtime::status::{ClusterStatus, LeaseStatus, LinksStatus, NodeStatus};

    fn member(id: &str, state: MemberState) -> MemberView {
        MemberView { id: id.to_owned(), role: "node".to_owned(), state, silent_ms: None, disagreement: None }
    }

    #[test]
    fn the_table_is_aligned_and_names_who_is_missing() {
        let lease = |held| LeaseStatus { shim: "s".to_owned(), held, remaining_ms: 1 };
        let node = NodeStatus {
            id: "leaf-0".to_owned(),
            layer: "leaf".to_owned(),
            statistics: NodeStatistics {
                load: 12_345,
                hits: 2,
                misses: 1,
                objects: 3,
                bytes: 3 << 19,
                ..NodeStatistics::default()
            },
            leases: vec![lease(true), lease(false)],
            sheds_total: [("rate".to_owned(), 7), ("large-reply".to_owned(), 0)].into(),
            links: LinksStatus {
                links_refused: vec!["shim 0: the proof is wrong".to_owned()],
                ..LinksStatus::default()
            },
            ..NodeStatus::default()
        };
        let named = |id: &str| NodeStatus {
            id: id.to_owned(),
            sheds_total: [].into(),
            links: LinksStatus::default(),
            ..node.clone()
        };
        let leases = vec![lease(false); 2];
        let idle =
            NodeStatus { id: "idle".to_owned(), layer: "leaf".to_owned(), leases, ..NodeStatus::default() };
        let status = ClusterStatus {
            epoch: 3,
            nodes: vec![node.clone(), named("n3"), idle],
            ..ClusterStatus::default()
        };
        let members = [
            member("leaf-0", MemberState::Late),
            member("n1", MemberState::Lost),
            member("n2", MemberState::Down),
            member("n3", MemberState::Drained),
            member("idle", MemberState::Up),
            MemberView {
                disagreement: Some("[[shim]] entries: 3 here and 2 there".to_owned()),
                ..member("odd", MemberState::Lost)
            },
        ];
        let expected = "\
map epoch 3

NODE      HEALTH  LAYER  LOAD/S  REQUESTS  HIT RATIO  OBJECTS   BYTES  LEASES
leaf-0      late   leaf   12345         0     66.7 %        3  1.5MiB     1/2
n1          lost      -       -         -          -        -       -       -
n2          lost      -       -         -          -        -       -       -
n3      draining   leaf   12345         0     66.7 %        3  1.5MiB     1/2
idle          up   leaf       0         0          -        0      0B    idle
odd      refused      -       -         -          -        -       -       -

refused since the start: leaf-0 rate 7

the controller refuses odd: [[shim]] entries: 3 here and 2 there
leaf-0: shim 0: the proof is wrong

no heartbeat from: n1

no heartbeat from, partition taken over: n2

drained, partition taken over: n3";
        assert_eq!(report(&status, &members), expected);
    }

    #[test]
    fn a_release_that_is_everybodys_is_told_by_its_number_alone() {
        let of = |id: &str, release: &str| (id.to_owned(), release.to_owned());
        let status = |releases: [(String, String); 3]| ClusterStatus {
            level: 1,
            releases: releases.into(),
            ..ClusterStatus::default()
        };
        let one = status([of("a", "1.2.0"), of("b", "1.2.0"), of("c", "1.2.0")]);
        assert_eq!(releases(&one), ", release 1.2.0, feature level 1");
        let two = status([of("a", "1.2.0"), of("b", "1.3.0"), of("c", "1.2.0")]);
        assert_eq!(releases(&two), ", release 1.2.0 (a, c) and 1.3.0 (b), feature level 1");
        assert_eq!(releases(&ClusterStatus::default()), "");
    }
}

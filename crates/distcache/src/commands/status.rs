//! `distcache status`: the members and their counters, as a table or as JSON. It computes nothing.

use controller::{MemberState, MemberView};
use runtime::config::ByteSize;
use runtime::status::ClusterStatus;

use super::ask::ControllerArguments;
use super::print;

/// Show the members of a cluster and what they do
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    controller: ControllerArguments,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let status: ClusterStatus = arguments.controller.get("/v1/status", &[])?;
    if arguments.controller.json {
        print(&serde_json::to_string(&status)?);
        return Ok(());
    }
    let members: Vec<MemberView> = arguments.controller.get("/v1/members", &[])?;
    print(&report(&status, &members));
    Ok(())
}

fn report(status: &ClusterStatus, members: &[MemberView]) -> String {
    let mut parts = vec![format!("map epoch {}", status.epoch)];
    if !status.nodes.is_empty() {
        let head = ["NODE", "LAYER", "LOAD/S", "REQUESTS", "HIT RATIO", "OBJECTS", "BYTES", "LEASES"];
        let rows = status.nodes.iter().map(|node| {
            let held = node.leases.iter().filter(|lease| lease.held).count();
            vec![
                node.id.clone(),
                node.layer.clone(),
                node.load.to_string(),
                node.requests_total.to_string(),
                percent(node.hits_total, node.hits_total + node.misses_total),
                node.objects.to_string(),
                size(node.bytes),
                format!("{held}/{}", node.leases.len()),
            ]
        });
        parts.push(table(&head, rows.collect()));
    }
    if !status.shims.is_empty() {
        let head = ["SHIM", "RACK", "LOAD/S", "READS", "WRITES", "COPIES", "INVALIDATED", "STORAGE"];
        let rows = status.shims.iter().map(|shim| {
            vec![
                shim.id.clone(),
                shim.rack.clone(),
                shim.load.to_string(),
                shim.storage_reads_total.to_string(),
                shim.storage_writes_total.to_string(),
                shim.copies.to_string(),
                shim.invalidated_copies_total.to_string(),
                if shim.storage_up { "up" } else { "down" }.to_owned(),
            ]
        });
        parts.push(table(&head, rows.collect()));
    }
    if !status.routers.is_empty() {
        let head = ["ROUTER", "LOAD/S", "REQUESTS", "TO NODES", "TO SHIMS", "CLIENTS", "P50", "P99"];
        let rows = status.routers.iter().map(|router| {
            vec![
                router.id.clone(),
                router.load.to_string(),
                router.requests_total.to_string(),
                router.reads_to_nodes_total.to_string(),
                router.reads_to_shims_total.to_string(),
                router.clients.to_string(),
                format!("{} us", router.latency.p50_us),
                format!("{} us", router.latency.p99_us),
            ]
        });
        parts.push(table(&head, rows.collect()));
    }
    let absent = |state, word: &str| {
        let ids = members.iter().filter(|member| member.state == state).map(|member| member.id.as_str());
        let ids: Vec<&str> = ids.collect();
        (!ids.is_empty()).then(|| format!("{word}: {}", ids.join(", ")))
    };
    parts.extend(absent(MemberState::Lost, "no heartbeat from"));
    parts.extend(absent(MemberState::Down, "down, partition taken over"));
    parts.extend(absent(MemberState::Drained, "drained, partition taken over"));
    parts.join("\n\n")
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
    use super::report;
    use controller::{MemberState, MemberView};
    use runtime::status::{ClusterStatus, LeaseStatus, NodeStatus};

    #[test]
    fn the_table_is_aligned_and_names_who_is_missing() {
        let lease = |held| LeaseStatus { shim: "s".to_owned(), held, remaining_ms: 1 };
        let node = NodeStatus {
            id: "leaf-0".to_owned(),
            layer: "leaf".to_owned(),
            load: 12_345,
            hits_total: 2,
            misses_total: 1,
            bytes: 3 << 19,
            leases: vec![lease(true), lease(false)],
            ..NodeStatus::default()
        };
        let status = ClusterStatus { epoch: 3, nodes: vec![node], ..ClusterStatus::default() };
        let member = |id: &str, state| MemberView { id: id.to_owned(), role: "node".to_owned(), state };
        let members = [
            member("leaf-0", MemberState::Up),
            member("n1", MemberState::Lost),
            member("n2", MemberState::Down),
            member("n3", MemberState::Drained),
        ];
        let expected = "\
map epoch 3

NODE    LAYER  LOAD/S  REQUESTS  HIT RATIO  OBJECTS   BYTES  LEASES
leaf-0   leaf   12345         0     66.7 %        0  1.5MiB     1/2

no heartbeat from: n1

down, partition taken over: n2

drained, partition taken over: n3";
        assert_eq!(report(&status, &members), expected);
    }
}

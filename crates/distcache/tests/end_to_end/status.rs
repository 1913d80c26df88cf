//! What operators see: `distcache status`, `inspect`, metrics and health of running processes. Not the numbers' balance.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value as Json;

use crate::cluster::{Cluster, Layout, RedisServer, distcache, free_port, installed, shared, total, until};

/// The body of an HTTP reply with its status line.
pub(crate) fn http(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the port accepts");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("written");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply in UTF-8");
    reply
}

fn numbers<'a>(member: &'a Json, keys: &[&'a str]) {
    for key in keys {
        assert!(member[*key].is_u64(), "{key} is missing in {member}");
    }
}

#[test]
fn status_shows_every_member_with_its_counters() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::apart(Layout::before(&servers));
    let mut client = cluster.connect(0);
    let rounds = 400;
    for index in 0..rounds {
        if index % 20 == 0 {
            client.call(&["SET", "hot", &index.to_string()]);
        }
        assert_eq!(crate::cluster::text(&client.call(&["GET", "hot"])), (index / 20 * 20).to_string());
    }
    let status = cluster.fresh_status(|status| {
        // What was asked while the cluster started is among the router's requests, but not among its reads.
        let reads = ["reads_to_nodes_total", "reads_to_shims_total"].map(|key| total(status, "routers", key));
        reads.iter().sum::<u64>() >= rounds
            && total(status, "shims", "storage_writes_total") >= rounds / 20
            && total(status, "nodes", "hits_total") > 0
    });
    assert_eq!(status["epoch"], 1);
    for (list, ids) in [("nodes", vec!["leaf-0", "spine-0"]), ("shims", vec!["shim-0", "shim-1"])] {
        let found: Vec<&Json> =
            status[list].as_array().expect(list).iter().map(|member| &member["id"]).collect();
        assert_eq!(found, ids, "{list}");
    }
    for node in status["nodes"].as_array().expect("nodes") {
        assert_eq!(node["layer"], node["id"].as_str().expect("an id").split('-').next().expect("a name"));
        numbers(node, &["requests_total", "hits_total", "load", "objects", "bytes"]);
        for lease in node["leases"].as_array().expect("leases") {
            assert!(
                lease["held"].is_boolean()
                    && lease["shim"].as_str().is_some_and(|id| id.starts_with("shim-"))
            );
            assert!(lease["remaining_ms"].as_u64().is_some_and(|left| left <= 1000), "{lease}");
        }
    }
    let shim_counters = [
        "storage_reads_total",
        "storage_writes_total",
        "invalidations_total",
        "invalidated_copies_total",
        "coherence_messages_total",
        "commits_total",
        "copies",
    ];
    status["shims"].as_array().expect("shims").iter().for_each(|shim| numbers(shim, &shim_counters));
    numbers(&status["routers"][0], &["requests_total", "reads_to_nodes_total", "reads_to_shims_total"]);

    the_counters_fit_the_work(&status, rounds);

    let url = format!("http://{}", cluster.layout.controller);
    let inspect =
        distcache().args(["inspect", "hot", "--json", "--controller", &url]).output().expect("inspect runs");
    let inspected: Json = serde_json::from_slice(&inspect.stdout).expect("inspect prints JSON");
    assert_eq!(inspected["key"], "hot");
    assert_eq!(inspected["places"].as_array().map(Vec::len), Some(2), "{inspected}");
}

/// `rounds` reads of one key, and a write for each twenty of them.
fn the_counters_fit_the_work(status: &Json, rounds: u64) {
    let router = &status["routers"][0];
    let reads = router["reads_to_nodes_total"].as_u64().zip(router["reads_to_shims_total"].as_u64());
    // On a busy machine a node may be taken for hung once, and its read is asked again.
    let again = ["reads_lost_total", "retries_total"].map(|key| router[key].as_u64().unwrap_or_default());
    let asked = rounds + again.iter().sum::<u64>();
    assert!(reads.is_some_and(|(nodes, shims)| nodes + shims == asked && nodes > rounds / 2), "{router}");
    assert_eq!(total(status, "shims", "storage_writes_total"), rounds / 20, "{status}");
    assert!(total(status, "nodes", "objects") >= 1 && total(status, "nodes", "objects") <= 2, "{status}");
    assert!(total(status, "nodes", "bytes") > 0);
    // Each copy costs INV and ACK, and at most one COMMIT.
    let copies = total(status, "shims", "invalidated_copies_total");
    assert!(copies > 0, "{status}");
    assert_eq!(total(status, "shims", "coherence_messages_total"), copies * 2, "{status}");
    assert!(total(status, "shims", "commits_total") <= copies, "{status}");
    let held = |node: &Json| {
        node["leases"].as_array().is_some_and(|leases| leases.iter().any(|l| l["held"] == true))
    };
    assert!(status["nodes"].as_array().expect("nodes").iter().any(held), "{status}");
}

/// What running members export is on the page of metrics, with the rules by which they refuse work.
fn check_page(metrics: &str) {
    const PAGE: &str = "docs/operating/metrics.md";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let page = std::fs::read_to_string(path).expect(PAGE);
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let suffix = if kind == "counter" { "_total" } else { "" };
        assert!(page.contains(&format!("| `{name}{suffix}` | {kind} | ")), "{PAGE}: {name} has no row");
    }
    let rule = |line: &str| {
        let (role, rest) = line.strip_prefix("distcache_")?.split_once("_sheds_total{")?;
        let rule = rest.split_once("rule=\"")?.1.split('"').next()?;
        Some(format!("| {role} | `{rule}` |"))
    };
    let rules: std::collections::BTreeSet<String> = metrics.lines().filter_map(rule).collect();
    let (_, table) = page.split_once("| role | rule | refused is |").expect("the table of rules");
    let first_cells = |row: &str| row.splitn(4, '|').take(3).collect::<Vec<_>>().join("|") + "|";
    let rows = table.lines().take_while(|line| !line.starts_with('#')).filter(|line| line.contains("| `"));
    let described: std::collections::BTreeSet<String> = rows.map(first_cells).collect();
    assert_eq!(described, rules, "{PAGE}: the table of rules");
}

#[test]
fn the_admin_port_shows_metrics_and_health() {
    let _machine = shared();
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut cluster = Cluster::unstarted(Layout::embedded(1));
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let toml = toml.replace("listen = ", &format!("admin = \"{admin}\"\nlisten = "));
    let toml = toml.replacen(&format!("admin = \"{admin}\"\n"), "", 1); // the controller has no such key
    std::fs::write(&cluster.config, toml).expect("written");
    cluster.start(crate::cluster::UP);
    cluster.wait_linked();
    let mut client = cluster.connect(0);
    for _ in 0..10 {
        client.call(&["GET", "a"]);
    }
    let metrics = until("the metrics show the requests", || {
        let metrics = http(admin, "/metrics");
        let has_told = |role: &str| metrics.contains(&format!("distcache_{role}_sheds_total{{"));
        // Each member tells by itself, every tenth of a second.
        ["node", "shim", "router"].iter().all(|role| has_told(role)).then_some(())?;
        let sample = metrics.lines().find(|line| line.starts_with("distcache_router_requests_total{"))?;
        let value: f64 = sample.rsplit(' ').next()?.parse().ok()?;
        (value >= 10.0).then_some(metrics)
    });
    for name in [
        "distcache_node_hits_total",
        "distcache_node_misses_total",
        "distcache_node_fills_total",
        "distcache_node_queue_depth",
        "distcache_node_leases_lost_total",
        "distcache_shim_invalidations_total",
        "distcache_shim_coherence_messages_total",
        "distcache_shim_leases_lost_total",
        "distcache_router_latency_seconds_bucket",
        "# EOF",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    check_page(&[metrics, http(cluster.layout.controller, "/metrics")].concat());
    until("everything is healthy", || http(admin, "/health").starts_with("HTTP/1.1 200").then_some(()));
    assert!(http(admin, "/status").contains(r#""role":"router""#));
}

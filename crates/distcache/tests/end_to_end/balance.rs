//! The cache does what it is for: hot keys spread evenly over the nodes. A short smoke test; `benches` measures.

use serde_json::Value as Json;

use crate::cluster::{Cluster, Layout, alone, distcache, ok, text, total};

/// 4 racks of two servers, 4 leaf and 4 spine nodes, with these further tables and keys of nodes.
fn cluster(tables: &str, node_keys: &str) -> Cluster {
    let (tables, node_keys) = (tables.to_owned(), node_keys.to_owned());
    Cluster::up(Layout { racks: 4, spines: 4, objects_max: 200, tables, node_keys, ..Layout::embedded(8) })
}

fn bench(cluster: &Cluster, arguments: &[&str]) -> Json {
    let target = format!("redis://{}", cluster.router(0));
    let mut command = distcache();
    command.args(["bench", "--json", "--target", &target, "--connections", "48"]).args(arguments);
    let output = command.output().expect("bench runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Json = serde_json::from_slice(&output.stdout).expect("bench prints JSON");
    assert_eq!(result["errors"], 0, "{result}");
    result
}

fn requests(status: &Json) -> Vec<u64> {
    let nodes = status["nodes"].as_array().expect("nodes");
    nodes.iter().map(|node| node["requests_total"].as_u64().expect("a counter")).collect()
}

/// Requests that each node got between two statuses.
fn differences(before: &Json, after: &Json) -> Vec<u64> {
    requests(before).into_iter().zip(requests(after)).map(|(before, after)| after - before).collect()
}

/// The status once the heartbeats have brought everything: nothing moves any more.
fn settled(cluster: &Cluster, at_least: u64) -> Json {
    cluster.fresh_status(|status| {
        total(status, "routers", "requests_total") >= at_least && {
            let again = cluster.status();
            requests(status) == requests(&again) && total(&again, "nodes", "load") == 0
        }
    })
}

#[test]
fn nodes_share_a_skewed_load_evenly() {
    let _machine = alone();
    let cluster = cluster("", "");
    let common = ["--keys", "20000", "--dist", "zipf:0.99"];
    bench(&cluster, &[&common[..], &["--seconds", "4"]].concat());
    let before = settled(&cluster, 20_000);
    let result = bench(&cluster, &[&common[..], &["--seconds", "5", "--no-load"]].concat());
    let measured = result["requests"].as_u64().expect("a number");
    let sent = total(&before, "routers", "requests_total") + measured;
    let after = settled(&cluster, sent);

    let shares = differences(&before, &after);
    let average = shares.iter().sum::<u64>() as f64 / shares.len() as f64;
    let imbalance = *shares.iter().max().expect("eight nodes") as f64 / average;
    assert!(imbalance <= 1.25, "max/avg {imbalance:.3}: {shares:?}");
    let hits = total(&after, "nodes", "hits_total") - total(&before, "nodes", "hits_total");
    let ratio = hits as f64 / measured as f64;
    assert!(ratio > 0.4, "hit ratio {ratio:.3} of {measured}: {shares:?}");
}

#[test]
fn one_key_is_served_by_its_two_nodes_alike() {
    let _machine = alone();
    // A busy machine makes nodes short of time, and a key that takes half of one would get more copies.
    let cluster = cluster("[limits]\ncopies_max = 1", "");
    bench(&cluster, &["--keys", "100", "--dist", "adversary:1", "--seconds", "2"]);
    let before = settled(&cluster, 100);
    let result = bench(&cluster, &["--keys", "100", "--dist", "adversary:1", "--seconds", "3", "--no-load"]);
    let measured = result["requests"].as_u64().expect("a number");
    let after = settled(&cluster, total(&before, "routers", "requests_total") + measured);

    let mut shares = differences(&before, &after);
    shares.sort_unstable_by(|a, b| b.cmp(a));
    let both = shares[0] + shares[1];
    assert!(both as f64 > measured as f64 * 0.95, "{shares:?} of {measured}");
    assert!(shares[0] as f64 / both as f64 <= 0.55, "{shares:?}");
}

/// One key, of nodes that serve 300 requests per second each: all of them serve it within seconds, and two hold it when it is
/// over. Writes meanwhile reach every copy.
#[test]
fn one_key_that_is_too_hot_for_its_nodes_is_served_by_all() {
    const RATE: u64 = 300;
    let _machine = alone();
    let cluster = cluster("", &format!("rate_max = {RATE}"));
    let one_key = ["--keys", "100", "--dist", "adversary:1"];
    bench(&cluster, &[&one_key[..], &["--seconds", "5"]].concat());
    let before = settled(&cluster, 100);
    let result = bench(&cluster, &[&one_key[..], &["--seconds", "4", "--no-load"]].concat());
    let measured = result["requests"].as_u64().expect("a number");
    let after = settled(&cluster, total(&before, "routers", "requests_total") + measured);
    let shares = differences(&before, &after);
    // Seconds are counted from the first request to the last reply.
    let due = RATE * 4;
    assert!(shares.iter().all(|share| *share * 10 >= due * 9), "{shares:?}, not {due} each");
    assert_eq!(copies(&after), (8, 1), "{after}");

    let mut client = cluster.connect(0);
    for number in 0..100 {
        // As `bench` names them.
        let key = format!("key:{number:012}");
        ok(&mut client, &["SET", &key, "new"]);
        // Once, so that no further key becomes hot.
        assert_eq!(text(&client.call(&["GET", &key])), "new", "{key}");
    }
    let invalidated = |status: &Json| total(status, "shims", "invalidated_copies_total");
    cluster.fresh_status(|status| invalidated(status) >= invalidated(&after) + 8);
    cluster.fresh_status(|status| copies(status) == (2, 0));
}

/// Copies of all keys, and keys with more places than one per layer.
fn copies(status: &Json) -> (u64, u64) {
    (total(status, "shims", "copies"), total(status, "shims", "elastic_keys"))
}

//! `distcache bench` against a cluster, over TCP and the router's Unix socket. Not how even the load is.

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::cluster::{Cluster, Layout, RedisServer, distcache, free_port, installed, shared};

fn bench(target: &str, arguments: &[&str]) -> Output {
    let mut command = distcache();
    command.args(["bench", "--json", "--target", target]).args(arguments).output().expect("bench runs")
}

fn result(output: &Output) -> Json {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Json = serde_json::from_slice(&output.stdout).expect("bench prints JSON");
    let latency = &result["latency_us"];
    let steps: Vec<u64> = ["p50", "p90", "p99", "p999", "max"]
        .iter()
        .map(|step| latency[*step].as_u64().expect("a number"))
        .collect();
    assert!(steps.is_sorted() && steps[0] > 0, "{result}");
    result
}

#[test]
fn bench_loads_every_key_and_counts_what_it_measures() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let unix = format!("redis+unix://{}", cluster.unix_socket().display());
    let tcp = format!("redis://{}", cluster.router(0));
    let common = ["--keys", "300", "--connections", "10", "--requests", "2000"];
    for target in [&tcp, &unix] {
        let run =
            result(&bench(target, &[&common[..], &["--pipeline", "4", "--write-ratio", "0.1"]].concat()));
        assert_eq!((&run["requests"], &run["errors"]), (&2000.into(), &0.into()), "{run}");
        assert!(run["throughput"].as_f64().is_some_and(|rate| rate > 100.0), "{run}");
    }
    let run = result(&bench(&tcp, &[&common[..], &["--no-load", "--mget", "10"]].concat()));
    assert_eq!((&run["requests"], &run["errors"]), (&2000.into(), &0.into()), "{run}");
    let mut client = cluster.connect(0);
    assert_eq!(client.ask(&["DBSIZE"]).expect("a reply"), ":300\r\n");
    assert_eq!(client.ask(&["STRLEN", "key:000000000299"]).expect("a reply"), ":64\r\n");

    let started = Instant::now();
    let open = ["--keys", "300", "--no-load", "--rate", "500", "--requests", "500", "--dist", "adversary:10"];
    let run = result(&bench(&tcp, &open));
    assert!(started.elapsed() > Duration::from_millis(900), "500 requests at 500/s take a second");
    assert_eq!(run["requests"], 500, "{run}");
    assert!(run["throughput"].as_f64().is_some_and(|rate| rate < 600.0), "{run}");

    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let output = bench(&nobody, &["--requests", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&nobody["redis://".len()..]), "{output:?}");
}

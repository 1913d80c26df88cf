//! `distcache bench` and `distcache demo` as their users run them. Not how even the load is.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::cluster::{
    Cluster, Directory, Layout, Process, RedisServer, alone, distcache, free_port, installed, shared,
};

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

fn demo(storage: &str, port: u16) -> Command {
    let mut command = distcache();
    command.args(["demo", "--storage", storage, "--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--racks", "2", "--spines", "2"]);
    command
}

#[test]
fn demo_shows_what_the_cache_changes() {
    let _machine = alone();
    let output =
        demo("embedded", free_port()).args(["--seconds", "8", "--json"]).output().expect("demo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Json = serde_json::from_slice(&output.stdout).expect("demo prints JSON and nothing else");
    let (without, with) = (&summary["without_cache"], &summary["with_cache"]);
    for phase in [without, with] {
        assert!(phase["throughput"].as_f64().is_some_and(|rate| rate > 0.0), "{summary}");
        assert!(phase["storage_max_over_avg"].as_f64().is_some_and(|ratio| ratio >= 1.0), "{summary}");
    }
    assert_eq!(
        (&without["hit_ratio"], &without["node_max_over_avg"]),
        (&0.0.into(), &Json::Null),
        "{summary}"
    );
    assert!(with["hit_ratio"].as_f64().is_some_and(|ratio| ratio > 0.3), "{summary}");
    assert!(with["node_max_over_avg"].as_f64().is_some_and(|ratio| (1.0..1.5).contains(&ratio)), "{summary}");
}

#[test]
fn demo_stops_what_it_started_when_it_is_interrupted() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let directory = Directory::new();
    let port = free_port();
    let mut command = demo("redis", port);
    command.args(["--seconds", "60"]).env("TMPDIR", directory.path()).stdout(Stdio::piped());
    let mut process = Process::start("demo", command, &directory.join("demo.log"));
    // Serving clients, it has started everything.
    crate::cluster::until("the demonstration serves clients", || {
        let mut client = crate::cluster::Client::try_tcp(([127, 0, 0, 1], port).into()).ok()?;
        client.ask(&["DBSIZE"]).ok().filter(|reply| reply.starts_with(b":")).map(drop)
    });
    let sockets = |directory: &Directory| {
        let folders = std::fs::read_dir(directory.path()).expect("the directory").flatten();
        folders.filter(|entry| entry.path().is_dir()).count()
    };
    assert_eq!(sockets(&directory), 1, "its servers live in a directory of their own");
    process.signal(Signal::INT);
    let status = process.wait();
    assert!(status.code().is_some(), "{status}: it ends by itself, not by the signal\n{}", process.log());
    // The directory goes last, after the servers in it.
    assert_eq!(sockets(&directory), 0, "its directory is gone");
}

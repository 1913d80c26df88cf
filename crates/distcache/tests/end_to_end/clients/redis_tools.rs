//! redis-cli and redis-benchmark, as people type them.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, Layout, RedisServer, installed, shared};

/// What redis-cli reads, one command per line. Every reply must be that of one Redis server.
const SESSION: &str = include_str!("session.txt");

/// Runs redis-cli over `session` and returns what it prints.
fn redis_cli(arguments: &[&str], session: &str) -> String {
    let mut command = Command::new("redis-cli");
    command.arg("--no-raw").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("redis-cli starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let session = session.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(session.as_bytes()));
    let output = child.wait_with_output().expect("redis-cli ends");
    writer.join().expect("the writer does not panic").expect("redis-cli reads everything");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout);
    // It also says how long a command took that took long, as the first write behind a new shim does.
    let lines = printed.lines().filter(|line| !(line.starts_with('(') && line.ends_with("s)")));
    lines.map(|line| line.to_owned() + "\n").collect()
}

fn assert_same(direct: &str, through: &str, what: &str) {
    for (line, (direct, through)) in direct.lines().zip(through.lines()).enumerate() {
        assert_eq!(direct, through, "{what}, line {} of redis-cli's output", line + 1);
    }
    assert_eq!(direct.lines().count(), through.lines().count(), "{what}: one has more lines");
}

#[test]
fn redis_cli_prints_the_same_as_before_one_redis() {
    if !installed(&["redis-server", "redis-cli"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let direct = RedisServer::start();
    let cluster = Cluster::up(Layout { spines: 2, ..Layout::before(&servers) });
    let port = cluster.router(0).port().to_string();
    let socket = direct.socket();
    let socket = socket.to_str().expect("a path in UTF-8");
    for protocol in ["-2", "-3"] {
        let version: &[&str] = if protocol == "-3" { &["-3"] } else { &[] };
        let expected = redis_cli(&[version, &["-s", socket]].concat(), SESSION);
        let printed = redis_cli(&[version, &["-p", &port]].concat(), SESSION);
        assert!(expected.lines().count() > 150, "the session was not run:\n{expected}");
        assert_same(&expected, &printed, protocol);
        let keys: String = (0..50).map(|index| format!("SET s:{index} {index}\n")).collect();
        for scan in [&["--scan", "--pattern", "s:*"][..], &["--scan"]] {
            let [expected, found] = [["-s", socket], ["-p", &port]].map(|server| {
                redis_cli(&server, &keys);
                let printed = redis_cli(&[&server, scan].concat(), "");
                printed.lines().map(str::to_owned).collect::<BTreeSet<String>>()
            });
            assert!(expected.len() >= 50, "{expected:?}");
            assert_eq!(expected, found, "{scan:?}");
        }
        redis_cli(&["-p", &port], "FLUSHALL\n");
        redis_cli(&["-s", socket], "FLUSHALL\n");
    }
}

#[test]
fn redis_benchmark_finds_no_error() {
    if !installed(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let port = cluster.router(0).port().to_string();
    const TESTS: &str = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset";
    for pipeline in [&[][..], &["-P", "16"]] {
        let mut command = Command::new("redis-benchmark");
        command.args(["-p", &port, "-t", TESTS, "-n", "2000", "-r", "200", "-c", "20"]).args(pipeline);
        let output = command.output().expect("redis-benchmark runs");
        let printed =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        assert!(!printed.contains("rror"), "{printed}");
        assert!(!printed.contains("WARNING"), "{printed}");
        // LRANGE runs four times, after an LPUSH that fills its list.
        let finished = printed.matches("requests completed in").count();
        assert_eq!(finished, TESTS.split(',').count() + 4, "{printed}");
    }
}

//! memcached's clients that people use, unmodified: pymemcache, python-memcached, pylibmc and libmemcached's own
//! conformance tool. What the Python ones check is in `tests/python`.

use std::path::Path;
use std::process::Command;

use super::{check_alone, cluster};
use crate::cluster::{Cluster, MemcachedServer, RedisServer, installed, python_with, shared};

fn check(cluster: &Cluster, flags: &str) {
    let port = cluster.router(0).port().to_string();
    if let Some(python) = python_with("import memcache, pylibmc, pymemcache") {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/memcached_clients.py");
        let output = Command::new(python).arg("-B").arg(script).args([&port, flags]).output();
        let output = output.expect("Python runs");
        check_alone(cluster);
        assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn clients_work_unmodified_over_memcached() {
    if !installed(&["memcached"]) {
        return;
    }
    let _machine = shared();
    let servers = [MemcachedServer::start(), MemcachedServer::start()];
    check(&cluster(servers.iter().map(MemcachedServer::url).collect()), "flags");
}

#[test]
fn clients_work_unmodified_over_redis() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    check(&cluster(servers.iter().map(RedisServer::url).collect()), "plain");
}

#[test]
fn libmemcacheds_conformance_tool_finds_nothing() {
    if !installed(&["memcached", "memccapable"]) {
        return;
    }
    let _machine = shared();
    let server = MemcachedServer::start();
    let cluster = cluster(vec![server.url()]);
    let mut command = Command::new("memccapable");
    command.args(["-h", "127.0.0.1", "-p", &cluster.router(0).port().to_string(), "-a"]);
    let output = command.output().expect("it starts");
    check_alone(&cluster);
    let told =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && told.contains("All tests passed"), "{told}");
}

//! redis-py, synchronous and asyncio, in both protocol versions. What it checks is in `tests/python`.

use std::path::Path;
use std::process::Command;

use crate::cluster::{Cluster, Layout, RedisServer, installed, python, shared};

#[test]
fn redis_py_works_unmodified() {
    let Some(python) = python().filter(|_| installed(&["redis-server"])) else { return };
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = Cluster::up(Layout::before(&servers));
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python");
    for script in ["redis_py.py", "redis_py_asyncio.py"] {
        for protocol in ["2", "3"] {
            let mut command = Command::new(&python);
            command
                .arg("-B")
                .arg(scripts.join(script))
                .arg(cluster.router(0).port().to_string())
                .arg(protocol);
            let output = command.output().expect("Python runs");
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script} {protocol}: {printed}");
        }
    }
}

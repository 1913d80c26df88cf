//! What members do while nobody asks them anything. Not what it costs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Layout, RedisServer, UP, installed, shared, total, until};

/// How often each thread of a process has gone to sleep, by its name and number: several have one name, and some end.
fn sleeps(process: u32) -> BTreeMap<(String, String), u64> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process that runs");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        let (folder, number) = (task.path(), task.file_name().into_string().ok()?);
        let name = std::fs::read_to_string(folder.join("comm")).ok()?;
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(((name.trim().to_owned(), number), count.trim().parse().ok()?))
    };
    tasks.filter_map(of_task).collect()
}

/// Times a second that threads of `process` wake in the next three seconds; of several with one name the most.
fn wakes(process: u32) -> BTreeMap<String, f64> {
    let (before, start) = (sleeps(process), Instant::now());
    until("three seconds have passed", || (start.elapsed() >= Duration::from_secs(3)).then_some(()));
    let (after, seconds) = (sleeps(process), start.elapsed().as_secs_f64());
    let mut wakes: BTreeMap<String, f64> = BTreeMap::new();
    for (thread, count) in after {
        if let Some(before) = before.get(&thread) {
            let most = wakes.entry(thread.0).or_default();
            *most = most.max((count - before) as f64 / seconds);
        }
    }
    wakes
}

/// Where a member is gone, those that dial it wake to try again, and not to look whether it is time for that.
#[test]
fn members_that_dial_who_is_gone_sleep() {
    let _machine = shared();
    let mut cluster = Cluster::apart(Layout::embedded(1));
    let bounds = ["router-0", "leaf-0"];
    let processes = bounds.map(|id| cluster.process(id).id());
    cluster.kill("spine-0");
    cluster.kill("shim-0");
    for (id, process) in bounds.into_iter().zip(processes) {
        until("it sleeps", || (wakes(process)[id] <= 40.0).then_some(()));
    }
}

/// A member ticks a hundred times a second while anybody waits for it, and eight times to keep links and leases; what its peers say of
/// themselves wakes it, too, and its storage.
#[test]
fn members_that_nobody_asks_sleep() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let mut cluster = Cluster::up(Layout::before(&servers));
    let mut client = cluster.connect(0);
    client.call(&["SET", "key", "value"]);
    until("a copy is there", || {
        (0..50).for_each(|_| drop(client.call(&["GET", "key"])));
        (total(&cluster.status(), "nodes", "hits_total") > 0).then_some(())
    });
    let process = cluster.process(UP).id();
    let bounds = [("leaf-0", 30.0), ("spine-0", 30.0), ("router-0", 30.0), ("shim-0", 45.0)];
    // The last of what was asked is over.
    let wakes = until("all sleep", || {
        let wakes = wakes(process);
        let sleeps = |(name, bound): (&str, f64)| wakes[name] <= bound;
        bounds.into_iter().all(sleeps).then_some(wakes)
    });
    assert!(bounds.iter().all(|(name, _)| wakes[*name] > 4.0), "links are kept: {wakes:?}");
    assert_eq!(crate::cluster::text(&client.call(&["GET", "key"])), "value");
}

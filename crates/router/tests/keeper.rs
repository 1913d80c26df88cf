//! What the thread of a linked client has to do. Alone in its process: other clients have such a thread, too.

#[path = "router/stage.rs"]
#[expect(dead_code, reason = "clients on sockets have their tests elsewhere")]
mod stage;

use std::fs;
use std::time::Instant;

use router::Client;
use stage::Stage;

/// How often the client's own thread has gone to sleep.
fn sleeps_of_keeper() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let read =
        |task: &std::path::PathBuf, file: &str| fs::read_to_string(task.join(file)).unwrap_or_default();
    let keepers = tasks.filter(|task| "distcache-client".starts_with(read(task, "comm").trim()));
    let sleeps = |status: String| {
        let line =
            status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:").map(str::to_owned));
        line.map_or(0, |count| count.trim().parse().unwrap())
    };
    keepers.map(|task| sleeps(read(&task, "status"))).sum()
}

#[test]
fn a_thread_that_calls_does_the_work_itself() {
    let stage = Stage::new(|_| {});
    let client = Client::connect(&stage.config).unwrap();
    client.set("k", "v").unwrap();
    let mut best = u64::MAX;
    for _ in 0..20 {
        let (before, begun) = (sleeps_of_keeper(), Instant::now());
        (0..500).for_each(|_| drop(client.get("k").unwrap()));
        // It looks every half a millisecond whether it is needed.
        let looks = begun.elapsed().as_micros() as u64 / 400;
        best = best.min((sleeps_of_keeper() - before).saturating_sub(looks));
    }
    assert!(best < 100, "the client's own thread had a part in {best} of 500 calls");
}

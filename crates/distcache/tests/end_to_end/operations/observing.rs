//! A cluster that caches nothing and tells what it would, and log lines that machines read. Not the numbers' exactness.

use rustix::process::Signal;

use crate::cluster::{Cluster, Layout, UP, distcache, shared, text, total, until};

#[test]
fn what_would_be_cached_is_counted_until_caching_is_switched_on() {
    let _machine = shared();
    let cluster = Cluster::up(Layout { routing: "learned\"\nobserve_only = true #", ..Layout::embedded(2) });
    let mut client = cluster.connect(0);
    client.call(&["SET", "a", "1"]);
    let mut read = || assert_eq!(text(&client.call(&["GET", "a"])), "1");
    let status = until("reads would have been hits", || {
        (0..20).for_each(|_| read());
        Some(cluster.status()).filter(|status| total(status, "shims", "observed_hits_total") > 10)
    });
    assert!(total(&status, "shims", "observed_reads_total") > total(&status, "shims", "observed_hits_total"));
    assert_eq!(total(&status, "shims", "observed_keys"), 1, "{status}");
    assert_eq!(total(&status, "nodes", "inserts_total") + total(&status, "shims", "copies"), 0, "{status}");
    let keys = cluster.command(cluster.layout.controller, &["top"]).expect("the hottest keys");
    assert_eq!(keys[0]["key"], "a", "{keys}");

    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    std::fs::write(&cluster.config, toml.replace("observe_only = true", "observe_only = false"))
        .expect("written");
    cluster.signal(UP, Signal::HUP);
    until("reads are hits", || {
        (0..20).for_each(|_| read());
        (total(&cluster.status(), "nodes", "hits_total") > 0).then_some(())
    });
}

#[test]
fn log_lines_are_objects_that_name_the_member() {
    let cluster = Cluster::unstarted(Layout::embedded(1));
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    std::fs::write(&cluster.config, format!("[log]\nfilter = \"trace\"\n{toml}")).expect("written");
    let mut command = distcache();
    command.args(["up", "--log-format", "json", "--config"]).arg(&cluster.config);
    let log = cluster.config.with_file_name("json.log");
    let process = crate::cluster::Process::start("up", command, &log);
    process.wait_for_line("ready");
    // Threads of the whole process log, too: that of SIGHUP, and the main thread about members that have started.
    process.signal(rustix::process::Signal::HUP);
    let roles = ["node", "shim", "router", "process"];
    until("all roles and the thread of SIGHUP have logged", || {
        let log = process.log();
        let all = roles.iter().all(|role| log.contains(&format!("\"role\":\"{role}\"")));
        (all && log.contains("SIGHUP: ")).then_some(())
    });
    let log = process.log();
    let (whole, _) = log.rsplit_once('\n').expect("lines");
    for line in whole.lines().filter(|line| line.starts_with('{')) {
        let line: serde_json::Value = serde_json::from_str(line).expect("an object in a line");
        assert!(line["span"]["id"].is_string() && line["span"]["role"].is_string(), "{line}");
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
}

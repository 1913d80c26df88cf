//! Members that can make no thread any more. Not how they start.

use std::process::Command;

use rustix::process::Signal;

use crate::cluster::{Cluster, Layout, Process, installed, shared, until};

/// Each call by which a thread is made fails for as long as this runs.
fn starve(process: u32, log: &std::path::Path) -> Process {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=clone,clone3", "-e", "inject=clone,clone3:error=EAGAIN", "-p"]);
    let tracer = Process::start(
        "strace",
        {
            strace.arg(process.to_string());
            strace
        },
        log,
    );
    until("strace attaches", || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")).then_some(())
    });
    tracer
}

/// Whether this machine lets one process trace another.
fn may_trace() -> bool {
    let probe = Command::new("strace").args(["-qq", "-e", "trace=none", "true"]).status();
    probe.is_ok_and(|status| status.success())
}

#[test]
fn heartbeats_go_on() {
    if !installed(&["strace"]) || !may_trace() {
        return;
    }
    let _machine = shared();
    let mut cluster = Cluster::apart(Layout::embedded(1));
    let process = cluster.process("leaf-0").id();
    let mut tracer = starve(process, &cluster.config.with_file_name("strace.log"));
    // Connections that stand are kept; this one has to be made anew.
    cluster.kill("controller");
    cluster.start("controller");
    cluster.fresh_status(|status| {
        let nodes = status["nodes"].as_array().expect("nodes");
        nodes.iter().any(|node| node["id"] == "leaf-0" && node["peers"].as_u64() > Some(0))
    });
    tracer.signal(Signal::TERM);
    tracer.wait();
    cluster.signal("leaf-0", Signal::TERM);
    let status = cluster.process("leaf-0").wait();
    assert!(status.success(), "{status}: {}", cluster.process("leaf-0").log());
}

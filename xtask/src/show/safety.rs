//! `show safety`: what a cluster does whose lives have different configurations, and to which strangers come. Not what it does
//! when something dies.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;

use super::Stage;
use super::client;
use super::finding::{Finding, largest};
use super::load::ShownLoad;
use crate::cluster::proxy::Weather;
use crate::cluster::{Folder, Layer, Layout, ProcessCluster, ask};

/// Lives of the shim with long leases, each with one with the shortest after it.
const LIVES: usize = 2;
const LEASES_MS: [&str; 2] = ["lease_ms = 60000", "lease_ms = 20"];
const KEY: &str = "k";
/// How long it is read after the write: longer than any lease that there can be after so short a time.
const WATCH: Duration = Duration::from_millis(1500);
/// A write waits for a minute where leases may be as long.
const READY_MAX: Duration = Duration::from_secs(100);
const POLL: Duration = Duration::from_millis(20);

/// Writes past DistCache, and how long after each one the alarm may come.
const FOREIGN: usize = 20;
const ALARM_MAX_MS: f64 = 1000.0;

const SILENT: usize = 10_000;
const CONTROLLER_MIB_MAX: f64 = 64.0;
const LOAD_SECONDS: u64 = 12;

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    leases(stage, &mut finding)?;
    foreign(stage, &mut finding)?;
    silence(stage, &mut finding)?;
    Ok(finding)
}

/// Reads of one key, each with when it began and what it was answered.
type Reads = Mutex<Vec<(Instant, String)>>;

/// A shim is killed and comes back with other leases, while the nodes that hold copies hear nothing of it.
fn leases(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let layout = Layout {
        racks: 1,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        proxied: true,
        cluster_lines: LEASES_MS[0].to_owned(),
        tables: "[[policy]]\nprefix = \"\"\ncache = \"always\"\n".to_owned(),
        ..Layout::default()
    };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let (mut stale, mut old_before, mut waits_ms) = (0, 0, Vec::new());
    for life in 0..LIVES {
        let (old, new) = (format!("{life}"), format!("{}", life + 1));
        let router = cluster.router(0);
        until_written(router, &old)?;
        wait_cached(&cluster, router, &old)?;
        for node in ["leaf-0", "spine-0"] {
            for (from, to) in [(node, "shim-0"), ("shim-0", node)] {
                cluster.proxy()?.weather(
                    Some(from),
                    Some(to),
                    Weather { cut: true, ..Weather::default() },
                )?;
            }
        }
        cluster.kill("shim-0")?;
        cluster.rewrite("shim-0", LEASES_MS[0], LEASES_MS[1])?;
        let (reads, done) = (Reads::default(), AtomicBool::new(false));
        let written = std::thread::scope(|scope| -> anyhow::Result<Instant> {
            let reader = scope.spawn(|| read(router, &reads, &done));
            let begun = Instant::now();
            let started = cluster.run("shim-0");
            let written = started.and_then(|()| until_written(router, &new));
            waits_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(WATCH);
            done.store(true, Ordering::Relaxed);
            reader.join().map_err(|_| anyhow::anyhow!("the reader ended badly"))??;
            written
        })?;
        let reads = reads.into_inner().unwrap_or_default();
        stale += reads.iter().filter(|(begun, value)| *begun > written && *value == old).count();
        old_before += reads.iter().filter(|(begun, value)| *begun <= written && *value == old).count();
        cluster.proxy()?.clear()?;
        cluster.kill("shim-0")?;
        cluster.rewrite("shim-0", LEASES_MS[1], LEASES_MS[0])?;
        cluster.run("shim-0")?;
        eprintln!("{} of {LIVES}: written after {:.0} ms", life + 1, waits_ms.last().unwrap_or(&0.0));
    }
    finding.bound(
        stale == 0 && old_before > 0,
        format!(
            "{LIVES} times from leases of 60000 ms to 20 ms, with the nodes cut off from the shim: {stale} reads of the \
             old value after a write was answered, none allowed ({old_before} before); longest until the write {:.0} ms",
            largest(&waits_ms)
        ),
    );
    finding.figure("leases", json!({ "stale": stale, "old_before": old_before, "written_ms": waits_ms }));
    Ok(())
}

/// Somebody writes past DistCache to a key that both layers hold, again and again.
fn foreign(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let layout = Layout {
        racks: 1,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: "[[policy]]\nprefix = \"\"\ncache = \"always\"\n".to_owned(),
        ..Layout::default()
    };
    let cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let router = cluster.router(0);
    let mut outsider = client::connect(cluster.member("redis-0")?.listen)?;
    until_written(router, "0")?;
    let (reads, done) = (Reads::default(), AtomicBool::new(false));
    let alarms = std::thread::scope(|scope| -> anyhow::Result<Vec<(Instant, Instant)>> {
        let reader = scope.spawn(|| read(router, &reads, &done));
        let mut alarms = Vec::new();
        for number in 1..=FOREIGN {
            wait_cached(&cluster, router, &(number - 1).to_string())?;
            // What is registered is told from what was before it by the answer to a PING.
            std::thread::sleep(POLL * 5);
            let told = foreign_writes(&cluster)?;
            let written = Instant::now();
            let _: () = redis::cmd("SET").arg(KEY).arg(number).query(&mut outsider)?;
            while foreign_writes(&cluster)? == told && written.elapsed() < READY_MAX / 10 {
                std::thread::sleep(POLL / 10);
            }
            alarms.push((written, Instant::now()));
        }
        done.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow::anyhow!("the reader ended badly"))??;
        Ok(alarms)
    })?;
    let reads = reads.into_inner().unwrap_or_default();
    // The first write whose alarm had come when a read began, counted from the last, is the oldest that it may show.
    let is_stale = |(begun, value): &&(Instant, String)| {
        let told = alarms.iter().filter(|(_, alarm)| alarm < begun).count();
        value.parse::<usize>().is_ok_and(|value| value < told)
    };
    let (stale, delays) = (
        reads.iter().filter(is_stale).count(),
        alarms.iter().map(|(written, alarm)| (*alarm - *written).as_secs_f64() * 1e3).collect::<Vec<_>>(),
    );
    let writers = cluster.member_status("shim-0")?["foreign_writers"].as_str().unwrap_or_default().to_owned();
    finding.bound(
        stale == 0 && largest(&delays) < ALARM_MAX_MS && writers.contains("last command SET") && reads.len() > FOREIGN,
        format!(
            "{FOREIGN} writes past DistCache to a cached key: alarm after at most {:.0} ms, at most {ALARM_MAX_MS:.0}; {stale} of {} \
             reads were older than an alarm before them, none allowed; the writer is named: {writers}",
            largest(&delays),
            reads.len()
        ),
    );
    finding.figure("foreign", json!({ "stale": stale, "alarms_ms": delays, "reads": reads.len() }));
    Ok(())
}

fn foreign_writes(cluster: &ProcessCluster) -> anyhow::Result<u64> {
    cluster.member_status("shim-0")?["foreign_writes_total"].as_u64().context("a counter")
}

fn read(router: SocketAddr, reads: &Reads, done: &AtomicBool) -> anyhow::Result<()> {
    let mut connection = client::connect(router)?;
    while !done.load(Ordering::Relaxed) {
        let begun = Instant::now();
        // While nobody can serve it there is no value to be wrong.
        let found: Result<Option<String>, _> = redis::cmd("GET").arg(KEY).query(&mut connection);
        if let Ok(Some(value)) = found {
            reads.lock().map_err(|_| anyhow::anyhow!("a reader ended badly"))?.push((begun, value));
        }
    }
    Ok(())
}

/// When a write was answered that went well.
fn until_written(router: SocketAddr, value: &str) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + READY_MAX;
    let mut connection = client::connect(router)?;
    loop {
        let done: Result<(), _> = redis::cmd("SET").arg(KEY).arg(value).query(&mut connection);
        match done {
            Ok(()) => return Ok(Instant::now()),
            Err(error) if Instant::now() > deadline => return Err(error).context("no write goes well"),
            Err(_) => std::thread::sleep(POLL),
        }
    }
}

/// Until both nodes hold the value under a lease.
fn wait_cached(cluster: &ProcessCluster, router: SocketAddr, value: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_MAX;
    let mut connection = client::connect(router)?;
    loop {
        for _ in 0..200 {
            let found: String = redis::cmd("GET").arg(KEY).query(&mut connection)?;
            anyhow::ensure!(found == value, "{found:?} is read where {value:?} was written");
        }
        let holds = |id: &str| -> anyhow::Result<bool> {
            let status = cluster.member_status(id)?;
            Ok(status["objects"] == 1 && status["leases"][0]["held"] == true)
        };
        if holds("leaf-0")? && holds("spine-0")? {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the nodes do not hold the key");
        }
        std::thread::sleep(POLL);
    }
}

/// Connections to the controller's HTTP that say nothing, or a little, for as long as they are let.
fn silence(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let cluster = ProcessCluster::start(stage.binary, Layout::default(), 1)?;
    let router = cluster.router(0);
    let folder = Folder::new("safety")?;
    let seconds = LOAD_SECONDS.to_string();
    let flags = [
        "--keys",
        "10000",
        "--dist",
        "zipf:0.99",
        "--rate",
        "5000",
        "--pipeline",
        "16",
        "--seconds",
        &seconds,
    ];
    let load = |name: &str| ShownLoad::start(stage.binary, router, folder.path(), name, &flags)?.finish();
    let calm = load("calm")?;
    let controller = cluster.member("controller-0")?.listen;
    let process = cluster.process("controller-0")?;
    let before = process.resident_bytes()?;
    let (opened, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (loud, most, lost) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let attackers: Vec<_> = (0..4)
            .map(|index| {
                scope.spawn({
                    let (opened, done) = (&opened, &done);
                    move || attack(controller, index, opened, done)
                })
            })
            .collect();
        let running = scope.spawn(|| load("loud"));
        let (mut most, mut lost) = (before, 0);
        while !running.is_finished() {
            most = most.max(process.resident_bytes()?);
            let members: serde_json::Value = ask::json(controller, "/v1/members").unwrap_or_default();
            let entries = members.as_array().map_or(&[][..], Vec::as_slice);
            lost += entries.iter().filter(|member| member["state"] == "lost").count();
            std::thread::sleep(POLL * 5);
        }
        done.store(true, Ordering::Relaxed);
        for attacker in attackers {
            attacker.join().map_err(|_| anyhow::anyhow!("an attacker ended badly"))?;
        }
        let loud = running.join().map_err(|_| anyhow::anyhow!("the load ended badly"))??;
        Ok((loud, most, lost))
    })?;
    let failed =
        |load: &super::load::DoneLoad| load.slices.iter().map(super::load::LoadSlice::failed).sum::<u64>();
    let (opened, mib) = (opened.into_inner(), most as f64 / f64::from(1 << 20));
    finding.bound(
        opened >= SILENT && mib <= CONTROLLER_MIB_MAX && failed(&loud) == 0 && lost == 0,
        format!(
            "{opened} connections to the controller that say nothing or half a request (at least {SILENT}): {mib:.0} MiB at most \
             ({:.0} before), at most {CONTROLLER_MIB_MAX:.0}; {} requests failed ({} without them), {lost} times a member was lost",
            before as f64 / f64::from(1 << 20),
            failed(&loud),
            failed(&calm)
        ),
    );
    finding.figure(
        "silence",
        json!({ "connections": opened, "controller_mib": mib, "failed": failed(&loud), "lost": lost }),
    );
    Ok(())
}

/// Keeps a few hundred open and opens further ones as fast as it can.
fn attack(controller: SocketAddr, index: usize, opened: &AtomicUsize, done: &AtomicBool) {
    let mut held = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&controller, Duration::from_secs(1)) else {
            continue;
        };
        let words: &[u8] = match index {
            0 => b"",
            1 => b"POST /v1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 16000000\r\n\r\n",
            2 => b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
            _ => b"POST /v1/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\nxxxx",
        };
        // It may have been closed at once.
        let _ = stream.write_all(words);
        opened.fetch_add(1, Ordering::Relaxed);
        held.push(stream);
        if held.len() > 200 {
            held.remove(0);
        }
    }
}

//! `show standby`: what clients see when the process that is a shim is stopped in order, killed, or hangs, and another one
//! stands by.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use redis::Connection;
use serde_json::json;

use super::Stage;
use super::finding::{Finding, largest, median};
use crate::cluster::{Layer, Layout, LayoutStorage, ProcessCluster, client::connect};

const REPETITIONS: usize = 10;
const LEASE_MS: f64 = 1000.0;
/// Clients of each kind, each with a key of its own and one that all have.
const CLIENTS: usize = 8;
/// Between two commands of a client.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest write of a shim that hands over.
const HANDED_OVER_MS_MAX: f64 = 20.0;
/// From the death of a shim to the last error, of reads and, besides what remains of a lease, of writes.
const READS_MS_MAX: f64 = 500.0;
const WRITES_MS_MAX: f64 = 1500.0;
/// A process that hangs is noticed after 3 to 4 s, and missed once more a good second later.
const HANGS_MS_MAX: f64 = 5200.0;
const CALM: Duration = Duration::from_millis(700);
const READY_MAX: Duration = Duration::from_secs(40);
const POLL: Duration = Duration::from_millis(10);
/// The two that may be the shim.
const PROCESSES: [&str; 2] = ["shim-0", "standby-0"];

/// One command of a client.
#[derive(Clone, Copy)]
struct TimedCommand {
    writes: bool,
    begun: Instant,
    took: Duration,
    failed: bool,
}

#[derive(Default)]
struct BusyClientsShared {
    stop: AtomicBool,
    asked: Mutex<Vec<TimedCommand>>,
}

/// BusyClients that stop when this goes out of scope.
struct BusyClients {
    shared: Arc<BusyClientsShared>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyClients {
    fn start(router: SocketAddr) -> anyhow::Result<BusyClients> {
        let mut clients = BusyClients { shared: Arc::default(), threads: Vec::new() };
        for client in 0..2 * CLIENTS {
            let (connection, shared) = (connect(router)?, Arc::clone(&clients.shared));
            let writes = client < CLIENTS;
            clients
                .threads
                .push(std::thread::spawn(move || ask(client % CLIENTS, writes, connection, &shared)));
        }
        Ok(clients)
    }

    /// What was under way at some time from `from` on. It is forgotten.
    fn since(&self, from: Instant) -> Vec<TimedCommand> {
        let mut asked = self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = std::mem::take(&mut *asked);
        taken.retain(|asked| asked.begun + asked.took >= from);
        taken
    }
}

impl Drop for BusyClients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn ask(key: usize, writes: bool, mut connection: Connection, shared: &BusyClientsShared) {
    let mut number = 0u64;
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        number += 1;
        // One in ten is of the key that all have.
        let name = if number.is_multiple_of(10) { "all".to_owned() } else { format!("key:{key}") };
        let begun = Instant::now();
        let mut command = redis::cmd(if writes { "SET" } else { "GET" });
        command.arg(&name);
        if writes {
            command.arg(number);
        }
        let done: redis::RedisResult<redis::Value> = command.query(&mut connection);
        let asked = TimedCommand { writes, begun, took: begun.elapsed(), failed: done.is_err() };
        shared.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    }
}

/// What clients have seen of one change, in milliseconds.
struct ShimChange {
    errors: usize,
    /// From the trouble to the last error; 0 without one.
    last_read_error: f64,
    last_write_error: f64,
    longest_read: f64,
    longest_write: f64,
}

impl ShimChange {
    fn of(asked: &[TimedCommand], begun: Instant) -> ShimChange {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let last_error = |writes: bool| {
            let failed = asked.iter().filter(|asked| asked.failed && asked.writes == writes);
            failed
                .map(|asked| ms((asked.begun + asked.took).saturating_duration_since(begun)))
                .fold(0.0, f64::max)
        };
        let longest = |writes: bool| {
            let own = asked.iter().filter(|asked| asked.writes == writes);
            own.map(|asked| ms(asked.took)).fold(0.0, f64::max)
        };
        ShimChange {
            errors: asked.iter().filter(|asked| asked.failed).count(),
            last_read_error: last_error(false),
            last_write_error: last_error(true),
            longest_read: longest(false),
            longest_write: longest(true),
        }
    }
}

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    let layout = Layout {
        racks: 1,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        storage: LayoutStorage::DurableRedis,
        standbys: true,
        ..Layout::default()
    };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let clients = BusyClients::start(cluster.router(0))?;
    let stopped = repeat(&mut cluster, &clients, Duration::from_millis(1500), ProcessCluster::terminate)?;
    let handed = values(&stopped, |change| change.longest_write);
    let errors: usize = stopped.iter().map(|change| change.errors).sum();
    finding.bound(
        errors == 0 && median(&handed) <= HANDED_OVER_MS_MAX,
        format!(
            "stopped in order: {errors} errors in {REPETITIONS} changes; longest write {:.1} ms (median), {:.1} ms (largest), at most \
             {HANDED_OVER_MS_MAX:.0} ms in the middle; longest read {:.1} ms",
            median(&handed),
            largest(&handed),
            largest(&values(&stopped, |change| change.longest_read)),
        ),
    );
    let killed = repeat(&mut cluster, &clients, Duration::from_millis(3500), ProcessCluster::kill)?;
    judge(&mut finding, "killed with -9", &killed, (READS_MS_MAX, WRITES_MS_MAX + LEASE_MS));
    let hung = repeat(&mut cluster, &clients, Duration::from_millis(6500), |cluster, id| cluster.pause(id))?;
    judge(
        &mut finding,
        "stopped by a signal",
        &hung,
        (HANGS_MS_MAX + READS_MS_MAX, HANGS_MS_MAX + WRITES_MS_MAX + LEASE_MS),
    );
    for (name, changes) in [("stopped", &stopped), ("killed", &killed), ("hung", &hung)] {
        finding.figure(name, figures(changes));
    }
    finding.figure("lease_ms", LEASE_MS);
    Ok(finding)
}

fn values(changes: &[ShimChange], value: impl Fn(&ShimChange) -> f64) -> Vec<f64> {
    changes.iter().map(value).collect()
}

fn figures(changes: &[ShimChange]) -> serde_json::Value {
    json!({
        "errors": changes.iter().map(|change| change.errors).collect::<Vec<_>>(),
        "last_read_error_ms": values(changes, |change| change.last_read_error),
        "last_write_error_ms": values(changes, |change| change.last_write_error),
        "longest_read_ms": values(changes, |change| change.longest_read),
        "longest_write_ms": values(changes, |change| change.longest_write),
    })
}

fn judge(
    finding: &mut Finding,
    text: &str,
    changes: &[ShimChange],
    (reads_ms_max, writes_ms_max): (f64, f64),
) {
    let of = |value: fn(&ShimChange) -> f64| values(changes, value);
    let (reads, writes) = (of(|change| change.last_read_error), of(|change| change.last_write_error));
    let longest = [of(|change| change.longest_read), of(|change| change.longest_write)];
    let errors: usize = changes.iter().map(|change| change.errors).sum();
    let served = largest(&longest[0]) <= reads_ms_max && largest(&longest[1]) <= writes_ms_max;
    finding.bound(
        largest(&reads) <= reads_ms_max && largest(&writes) <= writes_ms_max && served,
        format!(
            "{text}: {errors} errors in {REPETITIONS} changes, the last one of a read after {:.0} ms, of a write after {:.0} ms; longest \
             read {:.0} ms (median), {:.0} ms (largest), at most {reads_ms_max:.0} ms; longest write {:.0} ms (median), {:.0} ms (largest), \
             at most {writes_ms_max:.0} ms",
            largest(&reads),
            largest(&writes),
            median(&longest[0]),
            largest(&longest[0]),
            median(&longest[1]),
            largest(&longest[1]),
        ),
    );
}

/// Trouble for whoever is the shim, again and again.
fn repeat(
    cluster: &mut ProcessCluster,
    clients: &BusyClients,
    watch: Duration,
    trouble: impl Fn(&mut ProcessCluster, &str) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<ShimChange>> {
    let mut changes = Vec::new();
    for _ in 0..REPETITIONS {
        let (serves, other) = wait_for_two(cluster)?;
        std::thread::sleep(CALM);
        clients.since(Instant::now());
        let begun = Instant::now();
        trouble(cluster, serves)?;
        std::thread::sleep(watch.saturating_sub(begun.elapsed()));
        let change = ShimChange::of(&clients.since(begun), begun);
        eprintln!("{serves}: {} errors, longest write {:.1} ms", change.errors, change.longest_write);
        changes.push(change);
        anyhow::ensure!(is_shim(cluster, other)?, "{other} has not taken over");
        match cluster.is_running(serves) {
            true => cluster.resume(serves)?,
            false => cluster.run(serves)?,
        }
    }
    Ok(changes)
}

fn is_shim(cluster: &ProcessCluster, id: &str) -> anyhow::Result<bool> {
    Ok(cluster.member_status(id)?["storage_up"] == true)
}

/// Until one serves, without waiting for leases of before, and the other stands by; which is which.
fn wait_for_two(cluster: &ProcessCluster) -> anyhow::Result<(&'static str, &'static str)> {
    let deadline = Instant::now() + READY_MAX;
    let [first, second] = PROCESSES;
    loop {
        for (serves, other) in [(first, second), (second, first)] {
            let (own, others) = (cluster.member_status(serves)?, cluster.member_status(other)?);
            let is_free = own["storage_up"] == true && own["hold_ms"] == 0;
            if is_free && others["standing_by"] == true {
                return Ok((serves, other));
            }
        }
        if Instant::now() > deadline {
            let status = cluster.status().context("and the controller is silent")?;
            bail!("there is no shim with one that stands by: {status}");
        }
        std::thread::sleep(POLL);
    }
}

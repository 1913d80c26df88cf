//! `show resharding`: how fast keys change their storage server while clients read and write, and what those notice of it.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use redis::Connection;
use serde_json::json;

use super::Stage;
use super::finding::{Finding, median};
use super::load::{DoneLoad, ShownLoad, unix_ms};
use crate::cluster::{Folder, Layer, Layout, LayoutRole, ProcessCluster, client::connect, mortal, redis};

const KEYS: u64 = 5_000_000;
const MOVER: &str = "shim-3";
/// Requests per second, a tenth of them writes: about a third of what two cores do.
const RATE: &str = "6000";
const BEFORE: Duration = Duration::from_secs(20);
/// A quarter of the keys at the least speed, and a rest.
const LOAD_SECONDS: u64 = BEFORE.as_secs() + 140;
const WARMUP: Duration = Duration::from_secs(10);
const SLICE_MS: u64 = 500;
const MOVED_PER_SECOND_MIN: f64 = 10_000.0;
const P99_FACTOR_MAX: f64 = 2.0;
/// The share of the speed of a pipeline that asks nobody, while nobody else asks.
const IDLE_SHARE_MIN: f64 = 0.5;
const BARE_KEYS: usize = 300_000;
const BARE_PIPELINE: usize = 256;
const ROUNDS: usize = 3;
/// A controller hears from everybody twice a second.
const HEARD_MAX: Duration = Duration::from_secs(10);
const HEARD_POLL: Duration = Duration::from_millis(200);

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let mut finding = Finding::default();
    let bare = median(&(0..ROUNDS).map(|_| bare_rate()).collect::<anyhow::Result<Vec<_>>>()?);
    finding.figure("bare_keys_per_second", bare);
    finding.say(format!("DUMP, RESTORE and UNLINK in pipelines of {BARE_PIPELINE}: {bare:.0} keys/s"));
    let layout = Layout {
        racks: 2,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(2)],
        etcd: true,
        last_shim_state: Some("joining"),
        ..Layout::default()
    };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let keys = KEYS.to_string();
    let written = ["--keys", &keys, "--seconds", "1", "--connections", "16", "--pipeline", "32"];
    let folder = Folder::new("resharding")?;
    ShownLoad::start(stage.binary, cluster.router(0), folder.path(), "written", &written)?.finish()?;
    let mut changed = |verb: &str, state: Option<&'static str>, loaded: bool| -> anyhow::Result<()> {
        if let Some(state) = state {
            cluster.set_last_shim_state(state)?;
        }
        if loaded {
            let (change, load) = under_load(stage, &cluster, folder.path(), verb)?;
            judge_loaded(verb, &change, &load, &mut finding);
        } else {
            judge_idle(verb, &change(stage, &cluster, verb)?, bare, &mut finding);
        }
        ensure!(counts(&cluster)?.iter().sum::<u64>() == KEYS, "keys are missing: {:?}", counts(&cluster)?);
        Ok(())
    };
    changed("add", None, true)?;
    changed("remove", Some("leaving"), true)?;
    changed("add", Some("joining"), false)?;
    Ok(finding)
}

/// One change of where keys are.
struct MovedKeys {
    moved: u64,
    took: Duration,
}

impl MovedKeys {
    fn per_second(&self) -> f64 {
        self.moved as f64 / self.took.as_secs_f64()
    }
}

/// What clients saw: the 99th percentiles of half seconds, in milliseconds, in their order.
struct SlicesOfLoad {
    before: Vec<f64>,
    during: Vec<f64>,
    failed: u64,
}

fn change(stage: &Stage<'_>, cluster: &ProcessCluster, verb: &str) -> anyhow::Result<MovedKeys> {
    let before = counts(cluster)?;
    let mut command = mortal(stage.binary);
    let controller = cluster.member("controller-0")?.listen;
    command.args(["storage", verb, MOVER, "--json", "--controller", &format!("http://{controller}")]);
    command.arg("--config").arg(cluster.config()).stdout(Stdio::null()).stderr(Stdio::piped());
    let deadline = Instant::now() + HEARD_MAX;
    let took = loop {
        let begun = Instant::now();
        let output = command.output().context("distcache storage cannot be started")?;
        if output.status.success() {
            break begun.elapsed();
        }
        // A controller that has just started has not heard from everybody.
        let error = String::from_utf8_lossy(&output.stderr);
        let is_early = ["cannot be reached", "is heard"].iter().any(|part| error.contains(part));
        ensure!(is_early && Instant::now() < deadline, "storage {verb}: {error}");
        std::thread::sleep(HEARD_POLL);
    };
    let last = before.len() - 1;
    let moved = counts(cluster)?[last].abs_diff(before[last]);
    Ok(MovedKeys { moved, took })
}

fn under_load(
    stage: &Stage<'_>,
    cluster: &ProcessCluster,
    folder: &Path,
    verb: &str,
) -> anyhow::Result<(MovedKeys, SlicesOfLoad)> {
    let (keys, seconds) = (KEYS.to_string(), LOAD_SECONDS.to_string());
    let (warmup, slice) = (WARMUP.as_secs().to_string(), SLICE_MS.to_string());
    let arguments = [
        ["--keys", &keys, "--write-ratio", "0.1", "--rate", RATE, "--seconds", &seconds],
        ["--connections", "32", "--pipeline", "256", "--warmup", &warmup, "--slice-ms", &slice],
    ];
    let arguments = [&["--no-load"][..], &arguments.concat()].concat();
    let load = ShownLoad::start(stage.binary, cluster.router(0), folder, verb, &arguments)?;
    std::thread::sleep(WARMUP);
    let start_ms = unix_ms();
    std::thread::sleep(BEFORE);
    let begun_ms = unix_ms();
    let moved = change(stage, cluster, verb)?;
    let done_ms = unix_ms();
    let done = load.finish()?;
    std::fs::write(stage.runs.join(format!("show-resharding-{verb}.csv")), &done.csv)?;
    let failed = done.slices.iter().map(|slice| slice.errors + slice.lost).sum();
    let (before, during) = (p99_ms(&done, start_ms, begun_ms), p99_ms(&done, begun_ms, done_ms));
    Ok((moved, SlicesOfLoad { before, during, failed }))
}

fn p99_ms(done: &DoneLoad, from_ms: u64, to_ms: u64) -> Vec<f64> {
    let within =
        done.slices.iter().filter(|slice| slice.unix_ms >= from_ms && slice.unix_ms + SLICE_MS <= to_ms);
    let mut found: Vec<f64> = within.map(|slice| slice.p99_us as f64 / 1e3).collect();
    found.sort_by(f64::total_cmp);
    found
}

fn judge_idle(verb: &str, change: &MovedKeys, bare: f64, finding: &mut Finding) {
    let (moved, seconds, rate) = (change.moved, change.took.as_secs_f64(), change.per_second());
    let figures = json!({ "moved": moved, "seconds": seconds, "keys_per_second": rate });
    finding.figure(&format!("{verb}_idle"), figures);
    let share = rate / bare;
    finding.bound(
        share >= IDLE_SHARE_MIN,
        format!("{verb}, idle: {moved} keys in {seconds:.1} s, {rate:.0}/s, {share:.2} of a bare pipeline"),
    );
}

fn judge_loaded(verb: &str, change: &MovedKeys, load: &SlicesOfLoad, finding: &mut Finding) {
    let (moved, seconds, rate) = (change.moved, change.took.as_secs_f64(), change.per_second());
    let (before, during) = (median(&load.before), median(&load.during));
    let longest = load.during.last().copied().unwrap_or_default();
    let above = load.during.iter().filter(|p99| **p99 > before * P99_FACTOR_MAX).count();
    finding.figure(
        verb,
        json!({
            "moved": moved, "seconds": seconds, "keys_per_second": rate, "p99_ms_before": before, "p99_ms": during,
            "p99_ms_of_the_worst_half_second": longest, "half_seconds": load.during.len(), "half_seconds_above_twice": above,
            "failed": load.failed,
        }),
    );
    finding.bound(
        rate >= MOVED_PER_SECOND_MIN,
        format!("{verb}: {moved} keys in {seconds:.1} s, {rate:.0}/s (at least {MOVED_PER_SECOND_MIN})"),
    );
    finding.bound(
        during <= before * P99_FACTOR_MAX,
        format!(
            "{verb}: 99th percentile of reads and writes {during:.1} ms, {before:.1} before; of the worst half second {longest:.1}; {above} of {} above twice",
            load.during.len()
        ),
    );
    finding.bound(load.failed == 0, format!("{verb}: {} requests failed", load.failed));
}

/// Keys of each storage server.
fn counts(cluster: &ProcessCluster) -> anyhow::Result<Vec<u64>> {
    let servers = cluster.ids(LayoutRole::Redis);
    let count = |id: &String| Ok(redis::cmd("DBSIZE").query(&mut connect(cluster.member(id)?.listen)?)?);
    servers.iter().map(count).collect()
}

/// Keys per second that get from one server to another when nobody asks for them and nobody is asked.
fn bare_rate() -> anyhow::Result<f64> {
    let folders = [Folder::new("home")?, Folder::new("there")?];
    let [home, there] = [redis(folders[0].path())?, redis(folders[1].path())?];
    let [mut from, mut to] = [connect(home.1)?, connect(there.1)?];
    let value = "x".repeat(64);
    let keys: Vec<String> = (0..BARE_KEYS).map(|key| format!("key:{key:012}")).collect();
    for keys in keys.chunks(BARE_PIPELINE) {
        ask(&mut from, keys.iter().map(|key| redis::cmd("SET").arg(key).arg(&value).to_owned()))?;
    }
    let begun = Instant::now();
    for keys in keys.chunks(BARE_PIPELINE) {
        let dumps = ask(&mut from, keys.iter().map(|key| redis::cmd("DUMP").arg(key).to_owned()))?;
        let restored = keys
            .iter()
            .zip(dumps)
            .map(|(key, dump)| redis::cmd("RESTORE").arg(key).arg(0).arg(dump).to_owned());
        ask(&mut to, restored)?;
        ask(&mut from, keys.iter().map(|key| redis::cmd("UNLINK").arg(key).to_owned()))?;
    }
    Ok(BARE_KEYS as f64 / begun.elapsed().as_secs_f64())
}

fn ask(
    connection: &mut Connection,
    commands: impl Iterator<Item = redis::Cmd>,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut pipeline = redis::pipe();
    for command in commands {
        pipeline.add_command(command);
    }
    let replies: Vec<redis::Value> = pipeline.query(connection)?;
    let bytes = |reply| match reply {
        redis::Value::BulkString(bytes) => bytes,
        _ => Vec::new(),
    };
    Ok(replies.into_iter().map(bytes).collect())
}

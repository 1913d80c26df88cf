//! `show hostile`: clients that flood, stall, lie about lengths or hoard, beside clients that behave: nothing falls, memory
//! stays under its cap, and those who behave hardly notice. Not what each attack sends.

mod attack;
mod attackers;
mod hold;
mod storm;

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Stage;
use super::finding::{Finding, median};
use super::load::{DoneLoad, LoadSlice, ShownLoad, unix_ms};
use crate::cluster::{Folder, Layer, Layout, ProcessCluster};
pub(super) use attack::named;
use attack::{ATTACKS, Attack};
pub(super) use attackers::{Attackers, attack};

/// Requests per second of those who behave: well below what two cores can do beside an attacker.
const RATE: &str = "1000";
const WORKLOAD: [&str; 8] =
    ["--keys", "1000", "--dist", "zipf:0.99", "--write-ratio", "0.05", "--connections", "32"];
/// Long enough for every attack to show in each of them.
const SLICE_MS: u64 = 500;
const WARMUP: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(4);
/// What a cluster may take to settle after an attack; it belongs to neither side.
const SETTLE: Duration = Duration::from_secs(1);
/// For starting and ending attackers.
const SPARE: Duration = Duration::from_secs(5);
/// Calm and storm take turns, so that a machine that changes its pace changes it for both.
const ROUNDS: usize = 5;
const P99_FACTOR_MAX: f64 = 1.5;
const BUFFERS_MIB: u64 = 128;
/// Who behaves, and who shows a password and does not. Others are strangers.
const GOOD: &str = "good";
pub(super) const BAD: &str = "bad";
pub(super) const PASSWORD: &str = "well-known";
/// What a router may take at most: its cap, its own tables, ten thousand connections, and what one turn reads.
const RESIDENT_MIB_MAX: u64 = 384;
/// How long one who behaves waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
const SAMPLE: Duration = Duration::from_millis(20);

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    stage.only.map(attack::named).transpose()?;
    let mut cluster = ProcessCluster::start(
        stage.binary,
        layout(&format!("client_buffers_bytes_max = \"{BUFFERS_MIB}MiB\"")),
        1,
    )?;
    let folder = Folder::new("hostile")?;
    prepare(&cluster)?;
    let resident_before = cluster.process("router-0")?.resident_bytes()?;
    let mut finding = Finding::default();
    finding.figure("resident_mib_before", mib(resident_before));
    let wanted = |attack: &&Attack| stage.only.is_none_or(|name| name == attack.name);
    for attack in ATTACKS.iter().filter(wanted) {
        judge(&mut finding, attack, &run(stage.binary, &cluster, folder.path(), attack)?);
        let fallen = cluster.fallen();
        finding.bound(fallen.is_empty(), format!("{}: every process lives{}", attack.name, fallen.concat()));
    }
    let sheds = cluster.member_status("router-0")?["sheds_total"].clone();
    finding.say(format!("refused by rule: {sheds}"));
    finding.figure("router_sheds_total", sheds);
    Ok(finding)
}

/// With those who behave and those who do not among its users, and with further lines of `[limits]`.
pub(super) fn layout(limits: &str) -> Layout {
    Layout {
        racks: 1,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: format!(
            "[limits]\nclients_max = 12000\n{limits}\n\
             [[user]]\nname = \"{GOOD}\"\nrules = \"on >{PASSWORD} ~* &* +@all\"\n\
             [[user]]\nname = \"{BAD}\"\nrules = \"on >{PASSWORD} ~hostile:* +@all\"\n"
        ),
        ..Layout::default()
    }
}

/// The value that those who never read ask for.
pub(super) fn prepare(cluster: &ProcessCluster) -> anyhow::Result<()> {
    let value = vec![b'v'; attack::LARGE_BYTES];
    Ok(redis::cmd("SET").arg(attack::LARGE_KEY).arg(value).query(&mut connect_well(cluster)?)?)
}

/// A write and its reading on a connection of their own, by one who behaves.
pub(super) fn ask_well(cluster: &ProcessCluster) -> anyhow::Result<()> {
    let mut connection = connect_well(cluster)?;
    redis::cmd("SET").arg("good:k").arg("v").query::<()>(&mut connection)?;
    let found: String = redis::cmd("GET").arg("good:k").query(&mut connection)?;
    anyhow::ensure!(found == "v", "{found:?} is read");
    Ok(())
}

fn connect_well(cluster: &ProcessCluster) -> anyhow::Result<redis::Connection> {
    let client = redis::Client::open(format!("redis://{GOOD}:{PASSWORD}@{}/", cluster.router(0)))?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// One attack: a load from before it to its end, and what was seen in turns of calm and storm.
#[derive(Default)]
struct SeenAttack {
    /// 99th percentiles by slices: one calm more than there are storms, so that each has one on both sides.
    calm_ms: Vec<Vec<f64>>,
    storm_ms: Vec<Vec<f64>>,
    failed: u64,
    due: u64,
    resident_max: u64,
    wrong: Vec<String>,
    attempts: u64,
}

fn run(
    binary: &Path,
    cluster: &ProcessCluster,
    folder: &Path,
    attack: &Attack,
) -> anyhow::Result<SeenAttack> {
    let round = CALM + Duration::from_secs(attack.seconds) + SETTLE;
    let seconds = (WARMUP + round * ROUNDS as u32 + CALM + SPARE).as_secs().to_string();
    let slice = SLICE_MS.to_string();
    let timing = ["--rate", RATE, "--warmup", "0", "--seconds", &seconds, "--slice-ms", &slice];
    let router = cluster.router(0);
    let arguments = [&WORKLOAD[..], &timing].concat();
    let target = format!("{GOOD}:{PASSWORD}@{router}");
    let load = ShownLoad::start(binary, target, folder, attack.name, &arguments)?;
    std::thread::sleep(WARMUP);
    let mut seen = SeenAttack::default();
    let (mut calms, mut storms) = (vec![calm()], Vec::new());
    for _ in 0..ROUNDS {
        storms.push(storm(cluster, attack, &mut seen)?);
        std::thread::sleep(SETTLE);
        calms.push(calm());
    }
    let done = load.finish()?;
    let p99s = |time: &Range<u64>| within(&done, time).map(|slice| slice.p99_us as f64 / 1e3).collect();
    seen.calm_ms = calms.iter().map(p99s).collect();
    seen.storm_ms = storms.iter().map(p99s).collect();
    for slice in storms.iter().flat_map(|storm| within(&done, storm)) {
        seen.failed += slice.failed();
        seen.due += slice.due;
    }
    Ok(seen)
}

/// From when to when nobody attacked.
fn calm() -> Range<u64> {
    let begin_ms = unix_ms();
    std::thread::sleep(CALM);
    begin_ms..unix_ms()
}

/// From when to when there was an attack.
fn storm(cluster: &ProcessCluster, attack: &Attack, seen: &mut SeenAttack) -> anyhow::Result<Range<u64>> {
    let begin_ms = unix_ms();
    let process = cluster.process("router-0")?;
    let attackers = Attackers::start(attack, cluster.router(0))?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(attack.seconds) {
        seen.resident_max = seen.resident_max.max(process.resident_bytes()?);
        std::thread::sleep(SAMPLE);
    }
    let deeds = attackers.finish()?;
    seen.attempts += deeds.attempts;
    seen.wrong.extend(deeds.wrong);
    Ok(begin_ms..unix_ms())
}

/// The slices that lie wholly within a time.
fn within<'a>(done: &'a DoneLoad, time: &Range<u64>) -> impl Iterator<Item = &'a LoadSlice> {
    let (from_ms, to_ms) = (time.start, time.end);
    let inside = move |slice: &&LoadSlice| slice.unix_ms >= from_ms && slice.unix_ms + SLICE_MS <= to_ms;
    done.slices.iter().filter(inside)
}

/// How much longer 99 % wait in each storm than in the calms on both sides of it; the median of that. The machine changes
/// its pace from one minute to the next by more than any attack does.
fn factor(seen: &SeenAttack) -> f64 {
    let calm = |round: usize| median(&seen.calm_ms[round..=round + 1].concat());
    let storms = seen.storm_ms.iter().enumerate();
    median(&storms.map(|(round, storm)| median(storm) / calm(round)).collect::<Vec<_>>())
}

fn judge(finding: &mut Finding, attack: &Attack, seen: &SeenAttack) {
    let (calm_ms, storm_ms) = (median(&seen.calm_ms.concat()), median(&seen.storm_ms.concat()));
    let factor = factor(seen);
    finding.say(format!("{}: {}", attack.name, attack.what));
    finding.bound(
        factor <= P99_FACTOR_MAX,
        format!(
            "99 % of those who behave: {storm_ms:.2} ms, {calm_ms:.2} ms without; each time {factor:.2} of it, at most 1.5"
        ),
    );
    finding
        .bound(seen.failed == 0, format!("{} of their {} requests failed, none may", seen.failed, seen.due));
    let resident = mib(seen.resident_max);
    finding.bound(
        resident <= RESIDENT_MIB_MAX as f64,
        format!("the router took at most {resident:.0} MiB, at most {RESIDENT_MIB_MAX}"),
    );
    let wrong: Vec<&String> = seen.wrong.iter().take(3).collect();
    finding.bound(
        wrong.is_empty() && seen.attempts > 0,
        format!("{} attempts, each answered as it should be {wrong:?}", seen.attempts),
    );
    let figures: Value = json!({
        "p99_factor": factor, "p99_ms_calm": calm_ms, "p99_ms_storm": storm_ms,
        "p99_ms_calm_slices": seen.calm_ms, "p99_ms_storm_slices": seen.storm_ms,
        "failed": seen.failed, "due": seen.due, "resident_mib_max": resident, "attempts": seen.attempts,
    });
    finding.figure(attack.name, figures);
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

//! `show hostile`: clients that flood, stall, lie about lengths or hoard, beside clients that behave: nothing falls, memory
//! stays under its cap, and those who behave hardly notice. Not what each attack sends.

mod attack;
mod hold;
mod storm;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::Stage;
use super::finding::{Finding, largest, median};
use super::load::{Done, Load, Slice, unix_ms};
use crate::cluster::{Cluster, Folder, Layer, Layout};
use attack::{ATTACKS, Attack};

/// Requests per second of those who behave: well below what two cores can do beside an attacker.
const RATE: &str = "1000";
const WORKLOAD: [&str; 8] =
    ["--keys", "1000", "--dist", "zipf:0.99", "--write-ratio", "0.05", "--connections", "32"];
const SLICE_MS: u64 = 250;
const CALM: Duration = Duration::from_secs(4);
const STORM: Duration = Duration::from_secs(4);
/// What attackers need to reach their number, and a cluster to settle after them.
const ONSET_MS: u64 = 500;
/// The middle one counts: one round tells as much about the machine as about the cluster.
const ROUNDS: usize = 3;
const P99_FACTOR_MAX: f64 = 1.5;
const BUFFERS_MIB: u64 = 128;
/// Who behaves, and who shows a password and does not. Others are strangers.
const GOOD: &str = "good";
pub(super) const BAD: &str = "bad";
pub(super) const PASSWORD: &str = "well-known";
/// What a router may take at most: its cap, its own tables, ten thousand connections, and what one turn reads.
const RESIDENT_MIB_MAX: u64 = 384;
const SAMPLE: Duration = Duration::from_millis(20);

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    if let Some(name) = stage.attack {
        let names = ATTACKS.iter().map(|attack| attack.name).collect::<Vec<_>>();
        anyhow::ensure!(names.contains(&name), "no attack is named {name:?}; there are {}", names.join(", "));
    }
    attack::raise_files_max()?;
    let mut cluster = Cluster::start(stage.binary, layout(), 1)?;
    let folder = Folder::new("hostile")?;
    prepare(&cluster)?;
    let resident_before = cluster.process("router-0")?.resident_bytes()?;
    let mut finding = Finding::default();
    finding.figure("resident_mib_before", mib(resident_before));
    let wanted = |attack: &&Attack| stage.attack.is_none_or(|name| name == attack.name);
    for attack in ATTACKS.iter().filter(wanted) {
        let rounds = (0..ROUNDS)
            .map(|round| run(stage.binary, &cluster, folder.path(), attack, round))
            .collect::<anyhow::Result<Vec<Round>>>()?;
        judge(&mut finding, attack, &rounds);
        let fallen = cluster.fallen();
        finding.bound(fallen.is_empty(), format!("{}: every process lives{}", attack.name, fallen.concat()));
    }
    let sheds = cluster.member_status("router-0")?["sheds_total"].clone();
    finding.say(format!("refused by rule: {sheds}"));
    finding.figure("router_sheds_total", sheds);
    Ok(finding)
}

fn layout() -> Layout {
    Layout {
        racks: 1,
        servers_per_rack: 2,
        layers: vec![Layer::leaves(1), Layer::spines(1)],
        tables: format!(
            "[limits]\nclients_max = 12000\nclient_buffers_bytes_max = \"{BUFFERS_MIB}MiB\"\n\
             [[user]]\nname = \"{GOOD}\"\nrules = \"on >{PASSWORD} ~* &* +@all\"\n\
             [[user]]\nname = \"{BAD}\"\nrules = \"on >{PASSWORD} ~hostile:* +@all\"\n"
        ),
        ..Layout::default()
    }
}

/// The value that those who never read ask for.
fn prepare(cluster: &Cluster) -> anyhow::Result<()> {
    let value = vec![b'v'; attack::LARGE_BYTES];
    let client = redis::Client::open(format!("redis://{GOOD}:{PASSWORD}@{}/", cluster.router(0)))?;
    Ok(redis::cmd("SET").arg(attack::LARGE_KEY).arg(value).query(&mut client.get_connection()?)?)
}

/// One attack, once: a load from before it to its end.
struct Round {
    before_ms: f64,
    during_ms: f64,
    failed: u64,
    due: u64,
    resident_max: u64,
    wrong: Vec<String>,
    attempts: u64,
}

fn run(
    binary: &Path,
    cluster: &Cluster,
    folder: &Path,
    attack: &Attack,
    round: usize,
) -> anyhow::Result<Round> {
    let seconds = (CALM + STORM).as_secs() + 1;
    let (seconds, slice) = (seconds.to_string(), SLICE_MS.to_string());
    let timing = ["--rate", RATE, "--warmup", "2", "--seconds", &seconds, "--slice-ms", &slice];
    let router = cluster.router(0);
    let arguments = [&WORKLOAD[..], &timing].concat();
    let target = format!("{GOOD}:{PASSWORD}@{router}");
    let load = Load::start(binary, target, folder, &format!("{}-{round}", attack.name), &arguments)?;
    std::thread::sleep(Duration::from_secs(2));
    let from_ms = unix_ms();
    std::thread::sleep(CALM);
    let storm_ms = unix_ms();
    let (stop, wrong) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let process = cluster.process("router-0")?;
    let (attempts, resident_max) = std::thread::scope(|scope| {
        let field = attack::Field { router, stop: &stop, wrong: &wrong };
        let attackers: Vec<_> =
            (0..attack.threads).map(|number| scope.spawn(move || (attack.run)(&field, number))).collect();
        let mut resident_max = 0;
        while unix_ms() < storm_ms + STORM.as_millis() as u64 {
            resident_max = resident_max.max(process.resident_bytes().unwrap_or(u64::MAX));
            std::thread::sleep(SAMPLE);
        }
        stop.store(true, Ordering::Relaxed);
        let attempts = attackers.into_iter().map(|attacker| attacker.join().unwrap_or(0)).sum::<u64>();
        (attempts, resident_max)
    });
    let end_ms = unix_ms().min(storm_ms + STORM.as_millis() as u64);
    let done = load.finish()?;
    let during = |slice: &&Slice| slice.unix_ms >= storm_ms && slice.unix_ms < end_ms;
    Ok(Round {
        before_ms: p99_ms(&done, from_ms, storm_ms),
        during_ms: p99_ms(&done, storm_ms + ONSET_MS, end_ms),
        failed: done.slices.iter().filter(during).map(Slice::failed).sum(),
        due: done.slices.iter().filter(during).map(|slice| slice.due).sum(),
        resident_max,
        wrong: wrong.into_inner().unwrap_or_default(),
        attempts,
    })
}

/// The 99th percentile of the middle slice between two times.
fn p99_ms(done: &Done, from_ms: u64, to_ms: u64) -> f64 {
    let within =
        |slice: &&Slice| slice.unix_ms >= from_ms && slice.unix_ms + SLICE_MS <= to_ms && slice.due > 0;
    let slices: Vec<f64> = done.slices.iter().filter(within).map(|slice| slice.p99_us as f64 / 1e3).collect();
    median(&slices)
}

fn judge(finding: &mut Finding, attack: &Attack, rounds: &[Round]) {
    let factors: Vec<f64> = rounds.iter().map(|round| round.during_ms / round.before_ms).collect();
    let factor = median(&factors);
    let shown: Vec<String> = factors.iter().map(|factor| format!("{factor:.2}")).collect();
    finding.say(format!("{}: {}", attack.name, attack.what));
    finding.bound(
        factor <= P99_FACTOR_MAX,
        format!("99 % of those who behave over before: {factor:.2} ({}), at most 1.5", shown.join(", ")),
    );
    let (failed, due) =
        rounds.iter().fold((0, 0), |(failed, due), round| (failed + round.failed, due + round.due));
    finding.bound(failed == 0, format!("{failed} of their {due} requests failed, none may"));
    let resident = mib(rounds.iter().map(|round| round.resident_max).max().unwrap_or(0));
    finding.bound(
        resident <= RESIDENT_MIB_MAX as f64,
        format!("the router took at most {resident:.0} MiB, at most {RESIDENT_MIB_MAX}"),
    );
    let attempts: u64 = rounds.iter().map(|round| round.attempts).sum();
    let wrong: Vec<&String> = rounds.iter().flat_map(|round| &round.wrong).take(3).collect();
    finding.bound(
        wrong.is_empty() && attempts > 0,
        format!("{attempts} attempts, each answered as it should be {wrong:?}"),
    );
    let largest_before = largest(&rounds.iter().map(|round| round.before_ms).collect::<Vec<_>>());
    let figures: Value = json!({
        "p99_factor": factor, "p99_factors": factors, "p99_ms_before_largest": largest_before,
        "p99_ms_during": rounds.iter().map(|round| round.during_ms).collect::<Vec<_>>(),
        "failed": failed, "due": due, "resident_mib_max": resident, "attempts": attempts,
    });
    finding.figure(attack.name, figures);
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

//! `cargo xtask jepsen`: linearizability of real processes under real faults. Never in virtual time.
//!
//! Every role is a process of its own and every address that one dials is the chaos proxy's (`cluster::proxy`).
//! Storage is plain redis-servers, a Redis Cluster, or memcached. Clients (`client`) work on few keys whose names change often (`keys`) and note what they asked and heard;
//! what they never heard of may have happened at any later time, or not. Faults come in episodes drawn from the
//! seed (`faults`). A name's history is checked as soon as its life is over (`judge`), by the simulator's
//! checker (`ours`) and by porcupine (`xtask/porcupine`), which must agree; so no run is too long. A run
//! goes in rounds, each with a new cluster of another shape.

mod arguments;
mod calls;
mod client;
mod connection;
mod faults;
mod judge;
mod keys;
mod memcached;
mod meter;
mod operation;
mod ours;
mod planted;
mod porcupine;
mod report;
mod resharding;
mod samples;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use trace::{Distribution, Workload};

use crate::cluster::proxy::Harm;
use crate::cluster::{LOOPBACK, Layer, Layout, LayoutRole, LayoutStorage, Namespace, ProcessCluster};
use arguments::{JepsenArguments, NextRelease, RunLength};
use calls::FailingCalls;
use client::{ClientCounts, ClientsShared, JepsenClient};
use connection::Speech;
use faults::{Faults, InjectedFault};
use judge::Judge;
use keys::{GROUP, JepsenKeys};
use meter::Meter;
use report::JepsenReport;
use resharding::JepsenResharding;

/// A person who upgrades looks whether all is well before the next member: caches fill meanwhile.
const BETWEEN_MEMBERS: Duration = Duration::from_millis(600);
/// What clients see while members are replaced one by one by a restart: their router closes their connection.
const ROLLING_ERRORS: [&str; 3] = ["client: UnexpectedEof", "client: ConnectionReset", "client: BrokenPipe"];

/// Before the first fault: shims hold their first writes for a lease, and keys have to get hot.
const WARMUP: Duration = Duration::from_secs(2);
const PLACES: usize = 11 * GROUP;
/// Clients whose own connections pass the proxy and so get their share of bad weather.
const CLIENTS_PROXIED: usize = 3;
const POLL: Duration = Duration::from_millis(20);

/// One shape of a cluster.
#[derive(Clone, Copy)]
struct JepsenShape {
    routing: &'static str,
    layers: usize,
    /// A router gives up on a node that is silent for longer than a tenth of a second: with the short lease a node
    /// has requests to answer when its lease has run out.
    lease_ms: u64,
    /// Nodes can do so little, and so little is written, that keys have more places than one per layer.
    hot: bool,
    /// Routers hold copies themselves.
    near: bool,
    /// How many each router has.
    threads: u16,
}

/// Shapes that take turns.
const SHAPES: [JepsenShape; 5] = [
    JepsenShape { routing: "learned", layers: 2, lease_ms: 500, hot: false, near: true, threads: 1 },
    JepsenShape { routing: "on-path", layers: 2, lease_ms: 100, hot: false, near: false, threads: 2 },
    JepsenShape { routing: "learned", layers: 3, lease_ms: 300, hot: false, near: false, threads: 3 },
    JepsenShape { routing: "on-path", layers: 1, lease_ms: 50, hot: false, near: true, threads: 2 },
    JepsenShape { routing: "learned", layers: 2, lease_ms: 300, hot: true, near: false, threads: 1 },
];
/// A shorter run leaves the hot shape out: so little happens in its rounds that nothing could be said of the others.
const HOT_FROM: Duration = Duration::from_secs(300);
/// What a node does in a second, where keys are to be too hot for two: so little that they live for seconds.
const HOT_RATE_MAX: u64 = 100;
/// Keys that a shim moves in a second: so few that they move for seconds.
const MOVED_KEYS_RATE_MAX: u64 = 40;
/// A round that is shorter may be over before a key is hot.
const HEATING: Duration = Duration::from_secs(15);

/// What continuous integration runs: long enough for several turns through all kinds of faults, and a round of every
/// shape.
pub(crate) const SHORT: [&str; 5] =
    ["--seconds", "120", "--storage", "redis,cluster,folder,memcached", "--upgrades"];

pub(crate) fn short(root: &Path) -> anyhow::Result<()> {
    run(root, &SHORT)
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    if matches!(arguments, ["help" | "--help" | "-h"]) {
        crate::print(arguments::USAGE);
        return Ok(());
    }
    let arguments = JepsenArguments::parse(arguments)?;
    let target = target(root)?;
    let program = porcupine::build(root, &target)?;
    porcupine::calibrate(&program, &samples::samples())?;
    if let Some(name) = &arguments.planted {
        let found = planted::run(root, name.as_deref(), &arguments, &program, &target)?;
        return tell_planted(&arguments, &found);
    }
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None => crate::bench::build_as("checked", root)?,
    };
    let next = match &arguments.next {
        None => binary.clone(),
        Some(NextRelease::Built) => built_next(root)?,
        Some(NextRelease::At(path)) => path.clone(),
    };
    let report = trial(&arguments, [&binary, &next], &program, &target)?;
    if arguments.json {
        crate::print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
    } else {
        crate::print(&report.text());
    }
    judge_run(&arguments, &report)
}

/// This tree as the release to come, beside the build of the tree as it is.
pub(crate) fn built_next(root: &Path) -> anyhow::Result<PathBuf> {
    let binary = crate::bench::build_with("checked", "next", root)?;
    let next = target(root)?.join("distcache-next");
    std::fs::copy(binary, &next)?;
    // The build of the tree as it is stands in its place again.
    crate::bench::build_as("checked", root)?;
    Ok(next)
}

fn tell_planted(arguments: &JepsenArguments, found: &[planted::PlantedFound]) -> anyhow::Result<()> {
    if arguments.json {
        crate::print(&format!("{}\n", serde_json::to_string_pretty(found)?));
    } else {
        found.iter().for_each(|found| crate::print(&found.text()));
    }
    let missed = found.iter().filter(|found| !found.is_found()).count();
    ensure!(missed == 0, "{missed} of {} planted bugs were not found", found.len());
    Ok(())
}

/// Where what is built and drawn here goes.
fn target(root: &Path) -> anyhow::Result<PathBuf> {
    let folder = crate::target_folder(root).join("jepsen");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn judge_run(arguments: &JepsenArguments, report: &JepsenReport) -> anyhow::Result<()> {
    let again = arguments.command();
    for violation in report.found.iter().skip(1) {
        crate::tell(&violation.text);
    }
    if let Some(violation) = report.found.first() {
        let picture = violation.picture.as_ref().map(|path| format!("\npicture: {}", path.display()));
        bail!(
            "NOT LINEARIZABLE: key {:?}, seed {}\n{}{}\nto run it again: {again}",
            violation.key,
            arguments.seed,
            violation.text,
            picture.unwrap_or_default()
        );
    }
    if let Some(disagreement) = report.disagreements.first() {
        bail!("the checkers disagree: {disagreement}\nto run it again: {again}");
    }
    if arguments.rolling {
        let unknown = |error: &&String| !ROLLING_ERRORS.contains(&error.as_str());
        let unknown: Vec<&String> = report.errors.keys().filter(unknown).collect();
        ensure!(unknown.is_empty(), "errors that are not documented: {unknown:?}");
    }
    ensure!(report.not_counted.is_empty(), "not counted: {}", report.not_counted.join("; "));
    Ok(())
}

/// Rounds until the run is long enough or something is found.
fn trial(
    arguments: &JepsenArguments,
    binaries: [&Path; 2],
    program: &Path,
    pictures: &Path,
) -> anyhow::Result<JepsenReport> {
    let mut report = JepsenReport::new(arguments.seed);
    let started = Instant::now();
    loop {
        let (time, operations) = match arguments.length {
            RunLength::Time(time) => (time.saturating_sub(started.elapsed()), u64::MAX),
            RunLength::Operations(operations) => {
                (Duration::MAX, operations.saturating_sub(report.operations))
            }
        };
        // What is left of a run is no round if it ends before it is warm.
        let worthless = time < WARMUP * 2 && report.rounds > 0;
        if worthless || operations == 0 || !report.found.is_empty() || !report.disagreements.is_empty() {
            break;
        }
        let seed = arguments.seed.wrapping_mul(1000) + report.rounds;
        let short = matches!(arguments.length, RunLength::Time(time) if time < HOT_FROM);
        let shapes = if short { &SHAPES[..SHAPES.len() - 1] } else { &SHAPES[..] };
        let shape = shapes[(arguments.seed + report.rounds) as usize % shapes.len()];
        let storage = arguments.storages[report.rounds as usize % arguments.storages.len()];
        let round =
            JepsenRound { arguments, seed, shape, storage, time: time.min(arguments.round), operations };
        round.run(binaries, program, pictures, &mut report)?;
    }
    report.close(!arguments.faults.is_empty() || arguments.rolling);
    Ok(report)
}

struct JepsenRound<'a> {
    arguments: &'a JepsenArguments,
    seed: u64,
    shape: JepsenShape,
    storage: LayoutStorage,
    time: Duration,
    operations: u64,
}

impl JepsenRound<'_> {
    fn run(
        &self,
        binaries: [&Path; 2],
        program: &Path,
        pictures: &Path,
        report: &mut JepsenReport,
    ) -> anyhow::Result<()> {
        let layout = self.layout();
        let layers = layout.layers.len();
        let (kinds, namespace) = self.kinds();
        // Who is upgraded step by step begins as a whole.
        let first = if self.arguments.rolling { [binaries[0]; 2] } else { binaries };
        let mut cluster = ProcessCluster::start_with(first, layout, self.seed, namespace)?;
        let (judge, histories) = Judge::start(program, pictures)?;
        let speech = match self.storage {
            LayoutStorage::Memcached => Speech::Memcached,
            LayoutStorage::Redis | LayoutStorage::DurableRedis | LayoutStorage::RedisCluster => Speech::Redis,
            LayoutStorage::Folder => Speech::RedisStrings,
        };
        let shared = Arc::new(ClientsShared {
            keys: JepsenKeys::new(PLACES, speech.kinds(), histories),
            speech,
            start: Instant::now(),
            stop: AtomicBool::new(false),
            counts: ClientCounts::default(),
        });
        let clients = self.start_clients(&cluster, &shared)?;
        let meter = Meter::start(cluster.member("controller-0")?.listen);
        let mut faults = Faults::new(kinds, self.seed);
        let mut resharding = match self.arguments.resharding {
            true => Some(JepsenResharding::new(&cluster, self.seed)?),
            false => None,
        };
        let disturbed = match self.arguments.rolling {
            true => self.roll(&mut cluster, binaries, &shared, &meter),
            false => self.disturb(&mut cluster, &mut faults, &mut resharding, &shared, &judge, &meter),
        };
        shared.stop.store(true, Relaxed);
        for client in clients {
            ensure!(client.join().is_ok(), "a client panicked");
        }
        disturbed?;
        let took = shared.start.elapsed();
        let reading = meter.finish();
        let harm = if self.arguments.rolling { Harm::default() } else { cluster.proxy()?.harm()? };
        report.add_faults(&faults.counts, harm);
        shared.keys.finish();
        // The last sender of histories is gone with it.
        let shared = Arc::into_inner(shared).expect("the clients have ended");
        drop(shared.keys);
        *report.storages.entry(arguments::storage_name(self.storage)).or_default() += 1;
        report.add(took, layers, &shared.counts, &reading, judge.finish()?);
        report.add_near(self.shape.near, reading.near_hits);
        if let Some(resharding) = resharding {
            report.add_resharding(resharding.counts);
        }
        report.add_heat(self.shape.hot && took >= HEATING, reading.raises);
        Ok(())
    }

    /// The faults that this machine allows, and the network namespace for one of them.
    fn kinds(&self) -> (Vec<InjectedFault>, Option<Namespace>) {
        let mut kinds = self.arguments.faults.clone();
        kinds.retain(|kind| kind.befalls(self.storage));
        if kinds.contains(&InjectedFault::FailingCalls) && !FailingCalls::are_possible() {
            crate::tell("***** SKIPPED: failing-calls: strace may not trace processes here *****");
            kinds.retain(|kind| *kind != InjectedFault::FailingCalls);
        }
        if !kinds.contains(&InjectedFault::PullCable) {
            return (kinds, None);
        }
        match Namespace::new() {
            Ok(namespace) => (kinds, Some(namespace)),
            Err(error) => {
                crate::tell(&format!(
                    "***** SKIPPED: pull-cable: no network namespaces here: {error:#} *****"
                ));
                kinds.retain(|kind| *kind != InjectedFault::PullCable);
                (kinds, None)
            }
        }
    }

    /// Every other round, where the storage allows it.
    fn has_standbys(&self) -> bool {
        let may = !matches!(self.storage, LayoutStorage::Folder | LayoutStorage::RedisCluster);
        may && self.seed.is_multiple_of(2)
    }

    /// How many racks there are, and servers in each.
    fn racks(&self) -> [usize; 2] {
        match self.storage {
            LayoutStorage::RedisCluster => [3, 1],
            _ if self.arguments.rolling => [3, 1],
            // A server that is added has a rack of its own, or shares one.
            _ if self.arguments.resharding && self.has_standbys() => [3, 1],
            _ if self.arguments.resharding => [2, 2],
            _ => [2, 1],
        }
    }

    fn layout(&self) -> Layout {
        let JepsenShape { routing, layers, lease_ms, hot, near, threads } = self.shape;
        let middle = Layer { name: "middle", by_rack: false, nodes: 2 };
        let (rolling, resharding) = (self.arguments.rolling, self.arguments.resharding);
        let [racks, servers_per_rack] = self.racks();
        let layers = match layers {
            _ if rolling => vec![Layer::leaves(1), Layer::spines(3)],
            1 => vec![Layer::spines(3)],
            2 => vec![Layer::leaves(1), Layer::spines(2)],
            _ => vec![Layer::leaves(1), middle, Layer::spines(1)],
        };
        Layout {
            layers,
            racks,
            servers_per_rack,
            last_shim_state: resharding.then_some(resharding::FIRST),
            controllers: if rolling { 3 } else { 1 + usize::from(resharding) },
            etcd: rolling || resharding,
            storage: self.storage,
            standbys: self.has_standbys() && !rolling,
            router_lines: match self.storage {
                LayoutStorage::Memcached => format!("threads = {threads}\nprotocol = \"memcached\""),
                _ => format!("threads = {threads}"),
            },
            routers: if rolling { 3 } else { 2 },
            objects_max: 500,
            node_rate_max: if hot { HOT_RATE_MAX } else { 0 },
            cluster_lines: format!("lease_ms = {lease_ms}\nrouting = {routing:?}"),
            // etcd has no leases below two seconds.
            controller_lines: format!(
                "member_lease_ms = {}\ngrace_ms = 200",
                if rolling || resharding { 2000 } else { 1000 }
            ),
            // A key is hot at once, and comes back soon after too many writes.
            tables: format!(
                "[limits]\nstorage_ms_max = 1500\nmoved_keys_rate_max = {}\n[heat]\nthreshold = 2\nhold_off_ms = 200\n[security]\ninsecure_listen = true\n\
                 [near]\nobjects_max = {}\nheat_min = 2\nhits_min = 1",
                if resharding { MOVED_KEYS_RATE_MAX } else { 0 },
                if near { 40 } else { 0 }
            ),
            proxied: !rolling,
            ..Layout::default()
        }
    }

    fn start_clients(
        &self,
        cluster: &ProcessCluster,
        shared: &Arc<ClientsShared>,
    ) -> anyhow::Result<Vec<JoinHandle<()>>> {
        let (distribution, write_ratio) = match self.shape.hot {
            true => (Distribution::Zipf(1.5), 0.02),
            false => (Distribution::Zipf(0.8), 0.2),
        };
        let keys = PLACES as u64;
        let workload = Workload { keys, distribution, write_ratio, value_bytes: 8, seed: self.seed };
        let routers = cluster.ids(LayoutRole::Router);
        let mut clients = Vec::new();
        for number in 0..self.arguments.clients {
            let mut addresses = Vec::new();
            for turn in 0..routers.len() {
                let id = &routers[(number + turn) % routers.len()];
                let direct = cluster.member(id)?.listen;
                addresses.push(if number < CLIENTS_PROXIED && !self.arguments.rolling {
                    cluster.proxy()?.listen(LOOPBACK, &format!("client-{number}"), id, direct, false)?
                } else {
                    direct
                });
            }
            clients.push(self.start_client(shared, number, addresses, &workload)?);
        }
        Ok(clients)
    }

    fn start_client(
        &self,
        shared: &Arc<ClientsShared>,
        number: usize,
        addresses: Vec<SocketAddr>,
        workload: &Workload,
    ) -> anyhow::Result<JoinHandle<()>> {
        let client = JepsenClient::new(shared, number, addresses, workload)?;
        Ok(std::thread::Builder::new().name(format!("client-{number}")).spawn(move || client.work())?)
    }

    /// Every member is stopped in order and comes back as the other release, one at a time, until the round is over.
    fn roll(
        &self,
        cluster: &mut ProcessCluster,
        [binary, next]: [&Path; 2],
        shared: &ClientsShared,
        meter: &Meter,
    ) -> anyhow::Result<()> {
        let roles = [
            LayoutRole::Node,
            LayoutRole::Standby,
            LayoutRole::Shim,
            LayoutRole::Router,
            LayoutRole::Controller,
        ];
        let ids: Vec<String> = roles.iter().flat_map(|role| cluster.ids(*role)).collect();
        let over = || shared.start.elapsed() >= self.time;
        std::thread::sleep(WARMUP);
        meter.fault(true);
        // Not in the middle of a way: there, or back.
        for turn in 0.. {
            if over() && turn >= 2 && turn % 2 == 0 {
                break;
            }
            crate::tell(&format!("{:5.1} s  turn {}", shared.start.elapsed().as_secs_f64(), turn + 1));
            cluster.upgrade_to(if turn % 2 == 0 { next } else { binary });
            for id in &ids {
                cluster.terminate(id)?;
                cluster.run(id)?;
                cluster.wait_linked()?;
                std::thread::sleep(BETWEEN_MEMBERS);
            }
        }
        meter.fault(false);
        Ok(())
    }

    /// One episode of faults after the other until the round is over.
    fn disturb(
        &self,
        cluster: &mut ProcessCluster,
        faults: &mut Faults,
        resharding: &mut Option<JepsenResharding>,
        shared: &ClientsShared,
        judge: &Judge,
        meter: &Meter,
    ) -> anyhow::Result<()> {
        let over = || {
            let late = shared.start.elapsed() >= self.time;
            late || shared.counts.answered() >= self.operations || judge.has_found() || judge.has_failed()
        };
        let wait = |time: Duration| {
            let until = Instant::now() + time;
            while Instant::now() < until && !over() {
                std::thread::sleep(POLL);
            }
        };
        wait(WARMUP);
        while !over() {
            let (lasts, text) = faults.begin(cluster)?;
            if text.is_empty() {
                wait(lasts);
                continue;
            }
            crate::tell(&format!("{:5.1} s  {text}", shared.start.elapsed().as_secs_f64()));
            meter.fault(true);
            wait(lasts);
            meter.fault(false);
            faults.end(cluster)?;
            wait(faults.calm());
            let fallen = cluster.fallen();
            ensure!(fallen.is_empty(), "{}", fallen.join("\n"));
            resharding.iter_mut().try_for_each(|resharding| resharding.go_on(cluster))?;
        }
        if judge.has_found() {
            return Ok(());
        }
        resharding.iter_mut().try_for_each(|resharding| resharding.finish(cluster))
    }
}

//! `show soak`: a mixed load with a fault every few seconds, and what every process holds on to in the quiet between.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Stage;
use super::finding::{Finding, median};
use super::load::ShownLoad;
use super::plot::{Plot, PlotLine};
use crate::cluster::proxy::Weather;
use crate::cluster::{Folder, Layer, Layout, LayoutRole, LayoutStorage, ProcessCluster};

const TIME: Duration = Duration::from_secs(30 * 60);
/// A fault, its end, and quiet enough for leases, shares and links to be as before.
const FAULT: Duration = Duration::from_millis(2500);
const QUIET: Duration = Duration::from_secs(10);
/// Requests per second at each of the routers.
const RATE_PER_ROUTER: u64 = 1000;
/// Writes of every tenth request, over keys of which the nodes can hold some.
const WORKLOAD: [&str; 6] = ["--keys", "20000", "--dist", "zipf:0.99", "--write-ratio", "0.1"];
const OBJECTS_MAX: usize = 1000;
/// Allocators and tables reach their size in the first minutes.
const WARMUP_SHARE: usize = 10;
/// Growth that a median of samples may show by chance: of memory, and of counts.
const RESIDENT_GROWTH_MAX: f64 = 0.10;
const RESIDENT_SLACK_MIB: f64 = 2.0;
const COUNT_GROWTH_MAX: f64 = 0.10;
const COUNT_SLACK: f64 = 8.0;
/// What waits at one instant is as much as the clients of one router have just sent.
const QUEUE_SLACK: f64 = 50.0;
/// Entries of the directories for each object that the nodes hold.
const RATIO_SLACK: f64 = 0.05;
const STATUS_TRIES: usize = 4;

/// What befalls whom. Processes of number 0 never end, so that they would show a leak of any of these.
const FAULTS: [SoakFault; 9] = [
    SoakFault::Kill("leaf-1"),
    SoakFault::Kill("spine-1"),
    SoakFault::Pause("spine-0"),
    SoakFault::Cut("leaf-0", "shim-0"),
    SoakFault::Kill("shim-1"),
    SoakFault::Leave("spine-1"),
    SoakFault::Pause("redis-1"),
    SoakFault::Kill("router-1"),
    SoakFault::Cut("router-0", "leaf-0"),
];

#[derive(Clone, Copy, Debug)]
enum SoakFault {
    Kill(&'static str),
    Leave(&'static str),
    Pause(&'static str),
    Cut(&'static str, &'static str),
}

impl SoakFault {
    fn begin(self, cluster: &mut ProcessCluster) -> anyhow::Result<()> {
        match self {
            SoakFault::Kill(id) => cluster.kill(id),
            SoakFault::Leave(id) => cluster.terminate(id),
            SoakFault::Pause(id) => cluster.pause(id),
            SoakFault::Cut(one, other) => {
                let cut = || Weather { cut: true, ..Weather::default() };
                cluster.proxy()?.weather(Some(one), Some(other), cut())?;
                cluster.proxy()?.weather(Some(other), Some(one), cut())
            }
        }
    }

    fn end(self, cluster: &mut ProcessCluster) -> anyhow::Result<()> {
        match self {
            SoakFault::Kill(id) | SoakFault::Leave(id) => cluster.run(id),
            SoakFault::Pause(id) => cluster.resume(id),
            SoakFault::Cut(..) => cluster.proxy()?.clear(),
        }
    }
}

pub(super) fn show(stage: &Stage<'_>) -> anyhow::Result<Finding> {
    let layout = Layout {
        racks: 2,
        layers: vec![Layer::leaves(1), Layer::spines(2)],
        storage: LayoutStorage::DurableRedis,
        routers: 2,
        objects_max: OBJECTS_MAX,
        proxied: true,
        ..Layout::default()
    };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let folder = Folder::new("soak")?;
    let (time, started) = (stage.time.unwrap_or(TIME), Instant::now());
    // The loads end after the faults do, however long the last one takes.
    let rate = RATE_PER_ROUTER.to_string();
    let seconds = (time + FAULT + QUIET + Duration::from_secs(120)).as_secs().to_string();
    let arguments = [&WORKLOAD[..], &["--rate", &rate, "--pipeline", "16", "--seconds", &seconds]].concat();
    let (binary, at) = (stage.binary, folder.path());
    let _loads = [
        ShownLoad::start(binary, cluster.router(0), at, "load-0", &arguments)?,
        ShownLoad::start(
            binary,
            cluster.router(1),
            at,
            "load-1",
            &[&arguments[..], &["--no-load"]].concat(),
        )?,
    ];
    let mut soak = Soak::default();
    for fault in FAULTS.iter().cycle() {
        if started.elapsed() >= time {
            break;
        }
        fault.begin(&mut cluster)?;
        std::thread::sleep(FAULT);
        fault.end(&mut cluster)?;
        soak.faults += 1;
        std::thread::sleep(QUIET);
        let fallen = cluster.fallen();
        anyhow::ensure!(fallen.is_empty(), "{}", fallen.join("\n"));
        soak.sample(&cluster, started.elapsed())?;
        soak.check_load(&cluster)?;
        eprintln!("{:>5.0} s  {fault:?}", started.elapsed().as_secs_f64());
    }
    soak.keep(stage)?;
    soak.judge()
}

/// Samples by process and by what was measured.
#[derive(Default)]
struct Soak {
    faults: u64,
    seconds: Vec<f64>,
    samples: std::collections::BTreeMap<(String, &'static str), Vec<f64>>,
    requests: u64,
}

/// What a member's status says it holds: sessions, copies in the directory, and everything that waits.
const COUNTS: [(LayoutRole, &str); 9] = [
    (LayoutRole::Shim, "sessions"),
    (LayoutRole::Shim, "copies"),
    (LayoutRole::Shim, "queue_depth"),
    (LayoutRole::Shim, "storage_pending"),
    (LayoutRole::Shim, "quarantined"),
    (LayoutRole::Node, "objects"),
    (LayoutRole::Node, "queue_depth"),
    (LayoutRole::Router, "queue_depth"),
    (LayoutRole::Router, "clients"),
];

impl Soak {
    fn sample(&mut self, cluster: &ProcessCluster, at: Duration) -> anyhow::Result<()> {
        self.seconds.push(at.as_secs_f64());
        for (id, process) in cluster.processes() {
            let resident_mib = process.resident_bytes()? as f64 / f64::from(1 << 20);
            self.push(id, "resident_mib", resident_mib);
            self.push(id, "descriptors", process.open_files()? as f64);
        }
        for role in [LayoutRole::Shim, LayoutRole::Node, LayoutRole::Router] {
            for id in cluster.ids(role) {
                let status = status(cluster, &id)?;
                for (_, name) in COUNTS.iter().filter(|(of, _)| *of == role) {
                    self.push(&id, name, status[name].as_f64().unwrap_or(0.0));
                }
            }
        }
        let copies = self.newest("shim-", "copies");
        let objects = self.newest("leaf-", "objects") + self.newest("spine-", "objects");
        self.push("directory", "per_object", copies / objects.max(1.0));
        Ok(())
    }

    /// The sum over members of a kind.
    fn newest(&self, prefix: &str, what: &str) -> f64 {
        let of_kind = self.samples.iter().filter(|((id, name), _)| id.starts_with(prefix) && *name == what);
        of_kind.filter_map(|(_, values)| values.last()).sum()
    }

    /// A cluster without load would not grow either.
    fn check_load(&mut self, cluster: &ProcessCluster) -> anyhow::Result<()> {
        let requests = status(cluster, "router-0")?["requests_total"].as_u64().unwrap_or(0);
        let least = RATE_PER_ROUTER * QUIET.as_secs() / 2;
        anyhow::ensure!(requests >= self.requests + least, "only {} requests more", requests - self.requests);
        self.requests = requests;
        Ok(())
    }

    fn push(&mut self, id: &str, name: &'static str, value: f64) {
        self.samples.entry((id.to_owned(), name)).or_default().push(value);
    }

    fn judge(&self) -> anyhow::Result<Finding> {
        let mut finding = Finding::default();
        let count = self.seconds.len();
        anyhow::ensure!(count >= 9, "{count} samples are too few to compare: --minutes 2 or more");
        let last_s = self.seconds.last().copied().unwrap_or(0.0);
        finding.say(format!("{} faults in {last_s:.0} s, one sample after each", self.faults));
        finding.say(format!(
            "{:<12} {:<16} {:>12} {:>12} {:>12}",
            "process", "of it", "first third", "last third", "per hour"
        ));
        let mut figures = Map::new();
        for ((id, name), values) in &self.samples {
            let settled = count / WARMUP_SHARE;
            let (first, last) = (median(&values[settled..count / 3]), median(&values[count - count / 3..]));
            let per_hour = slope(&self.seconds[settled..], &values[settled..]) * 3600.0;
            let line = format!("{id:<12} {name:<16} {first:>12.2} {last:>12.2} {per_hour:>+12.2}");
            let grown = match *name {
                "resident_mib" => last > first * (1.0 + RESIDENT_GROWTH_MAX) + RESIDENT_SLACK_MIB,
                // A cache may fill up. Its bound is its configuration, and the directory's is the cache.
                "objects" => values.iter().any(|objects| *objects > OBJECTS_MAX as f64),
                "copies" => false,
                "per_object" => last > first * (1.0 + COUNT_GROWTH_MAX) + RATIO_SLACK,
                "queue_depth" | "storage_pending" => last > first * (1.0 + COUNT_GROWTH_MAX) + QUEUE_SLACK,
                _ => last > first * (1.0 + COUNT_GROWTH_MAX) + COUNT_SLACK,
            };
            finding.bound(!grown, line);
            let figure =
                json!({ "first_third": first, "last_third": last, "per_hour": per_hour, "grown": grown });
            let of_process = figures.entry(id.clone()).or_insert_with(|| Value::Object(Map::new()));
            of_process[*name] = figure;
        }
        finding.figure("seconds", last_s);
        finding.figure("faults", self.faults);
        finding.figure("processes", figures);
        Ok(finding)
    }

    fn keep(&self, stage: &Stage<'_>) -> anyhow::Result<()> {
        let mut csv = "second,process,what,value\n".to_owned();
        for ((id, name), values) in &self.samples {
            for (second, value) in self.seconds.iter().zip(values) {
                csv.push_str(&format!("{second:.1},{id},{name},{value:.2}\n"));
            }
        }
        std::fs::write(stage.runs.join("show-soak.csv"), csv)?;
        let line = |id: &'static str| {
            let values = self.samples.get(&(id.to_owned(), "resident_mib")).map_or(&[][..], Vec::as_slice);
            PlotLine { name: id, points: self.seconds.iter().copied().zip(values.iter().copied()).collect() }
        };
        Plot {
            title: "Resident memory under faults",
            x: "seconds",
            y: "MiB",
            lines: ["router-0", "shim-0", "leaf-0", "spine-0"].into_iter().map(line).collect(),
            marks: Vec::new(),
        }
        .write(&stage.runs.join("show-soak.svg"))
    }
}

/// A busy machine may answer late once, but not always.
fn status(cluster: &ProcessCluster, id: &str) -> anyhow::Result<Value> {
    let mut tries = (0..STATUS_TRIES).map(|_| cluster.member_status(id));
    tries.find(Result::is_ok).unwrap_or_else(|| cluster.member_status(id))
}

/// Slope of the straight line with the least squares of errors.
fn slope(x: &[f64], y: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (mean_x, mean_y) = (mean(x), mean(y));
    let covariance: f64 = x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = x.iter().map(|x| (x - mean_x).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::{Soak, slope};

    #[test]
    fn a_slope_is_that_of_the_line() {
        assert!((slope(&[0.0, 1.0, 2.0, 3.0], &[5.0, 7.0, 9.0, 11.0]) - 2.0).abs() < 1e-9);
        assert!(slope(&[1.0, 1.0], &[0.0, 9.0]).abs() < 1e-9);
    }

    #[test]
    fn a_leak_is_seen_and_noise_is_not() {
        let mut soak = Soak { faults: 90, seconds: (0..90).map(f64::from).collect(), ..Soak::default() };
        for sample in 0..90 {
            soak.push("steady", "resident_mib", 20.0 + f64::from(sample % 3));
            soak.push("leaky", "resident_mib", 20.0 + 0.2 * f64::from(sample));
            soak.push("leaky", "descriptors", 40.0 + f64::from(sample));
            soak.push("filling", "objects", 10.0 * f64::from(sample));
            soak.push("leaky directory", "per_object", 0.9 + 0.01 * f64::from(sample));
        }
        let finding = soak.judge().unwrap();
        assert_eq!(finding.missed.len(), 3, "{:?}", finding.missed);
        assert!(finding.missed.iter().all(|line| line.starts_with("leaky")));
    }
}

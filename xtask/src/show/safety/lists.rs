//! Members whose files say something else of where keys are than the files of the rest: what they acknowledge, and in which
//! words they are refused. Not lives that differ.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use redis::Connection;
use serde_json::json;

use super::one_key;
use crate::cluster::{Layout, ProcessCluster, client, without_shim};
use crate::show::Stage;
use crate::show::finding::Finding;

/// Values and counters that are written at each of the two routers.
const VALUES: usize = 400;
const COUNTERS: usize = 400;
/// How soon it is told who is refused, and why.
const TOLD_MAX: Duration = Duration::from_secs(5);
/// Who has another file than the rest.
const APART: [&str; 2] = ["router-1", "spine-0"];

/// Another file: what it changes, and what the log of the router says of it.
struct OtherFile {
    name: &'static str,
    change: fn(&str) -> String,
    told: &'static str,
}

const FILES: [OtherFile; 3] = [
    OtherFile {
        name: "one [[shim]] less",
        change: |text| without_shim(text, "shim-2"),
        told: "[[shim]] entries: 3 here and 2 there",
    },
    OtherFile {
        name: "another secret",
        change: |text| text.replace("secret = \"00", "secret = \"01"),
        told: "needs the same `secret`",
    },
    OtherFile {
        name: "another mode",
        change: |text| text.replace("[cluster]\n", "[cluster]\nmode = \"bounded\"\n"),
        told: "`mode` in [cluster] is strict here and bounded there",
    },
];

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let layout = Layout { servers_per_rack: 3, routers: 2, ..one_key::layout() };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let routers = [cluster.router(0), cluster.router(1)];
    for file in &FILES {
        let whole = restart_apart(&mut cluster, file.change)?;
        // Links that there should not be are there by then, too.
        let told = until_told(&cluster, file.told);
        let written = write(routers, file.name)?;
        for (id, text) in APART.iter().zip(whole) {
            cluster.change_file(id, |_| text)?;
            cluster.restart(id)?;
        }
        cluster.wait_linked()?;
        let lost = lost(routers, file.name, &written)?;
        let acknowledged = |router: usize| written[router].iter().filter(|done| **done).count();
        finding.bound(
            lost == [0; 2] && acknowledged(0) == VALUES + COUNTERS && told.is_some(),
            format!(
                "a router and a node with {}: {} writes were acknowledged at the others' router and {} at theirs, of {} each; lost \
                 {} of the values and {} of the counters, none allowed; the log says: {}",
                file.name,
                acknowledged(0),
                acknowledged(1),
                VALUES + COUNTERS,
                lost[0],
                lost[1],
                told.as_deref().and_then(|told| told.split("reason=").nth(1)).unwrap_or("nothing")
            ),
        );
        let figures =
            json!({ "acknowledged": [acknowledged(0), acknowledged(1)], "lost": lost, "told": told });
        finding.figure(&format!("lists: {}", file.name), figures);
    }
    Ok(())
}

/// Gives some members another file, and returns what they had.
fn restart_apart(cluster: &mut ProcessCluster, change: fn(&str) -> String) -> anyhow::Result<Vec<String>> {
    let mut whole = Vec::new();
    for id in APART {
        cluster.change_file(id, |text| {
            whole.push(text.to_owned());
            change(text)
        })?;
        anyhow::ensure!(whole.last() != Some(&cluster.file_text(id)?), "the file of {id} was to change");
        cluster.restart(id)?;
    }
    Ok(whole)
}

/// The line in the log of the router with the other file that names what differs, once it is there.
fn until_told(cluster: &ProcessCluster, what: &str) -> Option<String> {
    let deadline = Instant::now() + TOLD_MAX;
    let is_told = |line: &&str| line.contains("link not made") && line.contains(what);
    loop {
        let log = cluster.whole_log(APART[0]);
        let told = log.lines().rfind(is_told).map(str::to_owned);
        if told.is_some() || Instant::now() > deadline {
            return told;
        }
        std::thread::sleep(one_key::POLL);
    }
}

fn value_key(name: &str, router: usize, number: usize) -> String {
    format!("{name}:{router}:{number}")
}

fn counter_key(name: &str, number: usize) -> String {
    format!("{name}:counter:{number}")
}

/// Which writes were acknowledged at each router: values of its own, and counters that both count up.
fn write(routers: [SocketAddr; 2], name: &str) -> anyhow::Result<[Vec<bool>; 2]> {
    let mut written = [Vec::new(), Vec::new()];
    let mut connections: Vec<Connection> =
        routers.into_iter().map(client::connect).collect::<Result<_, _>>()?;
    for number in 0..VALUES {
        for (router, connection) in connections.iter_mut().enumerate() {
            let key = value_key(name, router, number);
            written[router].push(redis::cmd("SET").arg(key).arg("v").query::<()>(connection).is_ok());
        }
    }
    for number in 0..COUNTERS {
        for (router, connection) in connections.iter_mut().enumerate() {
            let key = counter_key(name, number);
            written[router].push(redis::cmd("INCR").arg(key).query::<i64>(connection).is_ok());
        }
    }
    Ok(written)
}

/// Values that were acknowledged and are missing at one of the routers, and counters that are not what was acknowledged.
fn lost(routers: [SocketAddr; 2], name: &str, written: &[Vec<bool>; 2]) -> anyhow::Result<[usize; 2]> {
    let mut lost = [0; 2];
    for address in routers {
        let mut connection = client::connect(address)?;
        for (router, written) in written.iter().enumerate() {
            for number in (0..VALUES).filter(|number| written[*number]) {
                let key = value_key(name, router, number);
                let found: Option<String> =
                    redis::cmd("GET").arg(&key).query(&mut connection).context(key)?;
                lost[0] += usize::from(found.as_deref() != Some("v"));
            }
        }
        for number in 0..COUNTERS {
            let key = counter_key(name, number);
            let found: Option<u64> = redis::cmd("GET").arg(&key).query(&mut connection).context(key)?;
            let acknowledged = written.iter().filter(|written| written[VALUES + number]).count() as u64;
            lost[1] += usize::from(found.unwrap_or(0) != acknowledged);
        }
    }
    Ok(lost)
}

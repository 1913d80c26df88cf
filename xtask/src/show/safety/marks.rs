//! The next life of a cluster has another file than the last: its keys are found again, or it is refused in words. Not members
//! whose files differ.

use serde_json::json;

use super::one_key;
use crate::cluster::{Layout, ProcessCluster, client};
use crate::show::Stage;
use crate::show::finding::Finding;

const KEYS: usize = 400;
/// The process that holds all members.
const UP: &str = "up";

/// Another file: what it changes, and what is said of it; nothing where it changes nothing of where keys are.
struct OtherLife {
    name: &'static str,
    change: fn(&str) -> String,
    told: Option<&'static str>,
}

const LIVES: [OtherLife; 4] = [
    OtherLife { name: "the tables of its shims in another order", change: reversed, told: None },
    OtherLife {
        name: "the servers of its shims swapped",
        change: swapped,
        told: Some("the server holds the keys of"),
    },
    OtherLife {
        name: "another secret",
        change: |text| text.replace("secret = \"00", "secret = \"01"),
        told: Some("with another secret"),
    },
    OtherLife {
        name: "one server less",
        change: |text| shims(text, |tables| tables.truncate(2)),
        told: Some("[[shim]] entries"),
    },
];

pub(super) fn show(stage: &Stage<'_>, finding: &mut Finding) -> anyhow::Result<()> {
    let layout = Layout { servers_per_rack: 3, separate: false, ..one_key::layout() };
    let mut cluster = ProcessCluster::start(stage.binary, layout, 1)?;
    let mut client = client::connect(cluster.router(0))?;
    for number in 0..KEYS {
        redis::cmd("SET").arg(number).arg("v").query::<()>(&mut client)?;
    }
    let whole = cluster.file_text(UP)?;
    let mut figures = Vec::new();
    for life in &LIVES {
        cluster.kill(UP)?;
        let other = (life.change)(&whole);
        anyhow::ensure!(other != whole, "{}: the file is the same", life.name);
        cluster.change_file(UP, |_| other)?;
        let started = cluster.run(UP);
        let served = started.is_ok();
        // Only the end is about this life: the log goes on.
        let words = started.err().map(|error| format!("{error:#}")).unwrap_or_default();
        let said = life.told.and_then(|told| words.lines().rfind(|line| line.contains(told)));
        let missing = if served { missing(&cluster)? } else { 0 };
        finding.bound(
            missing == 0 && if life.told.is_some() { !served && said.is_some() } else { served },
            format!(
                "a life with {}: {}, {missing} of {KEYS} keys were answered nil, none allowed{}",
                life.name,
                if served { "it serves" } else { "refused" },
                said.map(|said| format!(": {}", said.trim().split(": it ended").next().unwrap_or_default()))
                    .unwrap_or_default()
            ),
        );
        figures.push(json!({ "life": life.name, "served": served, "missing": missing, "said": said }));
        if !served {
            cluster.change_file(UP, |_| whole.clone())?;
            cluster.run(UP)?;
        }
        cluster.wait_linked()?;
        let missing = self::missing(&cluster)?;
        finding.bound(
            missing == 0,
            format!("its own file again: {missing} of {KEYS} keys are missing, none allowed"),
        );
    }
    finding.figure("marks", figures);
    Ok(())
}

/// Keys that are answered nil, or otherwise than they were written.
fn missing(cluster: &ProcessCluster) -> anyhow::Result<usize> {
    cluster.wait_linked()?;
    let mut client = client::connect(cluster.router(0))?;
    let mut missing = 0;
    for number in 0..KEYS {
        let found: Option<String> = redis::cmd("GET").arg(number).query(&mut client)?;
        missing += usize::from(found.as_deref() != Some("v"));
    }
    Ok(missing)
}

/// The file with its shims changed.
fn shims(text: &str, change: fn(&mut Vec<&str>)) -> String {
    let mut tables: Vec<&str> = text.split("[[").collect();
    let is_shim = |table: &str| table.starts_with("shim]]");
    let first = tables.iter().position(|table| is_shim(table)).unwrap_or_default();
    let mut shims: Vec<&str> = tables.extract_if(.., |table| is_shim(table)).collect();
    change(&mut shims);
    tables.splice(first..first, shims);
    tables.join("[[")
}

fn reversed(text: &str) -> String {
    shims(text, |tables| tables.reverse())
}

/// The first two storage servers change places.
fn swapped(text: &str) -> String {
    let mut urls = text.lines().filter(|line| line.starts_with("storage = "));
    let (Some(first), Some(second)) = (urls.next(), urls.next()) else { return text.to_owned() };
    text.replace(first, "(first)").replace(second, first).replace("(first)", second)
}

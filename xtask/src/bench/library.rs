//! CPU time per hot GET of an application with the router inside it: its own and the cluster's, against the way through a
//! router.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use anyhow::Context;
use serde_json::{Value, json};

use super::cost::{NEAR, median, microseconds, processes, small_cluster};
use super::load::load;
use crate::cluster::{ProcessCluster, mortal};

/// Each figure is the median of so many runs, the ways taking turns.
const ROUNDS: usize = 5;
const EXAMPLE: &str = "library_load";
/// How many threads or futures, and how many reads one of them asks for at once.
const SHAPES: [[&str; 3]; 5] = [
    ["threads", "1", "1"],
    ["threads", "1", "16"],
    ["threads", "50", "1"],
    ["threads", "50", "16"],
    ["futures", "50", "1"],
];

pub(super) fn run(root: &Path, binary: &Path, seconds: u64) -> anyhow::Result<Value> {
    let example = super::build_example(root, "router", EXAMPLE)?;
    let (cluster, near) = (small_cluster(binary, "")?, small_cluster(binary, NEAR)?);
    let mut rows = Vec::new();
    for [callers, count, batch] in SHAPES {
        let shape = Shape { callers, count, batch, seconds };
        let [mut library, mut copies] = [const { Vec::new() }; 2];
        let mut router = Vec::new();
        for _ in 0..ROUNDS {
            library.push(shape.library(&example, &cluster)?);
            copies.push(shape.library(&example, &near)?);
            router.push(shape.router(binary, &cluster)?);
        }
        for (way, runs) in [("library", library), ("library with near copies", copies)] {
            let [own, cluster] =
                [0, 1].map(|at| median(&runs.iter().map(|run| run[at]).collect::<Vec<f64>>()));
            rows.push(json!({
                "way": way, "callers": callers, "count": count, "batch": batch, "application_us": own, "cluster_us": cluster, "runs_us": runs,
            }));
        }
        // What an application spends on sockets is not in it.
        rows.push(json!({
            "way": "router", "connections": count, "batch": batch, "cluster_us": median(&router), "runs_us": router,
        }));
    }
    Ok(Value::Array(rows))
}

struct Shape {
    callers: &'static str,
    count: &'static str,
    batch: &'static str,
    seconds: u64,
}

impl Shape {
    /// Microseconds per read of the application and of the cluster.
    fn library(&self, example: &Path, cluster: &ProcessCluster) -> anyhow::Result<[f64; 2]> {
        let seconds = self.seconds.to_string();
        let mut own = 0.0;
        let mut command = mortal(example);
        command.arg(cluster.config()).args([self.callers, self.count, self.batch, &seconds]);
        let mut application = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(application.stdout.take().context("no output")?).lines();
        let mut line = || lines.next().with_context(|| format!("{command:?} has ended"))?.context("no line");
        anyhow::ensure!(line()? == "warm", "{EXAMPLE} says something else");
        let us = microseconds(&processes(cluster)?, || {
            application.stdin.take().context("no input")?.write_all(b"\n")?;
            let summary: Value = serde_json::from_str(&line()?)?;
            own = summary["own_us"].as_f64().context("no own_us")?;
            Ok(summary)
        })?;
        application.wait()?;
        Ok([own, us])
    }

    fn router(&self, binary: &Path, cluster: &ProcessCluster) -> anyhow::Result<f64> {
        let seconds = self.seconds.to_string();
        let hot = ["--keys", "16", "--dist", "adversary:16", "--no-load", "--warmup", "0"];
        let shape = ["--connections", self.count, "--pipeline", self.batch, "--seconds", &seconds];
        let port = cluster.router(0).port();
        microseconds(&processes(cluster)?, || load(binary, port, &[&hot[..], &shape].concat()))
    }
}

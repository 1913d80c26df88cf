//! What the check of a user costs per hit, in instructions of the router's machine: counted, so that no clock and no
//! neighbour matters.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

const KINDS: [(&str, &str); 4] = [
    ("nobody", "a router without users"),
    ("all", "a user with +@all ~* &*"),
    ("pattern", "a user with +@all ~key:*"),
    ("rules", "a user with 20 rules: four about commands, 16 key patterns of which the last one fits"),
];
const HITS: [u64; 2] = [100_000, 1_100_000];

pub(super) fn run(root: &Path) -> anyhow::Result<Value> {
    let program = super::build_example(root, "protocol", "hits")?;
    let mut rows = Vec::new();
    let mut without = None;
    for (kind, what) in KINDS {
        let counted = HITS.map(|hits| instructions(&program, kind, hits));
        let [few, many] = counted;
        let per_hit = (many? - few?) as f64 / (HITS[1] - HITS[0]) as f64;
        let base = *without.get_or_insert(per_hit);
        rows.push(json!({
            "user": what,
            "instructions_per_hit": per_hit.round(),
            "more_than_without_users": (per_hit - base).round(),
        }));
    }
    Ok(json!(rows))
}

/// Instructions of the whole program, as callgrind counts them.
fn instructions(program: &Path, kind: &str, hits: u64) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([kind, &hits.to_string()])
        .output()
        .context("valgrind cannot be run (Debian's package valgrind)")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "hits {kind}: {told}");
    match told.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok()) {
        Some(count) => Ok(count),
        None => bail!("valgrind does not say how many instructions it has seen: {told}"),
    }
}

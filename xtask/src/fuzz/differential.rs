//! Starts the test that compares a router with a redis-server, for as long as is wanted. The test itself is with the
//! other end-to-end tests.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

pub(super) const NAME: &str = "differential";
const TEST: [&str; 9] =
    ["test", "--quiet", "--locked", "--package", "distcache", "--test", "end_to_end", "differential::", "--"];
/// As the test reads them.
const SECONDS_VARIABLE: &str = "DISTCACHE_DIFFERENTIAL_SECONDS";
const SEED_VARIABLE: &str = "DISTCACHE_DIFFERENTIAL_SEED";

pub(super) fn run(root: &Path, time: Duration, seed: u32) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(TEST).arg("--nocapture").current_dir(root);
    test.env(SECONDS_VARIABLE, time.as_secs().to_string()).env(SEED_VARIABLE, seed.to_string());
    anyhow::ensure!(
        test.status().context("starting cargo")?.success(),
        "fuzz: differences that nobody meant"
    );
    Ok(())
}

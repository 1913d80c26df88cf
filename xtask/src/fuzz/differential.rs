//! Starts the tests that compare a router with a redis-server, for as long as is wanted. The tests themselves are with
//! the other end-to-end tests.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

pub(super) const NAME: &str = "differential";
const TEST: [&str; 7] = ["test", "--quiet", "--locked", "--package", "distcache", "--test", "end_to_end"];
const STREAMS: &str = "differential::a_router_answers_as_redis_does";
const COMMANDS: &str = "differential::commands::";
/// As the test reads them.
const SECONDS_VARIABLE: &str = "DISTCACHE_DIFFERENTIAL_SECONDS";
const SEED_VARIABLE: &str = "DISTCACHE_TEST_SEED";
const COMMANDS_VARIABLE: &str = "DISTCACHE_DIFFERENTIAL_COMMANDS";

/// Streams for this time or, if a number of them is given, commands.
pub(super) fn run(root: &Path, time: Duration, commands: Option<u32>, seed: u32) -> anyhow::Result<()> {
    let mut test = crate::cargo::command();
    let which = if commands.is_some() { COMMANDS } else { STREAMS };
    test.args(TEST).args([which, "--", "--nocapture"]).current_dir(root);
    test.env(SECONDS_VARIABLE, time.as_secs().to_string()).env(SEED_VARIABLE, seed.to_string());
    if let Some(commands) = commands {
        test.env(COMMANDS_VARIABLE, commands.to_string());
    }
    anyhow::ensure!(
        test.status().context("starting cargo")?.success(),
        "fuzz: differences that nobody meant"
    );
    Ok(())
}

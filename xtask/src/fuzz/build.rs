//! Builds the fuzzer with coverage counters, which a stable compiler makes when LLVM is asked itself. No sanitizer:
//! those need a nightly compiler, and this tree has no `unsafe` code for them to watch.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Counters per edge, their table, and what comparisons compared, for libFuzzer to read.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The path of the fuzzer.
pub(super) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    println!("fuzz: building");
    let host = crate::host()?;
    // With a target named, the flags do not reach build scripts and macros.
    let arguments = [
        "build",
        "--quiet",
        "--locked",
        "--profile",
        "fuzz",
        "--package",
        "fuzz",
        "--features",
        "libfuzzer",
        "--bin",
        "fuzz",
        "--target",
        &host,
    ];
    let mut build = crate::cargo::command();
    build.args(arguments).current_dir(root).env("RUSTFLAGS", COVERAGE.join(" "));
    let status = build.status().context("starting cargo")?;
    anyhow::ensure!(
        status.success(),
        "building the fuzzer ended with {status}; it needs g++ (`cargo xtask setup`)"
    );
    Ok(crate::target_folder(root).join(host).join("fuzz/fuzz"))
}

//! Runs the fuzzer's processes and tells what they found. Not what counts as wrong: the targets decide that.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::Context;

use super::corpus;

/// As `fuzz/src/main.rs` reads it.
const TARGET_VARIABLE: &str = "DISTCACHE_FUZZ_TARGET";
/// A process that grows beyond this is stopped as if it had failed: what a single input may hold is bounded by the
/// targets themselves.
const PROCESS_MIB_MAX: u32 = 1024;
const INPUT_SECONDS_MAX: u32 = 10;
/// More than enough for guided search, hopeless for blind.
const PLANTED_RUNS_MAX: u32 = 4_000_000;
const PLANTED: &str = "planted";
/// Longer inputs are kept cut to this length: many short ones cover more than few long ones.
const KEPT_BYTES_MAX: u32 = 1024;
/// Lines of a failed process that are shown.
const TAIL_LINES: usize = 60;
const POLL: Duration = Duration::from_millis(50);

/// One process: a target from one seed.
pub(super) struct FuzzJob {
    target: String,
    seed: u32,
}

impl FuzzJob {
    pub(super) fn new(target: &str, seed: u32) -> FuzzJob {
        FuzzJob { target: target.to_owned(), seed }
    }
}

pub(super) struct Fuzzer {
    program: PathBuf,
    root: PathBuf,
    /// Inputs found, failures and logs, below `target/`.
    findings: PathBuf,
}

impl Fuzzer {
    pub(super) fn new(root: &Path, program: PathBuf) -> anyhow::Result<Fuzzer> {
        let findings = crate::target_folder(root).join("fuzz-findings");
        fs::create_dir_all(&findings).with_context(|| format!("making {}", findings.display()))?;
        Ok(Fuzzer { program, root: root.to_owned(), findings })
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env(TARGET_VARIABLE, target).env("RUST_BACKTRACE", "1").current_dir(&self.findings).args([
            format!("-rss_limit_mb={PROCESS_MIB_MAX}"),
            format!("-timeout={INPUT_SECONDS_MAX}"),
            "-max_len=4096".to_owned(),
            format!("-artifact_prefix={}/failed-{target}-", self.findings.display()),
        ]);
        command
    }

    /// Fails unless the fuzzer finds a mistake that is known to be there.
    pub(super) fn find_the_planted_mistake(&self) -> anyhow::Result<()> {
        let log = self.findings.join("planted.log");
        let mut command = self.command(PLANTED);
        command.args([format!("-runs={PLANTED_RUNS_MAX}"), "-seed=1".to_owned(), "-max_len=16".to_owned()]);
        let status = command.stderr(File::create(&log)?).status().context("starting the fuzzer")?;
        let found =
            fs::read_to_string(&log).is_ok_and(|text| text.contains("bytes of input made planted hold"));
        anyhow::ensure!(
            !status.success() && found,
            "the fuzzer does not find the mistake that is planted for it, so its silence would mean nothing; see {}",
            log.display()
        );
        println!("fuzz: found the planted mistake, as it must");
        Ok(())
    }

    /// Runs all jobs, so many at a time, and fails if one of them does.
    pub(super) fn run(&self, jobs: Vec<FuzzJob>, at_a_time: usize, time: Duration) -> anyhow::Result<()> {
        let mut waiting = jobs.into_iter();
        let mut running: Vec<(FuzzJob, Child)> = Vec::new();
        let mut failed = Vec::new();
        loop {
            while running.len() < at_a_time
                && let Some(job) = waiting.next()
            {
                let child = self.start(&job, time)?;
                running.push((job, child));
            }
            if running.is_empty() {
                break;
            }
            std::thread::sleep(POLL);
            let mut still = Vec::new();
            for (job, mut child) in running {
                match child.try_wait()? {
                    None => still.push((job, child)),
                    Some(status) if status.success() => self.tell(&job),
                    Some(_) => {
                        self.tell_failure(&job);
                        failed.push(job.target);
                    }
                }
            }
            running = still;
        }
        anyhow::ensure!(failed.is_empty(), "fuzz: {} failed", failed.join(", "));
        Ok(())
    }

    fn start(&self, job: &FuzzJob, time: Duration) -> anyhow::Result<Child> {
        let found = self.found(&job.target);
        fs::create_dir_all(&found)?;
        let mut command = self.command(&job.target);
        command
            .args([
                format!("-max_total_time={}", time.as_secs().max(1)),
                format!("-seed={}", job.seed),
                "-print_final_stats=1".to_owned(),
            ])
            .args([found, corpus::in_tree(&self.root).join(&job.target)])
            .stderr(File::create(self.log(job))?);
        command.spawn().context("starting the fuzzer")
    }

    fn found(&self, target: &str) -> PathBuf {
        self.findings.join(target)
    }

    fn log(&self, job: &FuzzJob) -> PathBuf {
        self.findings.join(format!("{}-{}.log", job.target, job.seed))
    }

    fn tell(&self, job: &FuzzJob) {
        let text = fs::read(self.log(job)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let after = |name: &str| {
            text.lines().rev().find_map(|line| line.split_once(name)).map(|(_, rest)| rest.trim())
        };
        let first =
            |text: Option<&str>| text.and_then(|text| text.split(' ').next()).unwrap_or("?").to_owned();
        let runs = first(after("stat::number_of_executed_units:"));
        let (edges, features) = (first(after(" cov: ")), first(after(" ft: ")));
        println!("fuzz: {:14} {runs:>9} runs, {edges} edges, {features} features", job.target);
    }

    fn tell_failure(&self, job: &FuzzJob) {
        let text = fs::read(self.log(job)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"));
        let file = text
            .lines()
            .rev()
            .find_map(|line| line.split_once("Test unit written to "))
            .map(|(_, file)| file);
        let again = match file {
            Some(file) => format!("to run the input again: cargo xtask fuzz {} --input {file}", job.target),
            None => format!("see {}", self.log(job).display()),
        };
        println!("fuzz: {} FAILED; {again}", job.target);
    }

    pub(super) fn replay(&self, target: &str, input: &Path) -> anyhow::Result<()> {
        let input = input.canonicalize().with_context(|| format!("there is no input {}", input.display()))?;
        let status = self.command(target).arg(input).status().context("starting the fuzzer")?;
        anyhow::ensure!(status.success(), "the input fails");
        Ok(())
    }

    /// Puts the smallest set of inputs that covers what all known ones cover into the tree.
    pub(super) fn keep(&self, target: &str) -> anyhow::Result<()> {
        let merged = self.findings.join(format!("{target}-merged"));
        if merged.exists() {
            fs::remove_dir_all(&merged)?;
        }
        fs::create_dir_all(&merged)?;
        let tree = corpus::in_tree(&self.root).join(target);
        let log = File::create(self.findings.join(format!("{target}-merge.log")))?;
        let mut command = self.command(target);
        command
            .args(["-set_cover_merge=1".to_owned(), format!("-max_len={KEPT_BYTES_MAX}")])
            .args([&merged, &tree, &self.found(target)])
            .stderr(log);
        anyhow::ensure!(
            command.status().context("starting the fuzzer")?.success(),
            "merging {target} failed"
        );
        let (count, bytes) = corpus::replace(&self.root, target, &merged)?;
        println!("fuzz: corpus of {target}: {count} inputs, {} KiB", bytes >> 10);
        Ok(())
    }
}

//! Coverage-guided fuzzing on a stable toolchain: `cargo xtask fuzz`. Which targets there are is in `fuzz/`.

mod build;
mod corpus;
mod differential;
mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

pub(crate) use corpus::targets;
use run::{FuzzJob, Fuzzer};

pub(crate) const USAGE: &str = "\
Usage: cargo xtask fuzz [TARGET] [OPTIONS]
       cargo xtask fuzz differential [--seconds S | --commands N] [--seed N]

Looks for inputs that make a decoder or a machine panic, overflow or hold more memory than the input's size allows;
all targets one after the other, or one. New inputs are kept below target/ and tried again by the next run.

  --seconds S    how long each target is fuzzed (default 60)
  --jobs N       processes at a time (default: one per core); for one target they share what they find
  --seed N       of the first process (default 1)
  --input FILE   runs one input instead, with a backtrace where it fails
  --keep         at the end, adds what covers something new to fuzz/corpus

`differential` sends the same made-up streams to a redis-server and to a router before one, and fails where they are
answered differently and nobody meant it. With --commands so many random commands over all types go to a redis-server and
to a router before four, with tiny caches, in both protocols.
";

#[derive(Debug, PartialEq)]
struct FuzzOptions {
    target: Option<String>,
    time: Duration,
    jobs: usize,
    seed: u32,
    input: Option<PathBuf>,
    keep: bool,
    /// Commands of `differential`.
    commands: Option<u32>,
}

impl FuzzOptions {
    fn parse(arguments: &[&str]) -> anyhow::Result<FuzzOptions> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut options = FuzzOptions {
            target: None,
            time: Duration::from_secs(60),
            jobs: cores,
            seed: 1,
            input: None,
            keep: false,
            commands: None,
        };
        let mut rest = arguments.iter();
        while let Some(&argument) = rest.next() {
            if argument == "--keep" {
                options.keep = true;
                continue;
            }
            if !argument.starts_with("--") && options.target.is_none() {
                options.target = Some(argument.to_owned());
                continue;
            }
            let value = rest.next().with_context(|| format!("{argument} needs a value\n\n{USAGE}"))?;
            let number =
                || value.parse::<u32>().with_context(|| format!("{argument} {value}: write a number"));
            match argument {
                "--seconds" => options.time = Duration::from_secs(u64::from(number()?)),
                "--jobs" => options.jobs = number()?.max(1) as usize,
                "--seed" => options.seed = number()?,
                "--commands" => options.commands = Some(number()?),
                "--input" => options.input = Some(PathBuf::from(value)),
                _ => anyhow::bail!("unknown option {argument}\n\n{USAGE}"),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let options = FuzzOptions::parse(arguments)?;
    if options.target.as_deref() == Some(differential::NAME) {
        return differential::run(root, options.time, options.commands, options.seed);
    }
    let known = corpus::targets(root)?;
    if let Some(target) = &options.target {
        anyhow::ensure!(
            known.contains(target),
            "there is no target {target}; there are: {}",
            known.join(", ")
        );
    }
    let fuzzer = Fuzzer::new(root, build::build(root)?)?;
    if let Some(input) = &options.input {
        let target = options.target.as_deref().context("--input needs the TARGET that it is for")?;
        return fuzzer.replay(target, input);
    }
    fuzzer.find_the_planted_mistake()?;
    let jobs: Vec<FuzzJob> = match &options.target {
        Some(target) => {
            (0..options.jobs as u32).map(|index| FuzzJob::new(target, options.seed + index)).collect()
        }
        None => known.iter().map(|target| FuzzJob::new(target, options.seed)).collect(),
    };
    fuzzer.run(jobs, options.jobs, options.time)?;
    if options.keep {
        for target in known.iter().filter(|target| options.target.as_ref().is_none_or(|only| only == *target))
        {
            fuzzer.keep(target)?;
        }
    }
    Ok(())
}

/// What CI runs: every target for a short time, always the same seed.
pub(crate) fn short(root: &Path) -> anyhow::Result<()> {
    run(root, &SHORT)
}

pub(crate) const SHORT: [&str; 4] = ["--seconds", "6", "--seed", "1"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let options =
            FuzzOptions::parse(&["wire", "--seconds", "5", "--jobs", "3", "--seed", "7", "--keep"]).unwrap();
        assert_eq!(options.target.as_deref(), Some("wire"));
        assert_eq!((options.time, options.jobs, options.seed), (Duration::from_secs(5), 3, 7));
        assert!(options.keep);
        for wrong in [&["--seconds"][..], &["--seconds", "x"], &["--fast", "1"], &["wire", "node"]] {
            assert!(FuzzOptions::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(FuzzOptions::parse(&SHORT).is_ok());
    }
}

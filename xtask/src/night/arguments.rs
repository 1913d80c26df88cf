//! The command line of `cargo xtask night`. Not what it asks for.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

pub(super) const USAGE: &str = "\
Usage: cargo xtask night [OPTIONS]

What is too long for `make test`, on seeds that nobody has tried: the deep model, all mutants, instructions per hot
GET, property tests with many cases, the simulator, fuzzing, differential streams, jepsen. Goes on after a failure; ends
with a summary and, if anything failed, with exit code 1. Output of every part is kept below target/night.

  --hours H      how long in all (default 8); what has no end of its own gets its share
  --only LIST    parts, with commas between them: model, mutants, instructions, properties, simulation, fuzz,
                 differential, jepsen
";

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NightKind {
    Model,
    Mutants,
    Instructions,
    Properties,
    Simulation,
    Fuzz,
    Differential,
    Jepsen,
}

/// In the order in which they run, with the share of the time that each of those gets which would never end.
pub(super) const KINDS: [(&str, NightKind, u32); 8] = [
    ("model", NightKind::Model, 0),
    ("mutants", NightKind::Mutants, 0),
    ("instructions", NightKind::Instructions, 0),
    ("properties", NightKind::Properties, 25),
    ("simulation", NightKind::Simulation, 20),
    ("fuzz", NightKind::Fuzz, 20),
    ("differential", NightKind::Differential, 10),
    ("jepsen", NightKind::Jepsen, 25),
];

#[derive(Debug, PartialEq)]
pub(super) struct NightArguments {
    pub(super) time: Duration,
    pub(super) kinds: Vec<NightKind>,
}

impl NightArguments {
    pub(super) fn parse(arguments: &[&str]) -> anyhow::Result<NightArguments> {
        let kinds = KINDS.map(|(_, kind, _)| kind).to_vec();
        let mut parsed = NightArguments { time: Duration::from_secs(8 * 3600), kinds };
        let mut rest = arguments.iter();
        while let Some(&flag) = rest.next() {
            let value = rest.next().with_context(|| format!("{flag} needs a value\n\n{USAGE}"));
            match flag {
                "--hours" => parsed.time = hours(value?)?,
                "--only" => parsed.kinds = value?.split(',').map(kind).collect::<Result<_, _>>()?,
                _ => bail!("unknown argument {flag:?}\n\n{USAGE}"),
            }
        }
        Ok(parsed)
    }

    pub(super) fn has(&self, kind: NightKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// What this kind gets of the time that is left to it and those that come after it.
    pub(super) fn share(&self, kind: NightKind, left: Duration) -> Duration {
        let from = KINDS.iter().position(|(_, known, _)| *known == kind).unwrap_or(0);
        let chosen = KINDS[from..].iter().filter(|(_, known, _)| self.has(*known));
        let all: u32 = chosen.map(|(_, _, share)| share).sum();
        left * KINDS[from].2 / all.max(1)
    }
}

fn hours(text: &str) -> anyhow::Result<Duration> {
    let hours: f64 =
        text.parse().with_context(|| format!("--hours {text:?}: write a number, for example 0.5"))?;
    ensure!(hours > 0.0 && hours <= 1000.0, "--hours {text}: between 0 and 1000");
    Ok(Duration::from_secs_f64(hours * 3600.0))
}

fn kind(name: &str) -> anyhow::Result<NightKind> {
    let found = KINDS.iter().find(|(known, _, _)| *known == name);
    let names = KINDS.map(|(name, _, _)| name).join(", ");
    Ok(found.with_context(|| format!("--only {name:?}: there are {names}"))?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_dealt_to_what_was_chosen() {
        let hour = Duration::from_secs(3600);
        let all = NightArguments::parse(&[]).unwrap();
        assert_eq!(all.time, 8 * hour);
        assert_eq!(all.share(NightKind::Properties, hour), hour / 4);
        assert_eq!(all.share(NightKind::Jepsen, hour), hour, "the last gets what is left");
        let some = NightArguments::parse(&["--hours", "0.5", "--only", "fuzz,properties"]).unwrap();
        assert_eq!((some.time, some.kinds.len()), (hour / 2, 2));
        assert_eq!(some.share(NightKind::Properties, 45 * hour), 25 * hour);
        for wrong in [&["--hours"][..], &["--hours", "0"], &["--hours", "x"], &["--only", "all"], &["--fast"]]
        {
            assert!(NightArguments::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}

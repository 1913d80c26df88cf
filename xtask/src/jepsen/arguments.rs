//! The command line of `cargo xtask jepsen`. Not what it asks for.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

use super::faults::{FAULTS, Fault};

pub(super) const USAGE: &str = "\
Usage: cargo xtask jepsen [OPTIONS]
       cargo xtask jepsen --planted [NAME]

Real processes before real redis-servers, real faults, and every history checked for linearizability by two
checkers. Ends with an error on a violation, and when too few hits or invalidations make the run worthless.

  --seconds S       how long to run (default 60)
  --operations N    run until so many commands were answered, however long that takes
  --seed N          decides commands and faults, as far as the kernel's timing allows (default 1)
  --faults LIST     kinds of faults, with commas between them (default: all); `none` for none
  --clients N       client threads (default 12)
  --binary PATH     a `distcache` to test (default: builds a release of this tree)
  --json            prints the summary as JSON
  --planted [NAME]  plants each bug of xtask/planted, or one, in a copy of the tree, and demands that it is found
";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) length: Length,
    pub(super) seed: u64,
    pub(super) faults: Vec<Fault>,
    pub(super) clients: usize,
    /// A round ends after this; the next has another cluster.
    pub(super) round: Duration,
    pub(super) binary: Option<PathBuf>,
    pub(super) json: bool,
    /// Every planted bug, or one by name.
    pub(super) planted: Option<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Length {
    Time(Duration),
    Operations(u64),
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments {
            length: Length::Time(Duration::from_secs(60)),
            seed: 1,
            faults: FAULTS.map(|(_, fault)| fault).to_vec(),
            clients: 12,
            round: Duration::from_secs(60),
            binary: None,
            json: false,
            planted: None,
        }
    }
}

impl Arguments {
    pub(super) fn parse(arguments: &[&str]) -> anyhow::Result<Arguments> {
        let mut parsed = Arguments::default();
        let mut rest = arguments.iter().copied().peekable();
        while let Some(flag) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{flag} needs a value\n\n{USAGE}"));
            match flag {
                "--seconds" => parsed.length = Length::Time(Duration::from_secs(number(flag, value()?)?)),
                "--operations" => parsed.length = Length::Operations(number(flag, value()?)?),
                "--seed" => parsed.seed = number(flag, value()?)?,
                "--faults" => parsed.faults = faults(value()?)?,
                "--clients" => parsed.clients = number(flag, value()?)?.max(1) as usize,
                "--binary" => parsed.binary = Some(PathBuf::from(value()?)),
                "--json" => parsed.json = true,
                "--planted" => {
                    let name = rest.next_if(|next| !next.starts_with("--"));
                    parsed.planted = Some(name.map(str::to_owned));
                }
                _ => bail!("unknown argument {flag:?}\n\n{USAGE}"),
            }
        }
        Ok(parsed)
    }

    /// What a person types to see the same again.
    pub(super) fn command(&self) -> String {
        let length = match self.length {
            Length::Time(time) => format!("--seconds {}", time.as_secs()),
            Length::Operations(operations) => format!("--operations {operations}"),
        };
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name()).collect();
        let faults = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        format!(
            "cargo xtask jepsen {length} --seed {} --clients {} --faults {faults}",
            self.seed, self.clients
        )
    }
}

fn number(flag: &str, text: &str) -> anyhow::Result<u64> {
    text.parse().with_context(|| format!("{flag} {text:?}: write a whole number"))
}

pub(super) fn faults(list: &str) -> anyhow::Result<Vec<Fault>> {
    if list == "none" {
        return Ok(Vec::new());
    }
    list.split(',').map(Fault::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Length};

    #[test]
    fn the_printed_command_asks_for_the_same() {
        for given in [
            &["--seconds", "5", "--seed", "9", "--faults", "kill-node,drop"][..],
            &["--operations", "1000", "--faults", "none", "--clients", "3"],
        ] {
            let parsed = Arguments::parse(given).unwrap();
            let command = parsed.command();
            let again: Vec<&str> = command.split(' ').skip(3).collect();
            assert_eq!(Arguments::parse(&again).unwrap(), parsed);
        }
        assert_eq!(Arguments::parse(&["--operations", "7"]).unwrap().length, Length::Operations(7));
        assert_eq!(Arguments::parse(&["--planted", "--json"]).unwrap().planted, Some(None));
        let one = Arguments::parse(&["--planted", "stale"]).unwrap();
        assert_eq!(one.planted, Some(Some("stale".to_owned())));
        for wrong in [&["--seconds"][..], &["--seconds", "x"], &["--faults", "rain"], &["--verbose"]] {
            assert!(Arguments::parse(wrong).is_err());
        }
    }
}

//! The command line of `cargo xtask jepsen`. Not what it asks for.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::faults::{FAULTS, InjectedFault};
use crate::cluster::LayoutStorage;

pub(super) const USAGE: &str = "\
Usage: cargo xtask jepsen [OPTIONS]
       cargo xtask jepsen --planted [NAME]

Real processes before real storage servers, real faults, and every history checked for linearizability by two
checkers. Ends with an error on a violation, and when too few hits or invalidations make the run worthless.

  --seconds S       how long to run (default 60)
  --operations N    run until so many commands were answered, however long that takes
  --seed N          decides commands and faults, as far as the kernel's timing allows (default 1)
  --faults LIST     kinds of faults, with commas between them (default: all that can befall the storage); `none`
                    for none
  --storage LIST    redis, durable (redis whose data outlive it), cluster (a Redis Cluster of six), memcached or folder (the
                    shims' own stores on disk); of several the rounds take turns (default: redis)
  --clients N       client threads (default 12)
  --binary PATH     a `distcache` to test (default: builds this tree, optimised and with every assertion)
  --upgrades        members are of two releases, each of the other one in its next life: this tree's, and one whose version
                    and feature level differ
  --next PATH       as --upgrades, with this `distcache` for the other release
  --rolling         instead of faults: three of each member, controllers over an etcd, and again and again every member is
                    stopped in order and started as the other release, one at a time; only documented errors are allowed
  --resharding      besides the faults: controllers over an etcd, a further storage server that keys go to, and from, again and
                    again, and a mover that is killed now and then; over redis or durable
  --json            prints the summary as JSON
  --planted [NAME]  plants each bug of xtask/planted, or one, in a copy of the tree, and demands that it is found
";

/// By the names that `--storage` takes.
const STORAGES: [(&str, LayoutStorage); 5] = [
    ("redis", LayoutStorage::Redis),
    ("durable", LayoutStorage::DurableRedis),
    ("cluster", LayoutStorage::RedisCluster),
    ("memcached", LayoutStorage::Memcached),
    ("folder", LayoutStorage::Folder),
];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct JepsenArguments {
    pub(super) length: RunLength,
    pub(super) seed: u64,
    pub(super) faults: Vec<InjectedFault>,
    /// The rounds take turns.
    pub(super) storages: Vec<LayoutStorage>,
    pub(super) clients: usize,
    /// A round ends after this; the next has another cluster.
    pub(super) round: Duration,
    pub(super) binary: Option<PathBuf>,
    pub(super) next: Option<NextRelease>,
    pub(super) rolling: bool,
    /// Keys change their storage server meanwhile.
    pub(super) resharding: bool,
    pub(super) json: bool,
    /// Every planted bug, or one by name.
    pub(super) planted: Option<Option<String>>,
}

/// Another release that members are of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NextRelease {
    /// This tree, as if it were the next release.
    Built,
    At(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RunLength {
    Time(Duration),
    Operations(u64),
}

impl Default for JepsenArguments {
    fn default() -> JepsenArguments {
        JepsenArguments {
            length: RunLength::Time(Duration::from_secs(60)),
            seed: 1,
            faults: FAULTS.map(|(_, fault)| fault).to_vec(),
            storages: vec![LayoutStorage::Redis],
            clients: 12,
            round: Duration::from_secs(60),
            binary: None,
            next: None,
            rolling: false,
            resharding: false,
            json: false,
            planted: None,
        }
    }
}

impl JepsenArguments {
    pub(super) fn parse(arguments: &[&str]) -> anyhow::Result<JepsenArguments> {
        let mut parsed = JepsenArguments::default();
        let mut rest = arguments.iter().copied().peekable();
        while let Some(flag) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{flag} needs a value\n\n{USAGE}"));
            match flag {
                "--seconds" => parsed.length = RunLength::Time(Duration::from_secs(number(flag, value()?)?)),
                "--operations" => parsed.length = RunLength::Operations(number(flag, value()?)?),
                "--seed" => parsed.seed = number(flag, value()?)?,
                "--faults" => parsed.faults = faults(value()?)?,
                "--storage" => parsed.storages = storages(value()?)?,
                "--clients" => parsed.clients = number(flag, value()?)?.max(1) as usize,
                "--binary" => parsed.binary = Some(PathBuf::from(value()?)),
                "--next" => parsed.next = Some(NextRelease::At(PathBuf::from(value()?))),
                "--rolling" => parsed.rolling = true,
                "--resharding" => parsed.resharding = true,
                "--upgrades" => parsed.next = Some(NextRelease::Built),
                "--json" => parsed.json = true,
                "--planted" => {
                    let name = rest.next_if(|next| !next.starts_with("--"));
                    parsed.planted = Some(name.map(str::to_owned));
                }
                _ => bail!("unknown argument {flag:?}\n\n{USAGE}"),
            }
        }
        for storage in &parsed.storages {
            let some = parsed.faults.is_empty() || parsed.faults.iter().any(|fault| fault.befalls(*storage));
            ensure!(some, "none of these faults can befall the storage {:?}", storage_name(*storage));
        }
        if parsed.rolling {
            ensure!(parsed.storages == [LayoutStorage::Redis], "--rolling is over redis");
            parsed.faults.clear();
            parsed.next.get_or_insert(NextRelease::Built);
        }
        if parsed.resharding {
            let plain = parsed.storages.iter().all(|storage| storage.is_proxied_for_each());
            ensure!(
                plain && !parsed.rolling,
                "--resharding is over redis or durable, and not with --rolling"
            );
        }
        if let RunLength::Time(time) = parsed.length {
            // Each kind of storage gets its turn, also in a short run.
            parsed.round = parsed.round.min(time / parsed.storages.len().max(1) as u32);
        }
        Ok(parsed)
    }

    /// What a person types to see the same again.
    pub(super) fn command(&self) -> String {
        let length = match self.length {
            RunLength::Time(time) => format!("--seconds {}", time.as_secs()),
            RunLength::Operations(operations) => format!("--operations {operations}"),
        };
        let names: Vec<&str> = self.faults.iter().map(|fault| fault.name()).collect();
        let faults = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        let storages: Vec<&str> = self.storages.iter().map(|storage| storage_name(*storage)).collect();
        let next = match &self.next {
            None => String::new(),
            Some(NextRelease::Built) => " --upgrades".to_owned(),
            Some(NextRelease::At(path)) => format!(" --next {}", path.display()),
        };
        let rolling = if self.rolling { " --rolling" } else { "" };
        let resharding = if self.resharding { " --resharding" } else { "" };
        format!(
            "cargo xtask jepsen {length} --seed {} --clients {} --storage {} --faults {faults}{next}{rolling}{resharding}",
            self.seed,
            self.clients,
            storages.join(",")
        )
    }
}

fn number(flag: &str, text: &str) -> anyhow::Result<u64> {
    text.parse().with_context(|| format!("{flag} {text:?}: write a whole number"))
}

pub(super) fn faults(list: &str) -> anyhow::Result<Vec<InjectedFault>> {
    if list == "none" {
        return Ok(Vec::new());
    }
    list.split(',').map(InjectedFault::parse).collect()
}

pub(super) fn storages(list: &str) -> anyhow::Result<Vec<LayoutStorage>> {
    let one = |name: &str| {
        let found = STORAGES.iter().find(|(known, _)| *known == name);
        let names = STORAGES.map(|(name, _)| name).join(", ");
        found.map(|(_, storage)| *storage).with_context(|| format!("no storage {name:?}; there are: {names}"))
    };
    list.split(',').map(one).collect()
}

pub(super) fn storage_name(storage: LayoutStorage) -> &'static str {
    STORAGES.iter().find(|(_, known)| *known == storage).map_or("", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::{JepsenArguments, RunLength};

    #[test]
    fn the_printed_command_asks_for_the_same() {
        for given in [
            &["--seconds", "5", "--seed", "9", "--faults", "kill-node,drop"][..],
            &["--operations", "1000", "--faults", "none", "--clients", "3"],
            &["--storage", "cluster,memcached,cluster"],
            &["--upgrades"],
            &["--next", "/a/distcache"],
            &["--rolling", "--seconds", "9"],
            &["--resharding", "--storage", "redis,durable"],
        ] {
            let parsed = JepsenArguments::parse(given).unwrap();
            let command = parsed.command();
            let again: Vec<&str> = command.split(' ').skip(3).collect();
            assert_eq!(JepsenArguments::parse(&again).unwrap(), parsed);
        }
        assert_eq!(JepsenArguments::parse(&["--operations", "7"]).unwrap().length, RunLength::Operations(7));
        assert_eq!(JepsenArguments::parse(&["--planted", "--json"]).unwrap().planted, Some(None));
        let short = JepsenArguments::parse(&["--seconds", "60", "--storage", "redis,memcached"]).unwrap();
        assert_eq!(short.round.as_secs(), 30, "each storage has its turn");
        let one = JepsenArguments::parse(&["--planted", "stale"]).unwrap();
        assert_eq!(one.planted, Some(Some("stale".to_owned())));
        for wrong in [
            &["--seconds"][..],
            &["--seconds", "x"],
            &["--faults", "rain"],
            &["--storage", "paper"],
            &["--storage", "redis", "--faults", "move-slot"],
            &["--storage", "cluster", "--resharding"],
            &["--rolling", "--resharding"],
            &["--verbose"],
        ] {
            assert!(JepsenArguments::parse(wrong).is_err());
        }
    }
}

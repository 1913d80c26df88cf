//! Whether storage may be served as a configuration says: its keys lie where they are looked for, and nobody else is
//! there. What is found out is the survey's business.

use std::time::{Duration, Instant};

use anyhow::bail;
use config::{Config, Mode};
use protocol::storage::REMEDY;
use runtime::stop::Stop;
use shim::survey::{Other, ServerSeen, survey};
use wire::ShimId;

use crate::launch::Loaded;

/// How long all servers together may take for one question; one that does not answer is told of and not waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long connections of a process that has just ended may still be listed.
const LEAVING: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(50);
/// Above this part of the sample it is the placement that is another; below it, somebody has written past DistCache.
const STRAYS_PERCENT_MAX: usize = 5;

/// How much of what is found is a reason not to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardDemand {
    /// No key elsewhere, and nobody else there: nothing is known of what was before.
    All,
    /// Not more keys elsewhere than a few, and no other cluster. A process of the same cluster gives way, and where
    /// others may write (mode `bounded`) another cluster may.
    Plausible,
}

/// Servers hold keys that this configuration would look for elsewhere.
#[derive(Debug)]
pub(crate) struct KeysElsewhere(String);

impl std::fmt::Display for KeysElsewhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for KeysElsewhere {}

/// Looks at the Redis servers of those of `ids` that are shims; an error says what is wrong and what to do.
pub(crate) fn check(
    loaded: &Loaded,
    ids: &[&str],
    demand: GuardDemand,
    stop: &Stop,
) -> anyhow::Result<Vec<ServerSeen>> {
    let Loaded { config, certificates } = loaded;
    let mut shims: Vec<ShimId> = ids.iter().filter_map(|id| Some(config.shim_place(id)?.shim)).collect();
    shims.sort_unstable();
    shims.dedup();
    if shims.is_empty() {
        return Ok(Vec::new());
    }
    let started = Instant::now();
    let seen = loop {
        let seen = survey(config, certificates, &shims, PATIENCE)?;
        let found = stranger(config, &seen, demand);
        match found {
            None => break seen,
            Some(_) if started.elapsed() < LEAVING && !stop.wait_timeout(POLL) => {}
            Some((seen, other)) => bail!(occupied(seen, other)),
        }
    };
    for look in seen.iter().filter(|_| demand == GuardDemand::Plausible) {
        if let Some(trouble) = &look.trouble {
            tracing::warn!(server = %look.address, trouble, "cannot look whether its keys lie where they are looked for");
        }
        if let Some(untold) = &look.others_untold {
            tracing::warn!(server = %look.address, untold, "cannot look whether another DistCache is connected");
        }
    }
    check_marks(config, &seen)?;
    check_keys(config, &seen, demand)?;
    Ok(seen)
}

/// Refuses servers that could not be looked at: under a new secret nobody knows where their keys lie.
pub(crate) fn check_all_seen(seen: &[ServerSeen]) -> anyhow::Result<()> {
    match seen.iter().find_map(|seen| Some((seen, seen.trouble.as_ref()?))) {
        None => Ok(()),
        Some((seen, trouble)) => bail!(
            "{}: {trouble}; at the first start every one of several servers has to answer, because a key that lies \
             elsewhere than DistCache places it would be lost from sight: start it or repair its access, then try again",
            seen.address
        ),
    }
}

/// Once this process has made its own users: of two that come at once, at least the later one sees the other.
pub(crate) fn check_alone(loaded: &Loaded) -> anyhow::Result<()> {
    let Loaded { config, certificates } = loaded;
    let shims: Vec<ShimId> = (0..config.shims.len()).map(|index| ShimId(index as u16)).collect();
    let seen = survey(config, certificates, &shims, PATIENCE)?;
    match stranger(config, &seen, GuardDemand::Plausible) {
        Some((seen, other)) => bail!(occupied(seen, other)),
        None => Ok(()),
    }
}

fn stranger<'a>(
    config: &Config,
    seen: &'a [ServerSeen],
    demand: GuardDemand,
) -> Option<(&'a ServerSeen, &'a Other)> {
    let may_be_there = config.cluster.mode == Mode::Bounded || config.adopts;
    if demand == GuardDemand::Plausible && may_be_there {
        return None;
    }
    let own = config.secret_id();
    let is_stranger = |other: &&Other| demand == GuardDemand::All || other.cluster != own;
    seen.iter().find_map(|seen| Some((seen, seen.others.iter().find(is_stranger)?)))
}

fn occupied(seen: &ServerSeen, other: &Other) -> String {
    format!(
        "another DistCache serves {}: its shim {:?} is connected from {}; one server has one DistCache, or its caches would not \
         see each other's writes: stop that one, or use its address",
        seen.address, other.shim, other.address
    )
}

fn check_marks(config: &Config, seen: &[ServerSeen]) -> anyhow::Result<()> {
    let found = seen.iter().find_map(|seen| Some((seen, seen.other_mark.as_ref()?)));
    let Some((seen, difference)) = found else { return Ok(()) };
    if config.adopts {
        tracing::warn!(server = %seen.address, "{difference}; it is taken over as it is");
        return Ok(());
    }
    Err(KeysElsewhere(format!("{}: {difference}: {REMEDY}", seen.address)).into())
}

fn check_keys(config: &Config, seen: &[ServerSeen], demand: GuardDemand) -> anyhow::Result<()> {
    let sampled: usize = seen.iter().map(|seen| seen.sample.len()).sum();
    let strays: usize = seen.iter().map(|seen| seen.strays.len()).sum();
    let Some((look, stray)) = seen.iter().find_map(|seen| Some((seen, seen.strays.first()?))) else {
        return Ok(());
    };
    let at_home = seen.iter().find(|seen| seen.shim == stray.home).map(|seen| seen.address.to_string());
    let home = at_home.unwrap_or_else(|| format!("the server of {}", config.shim(stray.home).id));
    let key = stray.key.escape_ascii();
    let found = format!(
        "{strays} of {sampled} sampled keys of {} servers lie elsewhere than DistCache places them: \"{key}\" is at {}, \
         and would be looked for at {home}",
        config.shims.len(),
        look.address
    );
    if config.adopts || demand == GuardDemand::Plausible && strays * 100 <= sampled * STRAYS_PERCENT_MAX {
        tracing::warn!("{found}; they are not found through DistCache");
        return Ok(());
    }
    Err(KeysElsewhere(format!(
        "{found}. If DistCache wrote them, its secret or its list of servers was another: bring those back. If other software \
         did, write a configuration with its [placement], which `distcache doctor --storage-only` finds out; or put DistCache before \
         one server alone (always right) or a Redis Cluster (redis-cluster://), or load the data into empty servers through the router"
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use config::{Secret, ShimConfig, StorageConfig};
    use shim::survey::Stray;

    use super::*;

    fn config() -> Config {
        let mut config = Config::new("own", Secret([1; 16]));
        for id in ["a", "b"] {
            let listen = "127.0.0.1:0".parse().expect("an address");
            config.shims.push(ShimConfig::new(id, "r", listen, StorageConfig::Embedded));
        }
        config
    }

    fn seen(sampled: usize, strays: usize, others: &[&str]) -> ServerSeen {
        let other = |cluster: &&str| Other {
            cluster: (*cluster).to_owned(),
            shim: "s".to_owned(),
            address: "10.0.0.9:1".to_owned(),
        };
        ServerSeen {
            shim: ShimId(0),
            address: "127.0.0.1:6391".parse().expect("an address"),
            keys: Some(sampled as u64),
            sample: vec![Bytes::from_static(b"k"); sampled],
            strays: vec![Stray { key: Bytes::from_static(b"k\x01"), home: ShimId(1) }; strays],
            others: others.iter().map(other).collect(),
            others_untold: None,
            other_mark: None,
            has_answered: true,
            trouble: None,
        }
    }

    #[test]
    fn keys_elsewhere_are_counted_and_one_is_named() {
        let check = |sampled, strays, demand| check_keys(&config(), &[seen(sampled, strays, &[])], demand);
        assert!(check(100, 0, GuardDemand::All).is_ok());
        assert!(check(100, 5, GuardDemand::Plausible).is_ok(), "somebody has written a few keys elsewhere");
        let error = check(100, 1, GuardDemand::All).expect_err("one is too many").to_string();
        assert!(error.contains("1 of 100 sampled keys of 2 servers"), "{error}");
        assert!(
            error.contains("\"k\\x01\" is at 127.0.0.1:6391, and would be looked for at the server of b")
        );
        assert!(check(100, 6, GuardDemand::Plausible).is_err());
        assert!(check(1, 1, GuardDemand::Plausible).is_err());
    }

    #[test]
    fn others_are_strangers_unless_they_give_way() {
        let found = |config: &Config, others: &[&str], demand| {
            stranger(config, &[seen(0, 0, others)], demand).is_some()
        };
        let own = config().secret_id();
        let own = own.as_str();
        assert!(
            found(&config(), &[own], GuardDemand::All) && !found(&config(), &[own], GuardDemand::Plausible)
        );
        assert!(
            found(&config(), &[own, "their"], GuardDemand::Plausible)
                && !found(&config(), &[], GuardDemand::All)
        );
        let mut renamed = config();
        renamed.cluster.name = "renamed".to_owned();
        assert!(!found(&renamed, &[own], GuardDemand::Plausible), "it is the same, whatever people call it");
        let mut adopting = config();
        adopting.adopts = true;
        assert!(!found(&adopting, &["their"], GuardDemand::Plausible));
        let mut bounded = config();
        bounded.cluster.mode = Mode::Bounded;
        assert!(
            !found(&bounded, &["their"], GuardDemand::Plausible)
                && found(&bounded, &["their"], GuardDemand::All)
        );
    }
    #[test]
    fn a_mark_of_something_else_is_refused_unless_a_person_says_so() {
        let mut other = seen(0, 0, &[]);
        other.other_mark = Some("the server holds the keys of b".to_owned());
        let error = check_marks(&config(), &[seen(0, 0, &[]), other.clone()]).expect_err("it fits no more");
        assert!(error.is::<KeysElsewhere>());
        let text = error.to_string();
        assert!(text.starts_with("127.0.0.1:6391: the server holds the keys of b: keys would be"), "{text}");
        let mut adopting = config();
        adopting.adopts = true;
        assert!(check_marks(&adopting, &[other]).is_ok());
        assert!(check_keys(&adopting, &[seen(9, 9, &[])], GuardDemand::Plausible).is_ok());
    }
}

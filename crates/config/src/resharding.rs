//! Shims whose keys come or go while the cluster serves: what a file may say of them. Not how keys move.

use super::load::ConfigError;
use super::{Config, Mode, RedisServers, ShimChange, ShimConfig, StorageConfig};
use wire::Sharding;

fn wrong(what: String) -> Result<(), ConfigError> {
    Err(ConfigError::new(what))
}

/// Whether a file says of shims only what can be.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Some(shim) = config.shims.iter().find(|shim| shim.state.is_some()) else { return Ok(()) };
    let at = format!("[[shim]] {:?}: state = {:?}", shim.id, shim.state.map_or("", ShimChange::word));
    if config.sharding() != Sharding::Ring {
        return wrong(format!(
            "{at}: keys are divided anew only where DistCache's own ring divides them among plain Redis or Valkey servers; a Redis Cluster \
             does it by itself, and with [placement] the other software decides. Remove it"
        ));
    }
    if config.cluster.mode == Mode::Bounded {
        return wrong(format!(
            "{at}: with mode = \"bounded\" others write to storage, and they would not find keys that move; remove it"
        ));
    }
    if let Some(other) = config.shims.iter().find(|shim| !is_plain_redis(shim)) {
        return wrong(format!(
            "{at}: storage of {:?} is no Redis or Valkey server, so that keys cannot move from or to it; remove it",
            other.id
        ));
    }
    let changes: Vec<&ShimConfig> =
        config.shims.iter().filter(|shim| shim.state.is_some_and(ShimChange::is_under_way)).collect();
    if let [first, second, ..] = changes[..] {
        return wrong(format!(
            "[[shim]] {:?} and {:?}: one change follows the other: when the keys of the first have moved, write {:?} there",
            first.id,
            second.id,
            if first.state == Some(ShimChange::Joining) { "joined" } else { "left" },
        ));
    }
    let last = config.shims.last().map(|shim| &shim.id);
    if let Some(joining) = config.shims.iter().find(|shim| shim.state == Some(ShimChange::Joining))
        && Some(&joining.id) != last
    {
        return wrong(format!(
            "[[shim]] {:?}: shims are numbered by their ids, and one that joins must not change the numbers of others: give it an id that \
             comes after {:?}",
            joining.id,
            last.map_or("", String::as_str)
        ));
    }
    let keeps = |shim: &&ShimConfig| shim.has_keys() && shim.state != Some(ShimChange::Leaving);
    if !config.shims.iter().any(|shim| keeps(&shim)) {
        return wrong(format!("{at}: no shim is left that keeps its keys"));
    }
    Ok(())
}

fn is_plain_redis(shim: &ShimConfig) -> bool {
    matches!(&shim.storage, StorageConfig::Redis(redis)
        if matches!(redis.servers, RedisServers::One { .. } | RedisServers::Sentinels(_)))
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn file(shims: &[(&str, &str)], tables: &str) -> Result<Config, String> {
        let shims = shims.iter().map(|(id, keys)| {
            let port = 6000 + id.len() + usize::from(id.as_bytes()[id.len() - 1]);
            format!("[[shim]]\nid = \"{id}\"\nstorage = \"redis://127.0.0.1:{port}\"\n{keys}\n")
        });
        let text = format!("[cluster]\nname = \"t\"\n{SECRET}\n{tables}\n{}", shims.collect::<String>());
        Config::parse(&text).map_err(|error| error.to_string())
    }

    const SECRET: &str = "secret = \"00112233445566778899aabbccddeeff\"";
    const JOINING: &str = "state = \"joining\"";
    const LEAVING: &str = "state = \"leaving\"";

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let check = |shims: &[(&str, &str)], tables: &str, expected: &str| {
            let error = file(shims, tables).expect_err(expected);
            assert!(error.contains(expected), "expected: {expected}\n     got: {error}");
        };
        check(&[("s-0", ""), ("s-1", JOINING)], "mode = \"bounded\"", "they would not find keys that move");
        check(&[("s-0", JOINING), ("s-1", "")], "", "give it an id that comes after \"s-1\"");
        check(&[("s-0", LEAVING), ("s-1", ""), ("s-2", JOINING)], "", "one change follows the other");
        check(&[("s-0", LEAVING)], "", "no shim is left");
        check(&[("s-0", "state = \"gone\"")], "", "joining");
        let embedded = "storage = \"embedded:\"";
        let error = Config::parse(&format!(
            "[cluster]\n{SECRET}\n[[shim]]\nid = \"a\"\n{embedded}\n[[shim]]\nid = \"b\"\n{embedded}\n{JOINING}\n"
        ));
        assert!(error.expect_err("embedded").to_string().contains("is no Redis or Valkey server"));
    }

    #[test]
    fn members_with_files_of_one_change_agree_and_others_do_not() {
        let states = ["", "state = \"joining\"", "state = \"joined\"", "none"];
        let agreement = |state: &str| {
            let all = [("s-0", ""), ("s-1", ""), ("s-2", state)];
            let shims = if state == "none" { &all[..2] } else { &all[..] };
            file(shims, "").expect("a configuration").agreement()
        };
        let [after, joining, joined, before] = states.map(agreement);
        let agree = |a: &protocol::placement::agreement::Agreement, b| a.difference(b).is_none();
        for (a, b) in [(&before, &joining), (&joining, &joined), (&joined, &after)] {
            assert!(agree(a, b) && agree(b, a), "{a:?} {b:?}");
        }
        assert!(!agree(&before, &after) && !agree(&before, &joined), "one more step is between them");
        let map = file(&[("s-0", ""), ("s-1", JOINING)], "").expect("a configuration").map();
        assert!(map.shims[0].is_owner() && !map.shims[1].is_owner() && !map.shims[1].will_be_owner());
    }
}

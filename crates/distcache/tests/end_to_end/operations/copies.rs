//! Policies by prefix and purges, on real processes. Not how heat is measured.

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, shared, text, total, until};

const POLICIES: &str = "\n[[policy]]\nprefix = \"never:\"\ncache = \"never\"\n\
                        [[policy]]\nprefix = \"always:\"\ncache = \"always\"\n\
                        [heat]\nthreshold = 1000000\n";

/// A key that is cached from its first read on shows that nodes cache; keys of another policy never do.
#[test]
fn policies_say_what_is_cached() {
    let _machine = shared();
    let cluster = Cluster::up(Layout { tables: POLICIES.to_owned(), ..Layout::embedded(2) });
    let mut client = cluster.connect(0);
    for key in ["never:a", "always:a", "other"] {
        client.call(&["SET", key, "1"]);
    }
    let status = until("one key is cached", || {
        for key in ["never:a", "always:a", "other"] {
            assert_eq!(text(&client.call(&["GET", key])), "1");
        }
        let cached =
            |status: &_| total(status, "nodes", "hits_total") > 0 && total(status, "nodes", "objects") > 1;
        Some(cluster.status()).filter(cached)
    });
    assert_eq!(total(&status, "nodes", "objects"), 2, "a copy in each layer of one key: {status}");
}

#[test]
fn a_purge_drops_copies_and_leaves_the_data() {
    let _machine = shared();
    let tables = POLICIES.replace("threshold = 1000000", "threshold = 2");
    let cluster = Cluster::up(Layout { tables, ..Layout::embedded(2) });
    let mut client = cluster.connect(0);
    let keys = ["always:a", "always:b", "always:c"];
    for key in keys {
        client.call(&["SET", key, key]);
    }
    let mut cached = |count: u64| {
        until("every key is cached", || {
            keys.iter().for_each(|key| assert_eq!(text(&client.call(&["GET", key])), *key));
            (total(&cluster.status(), "shims", "copies") == count).then_some(())
        });
    };
    cached(6);
    let mut other = cluster.connect(0);
    let mut purge = |arguments: &[&str]| {
        let command: Vec<&str> = ["DISTCACHE", "PURGE"].iter().chain(arguments).copied().collect();
        other.call(&command)
    };
    assert_eq!(purge(&["always:a"]), Value::Integer(2));
    assert_eq!(purge(&["PREFIX", "always:a"]), Value::Integer(0), "nobody has read it since");
    assert_eq!(purge(&["PREFIX", "none:"]), Value::Integer(0));
    // Each read fills the copy of one layer, so that one to two of each key are back.
    cached(6);
    let again = purge(&["PREFIX", "always:"]);
    assert!(matches!(again, Value::Integer(3..=6)), "{again:?}");
    cached(6);
    let everything = purge(&["ALL"]);
    assert!(matches!(everything, Value::Integer(3..=6)), "{everything:?}");
    cached(6);
    // The same by way of a controller.
    let ask = |arguments: &[&str]| cluster.command(cluster.layout.controller, arguments);
    let purged = ask(&["purge", "always:b"]).expect("purged");
    assert!(purged["copies"].as_u64().is_some_and(|copies| (1..=2).contains(&copies)), "{purged}");
    let purged = ask(&["purge", "--prefix", "always:"]).expect("purged");
    assert!(purged["copies"].as_u64().is_some_and(|copies| copies >= 2), "{purged}");
    assert_eq!(purged["shims"].as_object().map(|shims| shims.len()), Some(2), "{purged}");
    let purged = ask(&["purge", "--all"]).expect("purged");
    assert_eq!(purged["copies"], 0, "nobody has read since: {purged}");
    assert!(ask(&["purge"]).is_err() && ask(&["purge", "a", "--all"]).is_err());
}

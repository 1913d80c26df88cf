//! Who is told which keys are hot: `distcache top`, DISTCACHE HOTKEYS, and nobody where keys are hidden.

use serde_json::Value as Json;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, shared, text, total, until};

fn read_much(client: &mut Client) {
    for _ in 0..50 {
        assert_eq!(client.call(&["GET", "hot\x1b"]), Value::Bulk("v".into()));
    }
}

fn top(cluster: &Cluster) -> Vec<Json> {
    let keys =
        cluster.command(cluster.layout.controller, &["top", "--limit", "5"]).expect("the hottest keys");
    keys.as_array().expect("a list").clone()
}

#[test]
fn hot_keys_are_listed_with_their_rates_and_places() {
    let _machine = shared();
    let cluster = Cluster::up(Layout::embedded(2));
    let mut client = cluster.connect(0);
    client.call(&["SET", "hot\x1b", "v"]);
    let hot = until("the key is among the hottest, and cached", || {
        read_much(&mut client);
        let found = top(&cluster).into_iter().find(|hot| hot["key"] == "hot\\x1b")?;
        let cached = found["cached"].as_array().is_some_and(|layers| !layers.is_empty());
        (cached && found["share"].as_f64() > Some(0.0)).then_some(found)
    });
    assert!(hot["heat"].as_u64() > Some(0) && hot["members"].is_object(), "{hot}");
    let mut other = cluster.connect(0).resp3();
    let keys = until("the router has heard of it", || {
        read_much(&mut client);
        match other.call(&["DISTCACHE", "HOTKEYS", "COUNT", "1"]) {
            Value::Array(keys) if !keys.is_empty() => Some(keys),
            Value::Array(_) | Value::Error(_) => None,
            other => panic!("{other:?}"),
        }
    });
    let Value::Map(fields) = &keys[0] else { panic!("{keys:?}") };
    assert_eq!((text(&fields[0].0), &fields[0].1), ("key".to_owned(), &Value::Bulk("hot\x1b".into())));
    assert!(matches!(fields[1].1, Value::Integer(1..)), "{fields:?}");
}

#[test]
fn hidden_keys_are_told_to_nobody() {
    let _machine = shared();
    let tables = "[security]\nhide_keys = true\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::embedded(1) });
    let mut client = cluster.connect(0);
    client.call(&["SET", "hot\x1b", "v"]);
    until("the key is cached", || {
        read_much(&mut client);
        (total(&cluster.status(), "nodes", "hits_total") > 0).then_some(())
    });
    assert!(top(&cluster).is_empty() && !cluster.status().to_string().contains("hot\\x1b"));
}

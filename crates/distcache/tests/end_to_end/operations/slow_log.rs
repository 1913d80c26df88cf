//! SLOWLOG at the front door: what the router has seen, with its client. What is logged when is tried with the machine.

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, shared, text};

fn array(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        other => panic!("no array: {other:?}"),
    }
}

#[test]
fn slow_commands_are_shown_with_their_clients() {
    let _machine = shared();
    let tables = "[slowlog]\nslower_than_us = 0\nentries_max = 2\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::embedded(2) });
    let mut client = cluster.connect(0);
    client.call(&["CLIENT", "SETNAME", "me"]);
    client.call(&["SET", "a", "1"]);
    client.call(&["GET", "a"]);
    let entries = array(client.call(&["SLOWLOG", "GET"]));
    assert_eq!(client.call(&["SLOWLOG", "LEN"]), Value::Integer(2));
    let newest = array(entries.into_iter().next().expect("an entry"));
    assert_eq!(newest.len(), 6);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(
        matches!(newest[1], Value::Integer(at) if (now - 100..=now).contains(&(at as u64))),
        "{newest:?}"
    );
    let arguments: Vec<String> = array(newest[3].clone()).iter().map(text).collect();
    assert_eq!(arguments, ["GET", "a"]);
    assert!(text(&newest[4]).starts_with("127.0.0.1:"), "{newest:?}");
    assert_eq!(text(&newest[5]), "me");
    let explained = array(client.call(&["DISTCACHE", "SLOWLOG", "1"]));
    let explained = array(explained[0].clone());
    let of = |name: &str| {
        let at = explained.iter().step_by(2).position(|field| text(field) == name);
        explained[2 * at.unwrap_or_else(|| panic!("no {name}: {explained:?}")) + 1].clone()
    };
    let us = |name: &str| match of(name) {
        Value::Integer(us) => us,
        other => panic!("{name} is no number: {other:?}"),
    };
    assert_eq!(text(&of("hit")), "no", "{explained:?}");
    assert_eq!(us("router-us") + us("nodes-us") + us("shims-us"), us("duration-us"), "{explained:?}");
    assert!(us("shims-us") > 0 && us("nodes-us") == 0, "a cold key is asked of its shim: {explained:?}");
    let length = array(client.call(&["CONFIG", "GET", "slowlog-max-len"]));
    assert_eq!(text(&length[1]), "2");
}

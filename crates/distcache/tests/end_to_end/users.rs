//! Users at the front door, from the configuration and from storage: who is let in, and that a cached key obeys the rules.

use std::path::Path;
use std::process::Command;

use wire::resp::Value;

use crate::cluster::{
    Client, Cluster, Layout, PRIMARIES, RedisCluster, RedisServer, installed, python, shared, text, total,
    until,
};

const NOT_THIS_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";
const ALWAYS: &str = "[[policy]]\nprefix = \"\"\ncache = \"always\"\n";

fn user(name: &str, rules: &str) -> String {
    format!("[[user]]\nname = \"{name}\"\nrules = \"{rules}\"\n")
}

/// Two users of the configuration and whatever else stands in it.
fn configured(more: &str) -> Layout {
    let admin = user("admin", "on >root ~* &* +@all");
    let app = user("app", "on >secret ~app:* +@read +@write +@connection +@transaction");
    let tables = format!("{admin}{app}{ALWAYS}{more}");
    Layout { login: Some(("admin", "root")), tables, ..Layout::embedded(2) }
}

fn login(cluster: &Cluster, router: usize, user: &str, password: &str) -> Client {
    let mut client = cluster.connect(router);
    assert_eq!(text(&client.call(&["AUTH", user, password])), "OK");
    client
}

/// Reads a key until its copy answers.
fn heat_up(cluster: &Cluster, client: &mut Client, key: &str, value: &str) {
    until("the copy answers", || {
        assert_eq!(text(&client.call(&["GET", key])), value);
        (total(&cluster.status(), "nodes", "hits_total") > 0).then_some(())
    });
}

#[test]
fn a_cached_key_obeys_the_rules() {
    let _machine = shared();
    let cluster = Cluster::up(configured(""));
    let mut admin = login(&cluster, 0, "admin", "root");
    for key in ["app:1", "other"] {
        admin.call(&["SET", key, "v"]);
        heat_up(&cluster, &mut admin, key, "v");
    }
    let mut plain = login(&cluster, 0, "app", "secret");
    let mut resp3 = cluster.connect(0);
    let greeting = resp3.call(&["HELLO", "3", "AUTH", "app", "secret"]);
    assert!(matches!(greeting, Value::Map(_)), "{greeting:?}");
    for app in [&mut plain, &mut resp3] {
        assert_eq!(text(&app.call(&["GET", "app:1"])), "v");
        assert_eq!(text(&app.call(&["GET", "other"])), NOT_THIS_KEY);
        assert_eq!(text(&app.call(&["STRLEN", "other"])), NOT_THIS_KEY);
        assert_eq!(text(&app.call(&["MGET", "app:1", "other"])), NOT_THIS_KEY);
        let denied = text(&app.call(&["ACL", "LIST"]));
        assert_eq!(denied, "NOPERM this user has no permissions to run the 'acl|list' command");
    }
    let mut stranger = cluster.connect(0);
    assert_eq!(text(&stranger.call(&["GET", "app:1"])), "NOAUTH Authentication required.");
    let status = cluster.fresh_status(|status| total(status, "routers", "denials_total") >= 9);
    assert_eq!(total(&status, "routers", "authentication_failures_total"), 0);
}

#[test]
fn strangers_may_not_send_much_nor_stay() {
    let _machine = shared();
    let cluster = Cluster::up(configured("[limits]\nauthentication_ms_max = 300\n"));
    let mut idle = cluster.connect(0);
    for (sent, told) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        ("*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
    ] {
        let mut client = cluster.connect(0);
        client.write(sent.as_bytes()).expect("sent");
        assert_eq!(client.rest().expect("told and closed"), told);
    }
    let mut app = login(&cluster, 0, "app", "secret");
    assert_eq!(idle.rest().expect("closed"), "");
    let long = "x".repeat(20_000);
    assert_eq!(text(&app.call(&["SET", "app:long", &long])), "OK", "who is known may stay, and send more");
}

#[test]
fn users_of_the_configuration_change_while_serving() {
    let _machine = shared();
    let cluster = Cluster::up(configured(""));
    let (mut admin, mut app) = (login(&cluster, 0, "admin", "root"), login(&cluster, 0, "app", "secret"));
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let write = |text: &str| std::fs::write(&cluster.config, text).expect("written");
    write(&toml.replace("~app:*", "~app:* +nothing"));
    let error = cluster.command(cluster.layout.controller, &["reload"]).expect_err("a wrong rule");
    assert!(error.contains("Unknown command") && error.contains("+nothing"), "{error}");
    assert_eq!(text(&app.call(&["SET", "app:1", "v"])), "OK");
    write(&toml.replace("~app:*", "~new:*"));
    cluster.command(cluster.layout.controller, &["reload"]).expect("reloaded");
    until("the new rule holds", || (text(&app.call(&["GET", "app:1"])) == NOT_THIS_KEY).then_some(()));
    write(&toml.replace("name = \"app\"", "name = \"another\""));
    cluster.command(cluster.layout.controller, &["reload"]).expect("reloaded");
    assert_eq!(app.rest().expect("closed"), "", "its user is gone");
    assert_eq!(text(&admin.call(&["ACL", "WHOAMI"])), "admin");
}

#[test]
fn users_of_storage_hold_at_every_router() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    check_users_of_storage(Layout::before(&servers), &servers);
}

#[test]
fn users_of_a_redis_cluster_hold_at_every_router() {
    if installed(&["redis-server"]) {
        let _machine = shared();
        let storage = RedisCluster::start();
        // Two of four shims share a primary, so that one of them speaks for none.
        check_users_of_storage(Layout::new(vec![storage.url(); 4]), &storage.servers[..PRIMARIES]);
    }
}

fn check_users_of_storage(mut layout: Layout, servers: &[RedisServer]) {
    for server in servers {
        let mut client = server.connect();
        for rules in [
            &["admin", "on", ">root", "~*", "&*", "+@all"][..],
            &["app", "on", ">secret", "~app:*", "+@read", "+@connection", "+subscribe", "&news"],
        ] {
            let command: Vec<&str> = ["ACL", "SETUSER"].iter().chain(rules).copied().collect();
            assert_eq!(text(&client.call(&command)), "OK");
        }
    }
    layout.routers.push(Layout::embedded(1).routers[0]);
    layout.login = Some(("admin", "root"));
    layout.tables = format!("[security]\nusers = \"storage\"\n{ALWAYS}");
    let cluster = Cluster::up(layout);
    let mut admin = login(&cluster, 0, "admin", "root");
    let listed = admin.call(&["ACL", "USERS"]);
    let names: Vec<String> = listed.elements().expect("an array").iter().map(text).collect();
    assert_eq!(names, ["admin", "app", "default"], "shims' own users are not shown");
    for key in ["app:1", "other"] {
        admin.call(&["SET", key, "v"]);
        heat_up(&cluster, &mut admin, key, "v");
    }
    let mut here = login(&cluster, 0, "app", "secret");
    let mut there = login(&cluster, 1, "app", "secret");
    for app in [&mut here, &mut there] {
        assert_eq!(text(&app.call(&["GET", "app:1"])), "v");
        assert_eq!(text(&app.call(&["GET", "other"])), NOT_THIS_KEY);
    }
    // At once here, within a second there, and on every server.
    assert_eq!(text(&admin.call(&["ACL", "SETUSER", "app", "resetkeys", "~other"])), "OK");
    assert_eq!(text(&here.call(&["GET", "app:1"])), NOT_THIS_KEY);
    assert_eq!(text(&here.call(&["GET", "other"])), "v");
    until("the other router knows", || (text(&there.call(&["GET", "app:1"])) == NOT_THIS_KEY).then_some(()));
    for server in servers {
        let told = server.connect().call(&["ACL", "DRYRUN", "app", "GET", "app:1"]);
        assert_eq!(text(&told), "This user has no permissions to access the 'app:1' key");
    }
    // A change at the servers themselves.
    for server in servers {
        assert_eq!(text(&server.connect().call(&["ACL", "SETUSER", "app", "~app:*"])), "OK");
    }
    until("this router knows", || (text(&here.call(&["GET", "app:1"])) == "v").then_some(()));
    assert_eq!(admin.call(&["ACL", "DELUSER", "app"]), Value::Integer(1));
    assert_eq!(here.rest().expect("closed"), "");
    assert_eq!(there.rest().expect("closed"), "");
    // Each thread of that router finds out by itself.
    until("it is let in nowhere there", || {
        let told = text(&cluster.connect(1).call(&["AUTH", "app", "secret"]));
        told.starts_with("WRONGPASS").then_some(())
    });
}

/// What routers tell of users is what a server tells, line for line.
#[test]
fn users_are_described_as_storage_describes_them() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let mut direct = server.connect();
    for rules in [
        &["a", "on", ">one", ">two", "~a*", "%R~b*", "&news.*", "+@read", "-keys"][..],
        &["b", "off", "nopass", "allkeys", "+@all", "-@dangerous", "(~x +set)", "(%W~y &z +get)"],
        &["c"],
    ] {
        let command: Vec<&str> = ["ACL", "SETUSER"].iter().chain(rules).copied().collect();
        assert_eq!(text(&direct.call(&command)), "OK");
    }
    let servers = [server];
    let tables = "[security]\nusers = \"storage\"\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::before(&servers) });
    let mut router = cluster.connect(0);
    until("the users are known", || matches!(router.call(&["ACL", "USERS"]), Value::Array(_)).then_some(()));
    for resp3 in [false, true] {
        if resp3 {
            router.call(&["HELLO", "3"]);
            direct.call(&["HELLO", "3"]);
        }
        for name in ["a", "b", "c", "default", "nobody"] {
            let command = ["ACL", "GETUSER", name];
            assert_eq!(router.ask(&command).expect("told"), direct.ask(&command).expect("told"), "{name}");
        }
        let command = ["ACL", "LIST"];
        let lines = |value: Value| value.elements().expect("an array").iter().map(text).collect::<Vec<_>>();
        let mut theirs = lines(direct.call(&command));
        theirs.retain(|line| !line.starts_with("user distcache:"));
        assert_eq!(lines(router.call(&command)), theirs);
    }
}

#[test]
fn redis_py_logs_in() {
    let Some(python) = python() else { return };
    let _machine = shared();
    let cluster = Cluster::up(configured(""));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/redis_py_users.py");
    for protocol in ["2", "3"] {
        let mut command = Command::new(&python);
        command.arg("-B").arg(&script).arg(cluster.router(0).port().to_string()).arg(protocol);
        let output = command.output().expect("Python runs");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{protocol}: {printed}");
    }
}

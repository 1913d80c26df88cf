//! Scripts that run for long: what other clients hear meanwhile, how they are ended, and that storage is not given up.

use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, Program, RedisServer, installed, shared, text, until};

const FOR_EVER: &str = "while true do end";

fn busy_server(program: Program) -> RedisServer {
    program.with(&["--appendonly", "no", "--busy-reply-threshold", "10"])
}

/// A client that has sent the command and waits.
fn sent(cluster: &Cluster, arguments: &[&str]) -> Client {
    let mut client = cluster.connect(0);
    client.write(wire::resp::Command::from_args(arguments).frame()).expect("it reads");
    client
}

fn until_busy(cluster: &Cluster) -> Client {
    let mut client = cluster.connect(0);
    until("the server is busy", || text(&client.call(&["PING"])).starts_with("BUSY").then_some(()));
    client
}

#[test]
fn others_hear_that_a_script_runs_and_can_end_it() {
    check_busy(Program::Redis);
}

pub(crate) fn check_busy(program: Program) {
    if !program.is_installed() {
        return;
    }
    let _machine = shared();
    let server = [busy_server(program)];
    let cluster = Cluster::up(Layout::before(&server));
    let library = "#!lua name=lib\nredis.register_function('for_ever', function() while true do end end)";
    for (load, script, kill) in [
        (&["SCRIPT", "EXISTS", "x"][..], &["EVAL", FOR_EVER, "0"][..], &["SCRIPT", "KILL"][..]),
        (&["SCRIPT", "EXISTS", "x"], &["EVAL", FOR_EVER, "1", "key"], &["SCRIPT", "KILL"]),
        (&["SCRIPT", "EXISTS", "x"], &["EVAL_RO", FOR_EVER, "1", "key"], &["SCRIPT", "KILL"]),
        (&["FUNCTION", "LOAD", "REPLACE", library], &["FCALL", "for_ever", "0"], &["FUNCTION", "KILL"]),
    ] {
        let mut beside = cluster.connect(0);
        beside.call(load);
        let mut runs = sent(&cluster, script);
        let mut other = until_busy(&cluster);
        for command in
            [&["SET", "a", "1"][..], &["GET", "a"], &["DBSIZE"], &["EVAL", "return 1", "0"], &["FLUSHALL"]]
        {
            let reply = text(&other.call(command));
            assert!(reply.starts_with("BUSY ") && reply.contains(" is busy running"), "{command:?}: {reply}");
        }
        assert_eq!(other.call(kill), Value::Simple("OK".into()), "{script:?}");
        let ended = text(&Value::parse(&runs.frame().expect("a reply")).expect("a reply"));
        assert!(ended.contains("killed by user"), "{ended}");
        until("others go on", || (other.call(&["PING"]) == Value::Simple("PONG".into())).then_some(()));
        assert_eq!(other.call(&["SET", "a", "1"]), Value::Simple("OK".into()));
        assert_eq!(text(&other.call(kill)), "NOTBUSY No scripts in execution right now.");
    }
}

#[test]
fn a_script_that_runs_longer_than_silence_may_last_is_no_lost_server() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = [busy_server(Program::Redis)];
    let tables = "[limits]\nstorage_ms_max = 300\n".to_owned();
    let cluster = Cluster::up(Layout { tables, ..Layout::before(&server) });
    let mut client = cluster.connect(0);
    let script = "local t = redis.call('TIME') local from = t[1] * 1000000 + t[2] \
                  repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] > from + 2000000 \
                  return redis.call('INCR', KEYS[1])";
    for expected in 1..=2 {
        assert_eq!(client.call(&["EVAL", script, "1", "long"]), Value::Integer(expected));
    }
    let status = cluster.fresh_status(|status| status["shims"][0]["storage_up"].as_bool() == Some(true));
    assert_eq!(status["shims"][0]["storage_reconnects_total"].as_u64(), Some(0), "{status}");
}

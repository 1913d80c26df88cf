//! CLIENT UNBLOCK ends what another client waits for: nothing is taken, and the client goes on.

use wire::resp::{Command, Value};

use crate::cluster::{Cluster, Layout, PRIMARIES, RedisCluster, RedisServer, installed, shared, text, until};

#[test]
fn a_blocked_client_is_unblocked_by_time_out_or_error() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    check(Layout::before(&servers));
}

#[test]
fn a_client_blocked_in_a_redis_cluster_is_unblocked_too() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::start();
    check(Layout::new(vec![storage.url(); PRIMARIES]));
}

fn check(layout: Layout) {
    let cluster = Cluster::up(layout);
    let mut other = cluster.connect(0);
    for (round, command) in [
        &["BLPOP", "{t}list", "0"][..],
        &["BLMOVE", "{t}list", "{t}to", "LEFT", "LEFT", "0"],
        &["BZPOPMIN", "{t}zset", "0"],
        &["XREAD", "BLOCK", "0", "STREAMS", "{t}stream", "$"],
    ]
    .iter()
    .enumerate()
    {
        for (reason, resp3, expected) in [
            (&[][..], false, "*-1\r\n"),
            (&["TIMEOUT"], true, "_\r\n"),
            (&["ERROR"], false, "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"),
        ] {
            let client = cluster.connect(0);
            let mut client = if resp3 { client.resp3() } else { client };
            let Value::Integer(number) = client.call(&["CLIENT", "ID"]) else { panic!("no number") };
            client.write(Command::from_args(command).frame()).expect("it reads");
            let number = number.to_string();
            let unblock = [&["CLIENT", "UNBLOCK", &number][..], reason].concat();
            until("it blocks", || (other.call(&unblock) == Value::Integer(1)).then_some(()));
            assert_eq!(client.frame().expect("a reply"), expected, "{command:?} {reason:?}");
            // It has taken nothing, and blocks nobody else's.
            assert_eq!(other.call(&["RPUSH", "{t}list", "a"]), Value::Integer(1), "round {round}");
            assert_eq!(text(&client.call(&["LPOP", "{t}list"])), "a");
            assert_eq!(other.call(&unblock), Value::Integer(0));
        }
    }
}

//! All processes are killed at once, those of storage as well, and everything starts cold. Not the loss of data, which is storage's.

use super::Site;
use super::page::section;
use crate::cluster::{Layout, RedisServer, alone, installed, ok, text, until};
use crate::status::http;

const KEYS: usize = 100;

#[test]
fn everything_is_killed_at_once_and_starts_cold() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let page = section("Everything is lost at once");
    let mut servers = [RedisServer::durable(), RedisServer::durable()];
    let mut site = Site::apart(Layout::before(&servers));
    let mut client = site.cluster.connect(0);
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key:{key}")).collect();
    keys.iter().for_each(|key| ok(&mut client, &["SET", key, key]));
    until("copies are there", || {
        (0..50).for_each(|_| assert_eq!(text(&client.call(&["GET", "key:1"])), "key:1"));
        site.above_zero("shim-0", "distcache_shim_copies", "")
            .or_else(|| site.above_zero("shim-1", "distcache_shim_copies", ""))
    });
    let ids = site.cluster.layout.ids();
    ids.iter().for_each(|id| site.cluster.kill(id));
    servers.iter_mut().for_each(RedisServer::kill);

    // Members first: they wait.
    ids.iter().for_each(|id| site.cluster.start(id));
    let down = page.says("storage is down");
    until("it says what it lacks", || http(site.admins["shim-0"], "/ready").contains(down).then_some(()));
    servers.iter_mut().for_each(RedisServer::run);
    site.cluster.wait_linked();
    let mut client = site.cluster.connect(0);
    for key in &keys {
        until("it is read", || {
            let reply = text(&client.call(&["GET", key]));
            assert!(
                reply == *key || reply.starts_with("BUSY") || reply.starts_with("ERR DistCache"),
                "{reply}"
            );
            (reply == *key).then_some(())
        });
        until("it is written", || (text(&client.call(&["SET", key, "new"])) == "OK").then_some(()));
        assert_eq!(text(&client.call(&["GET", key])), "new");
    }
    let restarted = section("Writes are slow").says("the server has been restarted since shims served it");
    for shim in ["shim-0", "shim-1"] {
        let log = site.cluster.process(shim).log();
        assert!(log.contains(restarted), "{log}");
    }
    page.says("`distcache status --controller URL` exits with 0 once all are there");
    until("all are there", || site.is_well());
    until("caches fill", || {
        (0..50).for_each(|_| assert_eq!(text(&client.call(&["GET", "key:1"])), "new"));
        ["leaf-0", "spine-0"].iter().find_map(|node| site.above_zero(node, "distcache_node_hits_total", ""))
    });
}

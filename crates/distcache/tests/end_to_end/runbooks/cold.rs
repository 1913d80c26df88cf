//! Hot keys that are not cached, each for a reason that the page names, and cached once the reason is gone. Not how heat is measured.

use super::Site;
use super::page::section;
use crate::cluster::{Client, Layout, RedisServer, installed, ok, shared, text, total, until};

const KEY: &str = "p:hot";
const NOT: &str = "-";

struct Trial {
    site: Site,
    client: Client,
}

impl Trial {
    /// Reads it, and waits until `distcache top` says where it is cached, or that it is not.
    fn until_cached(&mut self, cached: bool, why: &str) {
        until(why, || {
            (0..50).for_each(|_| _ = self.client.call(&["GET", KEY]));
            let told = self.site.run("distcache top --controller URL");
            let line = told.lines().find(|line| line.ends_with(&format!(" {KEY}")))?;
            let cell = line.split_whitespace().nth(2)?;
            ((cell == NOT) != cached).then_some(())
        });
        let page = section("A hot key is not cached");
        page.says("`distcache top` shows a key with `-` under CACHED IN");
        let inspect = page.command("distcache inspect KEY").replace("KEY", KEY) + " --controller URL";
        let there = page.says("requests/s there");
        until("inspect says the same", || {
            (0..50).for_each(|_| _ = self.client.call(&["GET", KEY]));
            (self.site.run(&inspect).contains(there) == cached).then_some(())
        });
    }

    /// What the file says keeps it out, until it does not say so any more.
    fn keeps_out(&mut self, old: &str, new: &str) {
        self.site.reload(old, new);
        self.until_cached(false, new);
        self.site.reload(new, old);
        self.until_cached(true, old);
    }
}

#[test]
fn each_reason_is_seen_and_mended() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let tables = "observe_only = false\n[[policy]]\nprefix = \"p:\"\ncache = \"heat\"\n\
                  [heat]\nhold_off_ms = 3000\n";
    let site = Site::apart(Layout { tables: tables.to_owned(), ..Layout::before(&servers) });
    let client = site.cluster.connect(0);
    let mut trial = Trial { site, client };
    ok(&mut trial.client, &["SET", KEY, "value"]);
    trial.until_cached(true, "it is cached at first");
    trial.keeps_out("cache = \"heat\"", "cache = \"never\"");
    trial.keeps_out("observe_only = false", "observe_only = true");
    trial.keeps_out("cache = \"heat\"\n", "cache = \"heat\"\nvalue_bytes_max = \"1B\"\n");
    full(&mut trial);
    by_script(&mut trial);
    written(&mut trial);
}

/// One of two keys finds no room.
fn full(trial: &mut Trial) {
    let page = section("A hot key is not cached");
    let objects = page.says("distcache_node_objects");
    ok(&mut trial.client, &["SET", "p:other", "value"]);
    trial.site.reload("objects_max = 1000", "objects_max = 1");
    let holds = |trial: &mut Trial, count: f64| {
        until("the node is full", || {
            for key in [KEY, "p:other"] {
                (0..50).for_each(|_| assert_eq!(text(&trial.client.call(&["GET", key])), "value"));
            }
            (trial.site.metric("leaf-0", objects, "")? == count).then_some(())
        });
    };
    holds(trial, 1.0);
    page.says("Raise it and reload");
    trial.site.reload("objects_max = 1\n", "objects_max = 1000\n");
    holds(trial, 2.0);
}

/// Scripts read at storage what plain commands find in copies.
fn by_script(trial: &mut Trial) {
    let hits = |trial: &Trial| total(&trial.site.cluster.status(), "routers", "hits_total");
    let script = ["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", KEY];
    let before = until("what was read before is counted", || {
        let before = hits(trial);
        (0..200).for_each(|_| assert_eq!(text(&trial.client.call(&script)), "value"));
        (hits(trial) == before).then_some(before)
    });
    until("MGET is answered from copies", || {
        (0..50).for_each(|_| drop(trial.client.call(&["MGET", KEY, "p:other"])));
        (hits(trial) > before).then_some(())
    });
}

/// Comes last, since it stays out.
fn written(trial: &mut Trial) {
    let held = section("A hot key is not cached").says("distcache_node_held_off");
    until("it is held off", || {
        for _ in 0..50 {
            drop(trial.client.call(&["GET", KEY]));
            ok(&mut trial.client, &["SET", KEY, "value"]);
        }
        ["leaf-0", "spine-0"].iter().find_map(|node| trial.site.above_zero(node, held, ""))
    });
}

/// A user that may not do what it takes to hear of changes.
#[test]
fn storage_that_reports_nothing_in_mode_bounded_is_seen_and_mended() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "cache", "on", ">pass", "~*", "&*", "+@all", "-client|tracking"];
    ok(&mut server.connect(), &user);
    let tables = "mode = \"bounded\"\n".to_owned();
    let site = Site::apart(Layout { tables, ..Layout::new(vec![server.url_with("cache:pass@")]) });
    let client = site.cluster.connect(0);
    let mut trial = Trial { site, client };
    ok(&mut trial.client, &["SET", KEY, "value"]);
    let up = section("A hot key is not cached").says("distcache_shim_feed_up");
    trial.until_cached(false, "it is not cached");
    assert_eq!(trial.site.metric("shim-0", up, ""), Some(0.0));
    let log = trial.site.cluster.process("shim-0").log();
    assert!(log.contains("storage does not report changes, so nothing is cached"), "{log}");
    ok(&mut server.connect(), &["ACL", "SETUSER", "cache", "+client|tracking"]);
    trial.site.cluster.kill("shim-0");
    trial.site.cluster.start("shim-0");
    trial.site.cluster.wait_linked();
    trial.until_cached(true, "it is cached");
    assert_eq!(trial.site.metric("shim-0", up, ""), Some(1.0));
}

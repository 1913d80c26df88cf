//! Storage servers that come and go while clients write and read (`distcache storage`). Not how one key changes its server.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::Value as Json;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Etcd, Layout, RedisServer, alone, distcache, installed, text, until};
use crate::coherence::{hit_ratio, layout};
use crate::history::History;
use crate::tracking::Caching;

/// Keys that are written before and read after.
const KEYS: usize = 20_000;
const MOVER: &str = "shim-2";
/// What clients may hear while a shim or a server is away.
const WHILE_AWAY: [&str; 7] = [
    "is not reachable",
    "storage cannot be reached",
    "broke before the reply",
    "outcome is unknown",
    "cannot be reached; the command was not executed",
    "divided anew",
    "was lost",
];

struct Trial {
    cluster: Cluster,
    servers: [RedisServer; 3],
    history: History,
    _etcd: Etcd,
}

impl Trial {
    /// What the files of all say of the third of three servers.
    fn start(state: &str, tables: &str) -> Trial {
        Trial::with_standbys(0, state, tables)
    }

    /// The same, and so many stand by for each shim.
    fn with_standbys(standbys: usize, state: &str, tables: &str) -> Trial {
        let etcd = Etcd::start();
        let servers = [RedisServer::durable(), RedisServer::durable(), RedisServer::durable()];
        let controller_keys = format!("store = \"{}\"", etcd.store());
        let tables = tables.to_owned();
        let layout = Layout { controller_keys, tables, standbys, spines: 2, ..layout(&servers) };
        let mut cluster = Cluster::unstarted(layout);
        cluster.set_state(None, Some(state));
        for id in cluster.layout.ids() {
            cluster.start(&id);
        }
        cluster.wait_linked();
        let mut client = cluster.connect(0);
        for first in (0..KEYS).step_by(500) {
            let commands = (first..first + 500).map(|number| format!("SET data:{number} {number}\r\n"));
            client.write(commands.collect::<String>().as_bytes()).expect("written");
            (0..500).for_each(|_| assert_eq!(&client.frame().expect("a reply")[..], b"+OK\r\n"));
        }
        let history = History::start(&cluster.layout.routers, 6, 3);
        until("copies are hit", || (hit_ratio(&cluster.status()) > 0.3).then_some(()));
        Trial { cluster, servers, history, _etcd: etcd }
    }

    /// Starts a process anew; what it did is lost.
    fn kill_and_start(&mut self, id: &str) {
        self.cluster.kill(id);
        self.cluster.start(id);
    }

    fn shims(&self) -> Vec<Json> {
        let outcomes = until("a controller tells of the shims", || {
            self.cluster.command(self.cluster.layout.controller, &["storage", "status"]).ok()
        });
        outcomes.as_array().expect("a list").clone()
    }

    fn is_under_way(&self) -> bool {
        self.shims().iter().any(|shim| shim["state"] == "joining" || shim["state"] == "leaving")
    }

    /// How many keys have been moved, as living processes count.
    fn moved(&self) -> u64 {
        self.shims().iter().filter_map(|shim| shim["resharding"]["moved"].as_u64()).sum()
    }

    /// Has keys move, as soon as the controller has heard that every server can be reached.
    fn begin(&self, arguments: &[&str]) {
        let arguments = [&["storage"], arguments].concat();
        until("the controller begins", || {
            let begun = self.cluster.command(self.cluster.layout.controller, &arguments);
            if let Err(error) = &begun {
                let is_early = ["cannot be reached", "is heard"].iter().any(|part| error.contains(part));
                assert!(is_early, "{error}");
            }
            begun.ok().map(drop)
        });
    }

    /// The same command as in another terminal.
    fn watch(&self, verb: &str) -> Child {
        let controller = format!("http://{}", self.cluster.layout.controller);
        let mut command = distcache();
        command.args(["storage", verb, MOVER, "--controller", &controller]).arg("--config");
        command.arg(&self.cluster.config).stdout(Stdio::null()).spawn().expect("it starts")
    }

    fn change(&self, verb: &str) -> Result<Json, String> {
        self.cluster.command(self.cluster.layout.controller, &["storage", verb, MOVER])
    }

    /// How many of the keys are at each server; none is at two, and each has what was written.
    fn counts(&self) -> [usize; 3] {
        let mut client = self.cluster.connect(1);
        for first in (0..KEYS).step_by(500) {
            let commands = (first..first + 500).map(|number| format!("GET data:{number}\r\n"));
            client.write(commands.collect::<String>().as_bytes()).expect("written");
            for number in first..first + 500 {
                let reply = client.frame().expect("a reply");
                assert_eq!(text(&Value::parse(&reply).expect("RESP")), number.to_string(), "data:{number}");
            }
        }
        let mut homes = BTreeMap::new();
        let counts = [0, 1, 2].map(|index| {
            if !self.servers[index].is_running() {
                return 0;
            }
            let keys = self.servers[index].connect().call(&["KEYS", "data:*"]);
            let keys = keys.elements().expect("a list").iter().map(text).collect::<Vec<_>>();
            let count = keys.len();
            for key in keys {
                assert_eq!(homes.insert(key, index), None, "it is at two servers");
            }
            count
        });
        assert_eq!(homes.len(), KEYS);
        counts
    }

    /// Keys of the third server are at the first one as well with what they were before, as if that had come back from an old backup.
    fn leave_old_values(&self) -> Vec<String> {
        let keys = self.servers[2].connect().call(&["KEYS", "data:*0"]);
        let keys: Vec<String> = keys.elements().expect("a list").iter().map(text).collect();
        let mut first = self.servers[0].connect();
        for key in &keys {
            first.call(&["SET", key, "old"]);
        }
        keys
    }

    /// Takes away those that are not the first one's, and that nobody has touched; among the others is none.
    fn forget_old_values(&self, keys: &[String]) {
        let (mut first, mut second) = (self.servers[0].connect(), self.servers[1].connect());
        let elsewhere = |key: &&String| second.call(&["EXISTS", key]) == Value::Integer(1);
        let (others, own): (Vec<&String>, Vec<&String>) = keys.iter().partition(elsewhere);
        assert!(others.len() > 100 && own.len() > 100, "{} and {}", others.len(), own.len());
        for key in others {
            assert_eq!(text(&first.call(&["GET", key])), "old", "{key}: it does not come here");
            first.call(&["DEL", key]);
        }
    }

    fn no_errors(&self, what: &str) {
        self.history.wait_without_errors(2000, 100, what);
    }
}

impl Cluster {
    /// What the file says of the third shim.
    fn set_state(&self, before: Option<&str>, state: Option<&str>) {
        let line = |state: Option<&str>| {
            let state = state.map(|state| format!("state = \"{state}\"\n")).unwrap_or_default();
            format!("id = \"{MOVER}\"\n{state}")
        };
        let text = std::fs::read_to_string(&self.config).expect("the configuration is there");
        let changed = text.replace(&line(before), &line(state));
        assert_ne!(text, changed);
        std::fs::write(&self.config, changed).expect("the configuration is written");
    }
}

#[test]
fn a_server_gets_its_part_of_the_keys_while_clients_write() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let trial = Trial::start("joining", "");
    assert_eq!(trial.counts()[2], 0);
    let refused = trial.change("remove").expect_err("it has no keys");
    assert!(refused.contains("it has no keys"), "{refused}");
    let refused = trial.cluster.command(trial.cluster.layout.controller, &["storage", "remove", "shim-1"]);
    assert!(refused.expect_err("no file says so").contains("state = \"leaving\""));
    // Somebody else's, perhaps: nobody but the operator knows.
    trial.servers[2].connect().call(&["SET", "precious", "1"]);
    trial.begin(&["add", MOVER, "--no-wait"]);
    until("it says what it waits for", || {
        let reason = trial.shims()[2]["resharding"]["reason"].as_str().unwrap_or_default().to_owned();
        reason.contains("has 1 keys already").then_some(())
    });
    assert_eq!((trial.moved(), trial.counts()[2]), (0, 0));
    trial.servers[2].connect().call(&["DEL", "precious"]);
    until("nothing moves any more", || (!trial.is_under_way()).then_some(()));
    trial.no_errors("keys have moved");
    let counts = trial.counts();
    assert!(counts.iter().all(|count| (KEYS / 4..KEYS / 2).contains(count)), "{counts:?}");
    let refused = trial.change("add").expect_err("it has keys");
    assert!(refused.contains("has keys already"), "{refused}");
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

#[test]
fn a_server_gives_its_keys_to_the_others_and_is_taken_away() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("leaving", "");
    assert!(trial.counts().iter().all(|count| *count > KEYS / 4));
    let refused = trial.change("add").expect_err("it has keys");
    assert!(refused.contains("it has keys already"), "{refused}");
    let old = trial.leave_old_values();
    trial.begin(&["remove", MOVER]);
    trial.no_errors("keys have moved");
    trial.forget_old_values(&old);
    let counts = trial.counts();
    assert!(counts[2] == 0 && counts.iter().all(|count| *count == 0 || *count > KEYS / 3), "{counts:?}");
    // Nobody needs it any more.
    trial.cluster.kill(MOVER);
    trial.servers[2].kill();
    trial.cluster.set_state(Some("leaving"), Some("left"));
    for id in trial.cluster.layout.ids() {
        if id != MOVER && !id.starts_with("router") {
            trial.kill_and_start(&id);
        }
    }
    let mut client = trial.cluster.connect(0);
    until("every server counts its keys", || match client.call(&["DBSIZE"]) {
        Value::Integer(count) => (count as usize >= KEYS).then_some(()),
        _ => None,
    });
    let missing = |status: &Json| status["routers"][0]["shims_missing"].as_array().map(Vec::len);
    trial.cluster.fresh_status(|status| missing(status) == Some(0));
    trial.history.wait_for_each_key();
    trial.history.report();
    trial.no_errors("without it");
    trial.history.finish();
}

const CHANNELS: usize = 30;

/// Publishes numbers on all channels in turn until told to stop, and then the word that nothing follows.
fn publish(mut client: Client, stop: &AtomicBool) -> usize {
    let mut published = 0;
    while !stop.load(SeqCst) {
        let channel = format!("news:{}", published % CHANNELS);
        let heard = client.call(&["PUBLISH", &channel, &published.to_string()]);
        assert!(matches!(heard, Value::Integer(_)), "{heard:?}");
        published += 1;
    }
    (0..CHANNELS).for_each(|channel| drop(client.call(&["PUBLISH", &format!("news:{channel}"), "end"])));
    published
}

/// How many messages it has heard, each channel's in their order and none twice, until the last of each.
fn listen(mut client: Client) -> usize {
    let (mut last, mut ended, mut heard) = (BTreeMap::new(), 0, 0);
    while ended < CHANNELS {
        let message = Value::parse(&client.frame().expect("a message")).expect("RESP");
        let parts: Vec<String> = message.elements().expect("a list").iter().map(text).collect();
        match parts[2].parse::<usize>() {
            Ok(number) => {
                let before = last.insert(parts[1].clone(), number);
                let expected = before.map_or(number % CHANNELS, |before: usize| before + CHANNELS);
                assert_eq!(number, expected, "{}", parts[1]);
                heard += 1;
            }
            Err(_) => ended += 1,
        }
    }
    heard
}

/// Channels have their servers by name, as keys do, and clients with caches are told of keys that their shim hears nothing more of.
#[test]
fn what_clients_listen_to_and_cache_stays_right_while_keys_move() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let trial = Trial::start("joining", "[limits]\nmoved_keys_rate_max = 1000\n");
    let mut listener = trial.cluster.connect(1);
    for channel in 0..CHANNELS {
        listener.call(&["SUBSCRIBE", &format!("news:{channel}")]);
    }
    let stop = AtomicBool::new(false);
    let keys: Vec<String> = (0..100).map(|key| format!("cached:{key}")).collect();
    let mut caches = [0, 1].map(|router| Caching::new(trial.cluster.connect(router)));
    let (publisher, mut writer) = (trial.cluster.connect(0), trial.cluster.connect(0));
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| listen(listener));
        let published = scope.spawn(|| publish(publisher, &stop));
        scope.spawn(|| {
            for round in 0.. {
                if stop.load(SeqCst) {
                    return;
                }
                writer.call(&["INCR", &keys[round * 37 % keys.len()]]);
            }
        });
        for cache in &mut caches {
            scope.spawn(|| {
                for round in 0.. {
                    if stop.load(SeqCst) {
                        return;
                    }
                    cache.read(&keys[round % keys.len()]);
                }
            });
        }
        trial.begin(&["add", MOVER]);
        stop.store(true, SeqCst);
        let published = published.join().expect("it publishes");
        assert_eq!(heard.join().expect("it listens"), published);
        assert!(published > 1000, "{published}");
    });
    let mut reader = trial.cluster.connect(0);
    for cache in &mut caches {
        drop(cache.ask(&["PING"]));
        keys.iter().for_each(|key| cache.read(key));
    }
    until("what clients hold is what storage holds", || {
        caches.iter_mut().for_each(|cache| drop(cache.ask(&["PING"])));
        let mut differs = |cache: &Caching| {
            keys.iter().any(|key| cache.holds(key).is_some_and(|held| reader.call(&["GET", key]) != *held))
        };
        (!caches.iter().any(&mut differs)).then_some(())
    });
    // They are told of changes at the new server, too.
    for key in &keys {
        reader.call(&["INCR", key]);
    }
    until("what clients hold is what storage holds", || {
        caches.iter_mut().for_each(|cache| drop(cache.ask(&["PING"])));
        let holds = |cache: &Caching| keys.iter().any(|key| cache.holds(key).is_some());
        (!caches.iter().any(holds)).then_some(())
    });
    let report = trial.history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

/// Who dies while keys move comes back, and they go on; no value is lost or stale.
#[test]
fn whoever_dies_while_keys_move_they_go_on() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::start("joining", "[limits]\nmoved_keys_rate_max = 400\n");
    trial.begin(&["add", MOVER, "--no-wait"]);
    // Asked once more, it is the same change; and it waits for a controller that is started again.
    let mut watches = trial.watch("add");
    for victim in ["shim-0", "controller", MOVER, "spine-0", "shim-1", "leaf-0", "shim-0"] {
        until("keys move", || (trial.moved() > 100).then_some(()));
        assert!(trial.is_under_way(), "before {victim} has died");
        trial.kill_and_start(victim);
    }
    for victim in [0, 2] {
        until("keys move", || (trial.moved() > 100).then_some(()));
        trial.servers[victim].kill();
        trial.servers[victim].run();
    }
    assert!(trial.is_under_way(), "all have died meanwhile");
    until("nothing moves any more", || (!trial.is_under_way()).then_some(()));
    trial.history.wait_for_each_key();
    trial.history.report().only(&WHILE_AWAY);
    assert!(watches.wait().expect("it ends").success());
    let counts = trial.counts();
    assert!(counts.iter().all(|count| (KEYS / 4..KEYS / 2).contains(count)), "{counts:?}");
    trial.no_errors("all is done");
    trial.history.finish();
}

/// Who takes over deletes nothing of what has come before, and goes on with what leaves.
#[test]
fn processes_that_stand_by_take_over_while_keys_move() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut trial = Trial::with_standbys(1, "leaving", "[limits]\nmoved_keys_rate_max = 1000\n");
    trial.begin(&["remove", MOVER, "--no-wait"]);
    let standby = format!("{MOVER}-standby");
    for victim in ["shim-0", "shim-1", MOVER, "shim-0-standby", &standby] {
        until("keys move", || (trial.moved() > 100).then_some(()));
        assert!(trial.is_under_way(), "before {victim} has died");
        trial.kill_and_start(victim);
    }
    until("nothing moves any more", || (!trial.is_under_way()).then_some(()));
    trial.history.wait_for_each_key();
    trial.history.report().only(&WHILE_AWAY);
    let counts = trial.counts();
    assert!(counts[2] == 0 && counts.iter().all(|count| *count == 0 || *count > KEYS / 3), "{counts:?}");
    trial.no_errors("all is done");
    trial.history.finish();
}

//! Before real redis-servers that refuse what managed services refuse: a mode that works is served, any other refused in words.
//! What each service refuses is in docs/operating/managed.md; none of them was asked.

use std::time::Instant;

use wire::resp::Value;

use crate::bounded::{STALENESS, warm};
use crate::cluster::{
    Cluster, Layout, PRIMARIES, RedisCluster, RedisServer, UP, installed, shared, text, total, until,
};
use crate::operations::doctor::{doctor, found};

/// What mode `bounded` does at a server.
enum Bounded {
    Fenced,
    /// It serves without a fence, and says what the server refuses.
    Unfenced(&'static str),
    /// It serves and caches nothing, because the server does not tell of changes.
    Uncached(&'static str),
}

use Bounded::{Fenced, Uncached, Unfenced};

struct Restricted {
    name: &'static str,
    /// Commands that nobody has.
    renamed: &'static [&'static str],
    /// What the user of the storage URL may not do; nothing if it is the `default` user.
    refused: &'static [&'static str],
    /// What mode `strict` refuses, if it does.
    strict: Option<&'static str>,
    bounded: Bounded,
}

const SERVERS: [Restricted; 10] = [
    Restricted {
        name: "a server that allows all",
        renamed: &[],
        refused: &[],
        strict: None,
        bounded: Fenced,
    },
    Restricted {
        name: "users are made elsewhere, no CONFIG",
        renamed: &[],
        refused: &[
            "-acl|setuser",
            "-acl|deluser",
            "-acl|load",
            "-acl|save",
            "-config",
            "-debug",
            "-replicaof",
        ],
        strict: Some("ACL DELUSER: NOPERM"),
        bounded: Unfenced("(ACL DELUSER: NOPERM"),
    },
    Restricted {
        name: "no ACL, CONFIG, ROLE, COMMAND at all",
        renamed: &["ACL", "CONFIG", "ROLE", "COMMAND", "DEBUG", "MONITOR", "SAVE", "BGSAVE", "REPLICAOF"],
        refused: &[],
        strict: Some("ACL WHOAMI: ERR unknown command 'ACL'"),
        bounded: Unfenced("(ACL WHOAMI: ERR unknown command 'ACL')"),
    },
    Restricted {
        name: "commands that are not listed",
        renamed: &[],
        refused: &["-acl", "-config", "-client|unblock", "-client|pause", "-debug", "-monitor"],
        strict: Some("ACL WHOAMI: NOPERM"),
        bounded: Unfenced("(ACL WHOAMI: NOPERM"),
    },
    Restricted {
        name: "nothing dangerous: INFO, CLIENT LIST and CLIENT KILL neither",
        renamed: &[],
        refused: &["-@dangerous"],
        strict: Some("INFO server: NOPERM"),
        bounded: Unfenced("(INFO server: NOPERM"),
    },
    Restricted {
        name: "users may be made, connections not ended",
        renamed: &[],
        refused: &["-client|kill"],
        strict: Some("CLIENT KILL: NOPERM"),
        bounded: Fenced,
    },
    Restricted {
        name: "users may be made, not deleted",
        renamed: &[],
        refused: &["-acl|deluser"],
        strict: Some("ACL DELUSER: NOPERM"),
        bounded: Unfenced("(ACL DELUSER: NOPERM"),
    },
    Restricted {
        name: "no users, no functions, nobody listed",
        renamed: &["FUNCTION"],
        refused: &["-acl", "-client|kill", "-client|list"],
        strict: Some("ACL WHOAMI: NOPERM"),
        bounded: Unfenced("(CLIENT KILL: NOPERM"),
    },
    Restricted {
        name: "connections may only be named",
        renamed: &[],
        refused: &[
            "-acl|setuser",
            "-acl|deluser",
            "-config",
            "-client",
            "+client|setname",
            "+client|getname",
        ],
        strict: Some("ACL DELUSER: NOPERM"),
        bounded: Uncached("CLIENT TRACKING"),
    },
    Restricted {
        name: "no CLIENT at all",
        renamed: &["CLIENT", "ACL"],
        refused: &[],
        strict: Some("ACL WHOAMI: ERR unknown command 'ACL'"),
        bounded: Uncached("CLIENT TRACKING"),
    },
];

impl Restricted {
    /// The server, and whom the storage URL names there.
    fn start(&self) -> (RedisServer, &'static str) {
        let mut arguments = vec!["--appendonly", "no"];
        self.renamed.iter().for_each(|command| arguments.extend(["--rename-command", command, ""]));
        if !self.refused.is_empty() {
            arguments.extend(["--user", "app", "on", ">secret", "~*", "&*", "+@all"]);
            arguments.extend(self.refused);
        }
        (RedisServer::with(&arguments), if self.refused.is_empty() { "" } else { "app:secret@" })
    }
}

fn before(storage: Vec<String>, mode: &str) -> Layout {
    let bound = if mode == "bounded" { "bounded_staleness_ms_max = 1000\n" } else { "" };
    Layout { tables: format!("mode = \"{mode}\"\n{bound}"), ..Layout::new(storage) }
}

/// What somebody else writes is read within the bound.
fn check_foreign_write(cluster: &Cluster, mut set: impl FnMut(&str, &str), key: &str, value: &str) {
    let mut client = cluster.connect(0);
    set(key, value);
    let written = Instant::now();
    until("what somebody else has written is read", || {
        let asked = Instant::now();
        let found = text(&client.call(&["GET", key]));
        assert!(found == value || asked <= written + STALENESS, "{found}");
        (found == value).then_some(())
    });
}

/// The log of the only process.
fn log(cluster: &mut Cluster) -> String {
    cluster.process(UP).log()
}

#[test]
fn what_cannot_be_fenced_is_refused_by_mode_strict() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    for server in SERVERS {
        let (redis, login) = server.start();
        let mut cluster = Cluster::unstarted(before(vec![redis.url_with(login)], "strict"));
        let (code, findings) = doctor(&cluster, &["--storage-only"]);
        let Some(refused) = server.strict else {
            assert_eq!(code, Some(0), "{}: {findings:?}", server.name);
            assert!(found(&findings, "ok", "mode strict works").is_some(), "{}: {findings:?}", server.name);
            cluster.start(UP);
            cluster.wait_linked();
            let mut client = cluster.connect(0);
            assert_eq!(text(&client.call(&["SET", "k", "v"])), "OK");
            warm(&cluster, &mut client, "k");
            continue;
        };
        assert_eq!(code, Some(1), "{}: {findings:?}", server.name);
        let proposed = match server.bounded {
            Uncached(_) => "no mode works as it should",
            _ => "the strongest mode that works is bounded",
        };
        assert!(found(&findings, "wrong", proposed).is_some(), "{}: {findings:?}", server.name);
        let mut process = cluster.launch(UP);
        assert!(!process.wait().success(), "{}", server.name);
        let told = process.log();
        for part in [refused, "write mode = \"bounded\" in [cluster]", "distcache doctor"] {
            assert!(told.contains(part), "{}: {part}: {told}", server.name);
        }
        if !server.renamed.contains(&"ACL") {
            assert_eq!(redis.shim_users(), [""; 0], "{}: nothing is left", server.name);
        }
    }
}

#[test]
fn mode_bounded_does_without_what_it_need_not_have() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    for server in SERVERS {
        let (redis, login) = server.start();
        let mut direct = redis.connect();
        let mut cluster = Cluster::up(before(vec![redis.url_with(login)], "bounded"));
        let mut client = cluster.connect(0);
        assert_eq!(text(&client.call(&["SET", "k", "v"])), "OK");
        assert_eq!(text(&client.call(&["GET", "k"])), "v");
        let (_, findings) = doctor(&cluster, &["--storage-only"]);
        let mode =
            |level, what| assert!(found(&findings, level, what).is_some(), "{}: {findings:?}", server.name);
        let unfenced = u64::from(!matches!(server.bounded, Fenced));
        cluster.fresh_status(|status| {
            status["shims"][0]["storage_up"] == true && total(status, "shims", "storage_unfenced") == unfenced
        });
        match server.bounded {
            Fenced => {
                mode("ok", "mode bounded works");
            }
            Unfenced(told) => {
                mode("ok", "mode bounded works, and is the strongest that does; without a fence");
                let log = log(&mut cluster);
                assert!(
                    log.contains("mode bounded does without") && log.contains(told),
                    "{}: {log}",
                    server.name
                );
            }
            Uncached(told) => {
                mode("wrong", told);
                (0..200).for_each(|_| assert_eq!(text(&client.call(&["GET", "k"])), "v"));
                let status = cluster.fresh_status(|status| total(status, "shims", "requests_total") >= 200);
                assert_eq!(total(&status, "shims", "copies"), 0, "{}: {status}", server.name);
                assert!(
                    log(&mut cluster).contains("storage does not report changes, so nothing is cached"),
                    "{}",
                    server.name
                );
                continue;
            }
        }
        for round in ["first", "second"] {
            warm(&cluster, &mut client, "k");
            let set = |key: &str, value: &str| assert_eq!(text(&direct.call(&["SET", key, value])), "OK");
            check_foreign_write(&cluster, set, "k", round);
            warm(&cluster, &mut client, "k");
            assert_eq!(text(&client.call(&["SET", "k", "own"])), "OK");
            assert_eq!(text(&client.call(&["GET", "k"])), "own", "{}", server.name);
            // Another process comes into its place.
            cluster.kill(UP);
            cluster.start(UP);
            cluster.wait_linked();
            client = cluster.connect(0);
            assert_eq!(text(&client.call(&["GET", "k"])), "own", "{}", server.name);
            assert_eq!(text(&client.call(&["SET", "k", round])), "OK", "{}", server.name);
        }
    }
}

/// Without a fence nobody notices the other, and each is followed by the other like anybody who writes.
#[test]
fn two_processes_of_a_shim_without_a_fence_follow_each_other() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let (redis, login) = SERVERS[2].start();
    let both = [(); 2].map(|()| Cluster::up(before(vec![redis.url_with(login)], "bounded")));
    for round in 0..5 {
        for (writer, reader) in [(0, 1), (1, 0)] {
            let value = format!("{writer}-{round}");
            warm(&both[reader], &mut both[reader].connect(0), "k");
            let mut client = both[writer].connect(0);
            let set = |key: &str, value: &str| assert_eq!(text(&client.call(&["SET", key, value])), "OK");
            check_foreign_write(&both[reader], set, "k", &value);
        }
    }
}

/// A connection that is lost with a write on it is neither ended nor waited for, and what it brings late is followed.
#[test]
fn lost_connections_that_cannot_be_ended_are_followed() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let (redis, login) = SERVERS[7].start();
    let cluster = Cluster::up(before(vec![redis.url_with(login)], "bounded"));
    let (mut direct, mut client) = (redis.connect(), cluster.connect(0));
    for round in 0..3 {
        warm(&cluster, &mut client, "k");
        let losses = total(&cluster.status(), "shims", "feed_losses_total");
        assert!(
            matches!(direct.call(&["CLIENT", "KILL", "TYPE", "normal"]), Value::Integer(killed) if killed > 0)
        );
        until("the shim is there again", || {
            (text(&client.call(&["SET", "k", &round.to_string()])) == "OK").then_some(())
        });
        assert_eq!(text(&client.call(&["GET", "k"])), round.to_string());
        cluster.fresh_status(|status| total(status, "shims", "feed_losses_total") > losses);
    }
    warm(&cluster, &mut client, "k");
}

/// Who stands by has to know who serves.
#[test]
fn standbys_are_refused_without_a_fence() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let (redis, login) = SERVERS[1].start();
    let layout = Layout { standbys: 1, ..before(vec![redis.url_with(login)], "bounded") };
    let cluster = Cluster::unstarted(layout);
    let (code, findings) = doctor(&cluster, &["--storage-only"]);
    assert_eq!(code, Some(1));
    assert!(found(&findings, "wrong", "standbys do not work").is_some(), "{findings:?}");
    let mut process = cluster.launch("shim-0");
    assert!(!process.wait().success());
    assert!(process.log().contains("there can be no [[standby]]"), "{}", process.log());
}

/// As managed services with cluster mode on: users are made elsewhere.
#[test]
fn a_redis_cluster_without_a_fence_is_followed() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let storage = RedisCluster::start();
    for server in &storage.servers {
        let rules =
            [&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"], SERVERS[1].refused].concat();
        assert_eq!(text(&server.connect().call(&rules)), "OK");
    }
    let url = storage.url().replace("redis-cluster://", "redis-cluster://app:secret@");
    let strict = Cluster::unstarted(before(vec![url.clone(); PRIMARIES], "strict"));
    let mut process = strict.launch(UP);
    assert!(!process.wait().success());
    assert!(process.log().contains("write mode = \"bounded\" in [cluster]"), "{}", process.log());
    let cluster = Cluster::up(before(vec![url; PRIMARIES], "bounded"));
    let mut client = cluster.connect(0);
    for number in 0..10 {
        let key = format!("k{number}");
        assert_eq!(text(&client.call(&["SET", &key, "v"])), "OK");
        warm(&cluster, &mut client, &key);
        let mut direct = storage.servers[storage.owner(storage.slot(&key))].connect();
        let set = |key: &str, value: &str| assert_eq!(text(&direct.call(&["SET", key, value])), "OK");
        check_foreign_write(&cluster, set, &key, "foreign");
    }
    cluster.fresh_status(|status| total(status, "shims", "storage_unfenced") == PRIMARIES as u64);
}

//! Wrong configuration, refusing or full storage, too many clients, SIGTERM: who must know is told. Not processes that die.

use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wire::resp::Value;

use crate::cluster::{Client, Cluster, Layout, RedisServer, UP, distcache, installed, shared, text, until};

fn up(cluster: &Cluster) -> Output {
    distcache().arg("up").arg("--config").arg(&cluster.config).output().expect("distcache runs")
}

/// Exit code 1 and a line on stderr that says all of `parts`.
fn refuses_to_start(cluster: &Cluster, parts: &[&str]) {
    refuses_with(1, cluster, parts);
}

fn refuses_with(code: i32, cluster: &Cluster, parts: &[&str]) {
    let output = up(cluster);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "it said that it was ready: {stderr}");
    let line = stderr.lines().last().unwrap_or_default();
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}; all of it:\n{stderr}");
    }
}

#[test]
fn ports_in_use_are_named() {
    let _machine = shared();
    for member in ["router-0", "leaf-0", "shim-0"] {
        let cluster = Cluster::unstarted(Layout::embedded(1));
        let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
        let section =
            toml.split("[[").find(|section| section.contains(&format!("id = \"{member}\""))).expect(member);
        let listen = section
            .lines()
            .find_map(|line| line.strip_prefix("listen = "))
            .expect("listen")
            .trim_matches('"');
        let _taken = TcpListener::bind(listen).expect("the port is free");
        refuses_to_start(&cluster, &[member, listen, "the address is in use"]);
    }
}

#[test]
fn unknown_keys_and_public_addresses_are_refused() {
    let _machine = shared();
    let tables = "[limits]\nclients_maximum = 5\n".to_owned();
    let cluster = Cluster::unstarted(Layout { tables, ..Layout::embedded(1) });
    refuses_with(
        2,
        &cluster,
        &["cluster.toml:", "[limits]", "unknown key `clients_maximum`", "`clients_max`"],
    );

    let cluster = Cluster::unstarted(Layout::embedded(1));
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    let router = cluster.router(0).to_string();
    let public = router.replace("127.0.0.1", "0.0.0.0");
    std::fs::write(&cluster.config, toml.replace(&router, &public)).expect("written");
    refuses_with(2, &cluster, &["router-0", &public, "insecure_listen"]);
}

#[test]
fn storage_that_is_down_is_named_until_it_is_there() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let mut servers = [RedisServer::stopped(&["--appendonly", "no"]), RedisServer::start()];
    let mut cluster = Cluster::unstarted(Layout::before(&servers));
    cluster.start(UP);
    let mut client = cluster.connect(0);
    // Some keys live on the server that is there.
    let answers = until("one shim serves", || {
        let answers: Vec<Value> =
            (0..20).map(|index| client.call(&["SET", &format!("k{index}"), "v"])).collect();
        answers.contains(&Value::Simple("OK".into())).then_some(answers)
    });
    let refused: Vec<String> =
        answers.iter().filter(|answer| matches!(answer, Value::Error(_))).map(text).collect();
    assert!(!refused.is_empty(), "{answers:?}");
    until("the error names the server", || {
        let errors = (0..20).map(|index| client.call(&["GET", &format!("k{index}")]));
        let errors: Vec<String> =
            errors.filter(|reply| matches!(reply, Value::Error(_))).map(|e| text(&e)).collect();
        let socket = servers[0].socket();
        errors
            .iter()
            .all(|error| error.contains(socket.to_str().expect("UTF-8")))
            .then_some(())
            .filter(|()| !errors.is_empty())
    });
    servers[0].run();
    cluster.wait_linked();
    let all = |client: &mut Client| {
        (0..20).all(|i| client.call(&["SET", &format!("k{i}"), "w"]) == Value::Simple("OK".into()))
    };
    until("all keys are served", || all(&mut client).then_some(()));

    servers[0].kill();
    until("it is noticed", || (!all(&mut client)).then_some(()));
    assert_eq!(client.call(&["PING"]), Value::Simple("PONG".into()));
    servers[0].run();
    until("all keys are served again", || all(&mut client).then_some(()));
}

#[test]
fn errors_of_storage_reach_the_client_word_for_word() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let full = ["--maxmemory-policy", "noeviction"];
    let (server, direct) = (RedisServer::with(&full), RedisServer::with(&full));
    let cluster = Cluster::up(Layout::new(vec![server.url()]));
    let (mut client, mut other) = (cluster.connect(0), direct.connect());
    for arguments in [&["SET", "s", "text"][..], &["RPUSH", "l", "a"]] {
        assert_eq!(client.ask(arguments).expect("a reply"), other.ask(arguments).expect("a reply"));
    }
    for redis in [&server, &direct] {
        assert_eq!(text(&redis.connect().call(&["CONFIG", "SET", "maxmemory", "1"])), "OK");
    }
    let cases: [&[&str]; 12] = [
        &["SET", "s", "more"],
        &["RPUSH", "l", "b"],
        &["INCR", "n"],
        &["LPUSH", "s", "x"],
        &["HGETALL", "s"],
        &["INCR", "s"],
        &["LSET", "l", "99", "x"],
        &["EXPIRE", "s", "99999999999999999"],
        &["EVAL", "return redis.error_reply('MY own error')", "1", "s"],
        &["EVALSHA", "ffffffffffffffffffffffffffffffffffffffff", "1", "s"],
        &["XREADGROUP", "GROUP", "g", "c", "STREAMS", "none", ">"],
        &["GET", "s"],
    ];
    for arguments in cases {
        let (through, expected) =
            (client.ask(arguments).expect("a reply"), other.ask(arguments).expect("a reply"));
        assert_eq!(through, expected, "{arguments:?}");
    }
    assert!(text(&client.call(&["SET", "s", "x"])).starts_with("OOM "));
    assert_eq!(text(&server.connect().call(&["CONFIG", "SET", "maxmemory", "0"])), "OK");
    assert_eq!(text(&client.call(&["SET", "s", "x"])), "OK");
}

#[test]
fn wrong_passwords_and_missing_permissions_are_named() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::with(&["--requirepass", "right-one"]);
    let cluster = Cluster::unstarted(Layout::new(vec![server.url_with(":wrong-one@")]));
    refuses_to_start(&cluster, &["shim-0", "AUTH", "WRONGPASS", "Check user and password in `storage`"]);
    let cluster = Cluster::unstarted(Layout::new(vec![server.url()]));
    refuses_to_start(&cluster, &["shim-0", "NOAUTH", "redis://USER:PASSWORD@HOST:PORT"]);
    let cluster = Cluster::up(Layout::new(vec![server.url_with(":right-one@")]));
    assert_eq!(text(&cluster.connect(0).call(&["SET", "a", "1"])), "OK");

    let server = RedisServer::start();
    for (user, rules, named) in [
        ("no-acl", "+@all -acl", "+acl"),
        ("no-kill", "+@all -client", "+client"),
        ("no-info", "+@all -info", "+info"),
    ] {
        let rules = rules.split(' ');
        let setuser: Vec<&str> =
            ["ACL", "SETUSER", user, "on", ">pass", "~*", "&*"].into_iter().chain(rules).collect();
        assert_eq!(text(&server.connect().call(&setuser)), "OK");
        let cluster = Cluster::unstarted(Layout::new(vec![server.url_with(&format!("{user}:pass@"))]));
        refuses_to_start(&cluster, &["shim-0", "NOPERM", named]);
    }
    assert!(server.shim_users().is_empty(), "a shim that did not start left {:?}", server.shim_users());
}

#[test]
fn sigterm_drains_and_takes_the_storage_users_along() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let mut cluster = Cluster::up(Layout::before(&servers));
    let mut clients: Vec<Client> = (0..20).map(|_| cluster.connect(0)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        // Answered: the connections are being read. Then a pipeline that is read as a whole or not at all.
        assert_eq!(text(&client.call(&["SET", &format!("k{index}"), "v"])), "OK");
        client.write("INCR n\r\n".repeat(50).as_bytes()).expect("written");
    }
    let started = Instant::now();
    cluster.process(UP).signal(Signal::TERM);
    let status = cluster.process(UP).wait();
    assert_eq!(status.code(), Some(0), "{}", cluster.process(UP).log());
    // Commands are waited for 3 s at most; the rest is a loaded machine.
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let mut answered = 0;
    for client in &mut clients {
        while let Ok(frame) = client.frame() {
            assert!(frame.starts_with(b":"), "{frame:?}");
            answered += 1;
        }
    }
    let counted =
        servers.iter().find_map(|server| text(&server.connect().call(&["GET", "n"])).parse::<u64>().ok());
    assert_eq!(counted.unwrap_or(0), answered, "what was executed was answered");
    for server in &servers {
        // Nobody can log in any more; what is left only says how long leases may run.
        let left = server.shim_users();
        assert!(left.iter().all(|user| user.ends_with(":ended")), "{left:?}: {}", cluster.process(UP).log());
    }
}

#[test]
fn members_stop_one_by_one_in_any_order() {
    let _machine = shared();
    let mut cluster = Cluster::apart(Layout::embedded(1));
    let mut client = cluster.connect(0);
    (0..20).for_each(|_| drop(client.call(&["GET", "a"])));
    for id in ["shim-0", "leaf-0", "router-0", "controller", "spine-0"] {
        cluster.process(id).signal(Signal::TERM);
        let status = cluster.process(id).wait();
        assert_eq!(status.code(), Some(0), "{id}: {}", cluster.process(id).log());
    }
}

#[test]
fn clients_over_the_limit_are_told() {
    let _machine = shared();
    const CLIENTS_MAX: usize = 1000;
    let tables = format!("[limits]\nclients_max = {CLIENTS_MAX}\n");
    let cluster = Cluster::unstarted(Layout { tables, ..Layout::embedded(1) });
    let mut cluster = cluster;
    cluster.start(UP);
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..CLIENTS_MAX {
        clients.push(cluster.connect(0));
    }
    for client in &mut clients {
        assert_eq!(client.call(&["PING"]), Value::Simple("PONG".into()));
    }
    for _ in 0..3 {
        let answer = cluster.connect(0).rest().expect("closed in order");
        assert_eq!(answer, "-ERR max number of clients reached\r\n");
    }
    assert_eq!(clients[0].call(&["PING"]), Value::Simple("PONG".into()));
    drop(clients.split_off(CLIENTS_MAX / 2));
    until("there is room again", || {
        let frame = cluster.connect(0).ask(&["PING"]).ok()?;
        (frame == "+PONG\r\n").then_some(())
    });
}

#[test]
fn a_member_with_another_secret_is_refused() {
    let _machine = shared();
    let mut cluster = Cluster::unstarted(Layout::embedded(1));
    for id in ["shim-0", "leaf-0", "spine-0"] {
        cluster.start(id);
    }
    let toml = std::fs::read_to_string(&cluster.config).expect("the configuration");
    std::fs::write(&cluster.config, toml.replace("00112233", "ffffffff")).expect("written");
    cluster.start("router-0");
    until("the refusal is in the logs of both", || {
        let logs = ["shim-0", "router-0"].map(|id| cluster.process(id).log());
        logs.iter().all(|log| log.contains("secret")).then_some(())
    });
    let error = text(&cluster.connect(0).call(&["GET", "a"]));
    assert_eq!(error, "ERR DistCache: shim shim-0 is not reachable; the command was not executed");
}

#[test]
fn commands_over_several_servers_say_which_is_missing() {
    let _machine = shared();
    let mut cluster = Cluster::apart(Layout::embedded(2));
    let mut client = cluster.connect(0);
    let keys: Vec<String> = (0..20).map(|index| format!("k{index}")).collect();
    let mset: Vec<&str> =
        ["MSET"].into_iter().chain(keys.iter().flat_map(|key| [key.as_str(), "v"])).collect();
    assert_eq!(text(&client.call(&mset)), "OK");
    cluster.process("shim-1").signal(Signal::TERM);
    assert_eq!(cluster.process("shim-1").wait().code(), Some(0));
    let mget: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    let gone = "ERR DistCache: shim shim-1 is not reachable; the command was not executed";
    for command in [&mset[..], &mget, &["DBSIZE"], &["FLUSHALL"], &["KEYS", "*"]] {
        assert_eq!(text(&client.call(command)), gone, "{}", command[0]);
    }
    let served = keys.iter().filter(|key| client.call(&["GET", key]) == Value::Bulk("v".into())).count();
    assert!((1..20).contains(&served), "{served} of 20 keys live on shim-0");
}

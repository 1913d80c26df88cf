//! Raw bytes at the front door: pipelining, inline commands, malformed and oversized input, connection commands.

use std::fmt::Write;

use wire::resp::Value;

use crate::cluster::{Cluster, Layout, RedisServer, installed, shared, text, until};

/// Redis behind for what only it can answer; a small limit on frames so that it can be crossed.
fn cluster(servers: &[RedisServer]) -> Cluster {
    let tables = "[limits]\ncommand_bytes_max = \"1MiB\"\nkey_bytes_max = \"1KiB\"\narguments_max = 1000\n";
    let layout = if servers.is_empty() { Layout::embedded(2) } else { Layout::before(servers) };
    Cluster::up(Layout { tables: tables.to_owned(), ..layout })
}

#[test]
fn pipelined_replies_come_in_order() {
    let _machine = shared();
    let cluster = cluster(&[]);
    let mut client = cluster.connect(0);
    let mut sent = String::new();
    let count = 5000;
    for index in 0..count {
        // Many keys over both shims, each written and read twice, with answers of the router itself between them.
        let key = format!("k{}", index % 37);
        write!(sent, "SET {key} {index}\r\nGET {key}\r\nECHO e{index}\r\nINCR {key}\r\nGET {key}\r\n")
            .expect("text");
    }
    std::thread::scope(|scope| {
        // One thread writes in odd pieces while the other reads, or the buffers of both sides would fill.
        let mut writer = client.twin().expect("a second handle");
        scope.spawn(move || {
            sent.as_bytes().chunks(1777).for_each(|piece| writer.write(piece).expect("the router reads on"));
        });
        for index in 0..count {
            let (value, next) = (index.to_string(), (index + 1).to_string());
            let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let expected = [
                "+OK\r\n".to_owned(),
                bulk(&value),
                bulk(&format!("e{index}")),
                format!(":{next}\r\n"),
                bulk(&next),
            ];
            for expected in expected {
                assert_eq!(client.frame().expect("a reply"), expected, "round {index}");
            }
        }
    });
    assert_eq!(client.call(&["PING"]), Value::Simple("PONG".into()));
}

#[test]
fn inline_commands_are_commands() {
    let _machine = shared();
    let cluster = cluster(&[]);
    let mut client = cluster.connect(0);
    client
        .write(b"\r\n\r\nPING\r\nset inline \"two words\\x21\"\nGET inline\r\n  ECHO 'it\\'s'  \r\n")
        .expect("written");
    for expected in ["+PONG\r\n", "+OK\r\n", "$10\r\ntwo words!\r\n", "$4\r\nit's\r\n"] {
        assert_eq!(client.frame().expect("a reply"), expected);
    }
    // Byte by byte, and mixed with arrays.
    for byte in b"GET inline\r\n*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n" {
        client.write(&[*byte]).expect("written");
    }
    assert_eq!(client.frame().expect("a reply"), "$10\r\ntwo words!\r\n");
    assert_eq!(client.frame().expect("a reply"), "$-1\r\n");
}

#[test]
fn malformed_input_closes_its_connection_and_no_other() {
    let _machine = shared();
    let cluster = cluster(&[]);
    let mut bystander = cluster.connect(0);
    assert_eq!(bystander.call(&["SET", "k", "v"]), Value::Simple("OK".into()));
    let long_line = [b"GET ".as_slice(), &[b'x'; 70_000]].concat();
    let long_count = [b"*".as_slice(), &[b'1'; 70_000]].concat();
    let cases: [(&[u8], &str); 14] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*99999999999\r\n", "invalid multibulk length"),
        (b"*1001\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*2\r\n$3\r\nGET\r\n+OK\r\n", "expected '$', got '+'"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999\r\n", "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nkXX*1\r\n", "expected CRLF after bulk"),
        (b"GET \"unbalanced\r\n", "unbalanced quotes in request"),
        (b"GET \"a\"b\r\n", "unbalanced quotes in request"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048570\r\n", "request of more than 1048576 bytes"),
        (&long_line, "too big inline request"),
        (&long_count, "too big mbulk count string"),
    ];
    for (bytes, reason) in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let mut client = cluster.connect(0);
        // What came before it is answered first.
        client.write(&[b"GET k\r\n", bytes].concat()).expect("written");
        let answer = client.rest().unwrap_or_else(|error| panic!("{shown:?}: {error}"));
        assert_eq!(answer, format!("$1\r\nv\r\n-ERR Protocol error: {reason}\r\n"), "{shown:?}");
        assert_eq!(bystander.call(&["GET", "k"]), Value::Bulk("v".into()), "{shown:?}");
    }
    // Half a command and a vanished client are no trouble either.
    for bytes in [&b"*2\r\n$3\r\nGET\r\n$100\r\nabc"[..], b"GET", b"*"] {
        cluster.connect(0).write(bytes).expect("written");
    }
    assert_eq!(bystander.call(&["GET", "k"]), Value::Bulk("v".into()));
}

#[test]
fn keys_and_values_at_their_limits() {
    let _machine = shared();
    let cluster = cluster(&[]);
    let mut client = cluster.connect(0);
    let (key, value) = ("k".repeat(1024), "v".repeat(1_000_000));
    for _ in 0..3 {
        assert_eq!(client.call(&["SET", &key, &value]), Value::Simple("OK".into()));
        for _ in 0..3 {
            assert_eq!(client.call(&["GET", &key]).bytes().map(|bytes| bytes.len()), Some(1_000_000));
        }
    }
    let longer = "k".repeat(1025);
    for arguments in
        [&["GET", &longer][..], &["SET", &longer, "v"], &["MGET", "a", &longer], &["DEL", &longer]]
    {
        let error = text(&client.call(arguments));
        assert_eq!(error, "ERR DistCache: a key of 1025 bytes is over the limit of 1024", "{}", arguments[0]);
    }
    assert_eq!(client.call(&["SET", "", "empty key"]), Value::Simple("OK".into()));
    assert_eq!(client.call(&["GET", ""]), Value::Bulk("empty key".into()));
}

#[test]
fn refusals_name_their_reason() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = cluster(&servers);
    let mut client = cluster.connect(0);
    let cases: [(&[&str], &str); 13] = [
        (&["NOSUCH", "a"], "ERR unknown command 'NOSUCH', with args beginning with: 'a'"),
        (&["GET"], "ERR wrong number of arguments for 'get' command"),
        (&["get", "a", "b"], "ERR wrong number of arguments for 'get' command"),
        (&["CONFIG", "NOSUCH"], "ERR unknown subcommand 'NOSUCH'. Try CONFIG HELP."),
        (&["WAIT", "1", "0"], "replication belongs to the storage servers"),
        (&["SHUTDOWN"], "administrative commands go to the storage server itself"),
        (&["REPLICAOF", "no", "one"], "replication belongs to the storage servers"),
        (
            &["MIGRATE", "h", "1", "k", "0", "1"],
            "the key would move to a server that is not behind DistCache",
        ),
        (&["MOVE", "k", "1"], "a database other than the connection's"),
        (
            &["SINTER", "a", "b", "c", "d", "e", "f"],
            "CROSSSLOT DistCache: the keys of 'sinter' live on different",
        ),
        (
            &["MSETNX", "a", "", "b", "", "c", "", "d", "", "e", ""],
            "CROSSSLOT DistCache: the keys of 'msetnx'",
        ),
        (&["SELECT", "1"], "ERR DB index is out of range"),
        (&["AUTH", "password"], "ERR AUTH <password> called without any password configured"),
    ];
    for (arguments, reason) in cases {
        let reply = client.call(arguments);
        assert!(matches!(reply, Value::Error(_)), "{arguments:?}: {reply:?}");
        assert!(text(&reply).contains(reason), "{arguments:?}: {}", text(&reply));
    }
    assert_eq!(client.call(&["PING"]), Value::Simple("PONG".into()));
}

#[test]
fn connection_commands_are_answered() {
    let _machine = shared();
    let cluster = cluster(&[]);
    let mut client = cluster.connect(0);
    let hello = client.ask(&["HELLO"]).expect("a reply");
    assert!(hello.starts_with(b"*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n"), "{hello:?}");
    assert!(text(&client.call(&["HELLO", "4"])).starts_with("NOPROTO"));
    assert!(client.ask(&["HELLO", "3", "SETNAME", "me"]).expect("a reply").starts_with(b"%7\r\n"));
    assert_eq!(client.ask(&["GET", "none"]).expect("a reply"), "_\r\n");
    assert_eq!(text(&client.call(&["CLIENT", "GETNAME"])), "me");
    let Value::Integer(id) = client.call(&["CLIENT", "ID"]) else { panic!("CLIENT ID is a number") };
    assert!(text(&client.call(&["CLIENT", "INFO"])).contains(&format!("id={id} ")));
    assert!(text(&client.call(&["CLIENT", "LIST"])).contains("name=me"));
    assert_eq!(text(&client.call(&["CLIENT", "SETINFO", "LIB-NAME", "test"])), "OK");
    assert_eq!(client.call(&["RESET"]), Value::Simple("RESET".into()));
    assert_eq!(client.ask(&["GET", "none"]).expect("a reply"), "$-1\r\n", "RESET goes back to RESP2");
    assert_eq!(text(&client.call(&["SELECT", "0"])), "OK");
    assert!(text(&client.call(&["INFO"])).contains("redis_mode:standalone"));

    client.write(b"CLIENT REPLY SKIP\r\nSET a 1\r\nCLIENT REPLY OFF\r\nGET a\r\nPING\r\nCLIENT REPLY ON\r\nGET a\r\n").expect("written");
    assert_eq!(client.frame().expect("of CLIENT REPLY ON"), "+OK\r\n");
    assert_eq!(client.frame().expect("of GET"), "$1\r\n1\r\n");

    // What follows QUIT is not executed.
    client.write(b"SET b 1\r\nQUIT\r\nSET b 2\r\n").expect("written");
    assert_eq!(client.rest().expect("closed in order"), "+OK\r\n+OK\r\n");
    assert_eq!(cluster.connect(0).call(&["GET", "b"]), Value::Bulk("1".into()));
}

#[test]
fn a_blocked_client_that_leaves_takes_nothing_with_it() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start()];
    let cluster = cluster(&servers);
    let mut client = cluster.connect(0);
    let mut blocked = cluster.connect(0);
    blocked.write(b"BLPOP queue 0\r\n").expect("written");
    let mut waiting = cluster.connect(0);
    waiting.write(b"BLPOP other 0\r\n").expect("written");
    until("both block", || {
        let info = text(&client.call(&["INFO", "distcache"]));
        info.contains("requests_in_flight:2").then_some(())
    });
    drop(blocked);
    until("the blocked client is forgotten", || {
        let info = text(&client.call(&["INFO", "clients"]));
        info.contains("connected_clients:2").then_some(())
    });
    // Its BLPOP may be under way still, so an element may be lost only to a client that was there.
    until("an element stays", || {
        assert!(matches!(client.call(&["RPUSH", "queue", "x"]), Value::Integer(_)));
        (client.call(&["LLEN", "queue"]) == Value::Integer(1)).then_some(())
    });
    assert_eq!(client.call(&["RPUSH", "other", "y"]), Value::Integer(1));
    assert_eq!(waiting.frame().expect("BLPOP ends"), "*2\r\n$5\r\nother\r\n$1\r\ny\r\n");
}

#[test]
fn a_client_that_reads_late_gets_everything_in_order() {
    let _machine = shared();
    let cluster = cluster(&[]);
    let mut client = cluster.connect(0);
    let value = "v".repeat(100_000);
    (0..4).for_each(|index| assert_eq!(text(&client.call(&["SET", &format!("k{index}"), &value])), "OK"));
    let count = 400;
    std::thread::scope(|scope| {
        let mut writer = client.twin().expect("a second handle");
        let (sender, written) = std::sync::mpsc::channel();
        scope.spawn(move || {
            for index in 0..count {
                let commands = format!("GET k{}\r\nECHO {index}\r\n", index % 4);
                writer.write(commands.as_bytes()).expect("the router reads on");
            }
            sender.send(()).expect("the test waits");
        });
        // 40 MB are more than the router may keep for a client, but the commands fit into the sockets' buffers.
        written.recv().expect("everything was written");
        assert_eq!(text(&cluster.connect(0).call(&["PING"])), "PONG", "others are served meanwhile");
        for index in 0..count {
            assert_eq!(client.frame().expect("a value").len(), 100_000 + "$100000\r\n\r\n".len());
            assert_eq!(
                client.frame().expect("an echo"),
                format!("${}\r\n{index}\r\n", index.to_string().len())
            );
        }
    });
}

#[test]
fn a_client_that_sends_no_more_gets_its_replies() {
    let _machine = shared();
    let cluster = cluster(&[]);
    // More commands than the router takes at once, as `nc` would send a file of them.
    let count = 5000;
    let commands: String =
        (0..count).map(|index| format!("INCR n\r\nSET k{} {index}\r\n", index % 50)).collect();
    for round in 0..3 {
        let mut client = cluster.connect(0);
        std::thread::scope(|scope| {
            let mut writer = client.twin().expect("a second handle");
            let commands = &commands;
            scope.spawn(move || writer.write_and_end(commands.as_bytes()).expect("the router reads on"));
            let expected: String =
                (0..count).map(|index| format!(":{}\r\n+OK\r\n", round * count + index + 1)).collect();
            assert!(client.rest().expect("closed in order") == expected, "round {round}");
        });
    }
}

#[test]
fn commands_of_a_client_that_does_not_wait_are_executed() {
    let _machine = shared();
    let cluster = cluster(&[]);
    cluster.connect(0).write(b"SET gone 1\r\nINCR gone\r\nINCR gone\r\n").expect("written");
    let mut client = cluster.connect(0);
    until("all three were executed", || (text(&client.call(&["GET", "gone"])) == "3").then_some(()));
}

#[test]
fn info_and_config_speak_for_all_servers() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let cluster = cluster(&servers);
    let (mut client, mut blocked) = (cluster.connect(0), cluster.connect(0).resp3());
    for key in 0..20 {
        assert_eq!(text(&client.call(&["SET", &format!("k{key}"), "v"])), "OK");
    }
    blocked.write(b"*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n").expect("written");
    until("the client blocks", || {
        text(&client.call(&["INFO", "clients"])).contains("\r\nblocked_clients:1\r\n").then_some(())
    });
    let info = text(&client.call(&["INFO"]));
    assert!(info.contains("# Keyspace\r\ndb0:keys=20,expires=0,avg_ttl=0\r\n"), "{info}");
    assert!(info.contains("\r\nused_memory:") && info.contains("# Distcache\r\n"), "{info}");
    assert_eq!(text(&client.call(&["CONFIG", "SET", "notify-keyspace-events", "KEA"])), "OK");
    for server in &servers {
        let set = server.connect().call(&["CONFIG", "GET", "notify-keyspace-events"]);
        assert!(format!("{set:?}").contains("AKE"), "{set:?}");
    }
    let refused = text(&client.call(&["CONFIG", "SET", "maxmemory", "1"]));
    assert!(refused.contains("set it at the storage server itself"), "{refused}");
}

//! What a router says to a memcached client where a memcached would say something else, and its limits.

use super::cluster;
use crate::cluster::{
    Cluster, Layout, MemcachedClient, MemcachedServer, RedisServer, installed, shared, total, until,
};

fn check(client: &mut MemcachedClient, request: &str, expected: &str) {
    assert_eq!(client.text(request), expected, "{request:?}");
}

#[test]
fn embedded_storage_has_the_basic_commands_and_refuses_the_others() {
    let _machine = shared();
    let cluster = cluster(vec!["embedded:".to_owned(); 2]);
    let mut client = MemcachedClient::connect(cluster.router(0));
    check(&mut client, "set a 0 0 5\r\nhello\r\n", "STORED\r\n");
    check(&mut client, "get b a a\r\n", "VALUE a 0 5\r\nhello\r\nVALUE a 0 5\r\nhello\r\nEND\r\n");
    check(&mut client, "add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n");
    check(&mut client, "replace a 0 1000 1\r\nx\r\n", "STORED\r\n");
    check(&mut client, "touch a -1\r\nget a\r\ndelete a\r\n", "TOUCHED\r\nEND\r\nNOT_FOUND\r\n");
    let refused = client.text("incr a 1\r\n");
    assert!(refused.starts_with("SERVER_ERROR ") && refused.contains("embedded"), "{refused}");
}

#[test]
fn what_redis_cannot_keep_is_refused_and_said() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = shared();
    let server = RedisServer::start();
    let cluster = cluster(vec![server.url()]);
    let mut client = MemcachedClient::connect(cluster.router(0));
    let flags =
        "SERVER_ERROR DistCache: flags other than 0 need memcached storage; Redis storage keeps none\r\n";
    check(&mut client, "set a 1 0 1\r\nx\r\n", flags);
    check(&mut client, "ms a 1 F1\r\nx\r\n", flags);
    assert!(client.text("mg a N30\r\n").contains("the flag N needs memcached storage"));
    assert!(client.text("me a\r\n").starts_with("SERVER_ERROR DistCache: me "));
    assert!(client.text("flush_all 10\r\n").starts_with("SERVER_ERROR DistCache: flush_all with a delay"));
    assert!(client.text("watch\r\n").starts_with("SERVER_ERROR DistCache: 'watch' is not carried"));
    check(&mut client, "get a\r\n", "END\r\n");
    // A key of another type ends the retrieval, and the connection stays in step.
    server.connect().call(&["RPUSH", "list", "x"]);
    let error = client.text("get b list a\r\n");
    assert!(error.starts_with("SERVER_ERROR WRONGTYPE ") && error.lines().count() == 1, "{error}");
    check(&mut client, "get b\r\n", "END\r\n");
    // Values and keys are those that Redis' clients see.
    check(&mut client, "set shared 0 0 5\r\nhello\r\n", "STORED\r\n");
    let value = server.connect().call(&["GET", "shared"]);
    assert_eq!(value.bytes().map(|bytes| &bytes[..]), Some(&b"hello"[..]));
}

#[test]
fn large_values_and_what_is_over_the_limit() {
    let _machine = shared();
    let cluster = Cluster::up(Layout {
        protocol: "memcached",
        tables: "[limits]\ncommand_bytes_max = \"2MiB\"".to_owned(),
        ..Layout::embedded(1)
    });
    let mut client = MemcachedClient::connect(cluster.router(0));
    let value: Vec<u8> =
        (0..1 << 20).map(|index: u32| index.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let store = [b"set big 0 0 1048576\r\n", &value[..], b"\r\n"].concat();
    assert_eq!(client.ask(&store), b"STORED\r\n");
    let expected = [b"VALUE big 0 1048576\r\n", &value[..], b"\r\nEND\r\n"].concat();
    assert_eq!(client.ask(b"get big\r\n"), expected);
    // The old value must not be taken for the new one, and the block is not taken for commands.
    let larger =
        [&b"set big 0 0 3000000\r\n"[..], &b"get big\r\n".repeat(333_334)[..3_000_000], b"\r\n"].concat();
    assert_eq!(client.ask(&larger), b"SERVER_ERROR object too large for cache\r\n");
    assert_eq!(client.ask(b"get big\r\n"), b"END\r\n");
}

#[test]
fn what_is_no_memcached_text_is_told_and_closed() {
    let _machine = shared();
    let cluster = cluster(vec!["embedded:".to_owned()]);
    let connect = || MemcachedClient::connect(cluster.router(0));
    // What a client of the binary protocol starts with: a request of 24 bytes, answered in its own protocol.
    let version = [&b"\x80\x0b"[..], &[0; 10], b"mark", &[0; 8]].concat();
    let answer = connect().last_words(&version);
    assert_eq!(
        (&answer[..2], &answer[6..8], &answer[12..16]),
        (&b"\x81\x0b"[..], &b"\0\x81"[..], &b"mark"[..])
    );
    assert!(answer[24..].starts_with(b"DistCache: the binary protocol is not carried"), "{answer:?}");
    assert_eq!(connect().last_words(&[b'x'; 3000]), b"");
    assert_eq!(connect().last_words(b"version\r\nquit\r\nversion\r\n"), b"VERSION 1.6.18\r\n");
    let told = b"CLIENT_ERROR this port speaks memcached's protocol, not HTTP\r\n";
    assert_eq!(connect().last_words(b"GET / HTTP/1.1\r\n"), told);
    assert_eq!(connect().last_words(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nset k 0 0 1\r\nv\r\n"), told);
    assert_eq!(
        connect().last_words(b"get k\r\nquit\r\n"),
        b"END\r\n",
        "what a browser sends is not carried out"
    );
}

#[test]
fn users_show_who_they_are_with_a_set_and_obey_their_rules() {
    if !installed(&["memcached", "redis-server"]) {
        return;
    }
    let _machine = shared();
    let (redis, memcached) = (RedisServer::start(), MemcachedServer::start());
    for url in [redis.url(), memcached.url(), "embedded:".to_owned()] {
        let cluster = Cluster::up(Layout {
            protocol: "memcached",
            login: Some(("admin", "root")),
            tables: "[[user]]\nname = \"admin\"\nrules = \"on >root ~* +@all\"\n\
                     [[user]]\nname = \"default\"\nrules = \"off\"\n\
                     [[user]]\nname = \"app\"\nrules = \"on >secret ~app:* +@read +@write\"\n\
                     [[user]]\nname = \"reader\"\nrules = \"on >other ~* +@read\"\n\
                     [[policy]]\nprefix = \"\"\ncache = \"always\"\n"
                .to_owned(),
            ..Layout::new(vec![url])
        });
        let connect = || MemcachedClient::connect(cluster.router(0));
        let words = |request: &str| String::from_utf8(connect().last_words(request.as_bytes())).unwrap();
        assert_eq!(words("get app:1\r\nquit\r\n"), "CLIENT_ERROR unauthenticated\r\n");
        assert_eq!(words("ms app:1 1\r\nx\r\nquit\r\n"), "CLIENT_ERROR unauthenticated\r\n");
        assert_eq!(words("set x 0 0 9\r\napp wrong\r\nquit\r\n"), "CLIENT_ERROR authentication failure\r\n");
        let flood = format!("set app:1 0 0 4096\r\n{}\r\nquit\r\n", "x".repeat(4096));
        assert_eq!(words(&flood), "CLIENT_ERROR unauthenticated\r\n");
        let (mut app, mut reader) = (connect(), connect());
        assert_eq!(app.log_in("app", "secret"), "STORED\r\n");
        assert_eq!(reader.log_in("reader", "other"), "STORED\r\n");
        check(
            &mut app,
            "get x\r\n",
            "SERVER_ERROR NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
        );
        check(&mut app, "set app:1 0 0 1\r\nv\r\n", "STORED\r\n");
        until("the copy answers", || {
            check(&mut app, "get app:1\r\n", "VALUE app:1 0 1\r\nv\r\nEND\r\n");
            (total(&cluster.status(), "nodes", "hits_total") > 0).then_some(())
        });
        check(&mut reader, "get app:1\r\n", "VALUE app:1 0 1\r\nv\r\nEND\r\n");
        let denied = reader.text("set app:1 0 0 1\r\nw\r\n");
        assert!(denied.starts_with("SERVER_ERROR NOPERM "), "{denied}");
        let denied = reader.text("delete app:1\r\n");
        assert!(denied.starts_with("SERVER_ERROR NOPERM "), "{denied}");
        check(&mut app, "delete app:1\r\n", "DELETED\r\n");
        assert!(reader.text("flush_all\r\n").starts_with("SERVER_ERROR NOPERM "));
    }
}

#[test]
fn numbers_have_64_bits_and_no_sign() {
    if !installed(&["memcached", "redis-server"]) {
        return;
    }
    let _machine = shared();
    let (redis, memcached) = (RedisServer::start(), MemcachedServer::start());
    for url in [redis.url(), memcached.url()] {
        let cluster = cluster(vec![url]);
        let mut client = MemcachedClient::connect(cluster.router(0));
        for (stored, request, expected) in [
            ("18446744073709551615", "incr n 1", "0"),
            ("18446744073709551610", "incr n 10", "4"),
            ("18446744073709551615", "incr n 18446744073709551615", "18446744073709551614"),
            ("9999999999", "incr n 1", "10000000000"),
            ("10000000000", "decr n 1", "9999999999"),
            ("5", "decr n 6", "0"),
            (
                "18446744073709551616",
                "incr n 1",
                "CLIENT_ERROR cannot increment or decrement non-numeric value",
            ),
            ("-1", "incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
            ("1", "incr n 18446744073709551616", "CLIENT_ERROR invalid numeric delta argument"),
            ("7 and more", "incr n 1", "8"),
            ("7\t8", "decr n 7", "0"),
            ("7\0x", "incr n 3", "10"),
            ("\r\n +007\u{b}", "incr n 1", "8"),
            ("-0", "incr n 4", "4"),
            ("7x", "incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
            ("+ 7", "incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
            ("", "incr n 1", "CLIENT_ERROR cannot increment or decrement non-numeric value"),
        ] {
            check(&mut client, &format!("set n 0 0 {}\r\n{stored}\r\n", stored.len()), "STORED\r\n");
            check(&mut client, &format!("{request}\r\n"), &format!("{expected}\r\n"));
        }
    }
}

//! The `redis` crate, as the client library of another language than Python.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use redis::{Commands, Connection, ErrorKind, ProtocolVersion, RedisResult};

use crate::cluster::{Cluster, Layout, RedisServer, installed, shared};

fn connect(cluster: &Cluster, router: usize, resp3: bool) -> Connection {
    let protocol = if resp3 { "?protocol=resp3" } else { "" };
    let client = redis::Client::open(format!("redis://{}/{protocol}", cluster.router(router)));
    let connection = client.expect("a URL").get_connection().expect("the router accepts");
    connection.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    connection
}

#[test]
fn the_redis_crate_works_unmodified() -> RedisResult<()> {
    if !installed(&["redis-server"]) {
        return Ok(());
    }
    let _machine = shared();
    let servers = [RedisServer::start(), RedisServer::start()];
    let layout = Layout::before(&servers);
    let second = crate::cluster::Layout::embedded(1).routers;
    let cluster = Cluster::up(Layout { routers: [&layout.routers[..], &second].concat(), ..layout });
    for resp3 in [false, true] {
        let mut connection = connect(&cluster, 0, resp3);
        types_convert(&mut connection)?;
        pipelines_keep_their_order(&mut connection)?;
        errors_have_their_kind(&mut connection)?;
        threads_count_together(&cluster, resp3)?;
        redis::cmd("FLUSHALL").exec(&mut connection)?;
    }
    assert_eq!(ProtocolVersion::default(), ProtocolVersion::RESP2);
    Ok(())
}

fn types_convert(connection: &mut Connection) -> RedisResult<()> {
    connection.set::<_, _, ()>("rs:s", "text")?;
    assert_eq!(connection.get::<_, String>("rs:s")?, "text");
    assert_eq!(connection.get::<_, Option<String>>("rs:none")?, None);
    connection.hset_multiple::<_, _, _, ()>("rs:h", &[("a", 1), ("b", 2)])?;
    let expected = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
    for _ in 0..5 {
        assert_eq!(connection.hgetall::<_, BTreeMap<String, i64>>("rs:h")?, expected);
    }
    connection.zadd::<_, _, _, ()>("rs:z", "m", 1.5)?;
    assert_eq!(
        connection.zrange_withscores::<_, Vec<(String, f64)>>("rs:z", 0, -1)?,
        [("m".to_owned(), 1.5)]
    );
    connection.sadd::<_, _, ()>("rs:set", &["x", "y"])?;
    let members: BTreeSet<String> = connection.smembers("rs:set")?;
    assert_eq!(members, BTreeSet::from(["x".to_owned(), "y".to_owned()]));
    let many: Vec<(String, usize)> = (0..100).map(|index| (format!("rs:m:{index}"), index)).collect();
    connection.mset::<_, _, ()>(&many)?;
    let keys: Vec<&String> = many.iter().map(|(key, _)| key).collect();
    assert_eq!(connection.mget::<_, Vec<usize>>(&keys)?, (0..100).collect::<Vec<_>>());
    let scanned: BTreeSet<String> = connection.scan_match("rs:m:*")?.collect::<RedisResult<_>>()?;
    assert_eq!(scanned.len(), 100);
    assert_eq!(connection.del::<_, i64>(&keys)?, 100);

    connection.pset_ex::<_, _, ()>("rs:e", 1, 100)?;
    let started = Instant::now();
    while connection.get::<_, Option<i64>>("rs:e")?.is_some() {
        assert!(started.elapsed() < Duration::from_secs(120));
    }
    Ok(())
}

fn pipelines_keep_their_order(connection: &mut Connection) -> RedisResult<()> {
    let mut pipeline = redis::pipe();
    for index in 0..300 {
        pipeline.set(format!("rs:p:{}", index % 7), index).ignore();
        pipeline.get(format!("rs:p:{}", index % 7));
    }
    let replies: Vec<usize> = pipeline.query(connection)?;
    assert_eq!(replies, (0..300).collect::<Vec<_>>());
    Ok(())
}

fn errors_have_their_kind(connection: &mut Connection) -> RedisResult<()> {
    let error = connection.lpush::<_, _, ()>("rs:s", 1).expect_err("a string is no list");
    assert_eq!(error.code(), Some("WRONGTYPE"), "{error}");
    let error = redis::cmd("NOSUCHCOMMAND").exec(connection).expect_err("no such command");
    assert!(
        matches!(error.kind(), ErrorKind::Server(_)) && error.to_string().contains("unknown command"),
        "{error}"
    );
    assert_eq!(connection.get::<_, String>("rs:s")?, "text", "the connection goes on");
    Ok(())
}

/// Eight connections through two routers, each seeing at least what it has counted itself.
fn threads_count_together(cluster: &Cluster, resp3: bool) -> RedisResult<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|index| {
                let mut connection = connect(cluster, index % 2, resp3);
                scope.spawn(move || -> RedisResult<()> {
                    for _ in 0..100 {
                        let counted: i64 = connection.incr("rs:count", 1)?;
                        assert!(connection.get::<_, i64>("rs:count")? >= counted);
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    assert_eq!(connect(cluster, 1, resp3).get::<_, i64>("rs:count")?, 800);
    Ok(())
}

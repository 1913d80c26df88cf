//! A running shim as its peers see it: start, commands over a link, rate limit, storage away, stop.

mod peer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use config::Address;
use config::{Config, LayerConfig, NodeConfig, RedisStorage, Secret, ShimConfig, StorageConfig};
use peer::{PATIENCE, Router};
use runtime::instance::Instance;
use runtime::status::{MemberStatus, ShimStatus};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::{Partition, Status};

const SECRET: Secret = Secret([3; 16]);

fn config(storage: StorageConfig, change: impl FnOnce(&mut Config)) -> Arc<Config> {
    let mut config = Config::new("test", SECRET);
    config.cluster.lease_ms = 50;
    config.cluster.lease_guard_ms = 5;
    let local: Address = "127.0.0.1:0".parse().expect("an address");
    config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("node-0", "leaf", None, local.clone()));
    config.shims.push(ShimConfig::new("shim-0", "r0", local, storage));
    change(&mut config);
    Arc::new(config)
}

fn status(shim: &Instance) -> ShimStatus {
    match shim.status.get() {
        MemberStatus::Shim(status) => status,
        other => panic!("{other:?}"),
    }
}

fn end(shim: Instance, stop: &Stop) {
    stop.stop();
    assert!(shim.join());
}

#[test]
fn an_embedded_shim_serves_writes_and_reads_and_counts_them() {
    let config = config(StorageConfig::Embedded, |_| {});
    let stop = Stop::new();
    let shim = shim::spawn(&config, &Certificates::default(), "shim-0", &stop).expect("it starts");
    let mut router = Router::new(&config, &shim);
    assert_eq!(router.ask(&["SET", "k", "v"]).value, "+OK\r\n");
    assert_eq!(router.ask(&["GET", "k"]).value, "$1\r\nv\r\n");
    assert_eq!(router.ask(&["GET", "nothing"]).status, Status::Nil);
    assert_eq!(router.ask(&["INCR", "n"]).value, ":1\r\n");
    let refused = router.ask(&["HSET", "h", "f", "v"]);
    assert_eq!(refused.status, Status::Error);
    assert!(String::from_utf8_lossy(&refused.value).contains("--storage redis"));
    let deadline = Instant::now() + PATIENCE;
    while status(&shim).statistics.requests < 5 {
        assert!(Instant::now() < deadline, "{:?}", status(&shim));
        router.reactor.turn(&mut router.recorder, None).expect("a turn");
    }
    let status = status(&shim);
    assert_eq!((status.statistics.storage_reads, status.statistics.storage_writes), (2, 3));
    assert!(status.storage_up && status.links.peers == 1 && status.rack == "r0", "{status:?}");
    end(shim, &stop);
}

#[test]
fn a_rate_limit_delays_then_refuses_and_loses_nothing() {
    let config = config(StorageConfig::Embedded, |config| {
        config.shims[0].rate_max = 1000;
        config.limits.shim_queue_max = 50;
    });
    let stop = Stop::new();
    let shim = shim::spawn(&config, &Certificates::default(), "shim-0", &stop).expect("it starts");
    let mut router = Router::new(&config, &shim);
    for _ in 0..500 {
        router.send(&["GET", "k"]);
    }
    router.until("every reply", |recorder| recorder.replies.len() == 500);
    let replies = &router.recorder.replies;
    let busy = replies.iter().filter(|reply| reply.value.starts_with(b"-BUSY")).count();
    let served = replies.iter().filter(|reply| reply.status == Status::Nil).count();
    assert_eq!(busy + served, 500);
    assert!((50..150).contains(&served), "{served} served");
    end(shim, &stop);
}

#[test]
fn storage_that_is_away_does_not_keep_a_shim_from_starting() {
    let away = Address::Unix(PathBuf::from("/nonexistent/redis.sock"));
    let storage = StorageConfig::Redis(Box::new(RedisStorage::open(away)));
    let config = config(storage, |_| {});
    let stop = Stop::new();
    let shim = shim::spawn(&config, &Certificates::default(), "shim-0", &stop).expect("it starts");
    let mut router = Router::new(&config, &shim);
    let reply = router.ask(&["GET", "k"]);
    let text = String::from_utf8_lossy(&reply.value);
    assert!(text.contains("storage cannot be reached") && text.contains("/nonexistent/redis.sock"), "{text}");
    assert!(!status(&shim).storage_up);
    end(shim, &stop);
}

#[test]
fn what_cannot_start_says_why() {
    let config = config(StorageConfig::Embedded, |_| {});
    let stop = Stop::new();
    let error = shim::spawn(&config, &Certificates::default(), "nobody", &stop)
        .expect_err("there is no such shim")
        .to_string();
    assert!(error.contains("nobody"), "{error}");
    let shim = shim::spawn(&config, &Certificates::default(), "shim-0", &stop).expect("it starts");
    let mut taken = Config::clone(&config);
    taken.shims[0].listen = shim.addresses[0].clone();
    let error = shim::spawn(&Arc::new(taken), &Certificates::default(), "shim-0", &stop)
        .expect_err("the address is taken")
        .to_string();
    assert!(error.contains("in use"), "{error}");
    end(shim, &stop);
}

//! A running shim as its peers see it: start, commands over a link, rate limit, storage away, stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::placement::{Placement, Secret as PlacementSecret};
use runtime::Address;
use runtime::config::{Config, LayerConfig, NodeConfig, Secret, ShimConfig, StorageConfig};
use runtime::instance::Instance;
use runtime::peers::{Identity, PeerEvent, Peers};
use runtime::reactor::{Driver, Event, Io, Reactor};
use runtime::status::{MemberStatus, ShimStatus};
use runtime::stop::Stop;
use wire::message::{Execute, Read, Reply};
use wire::resp::Command;
use wire::{Message, Partition, Peer, RouterId, ShimId, Status, View};

const SECRET: Secret = Secret([3; 16]);
const SHIM: Peer = Peer::Shim(ShimId(0));
const PATIENCE: Duration = Duration::from_secs(120);

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

struct Recorder {
    peers: Peers,
    linked: bool,
    replies: Vec<Reply>,
}

impl Driver for Recorder {
    fn event(&mut self, io: &mut Io, event: Event) {
        let mut events = Vec::new();
        self.peers.event(io, event, &mut events);
        for event in events {
            match event {
                PeerEvent::Message { message: Message::Reply(reply), .. } => self.replies.push(reply),
                PeerEvent::Message { .. } => {}
                PeerEvent::Linked(_) => self.linked = true,
                PeerEvent::Unlinked(_) => self.linked = false,
            }
        }
    }
}

/// Asks the shim as a router does.
struct Router {
    reactor: Reactor,
    recorder: Recorder,
    placement: Placement,
    requests: u64,
}

impl Router {
    fn new(config: &Config, shim: &Instance) -> Router {
        let peers = Peers::new(Identity { peer: Peer::Router(RouterId(0)), secret: SECRET });
        let mut reactor = Reactor::new(Io::new().expect("a reactor"));
        let mut recorder = Recorder { peers, linked: false, replies: Vec::new() };
        recorder.peers.dial(reactor.io(), SHIM, shim.addresses[0].clone());
        let placement = Placement::new(PlacementSecret(SECRET.0), config.map()).expect("a map");
        let mut router = Router { reactor, recorder, placement, requests: 0 };
        router.until("the link", |recorder| recorder.linked);
        router
    }

    fn until(&mut self, what: &str, done: impl Fn(&Recorder) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(&self.recorder) {
            assert!(Instant::now() < deadline, "{what} never came");
            self.reactor.turn(&mut self.recorder, None).expect("a turn");
        }
    }

    fn send(&mut self, args: &[&str]) -> u64 {
        self.requests += 1;
        let request = self.requests;
        let command = Command::from_args(args);
        let key = self.placement.key(0, command.get(1).map_or(Bytes::new(), Bytes::copy_from_slice));
        let message = if args[0] == "GET" {
            let command = Bytes::new();
            let (view, resp3) = (View::GET, false);
            Message::Read(Read {
                request,
                key,
                view,
                resp3,
                ordered: false,
                streams: false,
                waited_ms: 0,
                command,
            })
        } else {
            let command = command.frame().clone();
            Message::Execute(Execute {
                request,
                key,
                resp3: false,
                ordered: false,
                watch: None,
                waited_ms: 0,
                command,
            })
        };
        assert!(self.recorder.peers.send(self.reactor.io(), SHIM, &message));
        request
    }

    fn ask(&mut self, args: &[&str]) -> Reply {
        let request = self.send(args);
        let is_it = move |reply: &Reply| reply.request == request;
        self.until("the reply", |recorder| recorder.replies.iter().any(is_it));
        self.recorder.replies.iter().find(|reply| is_it(reply)).cloned().expect("it came")
    }
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
    let shim = shim::spawn(&config, "shim-0", &stop).expect("it starts");
    let mut router = Router::new(&config, &shim);
    assert_eq!(router.ask(&["SET", "k", "v"]).value, "+OK\r\n");
    assert_eq!(router.ask(&["GET", "k"]).value, "$1\r\nv\r\n");
    assert_eq!(router.ask(&["GET", "nothing"]).status, Status::Nil);
    assert_eq!(router.ask(&["INCR", "n"]).value, ":1\r\n");
    let refused = router.ask(&["HSET", "h", "f", "v"]);
    assert_eq!(refused.status, Status::Error);
    assert!(String::from_utf8_lossy(&refused.value).contains("--storage redis"));
    let deadline = Instant::now() + PATIENCE;
    while status(&shim).requests_total < 5 {
        assert!(Instant::now() < deadline, "{:?}", status(&shim));
        router.reactor.turn(&mut router.recorder, None).expect("a turn");
    }
    let status = status(&shim);
    assert_eq!((status.storage_reads_total, status.storage_writes_total), (2, 3));
    assert!(status.storage_up && status.peers == 1 && status.rack == "r0", "{status:?}");
    end(shim, &stop);
}

#[test]
fn a_rate_limit_delays_then_refuses_and_loses_nothing() {
    let config = config(StorageConfig::Embedded, |config| {
        config.shims[0].rate_max = 1000;
        config.limits.shim_queue_max = 50;
    });
    let stop = Stop::new();
    let shim = shim::spawn(&config, "shim-0", &stop).expect("it starts");
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
    let storage = StorageConfig::Redis {
        address: Address::Unix(PathBuf::from("/nonexistent/redis.sock")),
        user: None,
        password: None,
        tls: None,
    };
    let config = config(storage, |_| {});
    let stop = Stop::new();
    let shim = shim::spawn(&config, "shim-0", &stop).expect("it starts");
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
    let error = shim::spawn(&config, "nobody", &stop).expect_err("there is no such shim").to_string();
    assert!(error.contains("nobody"), "{error}");
    let shim = shim::spawn(&config, "shim-0", &stop).expect("it starts");
    let mut taken = Config::clone(&config);
    taken.shims[0].listen = shim.addresses[0].clone();
    let error = shim::spawn(&Arc::new(taken), "shim-0", &stop).expect_err("the address is taken").to_string();
    assert!(error.contains("in use"), "{error}");
    end(shim, &stop);
}

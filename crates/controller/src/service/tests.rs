//! The service over a store that loses leases, vanishes, and is shared with another replica.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::time::Time;
use runtime::config::{
    Config, ControllerConfig, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig,
};
use runtime::heartbeat::{Heartbeat, HeartbeatReply};
use runtime::status::{HotKey, MemberStatus, NodeStatus, RouterStatus, ShimStatus};
use wire::Partition;

use super::{Refusal, Service};
use crate::inspect::inspect;
use crate::store::{Change, LeaseId, MemoryStore, Put, Store, StoreError, Transaction};
use crate::view::{MemberState, members};

/// A store that tests share between replicas, take away and make forget.
#[derive(Clone, Default)]
struct Fickle {
    shared: Arc<Mutex<Shared>>,
    seen: usize,
}

#[derive(Default)]
struct Shared {
    memory: MemoryStore,
    history: Vec<Change>,
    away: bool,
}

impl Fickle {
    fn with<T>(&self, ask: impl FnOnce(&mut Shared) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut shared = self.shared.lock().unwrap();
        if shared.away {
            return Err(StoreError("away".to_owned()));
        }
        let answer = ask(&mut shared)?;
        Ok(answer)
    }

    fn set_away(&self, away: bool) {
        self.shared.lock().unwrap().away = away;
    }

    fn lose_leases(&self) {
        let mut shared = self.shared.lock().unwrap();
        let changes = shared.memory.watch(Time(u64::MAX)).unwrap();
        shared.history.extend(changes);
    }
}

impl Store for Fickle {
    fn grant(&mut self, now: Time, length: Duration) -> Result<LeaseId, StoreError> {
        self.with(|shared| shared.memory.grant(now, length))
    }

    fn keep_alive(&mut self, now: Time, lease: LeaseId) -> Result<bool, StoreError> {
        self.with(|shared| shared.memory.keep_alive(now, lease))
    }

    fn transact(&mut self, now: Time, put: Put) -> Result<Transaction, StoreError> {
        self.with(|shared| shared.memory.transact(now, put))
    }

    fn watch(&mut self, now: Time) -> Result<Vec<Change>, StoreError> {
        let seen = self.seen;
        let (count, changes) = self.with(|shared| {
            let changes = shared.memory.watch(now)?;
            shared.history.extend(changes);
            Ok((shared.history.len(), shared.history[seen..].to_vec()))
        })?;
        self.seen = count;
        Ok(changes)
    }
}

fn config() -> Arc<Config> {
    let address = || "127.0.0.1:0".parse().unwrap();
    let mut config = Config::new("test", Secret([3; 16]));
    let controller = ControllerConfig::new("c", "127.0.0.1:0".parse().unwrap());
    config.controllers.push(ControllerConfig { member_lease_ms: 3000, grace_ms: 3000, ..controller });
    config.layers.push(LayerConfig { name: "leaf".to_owned(), partition: Partition::Rack });
    config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
    config.nodes.push(NodeConfig::new("n0", "leaf", Some("r0"), address()));
    config.nodes.push(NodeConfig::new("n1", "spine", None, address()));
    config.shims.push(ShimConfig::new("s0", "r0", address(), StorageConfig::Embedded));
    config.routers.push(RouterConfig::new("x0", address()));
    config.validate().unwrap();
    Arc::new(config)
}

fn status(id: &str, epoch: u32) -> MemberStatus {
    let id = id.to_owned();
    match &id[..1] {
        "n" => MemberStatus::Node(NodeStatus { id, epoch, ..NodeStatus::default() }),
        "s" => MemberStatus::Shim(ShimStatus { id, epoch, ..ShimStatus::default() }),
        _ => MemberStatus::Router(RouterStatus { id, epoch, ..RouterStatus::default() }),
    }
}

struct World {
    service: Service,
    store: Fickle,
    sequence: u64,
    ms: u64,
}

impl World {
    fn new() -> World {
        World::over(Fickle::default())
    }

    fn over(store: Fickle) -> World {
        World {
            service: Service::new(Time(0), config(), 0, Box::new(store.clone())),
            store,
            sequence: 0,
            ms: 0,
        }
    }

    /// Lets time pass without heartbeats.
    fn until(&mut self, ms: u64) {
        while self.ms < ms {
            self.ms = ms.min(self.ms + 500);
            self.service.tick(Time(self.ms * 1000));
        }
    }

    fn beat(&mut self, ms: u64, members: Vec<MemberStatus>) -> Result<HeartbeatReply, Refusal> {
        self.until(ms);
        self.sequence += 1;
        let heartbeat = Heartbeat { agent: 1, sequence: self.sequence, members };
        self.service.heartbeat(Time(ms * 1000), heartbeat)
    }

    fn state(&self, id: &str) -> MemberState {
        members(&self.service).into_iter().find(|member| member.id == id).unwrap().state
    }
}

fn reply(epoch: u32, down: &[&str]) -> Result<HeartbeatReply, Refusal> {
    Ok(HeartbeatReply { epoch, shares: down.iter().map(|id| ((*id).to_owned(), 0)).collect() })
}

#[test]
fn a_silent_node_is_lost_then_down_and_comes_back() {
    let mut world = World::new();
    assert_eq!(world.beat(0, vec![status("n0", 1), status("n1", 1), status("s0", 1)]), reply(1, &[]));
    assert_eq!(world.beat(2_000, vec![status("n0", 1)]), reply(1, &[]));
    assert_eq!(world.service.status().nodes.len(), 2);
    assert_eq!(world.beat(3_000, vec![status("n0", 1)]), reply(1, &[]));
    assert_eq!((world.state("n0"), world.state("n1")), (MemberState::Up, MemberState::Lost));
    assert_eq!(world.service.status().nodes.len(), 1);
    assert_eq!(world.beat(5_900, vec![status("n0", 1)]), reply(1, &[]));
    assert_eq!(world.beat(6_000, vec![status("n0", 1)]), reply(2, &["n1"]));
    assert_eq!((world.state("n1"), world.state("x0")), (MemberState::Down, MemberState::Lost));
    assert_eq!(world.beat(7_000, vec![status("n1", 1)]), reply(2, &["n1"]));
    let shares = |share| [("n1".to_owned(), share)].into();
    for (ms, epoch, share) in [(7_500, 3, 250), (8_500, 4, 500), (9_500, 5, 750)] {
        let expected = Ok(HeartbeatReply { epoch, shares: shares(share) });
        assert_eq!(world.beat(ms, vec![status("n0", epoch - 1), status("n1", epoch - 1)]), expected);
    }
    assert_eq!(world.beat(10_500, vec![status("n1", 5)]), reply(6, &[]));
    let own = world.service.own_status();
    assert_eq!((own.members_up, own.members_down, own.maps_total, own.heartbeats_total), (2, 2, 5, 10));
}

#[test]
fn replays_and_strangers_are_refused_and_change_nothing() {
    let mut world = World::new();
    world.beat(0, vec![status("n0", 1)]).unwrap();
    let replay = Heartbeat { agent: 1, sequence: 1, members: vec![status("n1", 9)] };
    assert_eq!(world.service.heartbeat(Time(0), replay.clone()), Err(Refusal::Replay));
    let other = Heartbeat { agent: 2, ..replay };
    assert!(world.service.heartbeat(Time(0), other).is_ok());

    for id in ["n9", "x9"] {
        assert!(matches!(world.beat(0, vec![status(id, 1)]), Err(Refusal::Stranger(..))), "{id}");
    }
    let wrong_role = MemberStatus::Shim(ShimStatus { id: "n0".to_owned(), ..ShimStatus::default() });
    assert!(matches!(world.beat(0, vec![wrong_role, status("x0", 1)]), Err(Refusal::Stranger(..))));
    assert_eq!(world.state("x0"), MemberState::Lost);
    assert_eq!(world.service.own_status().heartbeats_refused_total, 4);
}

#[test]
fn a_store_that_loses_leases_costs_no_partition() {
    let mut world = World::new();
    let everyone = || vec![status("n0", 1), status("n1", 1), status("s0", 1), status("x0", 1)];
    world.beat(0, everyone()).unwrap();
    world.store.lose_leases();
    world.until(100);
    assert_eq!(world.state("n0"), MemberState::Lost);
    assert_eq!(world.beat(500, everyone()), reply(1, &[]));
    assert_eq!(world.state("n0"), MemberState::Up);
    // The new leases count from their own start.
    assert_eq!(world.beat(3_400, everyone()), reply(1, &[]));
    assert_eq!(world.beat(6_300, everyone()), reply(1, &[]));
}

#[test]
fn a_store_that_is_away_stops_nothing() {
    let mut world = World::new();
    let everyone = || vec![status("n0", 1), status("n1", 1)];
    world.beat(0, everyone()).unwrap();
    world.store.set_away(true);
    assert!(matches!(world.beat(500, everyone()), Err(Refusal::Store(_))));
    world.until(20_000);
    assert_eq!(world.service.machine.map().epoch, 1);
    world.store.set_away(false);
    // All leases ran out meanwhile; who comes back within a lease and the grace period keeps its partition.
    world.until(25_900);
    assert_eq!(world.beat(25_950, everyone()), reply(1, &[]));
}

#[test]
fn replicas_over_one_store_agree_on_the_map() {
    let store = Fickle::default();
    let (mut a, mut b) = (World::over(store.clone()), World::over(store));
    b.sequence = 100;
    for ms in (0..=9_000).step_by(500) {
        a.beat(ms, vec![status("n0", 1)]).unwrap();
        b.beat(ms, vec![status("s0", 1)]).unwrap();
        if ms == 5_500 {
            assert_eq!((a.service.machine.map().epoch, b.service.machine.map().epoch), (1, 1));
        }
    }
    // n1 never came, n0 beats at the other replica: both publish the same map once, and neither drops n0.
    assert_eq!(a.beat(9_100, Vec::new()), reply(2, &["n1"]));
    assert_eq!(b.beat(9_100, Vec::new()), reply(2, &["n1"]));
    let returning = || Ok(HeartbeatReply { epoch: 3, shares: [("n1".to_owned(), 250)].into() });
    assert_eq!(b.beat(9_200, vec![status("n1", 2)]), returning());
    assert_eq!(a.beat(9_300, Vec::new()), returning());
}

#[test]
fn inspection_names_storage_places_and_heat() {
    let mut world = World::new();
    let hottest = vec![HotKey { key: "hot\\x00".to_owned(), heat: 40 }];
    let node = |id: &str| {
        MemberStatus::Node(NodeStatus {
            id: id.to_owned(),
            hottest: hottest.clone(),
            ..NodeStatus::default()
        })
    };
    world.beat(0, vec![node("n0"), node("n1")]).unwrap();

    let found = inspect(&world.service, b"hot\0").unwrap();
    assert_eq!((found.shim.as_str(), found.rack.as_str(), found.hot, found.heat), ("s0", "r0", true, 80));
    let places: Vec<_> = found.places.iter().map(|p| (p.layer.as_str(), p.node.as_deref(), p.heat)).collect();
    assert_eq!(places, [("leaf", Some("n0"), Some(40)), ("spine", Some("n1"), Some(40))]);

    let cold = inspect(&world.service, b"cold").unwrap();
    assert_eq!((cold.hot, cold.heat), (false, 0));
    world.until(6_000);
    assert_eq!(inspect(&world.service, b"cold").unwrap().places[1].node, None);
}

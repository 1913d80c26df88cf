//! The service over a store that loses leases, vanishes, and is shared with another replica.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use config::{
    Config, ControllerConfig, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig,
};
use protocol::placement::agreement::Agreement;
use protocol::time::Time;
use runtime::heartbeat::{Heartbeat, HeartbeatReply};
use runtime::status::{HotKey, MemberStatus, NodeStatus, RouterStatus, ShimStatus};
use wire::{LEVELS, NodeId, Partition, RELEASE};

use super::{HeartbeatRefusal, Service};
use crate::inspect::{FurtherPlace, inspect};
use crate::store::{
    ControllerStore, MemoryStore, StoreChange, StoreError, StoredRoster, UnknownFields, map_text,
};
use crate::view::{MemberState, members};

/// A store that tests share between replicas, take away and make forget.
struct Fickle {
    shared: Arc<Mutex<Shared>>,
    seen: usize,
    /// Cut off from the store that the other replicas have.
    away: Arc<AtomicBool>,
}

struct Shared {
    memory: MemoryStore,
    history: Vec<StoreChange>,
}

impl Fickle {
    fn new() -> Fickle {
        let memory = MemoryStore::new(Duration::from_secs(3));
        let shared = Arc::new(Mutex::new(Shared { memory, history: Vec::new() }));
        Fickle { shared, seen: 0, away: Arc::default() }
    }

    /// For another replica.
    fn twin(&self) -> Fickle {
        Fickle { shared: Arc::clone(&self.shared), seen: 0, away: Arc::default() }
    }

    fn shared(&self) -> Option<MutexGuard<'_, Shared>> {
        (!self.away.load(Ordering::Relaxed)).then(|| self.shared.lock().unwrap())
    }
}

impl ControllerStore for Fickle {
    fn keep(&mut self, now: Time, member: &str) {
        if let Some(mut shared) = self.shared() {
            shared.memory.keep(now, member);
        }
    }

    fn forget(&mut self, now: Time, member: &str) {
        if let Some(mut shared) = self.shared() {
            shared.memory.forget(now, member);
        }
    }

    fn propose(&mut self, now: Time, version: u64, map: &str) {
        if let Some(mut shared) = self.shared() {
            shared.memory.propose(now, version, map);
        }
    }

    fn changes(&mut self, now: Time) -> Result<Vec<StoreChange>, StoreError> {
        let mut shared = self.shared().ok_or_else(|| StoreError("away".to_owned()))?;
        let changes = shared.memory.changes(now)?;
        shared.history.extend(changes);
        let (seen, count) = (self.seen, shared.history.len());
        let news = shared.history[seen..].to_vec();
        drop(shared);
        self.seen = count;
        Ok(news)
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
    away: Arc<AtomicBool>,
    shared: Arc<Mutex<Shared>>,
    sequence: u64,
    ms: u64,
}

impl World {
    fn new() -> World {
        World::over(Fickle::new(), config())
    }

    fn over(store: Fickle, config: Arc<Config>) -> World {
        let (away, shared) = (Arc::clone(&store.away), Arc::clone(&store.shared));
        let service = Service::new(Time(0), config, 0, Box::new(store));
        World { service, away, shared, sequence: 0, ms: 0 }
    }

    /// A replica of its own, as far as its name goes.
    fn replica(store: &Fickle, id: &str) -> World {
        let mut config = (*config()).clone();
        config.controllers[0].id = id.to_owned();
        World::over(store.twin(), Arc::new(config))
    }

    fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Lets time pass without heartbeats.
    fn until(&mut self, ms: u64) {
        while self.ms < ms {
            self.ms = ms.min(self.ms + 500);
            self.service.tick(Time(self.ms * 1000));
        }
    }

    fn beat(&mut self, ms: u64, members: Vec<MemberStatus>) -> Result<HeartbeatReply, HeartbeatRefusal> {
        self.until(ms);
        self.sequence += 1;
        let heartbeat = Heartbeat { agent: 1, sequence: self.sequence, members, ..known() };
        // Random, and compared nowhere but in the test of histories.
        let reply = self.service.heartbeat(Time(ms * 1000), heartbeat)?;
        Ok(HeartbeatReply { history: 0, ..reply })
    }

    fn state(&self, id: &str) -> MemberState {
        members(&self.service, Time(self.ms * 1000)).into_iter().find(|member| member.id == id).unwrap().state
    }
}

#[test]
fn a_member_is_late_before_it_is_lost() {
    let mut world = World::new();
    world.beat(0, vec![status("n0", 0), status("s0", 0)]).unwrap();
    world.beat(1000, vec![status("s0", 0)]).unwrap();
    assert_eq!(world.state("n0"), MemberState::Up);
    world.beat(2000, vec![status("s0", 0)]).unwrap();
    assert_eq!((world.state("n0"), world.state("s0")), (MemberState::Late, MemberState::Up));
    world.beat(2500, vec![status("n0", 0), status("s0", 0)]).unwrap();
    assert_eq!(world.state("n0"), MemberState::Up);
    world.until(6000);
    assert_eq!(world.state("s0"), MemberState::Lost);
    assert_eq!(world.state("x0"), MemberState::Lost, "it was never heard of");
}

/// What a member knows that has the configuration of these tests.
fn known() -> Heartbeat {
    Heartbeat {
        agent: 0,
        sequence: 0,
        agreement: config().agreement(),
        release: RELEASE.to_owned(),
        level: LEVELS.max,
        members: Vec::new(),
        leaving: Vec::new(),
        history: 0,
        known: config().roster_size(),
        reports: Vec::new(),
    }
}

fn reply(epoch: u32, down: &[&str]) -> Result<HeartbeatReply, HeartbeatRefusal> {
    let shares = down.iter().map(|id| ((*id).to_owned(), 0)).collect();
    Ok(HeartbeatReply { epoch, shares, ..told() })
}

/// What every reply says here.
fn told() -> HeartbeatReply {
    let (level, level_max) = (1, LEVELS.max);
    HeartbeatReply { level, level_max, known: config().roster_size(), ..HeartbeatReply::default() }
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
        let expected = Ok(HeartbeatReply { epoch, shares: shares(share), ..told() });
        assert_eq!(world.beat(ms, vec![status("n0", epoch - 1), status("n1", epoch - 1)]), expected);
    }
    assert_eq!(world.beat(10_500, vec![status("n1", 5)]), reply(6, &[]));
    let own = world.service.own_status();
    assert_eq!(
        (own.members_up, own.members_down, own.statistics.maps, own.statistics.heartbeats),
        (2, 2, 5, 10)
    );
}

/// The promise of the defaults, wherever in its period the last heartbeat was: lease, a look, and the others' heartbeat.
#[test]
fn a_dead_node_is_off_everybodys_map_within_three_and_a_half_seconds() {
    for dies_ms in (3_000..3_500).step_by(70) {
        let controller = ControllerConfig::new("c", "127.0.0.1:0".parse().unwrap());
        let lease = controller.member_lease();
        let mut config = (*config()).clone();
        config.controllers = vec![controller];
        let store = Box::new(MemoryStore::new(lease));
        let mut service = Service::new(Time(0), Arc::new(config), 0, store);
        let mut beat = |agent, ms: u64, id: &str| {
            let sequence = ms + 1;
            let members = vec![status(id, 1)];
            service.tick(Time(ms * 1000));
            service.heartbeat(Time(ms * 1000), Heartbeat { agent, sequence, members, ..known() }).unwrap()
        };
        // Two members beat every half second, out of step; n1 dies.
        let heard = (0..20_000).step_by(10).find(|ms| {
            if ms % 500 == 130 && *ms < dies_ms {
                beat(1, *ms, "n1");
            }
            ms % 500 == 0 && beat(2, *ms, "n0").shares.contains_key("n1")
        });
        let noticed = heard.expect("it is noticed") - dies_ms;
        assert!(noticed <= 3_500, "{noticed} ms after it died at {dies_ms}");
    }
}

#[test]
fn replays_and_strangers_are_refused_and_change_nothing() {
    let mut world = World::new();
    world.beat(0, vec![status("n0", 1)]).unwrap();
    let replay = Heartbeat { agent: 1, sequence: 1, members: vec![status("n1", 9)], ..known() };
    assert_eq!(world.service.heartbeat(Time(0), replay.clone()), Err(HeartbeatRefusal::Replay));
    let other = Heartbeat { agent: 2, ..replay };
    assert!(world.service.heartbeat(Time(0), other).is_ok());

    for id in ["n9", "x9"] {
        assert!(matches!(world.beat(0, vec![status(id, 1)]), Err(HeartbeatRefusal::Stranger(..))), "{id}");
    }
    let wrong_role = MemberStatus::Shim(ShimStatus { id: "n0".to_owned(), ..ShimStatus::default() });
    assert!(matches!(world.beat(0, vec![wrong_role, status("x0", 1)]), Err(HeartbeatRefusal::Stranger(..))));
    assert_eq!(world.state("x0"), MemberState::Lost);
    assert_eq!(world.service.own_status().heartbeats_refused_total, 4);
}

#[test]
fn who_looks_for_data_elsewhere_is_refused_by_name() {
    let mut world = World::new();
    let agreement = Agreement { shims: 2, ..config().agreement() };
    let differing = |sequence, members| Heartbeat { agent: 9, sequence, agreement, members, ..known() };
    world.beat(0, vec![status("n0", 1), status("n1", 1)]).unwrap();
    let refusal =
        world.service.heartbeat(Time(100_000), differing(1, vec![status("x0", 1), status("x9", 1)]));
    let told = "[[shim]] entries: 1 here and 2 there";
    assert!(refusal.unwrap_err().to_string().contains(told));
    let view = |world: &World, id: &str| {
        members(&world.service, Time(world.ms * 1000)).into_iter().find(|member| member.id == id).unwrap()
    };
    world.until(200);
    assert_eq!(view(&world, "x0").disagreement.as_deref(), Some(told));
    assert_eq!((world.state("x0"), world.state("n0")), (MemberState::Lost, MemberState::Up));
    assert_eq!(view(&world, "n0").disagreement, None);
    assert_eq!(world.service.own_status().heartbeats_refused_total, 1);
    // What it says of itself while it is refused counts for nothing, not even that it leaves.
    let farewell = Heartbeat { leaving: vec!["n0".to_owned()], ..differing(2, Vec::new()) };
    assert!(world.service.heartbeat(Time(200_000), farewell).is_err());
    assert_eq!(world.state("n0"), MemberState::Up);
    world.until(6_000);
    assert_eq!(view(&world, "x0").disagreement, None, "it has not said so for a while");
    world.service.heartbeat(Time(6_000_000), differing(3, vec![status("x0", 1)])).unwrap_err();
    world.beat(6_100, vec![status("x0", 1)]).unwrap();
    assert_eq!((world.state("x0"), view(&world, "x0").disagreement), (MemberState::Up, None));
}

#[test]
fn a_store_that_loses_leases_costs_no_partition() {
    let mut world = World::new();
    let everyone = || vec![status("n0", 1), status("n1", 1), status("s0", 1), status("x0", 1)];
    world.beat(0, everyone()).unwrap();
    for member in ["n0", "n1", "s0", "x0"] {
        world.shared.lock().unwrap().memory.forget(Time(1_000), member);
    }
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
    world.set_away(true);
    assert_eq!(world.beat(500, everyone()), reply(1, &[]), "members go on with the last map");
    assert!(!world.service.own_status().store_up);
    world.until(20_000);
    assert_eq!(world.service.machine.partitions().map().epoch, 1);
    world.set_away(false);
    // All leases ran out meanwhile; who comes back within a lease and the grace period keeps its partition.
    world.until(25_900);
    assert_eq!(world.beat(25_950, everyone()), reply(1, &[]));
}

#[test]
fn a_member_that_leaves_is_not_waited_for() {
    let mut world = World::new();
    world.beat(0, vec![status("n0", 1), status("n1", 1)]).unwrap();
    let leaving = vec!["n1".to_owned(), "nobody".to_owned()];
    let farewell = Heartbeat { agent: 2, sequence: 1, leaving, ..known() };
    assert_eq!(
        world.service.heartbeat(Time(100_000), farewell).unwrap().shares,
        [("n1".to_owned(), 0)].into()
    );
    assert_eq!(world.state("n1"), MemberState::Down);
    assert_eq!(world.service.status().nodes.len(), 1);
}

#[test]
fn a_controller_that_forgot_everything_starts_above_what_any_member_knows() {
    let mut old = World::new();
    old.beat(0, vec![status("n0", 1), status("n1", 1)]).unwrap();
    for (node, ms) in [(0, 100), (1, 200)] {
        old.service.drain(Time(ms * 1000), NodeId(node), true);
    }
    let beat = |world: &mut World, agent, id: &str, epoch| {
        let history = old.service.machine.committed().history;
        let members = vec![status(id, epoch)];
        world
            .service
            .heartbeat(Time(0), Heartbeat { agent, sequence: 1, members, history, ..known() })
            .unwrap()
    };
    let mut new = World::new();
    // One member has not heard of the last map yet, and the new controller hears from it first.
    let first = beat(&mut new, 1, "n0", 2);
    assert!(first.epoch > 2 && first.history != old.service.machine.committed().history);
    let second = beat(&mut new, 2, "n1", 3);
    assert!(second.epoch > 3, "no epoch stands for two maps: {second:?}");
}

#[test]
fn replicas_over_one_store_agree_on_the_map() {
    let store = Fickle::new();
    let (mut a, mut b) = (World::replica(&store, "a"), World::replica(&store, "b"));
    for ms in (0..=6_000).step_by(500) {
        a.beat(ms, vec![status("n0", 1)]).unwrap();
        b.beat(ms, vec![status("s0", 1)]).unwrap();
        if ms == 5_500 {
            assert_eq!((a.service.machine.committed().epoch, b.service.machine.committed().epoch), (1, 1));
        }
    }
    // n1 never came, n0 beats at the other replica: the same map goes out once, and neither drops n0.
    assert_eq!(a.beat(6_100, Vec::new()), reply(2, &["n1"]));
    assert_eq!(b.beat(6_100, Vec::new()), reply(2, &["n1"]));
    let shares = [("n1".to_owned(), 250)].into();
    let returning = Ok(HeartbeatReply { epoch: 3, shares, ..told() });
    assert_eq!(b.beat(6_200, vec![status("n1", 2)]), returning);
    assert_eq!(a.beat(6_300, Vec::new()), returning);
}

#[test]
fn a_replica_that_was_cut_off_tells_nobody_what_it_made_up() {
    let store = Fickle::new();
    let (mut a, mut b) = (World::replica(&store, "a"), World::replica(&store, "b"));
    let everyone = || vec![status("n0", 1), status("n1", 1)];
    a.beat(0, everyone()).unwrap();
    b.beat(0, everyone()).unwrap();
    a.set_away(true);
    a.service.drain(Time(100_000), NodeId(0), true);
    assert_eq!(a.service.machine.partitions().map().epoch, 2);
    assert_eq!(a.beat(500, everyone()), reply(1, &[]), "only what the store has is told");
    assert_eq!(a.state("n0"), MemberState::Up);
    b.service.drain(Time(500_000), NodeId(1), true);
    assert_eq!(b.beat(600, everyone()), reply(2, &["n1"]));
    assert_eq!(b.state("n1"), MemberState::Drained);
    // It hears of the new epoch from a member before it hears of it from the store.
    assert_eq!(a.beat(1_000, vec![status("n0", 2)]), reply(1, &[]));
    a.set_away(false);
    let agreed = a.beat(1_500, vec![status("n0", 2)]).unwrap();
    assert_eq!(agreed.shares, [("n1".to_owned(), 0)].into(), "what was drained meanwhile stays so");
    assert_eq!(b.beat(1_600, everyone()).unwrap(), agreed);
}

#[test]
fn members_are_added_by_one_replica_for_all() {
    let store = Fickle::new();
    let (mut a, mut b) = (World::replica(&store, "a"), World::replica(&store, "b"));
    a.beat(0, vec![status("n0", 1), status("n1", 1)]).unwrap();
    b.beat(0, vec![status("n0", 1), status("n1", 1)]).unwrap();
    let mut newer = (*config()).clone();
    newer.layers.push(LayerConfig { name: "top".to_owned(), partition: Partition::Hash });
    newer.nodes.push(NodeConfig::new("n2", "top", None, "127.0.0.1:7999".parse().unwrap()));
    assert!(matches!(a.beat(100, vec![status("n2", 1)]), Err(HeartbeatRefusal::Stranger(..))));
    a.service.reload(Time(200_000), &newer).unwrap();
    let told = b.beat(300, vec![status("n0", 1), status("n1", 1)]).unwrap();
    assert_eq!((told.epoch, &told.shares), (2, &[("n2".to_owned(), 0)].into()));
    assert_eq!(config().grown(&told.roster.unwrap()).unwrap().unwrap().roster(), newer.roster());
    // The new node takes its part from either replica on.
    assert_eq!(b.beat(400, vec![status("n2", 2)]).unwrap().shares, [("n2".to_owned(), 250)].into());
    assert_eq!(b.service.map().layers[2].nodes[0].share, 250);

    newer.shims.push(ShimConfig::new("s1", "r0", "127.0.0.1:7998".parse().unwrap(), StorageConfig::Embedded));
    let refusal = b.service.reload(Time(500_000), &newer).unwrap_err().to_string();
    assert!(refusal.contains("nobody would move their data"), "{refusal}");

    // A replica that starts with the longer file knows them; one that starts with the old one learns them.
    let mut c = World::replica(&store, "c");
    c.until(600);
    assert_eq!(c.service.config().roster_size(), a.service.config().roster_size());
}

#[test]
fn a_replica_with_a_longer_file_brings_its_members_along() {
    let store = Fickle::new();
    let mut a = World::replica(&store, "a");
    a.beat(0, vec![status("n0", 1), status("n1", 1)]).unwrap();
    a.service.drain(Time(0), NodeId(1), true);
    let mut newer = (*config()).clone();
    newer.controllers[0].id = "b".to_owned();
    newer.nodes.push(NodeConfig::new("n2", "spine", None, "127.0.0.1:7999".parse().unwrap()));
    let mut b = World::over(store.twin(), Arc::new(newer));
    b.until(100);
    let told = a.beat(200, vec![status("n0", 1)]).unwrap();
    assert_eq!(told.shares, [("n1".to_owned(), 0), ("n2".to_owned(), 0)].into());
    assert_eq!((told.epoch, told.roster.map(|roster| roster.nodes.len())), (3, Some(3)));
}

#[test]
fn a_map_of_another_cluster_is_left_alone() {
    let store = Fickle::new();
    let mut other =
        StoredRoster { epoch: 9, ..World::replica(&store, "z").service.machine.committed().clone() };
    other.roster.nodes[0].id = "somebody-else".to_owned();
    for map in [map_text(&other, &UnknownFields::default()), "nonsense".to_owned()] {
        let store = Fickle::new();
        store.shared.lock().unwrap().memory.propose(Time(0), 0, &map);
        let mut world = World::replica(&store, "a");
        assert_eq!(world.beat(0, vec![status("n0", 1)]), reply(1, &[]));
        world.until(20_000);
        assert_eq!(world.beat(20_000, vec![status("n0", 1)]), reply(1, &[]));
        assert_eq!(
            store
                .shared
                .lock()
                .unwrap()
                .history
                .iter()
                .filter(|c| matches!(c, StoreChange::Map { .. }))
                .count(),
            1
        );
    }
}

#[test]
fn inspection_names_nodes_beyond_the_places() {
    let mut wider = (*config()).clone();
    wider.nodes.push(NodeConfig::new("n2", "spine", None, "127.0.0.1:0".parse().unwrap()));
    let mut world = World::over(Fickle::new(), Arc::new(wider));
    let node = |(number, heat): (u32, u64)| {
        let (id, hottest) = (format!("n{number}"), vec![HotKey { key: "hot".to_owned(), heat }]);
        MemberStatus::Node(NodeStatus { id, hottest, ..NodeStatus::default() })
    };
    world.beat(0, [(0, 40), (1, 41), (2, 42)].map(node).into()).unwrap();
    let found = inspect(&world.service, b"hot").unwrap();
    let further = match found.places[1].node.as_deref() {
        Some("n1") => FurtherPlace { node: "n2".to_owned(), heat: 42 },
        _ => FurtherPlace { node: "n1".to_owned(), heat: 41 },
    };
    assert_eq!((found.further, found.heat), (vec![further], 123));
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

    assert_eq!(found.further, []);

    let cold = inspect(&world.service, b"cold").unwrap();
    assert_eq!((cold.hot, cold.heat), (false, 0));
    world.until(6_000);
    assert_eq!(inspect(&world.service, b"cold").unwrap().places[1].node, None);
}

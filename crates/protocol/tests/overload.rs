//! A shim before storage that can do a thousand commands a second, asked for up to five times that, in virtual time:
//! what is answered in time, what the leases do, who is refused. Not the admission rule alone, which has its own tests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::{EarlierIncarnations, LeaseLimits, LeaseTerms, NodeSession};
use protocol::heat::HeatConfig;
use protocol::placement::{Placement, Secret};
use protocol::requests::RequestLimits;
use protocol::shim::{Effect, Input, Shim, ShimConfig, ShimSettings, ShimStatistics};
use protocol::storage::{StorageEvent, StorageTraits, Store};
use protocol::time::Time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::message::{Execute, Fetch, Read, Renew};
use wire::resp::Command;
use wire::{
    ClusterMap, LayerMap, Message, NodeId, NodeMember, Partition, Peer, RackId, RouterId, Sharding, ShimId,
    ShimMember, Status, View,
};

const ROUTER: Peer = Peer::Router(RouterId(0));
const NODE: Peer = Peer::Node(NodeId(0));
const TERMS: LeaseTerms = LeaseTerms { duration: Duration::from_secs(1), guard: Duration::from_millis(10) };
const SERVICE_US: u64 = 1000;
const PATIENCE_US: u64 = 300_000;

/// By kind: reads, writes, fills.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    asked: [u64; 3],
    in_time: [u64; 3],
    refused: [u64; 3],
}

impl Count {
    fn good(&self) -> u64 {
        self.in_time.iter().sum()
    }
}

struct World {
    now: Time,
    shim: Shim,
    placement: Arc<Placement>,
    /// What storage has been given, each with the time at which it answers.
    storage: VecDeque<(Time, Store)>,
    free: Time,
    session: NodeSession,
    leases_lost: u32,
    fills: u64,
    /// When and as which kind each request was sent.
    requests: Vec<(Time, usize)>,
    fetches: Vec<(u64, usize)>,
    count: Count,
    random: SmallRng,
}

impl World {
    fn new() -> World {
        let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: 1000 };
        let layer = LayerMap { name: "leaf".into(), partition: Partition::Hash, nodes: vec![node] };
        let map = ClusterMap {
            epoch: 1,
            level: 1,
            layers: vec![layer],
            sharding: Sharding::Ring,
            shims: vec![ShimMember::new(ShimId(0), RackId(0))],
        };
        let placement = Arc::new(Placement::new(Secret([7; 16]), map).expect("the map is in order"));
        let config = ShimConfig {
            id: ShimId(0),
            lease: TERMS,
            lease_limits: LeaseLimits::default(),
            blocking_max: 10,
            large_replies_max: 128,
            early_value_bytes_max: 1 << 16,
            cache_expiring_hashes: false,
            tracked_max: 1000,
            bounded: None,
            seed: 1,
            settings: ShimSettings {
                heat: HeatConfig { counters: 1024, filter_bits: 4096, ..HeatConfig::default() },
                heat_min: u32::MAX,
                operations_max: 1 << 16,
                key_queue_max: 4096,
                requests: RequestLimits::default(),
                ..ShimSettings::default()
            },
        };
        let mut world = World {
            now: Time(10_000_000),
            shim: Shim::new(config, Arc::clone(&placement)),
            placement,
            storage: VecDeque::new(),
            free: Time(0),
            session: NodeSession::new(),
            leases_lost: 0,
            fills: 0,
            requests: Vec::new(),
            fetches: Vec::new(),
            count: Count::default(),
            random: SmallRng::seed_from_u64(1),
        };
        let up = StorageEvent::Up {
            incarnation: 1,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        };
        world.step(Input::Storage(up));
        let hello = world.session.hello(world.now, 1, 1);
        world.step(Input::Message { from: NODE, message: Message::Hello(hello) });
        world.run(2, 0);
        world
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Store(store) => {
                    self.free = self.free.max(self.now).after(Duration::from_micros(SERVICE_US));
                    self.storage.push_back((self.free, store));
                }
                Effect::Send { to: ROUTER, message: Message::Reply(reply) } => {
                    self.answered(reply.request as usize, reply.status);
                }
                Effect::Send { to: NODE, message: Message::Fill(fill) } => {
                    let at =
                        self.fetches.iter().position(|(id, _)| *id == fill.fill).expect("it was asked for");
                    let (_, request) = self.fetches.swap_remove(at);
                    self.answered(request, fill.status);
                }
                Effect::Send { to: NODE, message: Message::Welcome(welcome) } => {
                    assert!(self.session.welcome(&welcome));
                }
                Effect::Send { to: NODE, message: Message::Grant(grant) } => {
                    self.session.grant(self.now, &grant);
                }
                other => panic!("unexpected {other:?} at {:?}", self.now),
            }
        }
    }

    fn answered(&mut self, request: usize, status: Status) {
        let (sent, kind) = self.requests[request];
        let in_time = self.now.since(sent) <= Duration::from_micros(PATIENCE_US);
        match status {
            Status::Busy | Status::Refused => self.count.refused[kind] += 1,
            Status::Error | Status::Large | Status::Unlinked => panic!("an error without a reason"),
            Status::Ok | Status::Nil => self.count.in_time[kind] += u64::from(in_time),
        }
    }

    /// Asks twenty times: eighteen reads, one write and one fill, each of a key of its own.
    fn ask(&mut self) {
        let number = self.requests.len();
        // Mixed, so that none of them always comes first in its millisecond.
        let kind = match self.random.random_range(0..20) {
            9 => 1,
            19 => 2,
            _ => 0,
        };
        self.requests.push((self.now, kind));
        self.count.asked[kind] += 1;
        let bytes = Bytes::from(format!("k{number}"));
        let key = self.placement.key(0, bytes.clone());
        let (request, resp3, command) = (number as u64, false, Bytes::new());
        let (from, message) = match (kind, self.session.id()) {
            (2, Some(session)) => {
                self.fills += 1;
                self.fetches.push((self.fills, number));
                let fetch = Fetch { session, fill: self.fills, key, view: View::GET, resp3, command };
                (NODE, Message::Fetch(fetch))
            }
            (1, _) => {
                let command = Command::from_args(&[&b"SET"[..], &bytes, b"v"]).frame().clone();
                (
                    ROUTER,
                    Message::Execute(Execute {
                        request,
                        key,
                        resp3,
                        ordered: false,
                        watch: None,
                        waited_ms: 0,
                        command,
                    }),
                )
            }
            _ => {
                let (view, ordered, streams) = (View::GET, false, false);
                let read = Read {
                    request,
                    key,
                    view,
                    resp3,
                    ordered,
                    streams,
                    waited_ms: 0,
                    degree: wire::Degree::BASE,
                    command,
                };
                (ROUTER, Message::Read(read))
            }
        };
        self.step(Input::Message { from, message });
    }

    /// A millisecond with so many requests.
    fn pass(&mut self, requests: u64) {
        self.now = self.now.after(Duration::from_millis(1));
        while self.storage.front().is_some_and(|(due, _)| *due <= self.now)
            && let Some((_, store)) = self.storage.pop_front()
        {
            let replies = store.commands.iter().map(|_| Bytes::from_static(b":1\r\n")).collect();
            self.step(Input::Storage(StorageEvent::Replies { ticket: store.ticket, replies }));
        }
        (0..requests).for_each(|_| self.ask());
        if self.now.0.is_multiple_of(10_000) {
            self.step(Input::Tick);
            self.renew();
        }
    }

    /// `rate` requests per millisecond; what is given back counts the last half.
    fn run(&mut self, seconds: u64, rate: u64) -> Count {
        for ms in 0..seconds * 1000 {
            if ms == seconds * 500 {
                self.count = Count::default();
            }
            self.pass(rate);
        }
        std::mem::take(&mut self.count)
    }

    /// Until storage has answered everything.
    fn run_out(&mut self) {
        while !self.storage.is_empty() {
            self.pass(0);
        }
    }

    fn renew(&mut self) {
        self.leases_lost += u32::from(self.session.lapsed(self.now));
        if let Some(session) = self.session.id().filter(|_| self.session.renew_due(self.now)) {
            let renew = Renew { session, sent: self.now.0, heat_floor: u32::MAX };
            self.step(Input::Message { from: NODE, message: Message::Renew(renew) });
        }
    }

    fn statistics(&self) -> ShimStatistics {
        self.shim.statistics()
    }
}

#[test]
fn goodput_holds_at_two_and_five_times_the_load_and_no_lease_lapses() {
    for factor in [2, 5] {
        let mut world = World::new();
        let count = world.run(20, factor);
        // The shim's own commands take a little.
        assert!(count.good() >= 9_000, "{factor} times: {count:?}");
        assert_eq!(world.leases_lost, 0, "{factor} times");
        assert!(world.session.holds(world.now));
        assert!(world.statistics().sheds_storage > 0);
        let served = |kind: usize| count.in_time[kind] as f64 / count.asked[kind] as f64;
        assert!(served(2) > 0.95, "requests make room for fills: {count:?}");
        assert!(
            served(0) > 0.5 / factor as f64 && served(1) > 0.5 / factor as f64,
            "nobody starves: {count:?}"
        );
    }
}

#[test]
fn a_second_after_the_load_drops_nobody_is_refused() {
    let mut world = World::new();
    world.run(20, 5);
    world.run(1, 0);
    world.count = Count::default();
    // A pause every other millisecond: half the load.
    for _ in 0..5_000 {
        world.pass(1);
        world.pass(0);
    }
    world.run_out();
    assert_eq!(world.count.refused, [0; 3]);
    assert_eq!(world.count.good(), 5_000);
}

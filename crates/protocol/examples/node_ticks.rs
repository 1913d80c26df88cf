//! One node with many objects and nothing to do: what its ticks cost, by the clock of the thread. Arguments: the number of objects,
//! the number of seconds that its own clock is to pass.

#![expect(clippy::print_stdout, reason = "it tells what it has measured")]

use std::sync::Arc;

use bytes::Bytes;
use protocol::node::{Effect, Input, Node, NodeConfig, NodeSettings};
use protocol::placement::{Placement, Secret};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::time::Time;
use rustix::time::{ClockId, clock_gettime};
use wire::message::{Fill, Grant, Read, Welcome};
use wire::{
    ClusterMap, LayerMap, Message, NodeId, NodeMember, Partition, Peer, RackId, RouterId, SHARE_WHOLE,
    Sharding, ShimId, ShimMember, View,
};

const SHIM: Peer = Peer::Shim(ShimId(0));
const TICK_US: u64 = 10_000;

fn thread_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

fn placement() -> Arc<Placement> {
    let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
    let map = ClusterMap {
        epoch: 1,
        layers: vec![LayerMap { name: "spine".to_owned(), partition: Partition::Hash, nodes: vec![node] }],
        sharding: Sharding::Ring,
        shims: vec![ShimMember { id: ShimId(0), rack: RackId(0) }],
    };
    Arc::new(Placement::new(Secret([1; 16]), map).expect("a well-formed map"))
}

/// Answers what a shim would.
fn answer(now: Time, message: Message) -> Option<Message> {
    Some(match message {
        Message::Hello(hello) => {
            Message::Welcome(Welcome { session: 1, nonce: hello.nonce, lease: 60_000_000, guard: 0 })
        }
        Message::Renew(renew) => {
            Message::Grant(Grant { session: 1, sent: renew.sent.max(now.0), duration: 60_000_000, guard: 0 })
        }
        Message::Fetch(fetch) => Message::Fill(Fill {
            session: 1,
            fill: fetch.fill,
            key: fetch.key,
            view: fetch.view,
            version: 1,
            granted: true,
            status: Default::default(),
            cached: Default::default(),
            degree: Default::default(),
            ttl_ms: None,
            value: Bytes::from_static(b"$5\r\nvalue\r\n"),
        }),
        _ => return None,
    })
}

fn step(node: &mut Node, now: Time, input: Input) {
    let mut inputs = vec![input];
    let mut effects = Vec::new();
    while let Some(input) = inputs.pop() {
        node.step(now, input, &mut effects);
        for Effect::Send { to, message } in effects.drain(..) {
            let answered = if to == SHIM { answer(now, message) } else { None };
            inputs.extend(answered.map(|message| Input::Message { from: SHIM, message }));
        }
    }
}

fn main() {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (objects, seconds) = (number(1, 1_000_000), number(2, 5));
    let placement = placement();
    let always = Rule { cache: Eligibility::Always, ..Rule::default() };
    let settings = NodeSettings {
        // It is full, so that it knows what is to go first.
        objects_max: objects as usize * 9 / 10,
        bytes_max: u64::MAX,
        policies: Policies::new(vec![(Bytes::new(), always)]),
        ..NodeSettings::default()
    };
    let mut node = Node::new(NodeConfig { settings, ..NodeConfig::default() }, Arc::clone(&placement));
    let mut now = Time(1_000_000);
    step(&mut node, now, Input::Linked(SHIM));
    for request in 0..=objects {
        if request % 100 == 0 {
            now = Time(now.0 + 1000);
            step(&mut node, now, Input::Tick);
        }
        let key = placement.key(0, Bytes::from(format!("key:{request}")));
        let read = Read {
            request,
            key,
            view: View::GET,
            resp3: false,
            ordered: false,
            streams: false,
            waited_ms: 0,
            degree: Default::default(),
            command: Bytes::new(),
        };
        step(
            &mut node,
            now,
            Input::Message { from: Peer::Router(RouterId(0)), message: Message::Read(read) },
        );
    }
    assert!(node.objects() as u64 >= objects * 8 / 10, "{} objects", node.objects());
    let mut turns = Vec::new();
    for tick in 0..seconds * 1_000_000 / TICK_US {
        now = Time(now.0 + TICK_US);
        let before = thread_us();
        step(&mut node, now, Input::Tick);
        // As the status is made.
        if tick % 10 == 0 {
            std::hint::black_box(node.hottest(32));
        }
        turns.push(thread_us() - before);
    }
    turns.sort_unstable();
    let total: u64 = turns.iter().sum();
    let at = |thousandths: usize| turns[(turns.len() - 1) * thousandths / 1000];
    println!(
        "{} objects: {} us of CPU a second; a tick takes {} us (median), {} (99 %), {} (longest)",
        node.objects(),
        total / seconds,
        at(500),
        at(990),
        at(1000)
    );
}

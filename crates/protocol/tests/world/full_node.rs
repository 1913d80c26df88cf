//! One node full of small objects, with a shim that grants whatever it is asked for. Not what is measured of it.

use std::sync::Arc;

use bytes::Bytes;
use protocol::node::{Effect, Input, Node, NodeConfig, NodeSettings};
use protocol::placement::{Placement, Secret};
use protocol::policy::{Eligibility, Policies, Rule};
use protocol::time::Time;
use wire::message::{Fill, Grant, Read, Refuse, Welcome};
use wire::{
    ClusterMap, LayerMap, Message, NodeId, NodeMember, Partition, Peer, RackId, RouterId, SHARE_WHOLE,
    Sharding, ShimId, ShimMember, View,
};

/// The reply to GET of 64 bytes.
pub(crate) const VALUE: &[u8] =
    b"$64\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n";
const SHIM: Peer = Peer::Shim(ShimId(0));

fn placement() -> Arc<Placement> {
    let node = NodeMember { id: NodeId(0), rack: None, capacity: 1000, share: SHARE_WHOLE };
    let map = ClusterMap {
        epoch: 1,
        level: 1,
        layers: vec![LayerMap { name: "spine".to_owned(), partition: Partition::Hash, nodes: vec![node] }],
        sharding: Sharding::Ring,
        shims: vec![ShimMember::new(ShimId(0), RackId(0))],
    };
    Arc::new(Placement::new(Secret([1; 16]), map).expect("a well-formed map"))
}

/// Answers what a shim would.
fn answer(now: Time, message: Message) -> Option<Message> {
    Some(match message {
        Message::Hello(hello) => {
            Message::Welcome(Welcome { session: 1, nonce: hello.nonce, lease: 60_000_000, guard: 0 })
        }
        Message::Renew(renew) => Message::Grant(Grant {
            session: 1,
            sent: renew.sent.max(now.0),
            duration: 60_000_000,
            guard: 0,
            leave: None,
        }),
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
            stale_ms: 0,
            value: Bytes::copy_from_slice(VALUE),
        }),
        _ => return None,
    })
}

pub(crate) fn step(node: &mut Node, now: Time, input: Input) {
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

/// A node that takes whatever it is asked for, of at most `objects_max` objects after reads of so many keys of 16 bytes, each of them twice, and when that was.
pub(crate) fn full_node(objects_max: usize, keys: u64) -> (Node, Time) {
    let placement = placement();
    let always = Rule { cache: Eligibility::Always, ..Rule::default() };
    let settings = NodeSettings {
        objects_max,
        bytes_max: u64::MAX,
        policies: Policies::new(vec![(Bytes::new(), always)]),
        ..NodeSettings::default()
    };
    let mut node = Node::new(NodeConfig { settings, ..NodeConfig::default() }, Arc::clone(&placement));
    let mut now = Time(1_000_000);
    step(&mut node, now, Input::Linked(SHIM));
    // The first one opens the session.
    for number in 0..=keys {
        if number % 100 == 0 {
            now = Time(now.0 + 1000);
            step(&mut node, now, Input::Tick);
        }
        for _ in 0..2 {
            read(&mut node, now, &placement, number);
        }
    }
    (node, now)
}

fn read(node: &mut Node, now: Time, placement: &Placement, number: u64) {
    let read = Read {
        request: number,
        key: placement.key(0, Bytes::from(format!("key:{number:012}"))),
        view: View::GET,
        resp3: false,
        ordered: false,
        streams: false,
        waited_ms: 0,
        degree: Default::default(),
        command: Bytes::new(),
    };
    let from = Peer::Router(RouterId(0));
    step(node, now, Input::Message { from, message: Message::Read(read) });
}

/// The shim does not know the session any more: everything goes.
pub(crate) fn lose_session(node: &mut Node, now: Time) {
    let message = Message::Refuse(Refuse { session: 1 });
    step(node, now, Input::Message { from: SHIM, message });
}

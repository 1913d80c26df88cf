//! One hot key: its nodes serve equal shares although each hit tells only of its own layer (paper, section 3.1).

use protocol::router::{ClientId, Effect, Input, RouterConfig};
use protocol::time::Time;
use wire::message::Reply;
use wire::resp::Command;
use wire::{LayerSet, LoadStamp, Loads, Message, NodeId, Peer, Status};

use crate::world;

#[test]
fn the_copy_of_a_second_layer_is_found_and_takes_half() {
    let mut router =
        world::router(RouterConfig { seed: 3, ..RouterConfig::default() }, world::map(1, 1, 1, &[]));
    let mut effects = Vec::new();
    let client = ClientId(0);
    router.step(Time(0), Input::Opened { client }, &mut effects);
    let mut served = [0u32; 2];
    for number in 0..20_000u64 {
        let now = Time(1_000_000 + number * 50);
        let command = Command::from_args(&["GET", "hot"]);
        router.step(now, Input::Command { client, command }, &mut effects);
        let Some(Effect::Send { to, message: Message::Read(read) }) = effects.pop() else {
            panic!("no read")
        };
        let mut reply = Reply { request: read.request, status: Status::Nil, ..Reply::default() };
        match to {
            // Only the leaf had made its copy when storage was asked.
            Peer::Shim(_) => reply.cached = LayerSet::EMPTY.with(0),
            Peer::Node(NodeId(node)) => {
                let layer = usize::from(node);
                served[layer] += 1;
                reply.hit = true;
                reply.cached = LayerSet::EMPTY.with(layer);
                let mut loads = Loads::default();
                loads[layer] = LoadStamp { node_plus_one: u32::from(node) + 1, load: served[layer] };
                reply.loads = loads;
            }
            Peer::Router(_) => panic!("a router was asked"),
        }
        router.step(now, Input::Message { from: to, message: Message::Reply(reply) }, &mut effects);
        effects.clear();
    }
    let [leaf, spine] = served;
    assert!(leaf.abs_diff(spine) * 20 <= leaf + spine, "leaf {leaf}, spine {spine}");
    assert_eq!(router.statistics().reads_to_shims, 1, "one reply is enough to leave storage alone");
}

//! What a router adds to the load of members that are over it already. Not what it answers.

use bytes::Bytes;
use protocol::router::{ClientId, Effect, Input, Routing};
use protocol::time::Time;
use wire::message::Reply;
use wire::resp::Command;
use wire::{Message, Peer, Status};

use crate::world;

const READS: u64 = 20_000;

#[test]
fn retries_add_a_tenth_to_the_reads_however_busy_everybody_is() {
    let config = protocol::router::RouterConfig { routing: Routing::OnPath, seed: 7, ..Default::default() };
    let mut router = world::router(config, world::map(2, 2, 2, &[]));
    router.step(Time(0), Input::Opened { client: ClientId(0) }, &mut Vec::new());
    let (mut at_nodes, mut refused) = (0, 0);
    for read in 0..READS {
        // Two thousand reads per second.
        let now = Time(1_000_000 + read * 500);
        let mut effects = Vec::new();
        router.step(now, Input::Tick, &mut effects);
        let command = Command::from_args(&["GET", &format!("k{}", read % 100)]);
        router.step(now, Input::Command { client: ClientId(0), command }, &mut effects);
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::Send { to, message: Message::Read(asked) } => {
                    // Every fiftieth is answered: nodes over their rate go on at full speed.
                    let busy = read % 50 != 0;
                    at_nodes += u64::from(matches!(to, Peer::Node(_)));
                    let status = if busy { Status::Busy } else { Status::Nil };
                    let value = Bytes::from_static(if busy { b"-BUSY not now\r\n" } else { b"" });
                    let reply = Reply { request: asked.request, status, value, ..Reply::default() };
                    router.step(
                        now,
                        Input::Message { from: to, message: Message::Reply(reply) },
                        &mut effects,
                    );
                }
                Effect::Reply { bytes, .. } => refused += u64::from(bytes.starts_with(b"-BUSY")),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
    let counters = router.statistics();
    assert!(counters.retries <= READS / 10 + 300 + 100, "{counters:?}");
    assert!(counters.retries >= READS / 12 && counters.retries_denied > READS / 20, "{counters:?}");
    assert_eq!(refused, READS - READS / 50);
    assert!(at_nodes > READS * 3 / 4, "breakers stay closed most of the time: {counters:?}");
}

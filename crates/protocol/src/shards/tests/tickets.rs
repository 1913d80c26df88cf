//! What is wanted of commands that a server has, or that still wait for one.

use bytes::Bytes;
use smallvec::SmallVec;

use super::{World, at, frame, server, slot, told};
use crate::shards::{Effect, Input};
use crate::storage::{CommandControl, Lane, Reach, StorageEvent, Store};

const PINNED: Lane = Lane::Pinned { resp3: false };
const SHARED: Lane = Lane::Shared { resp3: false };

impl World {
    fn ask(&mut self, ticket: u64, lane: Lane, command: &str) {
        let commands = SmallVec::from_elem(frame(command), 1);
        self.step(Input::Store(Store { ticket, lane, reach: Reach::Slot(slot(b"a")), commands }));
    }

    /// The ticket that the first server has of the command that it was asked first.
    fn inner(&self) -> u64 {
        let asked = self.sent.iter().find(|(_, _, commands)| commands[0] != "CLUSTER NODES");
        asked.expect("something was asked").1
    }

    fn hear(&mut self, event: StorageEvent) {
        self.step(Input::Server { server: server(1), event });
    }

    fn effects(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.shards.step(self.now, input, &mut effects);
        effects
    }
}

#[test]
fn a_large_reply_is_handed_on_in_parts() {
    let mut world = World::new();
    world.ask(70, PINNED, "GET a");
    let inner = world.inner();
    world.hear(StorageEvent::Large { ticket: inner });
    assert_eq!(std::mem::take(&mut world.said), [StorageEvent::Large { ticket: 70 }]);
    for bytes in [100, 200] {
        let taken =
            Effect::Control { server: server(1), ticket: inner, control: CommandControl::Take { bytes } };
        assert_eq!(
            world.effects(Input::Control { ticket: 70, control: CommandControl::Take { bytes } }),
            [taken]
        );
    }
    for last in [false, true] {
        let part = |ticket| StorageEvent::Part { ticket, bytes: Bytes::from_static(b"part"), last };
        world.hear(part(inner));
        assert_eq!(std::mem::take(&mut world.said), [part(70)]);
    }
    assert_eq!(
        world.effects(Input::Control { ticket: 70, control: CommandControl::Take { bytes: 1 } }),
        [],
        "it is over"
    );
}

#[test]
fn a_large_reply_that_nobody_wants_lets_the_next_of_its_slot_go() {
    let mut world = World::new();
    world.ask(1, SHARED, "GET a");
    // Another server has the slot now, so what comes waits for what is at this one.
    world.seen(1, &[(1, "master", 1, "0-99"), (2, "master", 2, "100-16383")]);
    world.up(2, 22);
    world.ask(2, SHARED, "SET a 1");
    assert_eq!(world.take(), [at(1, "GET a")]);
    let inner = world.inner();
    world.hear(StorageEvent::Large { ticket: inner });
    let effects = world.effects(Input::Control { ticket: 1, control: CommandControl::Skip });
    assert_eq!(
        effects[0],
        Effect::Control { server: server(1), ticket: inner, control: CommandControl::Skip }
    );
    let [_, Effect::Store { server: to, store }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((*to, &store.commands[0]), (server(2), &frame("SET a 1")));
}

#[test]
fn a_transfer_that_breaks_off_leaves_nothing_to_be_fenced() {
    let check = |taken: bool, fenced: bool| {
        let mut world = World::new();
        world.ask(1, PINNED, "GET a");
        let inner = world.inner();
        world.hear(StorageEvent::Large { ticket: inner });
        if taken {
            world.step(Input::Control { ticket: 1, control: CommandControl::Take { bytes: 100 } });
        }
        world.hear(StorageEvent::Lost { ticket: inner, sent: true });
        assert_eq!(world.replies(), [told(1, "lost, sent true")]);
        // Something else was lost at another server, which is fenced now.
        world.seen(1, &[(1, "master", 1, "8192-16383"), (2, "master", 2, "0-8191")]);
        world.up(2, 22);
        world.step(Input::Server { server: server(2), event: StorageEvent::Fenced });
        assert_eq!(world.said.contains(&StorageEvent::Fenced), fenced, "taken: {taken}");
    };
    check(true, true);
    check(false, false);
}

#[test]
fn parts_of_a_whole_are_kept_until_it_is_there() {
    let mut world = World::new();
    let commands = SmallVec::from_elem(frame("KEYS *"), 1);
    world.step(Input::Store(Store { ticket: 1, lane: SHARED, reach: Reach::Whole, commands }));
    let inner = world.inner();
    world.hear(StorageEvent::Large { ticket: inner });
    assert_eq!(world.said, [], "nobody could take it in parts");
    world.answer(1, &["*0"]);
    assert_eq!(world.replies(), [told(1, "*0")]);
}

#[test]
fn what_waits_is_unblocked_wherever_it_is() {
    let mut world = World::new();
    world.ask(1, PINNED, "BLPOP a 0");
    let inner = world.inner();
    let unblocked = Effect::Control {
        server: server(1),
        ticket: inner,
        control: CommandControl::Unblock { error: true },
    };
    assert_eq!(
        world.effects(Input::Control { ticket: 1, control: CommandControl::Unblock { error: true } }),
        [unblocked]
    );
    world.answer(1, &["-CLUSTERDOWN The cluster is down"]);
    assert_eq!(world.replies(), [], "it waits for its slot to be served");
    world.step(Input::Control { ticket: 1, control: CommandControl::Unblock { error: false } });
    assert_eq!(world.replies(), [told(1, "*-1")]);
    world.wait(100);
    assert_eq!(world.take(), [], "it is over");
}

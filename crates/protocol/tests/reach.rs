//! A shim that serves and is cut off from the routers while another process of it is not. Not who takes its place.

mod shim_alone;

use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::shim::{Effect, Input, Shim};
use protocol::storage::{StorageEvent, StorageTraits};
use protocol::time::Time;
use smallvec::smallvec;
use wire::message::{HandoverAck, Hello, Tenure};
use wire::{Message, NodeId, Peer, RouterId, ShimId};

const NODE: Peer = Peer::Node(NodeId(0));
const OTHER: Peer = Peer::Shim(ShimId(0));
const TICK: Duration = Duration::from_millis(100);

/// A shim whose node acknowledges everything and whose storage answers everything.
struct World {
    shim: Shim,
    now: Time,
    effects: Vec<Effect>,
    /// What another process says of its routers.
    other_routers: Option<u32>,
}

impl World {
    /// One that serves, and so many routers have a link to it.
    fn serving(lease: Duration, routers: u16) -> World {
        let (shim, _) = shim_alone::shim(1, |config| config.lease.duration = lease);
        let mut world = World { shim, now: Time(1_000_000), effects: Vec::new(), other_routers: None };
        world.step(Input::Linked(NODE));
        world.step(Input::Linked(OTHER));
        (0..routers).for_each(|router| world.step(Input::Linked(Peer::Router(RouterId(router)))));
        world.up(1);
        world
    }

    fn up(&mut self, incarnation: u64) {
        let (traits, earlier) = (StorageTraits::default(), EarlierIncarnations::NONE);
        self.step(Input::Storage(StorageEvent::Up { incarnation, traits, earlier }));
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shim.step(self.now, input, &mut effects);
        for effect in effects {
            match &effect {
                Effect::Store(store) => {
                    let replies = smallvec![Bytes::from_static(b"+PONG\r\n")];
                    self.step(Input::Storage(StorageEvent::Replies { ticket: store.ticket, replies }));
                }
                Effect::Send { to, message: Message::Handover(handover) } => {
                    let message = Message::HandoverAck(HandoverAck { number: handover.number });
                    self.step(Input::Message { from: *to, message });
                }
                _ => {}
            }
            self.effects.push(effect);
        }
    }

    fn unlink_routers(&mut self, routers: std::ops::Range<u16>) {
        routers.for_each(|router| self.step(Input::Unlinked(Peer::Router(RouterId(router)))));
    }

    /// How many ticks it takes until this happens.
    fn ticks_until(&mut self, happened: impl Fn(&Effect) -> bool) -> Option<u32> {
        self.effects.clear();
        (1..200).find(|_| {
            self.now = self.now.after(TICK);
            if let Some(routers) = self.other_routers {
                let message = Message::Tenure(Tenure { age: None, routers: Some(routers) });
                self.step(Input::Message { from: OTHER, message });
            }
            self.step(Input::Tick);
            self.effects.iter().any(&happened)
        })
    }

    fn hands_over(&mut self) -> Option<u32> {
        self.ticks_until(|effect| *effect == Effect::HandOver)
    }

    fn has(&mut self, happened: impl Fn(&Effect) -> bool) -> bool {
        self.effects.drain(..).any(|effect| happened(&effect))
    }

    /// Storage has taken the farewell, and then its user's connections.
    fn is_taken_away(&mut self) {
        self.step(Input::Storage(StorageEvent::Left));
        self.step(Input::Storage(StorageEvent::Down { reason: "its user is gone".to_owned(), gone: false }));
    }
}

fn is_welcome(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { to: NODE, message: Message::Welcome(_) })
}

#[test]
fn it_hands_over_stands_by_and_may_be_the_shim_again() {
    let mut world = World::serving(Duration::from_millis(800), 3);
    world.other_routers = Some(3);
    assert_eq!(world.hands_over(), None, "both reach all of them");
    world.unlink_routers(0..1);
    assert_eq!(world.hands_over(), None, "it reaches most of them");
    world.unlink_routers(1..2);
    assert_eq!(world.hands_over(), Some(31));
    assert_eq!(world.shim.statistics().retreats, 1);
    world.is_taken_away();
    assert!(world.has(|effect| *effect == Effect::Renew) && !world.shim.has_left());
    world.step(Input::Linked(Peer::Router(RouterId(1))));
    let tells = |effect: &Effect| matches!(effect, Effect::Send { to: OTHER, message: Message::Tenure(tenure) } if tenure.routers == Some(2));
    assert!(world.ticks_until(tells).is_some_and(|ticks| ticks <= 5), "that it reaches two");
    let hello = Message::Hello(Hello { number: 1, nonce: 2, process: 3 });
    world.up(2);
    world.effects.clear();
    world.step(Input::Message { from: NODE, message: hello });
    assert!(world.has(is_welcome), "it is the shim as any other");
}

#[test]
fn one_whose_machine_is_cut_off_from_everybody_hands_over_without_being_told() {
    let mut world = World::serving(Duration::from_millis(800), 1);
    world.unlink_routers(0..1);
    assert_eq!(world.hands_over(), None, "another one would tell it that routers are there");
    world.step(Input::Linked(Peer::Router(RouterId(0))));
    assert_eq!(world.hands_over(), None);
    world.step(Input::Unlinked(OTHER));
    assert_eq!(world.hands_over(), None);
    world.unlink_routers(0..1);
    assert_eq!(world.hands_over(), Some(31));
    world.is_taken_away();
    world.up(2);
    assert_eq!(world.hands_over(), None, "nobody has come back: that would help nobody");
}

#[test]
fn who_has_just_become_the_shim_stays_it_for_three_leases() {
    let mut world = World::serving(Duration::from_secs(4), 0);
    world.other_routers = Some(1);
    assert_eq!(world.hands_over(), Some(120));
}

#[test]
fn one_that_is_stopped_meanwhile_has_left_for_good() {
    let mut world = World::serving(Duration::from_millis(800), 0);
    world.other_routers = Some(1);
    assert_eq!(world.hands_over(), Some(31));
    world.step(Input::HandOver);
    world.is_taken_away();
    assert!(!world.has(|effect| *effect == Effect::Renew) && world.shim.has_left());
}

#[test]
fn of_several_that_stand_by_one_may_go_without_the_others_being_forgotten() {
    let mut world = World::serving(Duration::from_millis(800), 1);
    world.step(Input::Linked(OTHER));
    world.step(Input::Unlinked(OTHER));
    world.effects.clear();
    world.step(Input::Storage(StorageEvent::Down { reason: "gone".to_owned(), gone: true }));
    let tells = |effect: &Effect| {
        matches!(
            effect,
            Effect::Send { to: OTHER, message: Message::Tenure(Tenure { age: None, routers: None }) }
        )
    };
    assert!(world.has(tells), "that this one is the shim no more");
}

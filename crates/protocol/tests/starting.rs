//! A shim that has just started: what it does with requests before it knows how its storage is.

mod shim_alone;

use std::time::Duration;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::requests::Overload;
use protocol::shim::{Effect, Input, Shim};
use protocol::storage::{StorageEvent, StorageTraits};
use protocol::time::Time;
use wire::message::Read;
use wire::{Degree, Message, Peer, RouterId, Status, View};

const ROUTER: Peer = Peer::Router(RouterId(0));

/// What it says to one read, if anything, and what it asks of storage.
fn read(shim: &mut Shim, read: Read) -> (Option<Status>, usize) {
    let mut effects = Vec::new();
    shim.step(Time(1_000_000), Input::Message { from: ROUTER, message: Message::Read(read) }, &mut effects);
    seen(&effects)
}

fn seen(effects: &[Effect]) -> (Option<Status>, usize) {
    let told = effects.iter().find_map(|effect| match effect {
        Effect::Send { message: Message::Reply(reply), .. } => Some(reply.status),
        _ => None,
    });
    let is_get = |effect: &&Effect| matches!(effect, Effect::Store(store) if store.commands[0].ends_with(b"\r\nk\r\n"));
    (told, effects.iter().filter(is_get).count())
}

#[test]
fn what_comes_before_storage_has_said_anything_waits_and_what_comes_after_is_told() {
    for overload in [Overload::Wait { patience: Duration::from_secs(1) }, Overload::Refuse] {
        let (mut shim, placement) =
            shim_alone::shim(1, |config| config.settings.requests.overload = overload);
        let asked = |request| Read {
            request,
            key: placement.key(0, Bytes::from_static(b"k")),
            view: View::GET,
            resp3: false,
            ordered: false,
            streams: false,
            waited_ms: 0,
            degree: Degree::BASE,
            command: Bytes::new(),
        };
        let at_once = read(&mut shim, asked(1));
        assert_eq!(at_once, (if overload == Overload::Refuse { Some(Status::Error) } else { None }, 0));
        let mut effects = Vec::new();
        let up = StorageEvent::Up {
            incarnation: 1,
            traits: StorageTraits::default(),
            earlier: EarlierIncarnations::NONE,
        };
        shim.step(Time(1_000_000), Input::Storage(up), &mut effects);
        assert_eq!(
            seen(&effects),
            (None, usize::from(overload != Overload::Refuse)),
            "it has waited for this"
        );
        let down = StorageEvent::Down { reason: "gone".to_owned(), gone: true };
        shim.step(Time(1_000_000), Input::Storage(down), &mut effects);
        assert_eq!(
            read(&mut shim, asked(2)).0,
            Some(Status::Error),
            "it is known that nothing can be served"
        );
    }
}

//! A shim that is asked for the keys of another, as members with another list of shims would: nothing of it reaches storage. Not
//! how such members are kept from asking.

mod shim_alone;

use bytes::Bytes;
use protocol::coherence::lease::EarlierIncarnations;
use protocol::placement::Placement;
use protocol::shim::{Effect, Input, Shim};
use protocol::storage::{StorageEvent, StorageTraits};
use protocol::time::Time;
use wire::message::{Execute, Fetch, Read};
use wire::resp::Command;
use wire::{Degree, Key, Message, NodeId, Peer, RouterId, ShimId, Status, View};

const ROUTER: Peer = Peer::Router(RouterId(0));
const NODE: Peer = Peer::Node(NodeId(0));
const SHIMS: u16 = 2;

/// A shim that serves, and a key of each of the two.
fn serving() -> (Shim, [Key; 2]) {
    let (mut shim, placement) = shim_alone::shim(SHIMS, |_| ());
    let up = StorageEvent::Up {
        incarnation: 1,
        traits: StorageTraits::default(),
        earlier: EarlierIncarnations::NONE,
    };
    for input in [Input::Storage(up), Input::Linked(ROUTER), Input::Linked(NODE)] {
        shim.step(Time(10_000_000), input, &mut Vec::new());
    }
    let keys = [0, 1].map(|owner| key_of(&placement, ShimId(owner)));
    (shim, keys)
}

fn key_of(placement: &Placement, owner: ShimId) -> Key {
    let names = (0..).map(|number| Bytes::from(format!("key-{number}")));
    let mut keys = names.map(|name| placement.key(0, name));
    keys.find(|key| placement.shim(key) == owner).expect("each shim has keys")
}

fn execute(key: &Key, words: &[&[u8]]) -> Message {
    let command = Bytes::copy_from_slice(Command::from_args(words).frame());
    let (key, request) = (key.clone(), 1);
    Message::Execute(Execute {
        request,
        key,
        resp3: false,
        ordered: false,
        watch: None,
        waited_ms: 0,
        command,
    })
}

/// How many commands storage is given, and what is answered.
fn ask(shim: &mut Shim, from: Peer, message: Message) -> (usize, Vec<(Status, Bytes)>) {
    let mut effects = Vec::new();
    shim.step(Time(20_000_000), Input::Message { from, message }, &mut effects);
    let stored = effects.iter().filter(|effect| matches!(effect, Effect::Store(_))).count();
    let answers = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { message: Message::Reply(reply), .. } => Some((reply.status, reply.value)),
        Effect::Send { message: Message::Fill(fill), .. } => Some((fill.status, fill.value)),
        _ => None,
    });
    (stored, answers.collect())
}

/// A read, writes of one and of two keys, a read for a copy: what there is to ask of a key.
fn asked(key: &Key, beside: &Key) -> [(Peer, Message); 5] {
    let read = Read {
        request: 1,
        key: key.clone(),
        view: View::GET,
        resp3: false,
        ordered: false,
        streams: false,
        waited_ms: 0,
        degree: Degree(0),
        command: Bytes::new(),
    };
    let fetch =
        Fetch { session: 1, fill: 1, key: key.clone(), view: View::GET, resp3: false, command: Bytes::new() };
    [
        (ROUTER, Message::Read(read)),
        (ROUTER, execute(key, &[b"SET", &key.bytes, b"v"])),
        (ROUTER, execute(key, &[b"INCR", &key.bytes])),
        (ROUTER, execute(beside, &[b"DEL", &beside.bytes, &key.bytes])),
        (NODE, Message::Fetch(fetch)),
    ]
}

#[test]
fn nothing_of_another_s_key_reaches_storage() {
    let (_, [own, other]) = serving();
    for ((from, message), own_message) in asked(&other, &own).into_iter().zip(asked(&own, &own)) {
        let (mut shim, _) = serving();
        let name = format!("{message:?}");
        let (stored, answers) = ask(&mut shim, from, message);
        assert_eq!(stored, 0, "{name}");
        let [(status, text)] = &answers[..] else { panic!("{name}: {answers:?}") };
        // A node holds nothing against a key whose fill was only refused.
        assert_eq!(*status, if from == NODE { Status::Refused } else { Status::Error }, "{name}");
        assert!(text.starts_with(b"-ERR DistCache: this shim does not own the key"), "{name}: {text:?}");
        // The same of its own key is done.
        let (mut shim, _) = serving();
        assert_eq!(ask(&mut shim, from, own_message.1).0, 1, "{name}");
    }
}

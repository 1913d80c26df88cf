//! What opens a link between roles: nobody without the secret gets through it, in whatever pieces the bytes come, and
//! who changes a genuine handshake on its way ends it.

use bytes::Bytes;
use config::Secret;
use protocol::placement::agreement::{AgreedMode, AgreedSharding, Agreement};
use runtime::peers::frame::{Channel, PeerHello, PeerRefusal, write_refusal};
use runtime::peers::handshake::{Handshake, LinkKey};
use wire::{LEVELS, NodeId, Peer, ShimId};

const NODE: Peer = Peer::Node(NodeId(3));
const SHIM: Peer = Peer::Shim(ShimId(1));

type Ended = Result<Option<PeerHello>, PeerRefusal>;

pub(crate) fn run(data: &[u8]) {
    let Some((&[shape, piece], stream)) = data.split_first_chunk::<2>() else { return };
    match shape % 3 {
        0 => strange(stream, usize::from(piece) % 23 + 1, || dial().0),
        1 => strange(stream, usize::from(piece) % 23 + 1, answer),
        _ => changed(stream),
    }
}

fn hello(peer: Peer, nonce: u8) -> PeerHello {
    PeerHello {
        peer,
        place: nonce,
        channel: Channel::Control,
        instance: 7,
        attempt: 9,
        nonce: [nonce; 16],
        agreement: Agreement {
            mode: AgreedMode::Strict,
            sharding: AgreedSharding::Ring,
            shims: 2,
            digest: 11,
            also: None,
        },
        levels: LEVELS,
    }
}

fn key() -> LinkKey {
    LinkKey::derive(&Secret([5; 16]))
}

fn dial() -> (Handshake, Vec<u8>) {
    let mut first = Vec::new();
    (Handshake::dial(&key(), hello(NODE, 1), SHIM, &mut first), first)
}

fn answer() -> Handshake {
    Handshake::answer(&key(), PeerHello { channel: Channel::Data, attempt: 0, ..hello(SHIM, 2) })
}

/// One end hears what nobody with the secret has written.
fn strange(stream: &[u8], piece: usize, start: impl Fn() -> Handshake) {
    let (whole, out) = hear(stream, stream.len().max(1), &mut start());
    let (pieces, out_of_pieces) = hear(stream, piece, &mut start());
    assert_eq!((&pieces, out_of_pieces), (&whole, out), "in pieces of {piece}");
    match whole {
        Ok(proven) => assert_eq!(proven, None, "proven without the secret"),
        Err(refusal) => {
            let mut text = Vec::new();
            write_refusal(&refusal, &mut text);
            assert!(text.len() <= 1024 && !refusal.to_string().contains(['\r', '\n', '\x1b']));
        }
    }
}

fn hear(stream: &[u8], piece: usize, handshake: &mut Handshake) -> (Ended, Vec<u8>) {
    let (mut rest, mut out) = (Vec::new(), Vec::new());
    for piece in stream.chunks(piece) {
        rest.extend_from_slice(piece);
        let mut bytes = Bytes::copy_from_slice(&rest);
        match handshake.step(&mut bytes, &mut out) {
            Ok(None) => rest = bytes.to_vec(),
            ended => return (ended, out),
        }
    }
    (Ok(None), out)
}

/// Both ends have the secret, and somebody between them changes bytes: pairs of a position and what is put over it.
fn changed(edits: &[u8]) {
    let (mut dialling, first) = dial();
    let mut answering = answer();
    let mut edits = edits.chunks_exact(2);
    let mut pass = |mut bytes: Vec<u8>| {
        let take = usize::from(edits.next().map_or(0, |edit| edit[0] % 4));
        for edit in edits.by_ref().take(take) {
            if let Some(byte) = bytes.get_mut(usize::from(edit[0])) {
                *byte ^= edit[1];
            }
        }
        bytes
    };
    let heard = |bytes: &[u8], handshake: &mut Handshake| hear(bytes, bytes.len().max(1), handshake);
    let (greeted, reply) = heard(&pass(first), &mut answering);
    assert!(!matches!(greeted, Ok(Some(_))), "proven by a hello");
    let (greeted, proof) = heard(&pass(reply), &mut dialling);
    assert!(!matches!(greeted, Ok(Some(_))), "proven by a hello");
    let (answered, mut reply) = heard(&pass(proof), &mut answering);
    if matches!(answered, Ok(Some(_))) {
        answering.accept(&mut reply);
    }
    let (dialled, _) = heard(&pass(reply), &mut dialling);
    if let Ok(Some(found)) = answered {
        assert_eq!(found, hello(NODE, 1), "another hello was proven");
    }
    if let Ok(Some(found)) = dialled {
        assert_eq!(found, hello(SHIM, 2), "another hello was proven");
    }
}

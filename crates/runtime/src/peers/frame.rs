//! The frames that open a connection between roles and keep it, as bytes. Not who sends which when.
//!
//! Every frame begins with 8 bytes that nothing changes any more: magic `DCLK`, version u8, kind u8, length of the body u16. All
//! numbers are big-endian. The version is that of the frames and of the header of messages; what may change from release to release
//! is told by the feature levels in the hello. The fields of a hello that stand here are frozen, too; a later release may say more
//! behind them, which is proven like the rest and left out by whoever does not know it.
//!
//! | kind | body |
//! |------|------|
//! | 1 hello | role u8, channel u8, id u16, mode u8, sharding u8, shims u16, instance u64, attempt u64, nonce 16 bytes, digest u64, place u8, lowest and highest feature level u8, a byte of zeros |
//! | 2 proof | HMAC-SHA256 over the label of the side and both hellos, 32 bytes |
//! | 3 refusal | the reason, UTF-8 |
//! | 5 taken | the reason, UTF-8: a refusal because another process has that id |
//! | 4 alive | empty; after the handshake, on the control connection, between messages |

use std::fmt;

use bytes::{Buf, Bytes};
use protocol::placement::agreement::{AgreedMode, AgreedSharding, Agreement, Disagreement};
use wire::header::PROTOCOL_VERSION;
use wire::level::NEXT;
use wire::{LEVELS, Levels, NodeId, Peer, RouterId, ShimId};

use crate::tls::VouchedRoles;

const MAGIC: [u8; 4] = *b"DCLK";
const PREFIX_BYTES: usize = 8;
/// The longest refusal or hello that is read or sent: what an unproven peer may make us hold.
const BODY_BYTES_MAX: usize = 512;
/// Bytes of a hello's body that every release knows.
pub(crate) const HELLO_BYTES: usize = 52;
/// What a later release says behind them.
const FURTHER: &[u8] = if NEXT { b"of the next release" } else { b"" };
pub const PROOF_BYTES: usize = 32;

const KIND_HELLO: u8 = 1;
const KIND_PROOF: u8 = 2;
const KIND_REFUSAL: u8 = 3;
/// Kinds whose text is read whatever the version of its writer.
const REFUSALS: [u8; 2] = [KIND_REFUSAL, KIND_TAKEN];
const KIND_ALIVE: u8 = 4;
const KIND_TAKEN: u8 = 5;

/// "I still turn." No message begins like it.
pub(crate) const ALIVE: [u8; PREFIX_BYTES] = prefix(KIND_ALIVE, 0);

/// The two connections of a link. Overload of the data channel never delays the control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Data,
    Control,
}

impl Channel {
    pub(crate) const BOTH: [Channel; 2] = [Channel::Data, Channel::Control];
}

/// Who calls or answers, and for which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHello {
    pub peer: Peer,
    /// Among the processes that may be this peer.
    pub place: u8,
    pub channel: Channel,
    /// Random, one per process life of the peer.
    pub instance: u64,
    /// Random, one per pair of connections; the answering side repeats it.
    pub attempt: u64,
    pub nonce: [u8; 16],
    /// What its configuration says of where data are.
    pub agreement: Agreement,
    /// What its release speaks.
    pub levels: Levels,
}

/// A frame as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerFrame {
    /// With its bytes as they came, which proofs cover.
    Hello(PeerHello, Bytes),
    Proof([u8; PROOF_BYTES]),
    Refusal(String),
    /// A refusal that another id would not have met.
    Taken(String),
}

/// Why a connection between roles is refused. Its text goes to the log and to the other end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRefusal {
    #[error("it does not speak the protocol between DistCache roles; clients connect to a router")]
    NotAPeer,
    #[error(
        "protocol version {0} is not spoken here, only {PROTOCOL_VERSION}; run the same release everywhere"
    )]
    Version(u8),
    #[error(
        "{found} speaks {theirs} and {own} speaks {levels}; run releases that follow each other: upgrade one release at a time",
        levels = LEVELS
    )]
    Levels { own: Name, found: Name, theirs: Levels },
    #[error("a malformed or unexpected handshake frame")]
    Malformed,
    #[error("the proof is wrong; every member needs the same `secret` in [cluster]")]
    Proof,
    #[error(
        "{found} has another configuration than {own}: {difference}; members that differ in it look for the same key in \
         different places: give all of them the same file"
    )]
    Disagreement { own: Name, found: Name, difference: Disagreement },
    #[error("{found} answers where {expected} was expected; check the addresses in the configuration")]
    Identity { expected: Name, found: Name },
    #[error(
        "{found} shows a certificate that vouches for {vouched} alone, by its distcache: names; give it one of its own role, or \
         one without such names"
    )]
    Role { found: Name, vouched: VouchedRoles },
    #[error("{0} is connected already from another process; every process needs an id of its own")]
    Duplicate(Name),
    #[error("the other end says: {0}")]
    ByOther(String),
    /// As `ByOther`: another process has this one's id.
    #[error("the other end says: {0}")]
    Taken(String),
}

/// A peer in words, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name(pub Peer);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Peer::Node(NodeId(id)) => write!(f, "node {id}"),
            Peer::Shim(ShimId(id)) => write!(f, "shim {id}"),
            Peer::Router(RouterId(id)) => write!(f, "router {id}"),
        }
    }
}

impl PeerHello {
    /// The whole frame: both sides' proofs cover these bytes.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let (role, id) = match self.peer {
            Peer::Node(NodeId(id)) => (1, id),
            Peer::Shim(ShimId(id)) => (2, id),
            Peer::Router(RouterId(id)) => (3, id),
        };
        let mut frame = vec![0; PREFIX_BYTES + HELLO_BYTES];
        frame[..PREFIX_BYTES].copy_from_slice(&prefix(KIND_HELLO, HELLO_BYTES + FURTHER.len()));
        frame[8] = role;
        frame[9] = self.channel as u8;
        frame[10..12].copy_from_slice(&id.to_be_bytes());
        let Agreement { mode, sharding, shims, digest, also: _ } = self.agreement;
        (frame[12], frame[13]) = (mode.number(), sharding.number());
        frame[14..16].copy_from_slice(&shims.to_be_bytes());
        frame[16..24].copy_from_slice(&self.instance.to_be_bytes());
        frame[24..32].copy_from_slice(&self.attempt.to_be_bytes());
        frame[32..48].copy_from_slice(&self.nonce);
        frame[48..56].copy_from_slice(&digest.to_be_bytes());
        (frame[56], frame[57], frame[58]) = (self.place, self.levels.min, self.levels.max);
        frame.extend_from_slice(FURTHER);
        frame
    }

    fn parse(mut body: Bytes) -> Result<PeerHello, PeerRefusal> {
        if body.len() < HELLO_BYTES {
            return Err(PeerRefusal::Malformed);
        }
        let (role, channel, id) = (body.get_u8(), body.get_u8(), body.get_u16());
        let mode = AgreedMode::of_number(body.get_u8()).ok_or(PeerRefusal::Malformed)?;
        let sharding = AgreedSharding::of_number(body.get_u8()).ok_or(PeerRefusal::Malformed)?;
        let shims = body.get_u16();
        let (instance, attempt) = (body.get_u64(), body.get_u64());
        let mut nonce = [0; 16];
        body.copy_to_slice(&mut nonce);
        let agreement = Agreement { mode, sharding, shims, digest: body.get_u64(), also: None };
        let place = body.get_u8();
        let levels = Levels { min: body.get_u8(), max: body.get_u8() };
        let peer = match role {
            1 => Peer::Node(NodeId(id)),
            2 => Peer::Shim(ShimId(id)),
            3 => Peer::Router(RouterId(id)),
            _ => return Err(PeerRefusal::Malformed),
        };
        let channel = match channel {
            0 => Channel::Data,
            1 => Channel::Control,
            _ => return Err(PeerRefusal::Malformed),
        };
        Ok(PeerHello { peer, place, channel, instance, attempt, nonce, agreement, levels })
    }
}

const fn prefix(kind: u8, body_bytes: usize) -> [u8; PREFIX_BYTES] {
    let length = (body_bytes as u16).to_be_bytes();
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], PROTOCOL_VERSION, kind, length[0], length[1]]
}

pub(crate) fn write_proof(proof: &[u8; PROOF_BYTES], out: &mut Vec<u8>) {
    out.extend_from_slice(&prefix(KIND_PROOF, PROOF_BYTES));
    out.extend_from_slice(proof);
}

/// Tells the other end why it is refused; a stray client gets a line that it can show.
pub fn write_refusal(refusal: &PeerRefusal, out: &mut Vec<u8>) {
    match refusal {
        PeerRefusal::NotAPeer => out.extend_from_slice(
            b"-ERR this port is for DistCache's own members; clients connect to the address of a router\r\n",
        ),
        PeerRefusal::ByOther(_) | PeerRefusal::Taken(_) => {}
        refusal => {
            let text = refusal.to_string();
            let text = &text.as_bytes()[..text.len().min(BODY_BYTES_MAX)];
            let kind = if matches!(refusal, PeerRefusal::Duplicate(_)) { KIND_TAKEN } else { KIND_REFUSAL };
            out.extend_from_slice(&prefix(kind, text.len()));
            out.extend_from_slice(text);
        }
    }
}

/// Whether `bytes` begin with a refusal, of which the end may be missing. No message does.
pub(crate) fn is_refusal(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) && bytes.get(5).is_some_and(|kind| REFUSALS.contains(kind))
}

/// Takes the first frame off `bytes`; `None` when it is not whole yet.
pub fn take(bytes: &mut Bytes) -> Result<Option<PeerFrame>, PeerRefusal> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(PeerRefusal::NotAPeer);
    }
    let Some(&[_, _, _, _, version, kind, high, low]) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    if version != PROTOCOL_VERSION && !REFUSALS.contains(&kind) {
        return Err(PeerRefusal::Version(version));
    }
    let body_bytes = usize::from(u16::from_be_bytes([high, low]));
    if body_bytes > BODY_BYTES_MAX {
        return Err(PeerRefusal::Malformed);
    }
    if bytes.len() < PREFIX_BYTES + body_bytes {
        return Ok(None);
    }
    let frame = bytes.split_to(PREFIX_BYTES + body_bytes);
    let body = frame.slice(PREFIX_BYTES..);
    match kind {
        KIND_HELLO => PeerHello::parse(body).map(|hello| Some(PeerFrame::Hello(hello, frame))),
        KIND_PROOF => match body[..].try_into() {
            Ok(proof) => Ok(Some(PeerFrame::Proof(proof))),
            Err(_) => Err(PeerRefusal::Malformed),
        },
        KIND_REFUSAL | KIND_TAKEN => {
            // The text is shown in a log: nothing that moves a cursor.
            let text = String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).collect();
            Ok(Some(if kind == KIND_TAKEN { PeerFrame::Taken(text) } else { PeerFrame::Refusal(text) }))
        }
        _ => Err(PeerRefusal::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hello of release 0.1.0, byte for byte: every release after it says as much.
    const HELLO: &str = "44434c4b02010034\
        0301000700010003\
        00000000000000110000000000000022\
        33333333333333333333333333333333\
        0000000000000044\
        02010100";

    #[test]
    fn the_hello_of_the_first_release_is_understood_for_ever() {
        let bytes: Vec<u8> = (0..HELLO.len() / 2)
            .map(|at| u8::from_str_radix(&HELLO[at * 2..at * 2 + 2], 16).expect("digits"))
            .collect();
        let hello = PeerHello {
            peer: Peer::Router(RouterId(7)),
            place: 2,
            channel: Channel::Control,
            instance: 0x11,
            attempt: 0x22,
            nonce: [0x33; 16],
            agreement: Agreement {
                mode: AgreedMode::of_number(0).expect("a mode"),
                sharding: AgreedSharding::of_number(1).expect("a way to divide keys"),
                shims: 3,
                digest: 0x44,
                also: None,
            },
            levels: Levels { min: 1, max: 1 },
        };
        let mut frame = Bytes::from(bytes.clone());
        assert_eq!(take(&mut frame), Ok(Some(PeerFrame::Hello(hello, Bytes::from(bytes.clone())))));
        // What stands behind the fields of the first release is for releases that know it.
        let own = hello.frame();
        assert_eq!((&own[..6], &own[8..60]), (&bytes[..6], &bytes[8..]));
    }
}

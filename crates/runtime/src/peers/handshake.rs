//! Proof of the cluster's secret between two roles, as a state machine without I/O. Not the link that follows.
//!
//! ```text
//! dialling                       answering
//!    hello(nonce d)       ──▶
//!                         ◀──    hello(nonce a)
//!    HMAC(key, "dialling", both hellos)    ──▶     proven: the dialling end
//!                         ◀──    HMAC(key, "answering", both hellos)
//!    proven: the answering end
//! ```
//!
//! The answering end proves itself once it takes the other in: who is refused, for its id is another's, was never linked.
//!
//! Fresh nonces of both ends make a recorded proof worthless, the label one end's proof for the other. Role,
//! id and channel are in the hellos, so a proof for one connection cannot open another. So is what decides where data are:
//! members that differ in it are refused once they have proven the secret.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use wire::Peer;

use crate::peers::frame::{Name, PROOF_BYTES, PeerFrame, PeerHello, PeerRefusal, take, write_proof};
use crate::tls::VouchedRoles;
use config::Secret;

/// The key of proofs, derived from the cluster's secret so that a proof says nothing about placement.
#[derive(Clone)]
pub struct LinkKey([u8; 32]);

impl LinkKey {
    pub fn derive(secret: &Secret) -> LinkKey {
        let mac = mac(&secret.0).chain_update(b"distcache peer link v1");
        LinkKey(mac.finalize().into_bytes().into())
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Dialling,
    Answering,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Side::Dialling => b"dialling",
            Side::Answering => b"answering",
        }
    }

    fn other(self) -> Side {
        match self {
            Side::Dialling => Side::Answering,
            Side::Answering => Side::Dialling,
        }
    }
}

/// One end of one connection that is not proven yet.
pub struct Handshake {
    key: LinkKey,
    side: Side,
    /// The answering side takes channel and attempt from the other's hello.
    own: PeerHello,
    expected: Option<Peer>,
    /// What the other end's certificate says that it may be.
    vouched: VouchedRoles,
    /// With the frame that it came in.
    theirs: Option<(PeerHello, Bytes)>,
}

impl Handshake {
    /// Dials `expected`, whose hello must say so; the own hello goes to `out`.
    pub fn dial(key: &LinkKey, own: PeerHello, expected: Peer, out: &mut Vec<u8>) -> Handshake {
        out.extend_from_slice(&own.frame());
        Handshake { side: Side::Dialling, expected: Some(expected), ..Handshake::answer(key, own) }
    }

    pub fn answer(key: &LinkKey, own: PeerHello) -> Handshake {
        Handshake {
            key: key.clone(),
            side: Side::Answering,
            own,
            expected: None,
            vouched: VouchedRoles::ALL,
            theirs: None,
        }
    }

    /// Says what the other end's certificate vouches for, before anything of it is read.
    pub fn vouch(&mut self, vouched: VouchedRoles) {
        self.vouched = vouched;
    }

    /// Steps over what has come. The other end's hello once it has proven the secret; what follows in `bytes`
    /// is no longer the handshake's.
    pub fn step(&mut self, bytes: &mut Bytes, out: &mut Vec<u8>) -> Result<Option<PeerHello>, PeerRefusal> {
        while let Some(frame) = take(bytes)? {
            match (frame, self.theirs.clone()) {
                (PeerFrame::Refusal(text), _) => return Err(PeerRefusal::ByOther(text)),
                (PeerFrame::Taken(text), _) => return Err(PeerRefusal::Taken(text)),
                (PeerFrame::Hello(hello, frame), None) => self.greet(hello, frame, out)?,
                (PeerFrame::Proof(proof), Some((theirs, frame))) => {
                    self.verify(&frame, &proof)?;
                    self.agree(&theirs)?;
                    return Ok(Some(theirs));
                }
                _ => return Err(PeerRefusal::Malformed),
            }
        }
        Ok(None)
    }

    /// The other end, which has proven itself, is taken in: the answering end proves itself, too.
    pub fn accept(&self, out: &mut Vec<u8>) {
        if let (Side::Answering, Some((_, frame))) = (self.side, &self.theirs) {
            write_proof(&self.proof(self.side, frame), out);
        }
    }

    fn greet(&mut self, hello: PeerHello, frame: Bytes, out: &mut Vec<u8>) -> Result<(), PeerRefusal> {
        self.theirs = Some((hello, frame.clone()));
        match self.side {
            Side::Answering => {
                (self.own.channel, self.own.attempt) = (hello.channel, hello.attempt);
                out.extend_from_slice(&self.own.frame());
            }
            Side::Dialling => {
                if let Some(expected) = self.expected.filter(|&expected| expected != hello.peer) {
                    return Err(PeerRefusal::Identity { expected: Name(expected), found: Name(hello.peer) });
                }
                if (hello.channel, hello.attempt) != (self.own.channel, self.own.attempt) {
                    return Err(PeerRefusal::Malformed);
                }
                write_proof(&self.proof(self.side, &frame), out);
            }
        }
        Ok(())
    }

    /// Only of who has proven the secret it is worth telling in what he differs.
    fn agree(&self, theirs: &PeerHello) -> Result<(), PeerRefusal> {
        if !self.vouched.allow(theirs.peer) {
            return Err(PeerRefusal::Role { found: Name(theirs.peer), vouched: self.vouched });
        }
        if self.own.levels.common(theirs.levels).is_none() {
            let (own, found) = (Name(self.own.peer), Name(theirs.peer));
            return Err(PeerRefusal::Levels { own, found, theirs: theirs.levels });
        }
        match self.own.agreement.difference(&theirs.agreement) {
            None => Ok(()),
            Some(difference) => Err(PeerRefusal::Disagreement {
                own: Name(self.own.peer),
                found: Name(theirs.peer),
                difference,
            }),
        }
    }

    /// Who the other end says that it is.
    pub fn theirs(&self) -> Option<Peer> {
        self.theirs.as_ref().map(|(hello, _)| hello.peer)
    }

    fn transcript(&self, side: Side, theirs: &[u8]) -> Hmac<Sha256> {
        let own = &self.own.frame()[..];
        let (dialling, answering) = match self.side {
            Side::Dialling => (own, theirs),
            Side::Answering => (theirs, own),
        };
        mac(&self.key.0).chain_update(side.label()).chain_update(dialling).chain_update(answering)
    }

    fn proof(&self, side: Side, theirs: &[u8]) -> [u8; PROOF_BYTES] {
        self.transcript(side, theirs).finalize().into_bytes().into()
    }

    fn verify(&self, theirs: &[u8], proof: &[u8; PROOF_BYTES]) -> Result<(), PeerRefusal> {
        let transcript = self.transcript(self.side.other(), theirs);
        transcript.verify_slice(proof).map_err(|_| PeerRefusal::Proof)
    }
}

#[cfg(test)]
mod tests {
    use super::{Handshake, LinkKey, mac};
    use crate::peers::frame::{Channel, Name, PeerHello, PeerRefusal, write_proof, write_refusal};
    use crate::tls::VouchedRoles;
    use bytes::Bytes;
    use config::Secret;
    use hmac::Mac;
    use protocol::placement::agreement::{AgreedMode, AgreedSharding, Agreement};
    use wire::{LEVELS, Levels, NodeId, Peer, ShimId};

    const NODE: Peer = Peer::Node(NodeId(3));
    const SHIM: Peer = Peer::Shim(ShimId(1));
    const AGREEMENT: Agreement = Agreement {
        mode: AgreedMode::Strict,
        sharding: AgreedSharding::Ring,
        shims: 2,
        digest: 0x1122_3344_5566_7788,
        also: None,
    };

    fn key(byte: u8) -> LinkKey {
        LinkKey::derive(&Secret([byte; 16]))
    }

    fn hello(peer: Peer, nonce: u8) -> PeerHello {
        let channel = Channel::Control;
        PeerHello {
            peer,
            place: 0,
            channel,
            instance: 7,
            attempt: 9,
            nonce: [nonce; 16],
            agreement: AGREEMENT,
            levels: LEVELS,
        }
    }

    fn answering(key_byte: u8, nonce: u8) -> Handshake {
        let own = PeerHello { channel: Channel::Data, attempt: 0, ..hello(SHIM, nonce) };
        Handshake::answer(&key(key_byte), own)
    }

    type Stepped = Result<Option<PeerHello>, PeerRefusal>;

    fn step(handshake: &mut Handshake, bytes: &[u8]) -> (Stepped, Vec<u8>) {
        let mut out = Vec::new();
        let stepped = handshake.step(&mut Bytes::copy_from_slice(bytes), &mut out);
        (stepped, out)
    }

    /// What the dialling end sends in a whole handshake, and how it ends for both.
    fn shake(dial_key: u8, answer: &mut Handshake) -> ([Vec<u8>; 2], Stepped, Stepped) {
        let mut first = Vec::new();
        let mut dial = Handshake::dial(&key(dial_key), hello(NODE, 1), SHIM, &mut first);
        let (greeted, reply) = step(answer, &first);
        assert_eq!(greeted, Ok(None));
        let (greeted, proof) = step(&mut dial, &reply);
        assert_eq!(greeted, Ok(None));
        let (answered, mut reply) = step(answer, &proof);
        match &answered {
            Err(refusal) => write_refusal(refusal, &mut reply),
            Ok(_) => answer.accept(&mut reply),
        }
        let (dialled, _) = step(&mut dial, &reply);
        ([first, proof], dialled, answered)
    }

    #[test]
    fn both_ends_prove_the_secret() {
        let (_, dialled, answered) = shake(5, &mut answering(5, 2));
        assert_eq!(answered, Ok(Some(hello(NODE, 1))));
        assert_eq!(dialled, Ok(Some(hello(SHIM, 2))));
    }

    #[test]
    fn another_secret_is_refused_and_the_other_end_is_told() {
        let (_, dialled, answered) = shake(5, &mut answering(6, 2));
        assert_eq!(answered, Err(PeerRefusal::Proof));
        assert!(matches!(dialled, Err(PeerRefusal::ByOther(text)) if text.contains("secret")));
    }

    #[test]
    fn who_shows_the_certificate_of_another_role_is_refused() {
        let routers = VouchedRoles::named(["distcache:router"].into_iter());
        let mut answer = answering(5, 2);
        answer.vouch(routers);
        let (_, dialled, answered) = shake(5, &mut answer);
        let refusal = answered.unwrap_err();
        assert_eq!(refusal, PeerRefusal::Role { found: Name(NODE), vouched: routers });
        assert!(
            matches!(dialled, Err(PeerRefusal::ByOther(told)) if told.contains("vouches for router alone"))
        );
        // Also who is dialled.
        let mut first = Vec::new();
        let mut dial = Handshake::dial(&key(5), hello(NODE, 1), SHIM, &mut first);
        dial.vouch(routers);
        let mut answer = answering(5, 2);
        let (_, reply) = step(&mut answer, &first);
        let (_, proof) = step(&mut dial, &reply);
        let (_, mut reply) = step(&mut answer, &proof);
        assert_eq!(step(&mut dial, &reply).0, Ok(None), "it is not taken in yet");
        answer.accept(&mut reply);
        assert_eq!(step(&mut dial, &reply).0, Err(PeerRefusal::Role { found: Name(SHIM), vouched: routers }));
    }

    #[test]
    fn who_looks_for_keys_elsewhere_is_refused_by_the_field_that_differs() {
        let other = Agreement { shims: 3, ..AGREEMENT };
        let own = PeerHello { agreement: other, channel: Channel::Data, attempt: 0, ..hello(SHIM, 2) };
        let (_, dialled, answered) = shake(5, &mut Handshake::answer(&key(5), own));
        let refusal = answered.unwrap_err();
        assert!(matches!(refusal, PeerRefusal::Disagreement { .. }));
        let text = "node 3 has another configuration than shim 1: [[shim]] entries: 3 here and 2 there;";
        assert!(refusal.to_string().starts_with(text), "{refusal}");
        assert!(matches!(dialled, Err(PeerRefusal::ByOther(told)) if told.starts_with(text)));
        // The secret comes first: a stranger is told nothing of the configuration.
        let (_, _, answered) = shake(6, &mut Handshake::answer(&key(5), own));
        assert_eq!(answered, Err(PeerRefusal::Proof));
    }

    #[test]
    fn a_recorded_handshake_does_not_open_a_second_connection() {
        let ([first, proof], _, _) = shake(5, &mut answering(5, 2));
        let mut later = answering(5, 3);
        assert_eq!(step(&mut later, &first).0, Ok(None));
        assert_eq!(step(&mut later, &proof).0, Err(PeerRefusal::Proof));
    }

    #[test]
    fn an_end_cannot_be_given_its_own_proof() {
        let mut first = Vec::new();
        let own = hello(SHIM, 1);
        let mut dial = Handshake::dial(&key(5), own, SHIM, &mut first);
        let (_, proof) = step(&mut dial, &first);
        assert_eq!(step(&mut dial, &proof).0, Err(PeerRefusal::Proof));
    }

    #[test]
    fn every_field_of_a_hello_is_proven() {
        for position in 8..60 {
            let mut first = Vec::new();
            let mut dial = Handshake::dial(&key(5), hello(NODE, 1), SHIM, &mut first);
            let mut answer = answering(5, 2);
            first[position] ^= 1;
            let (greeted, reply) = step(&mut answer, &first);
            if greeted.is_err() {
                continue;
            }
            // The man in the middle undoes what would give it away, so that only the proof is left to tell.
            let mut reply = reply;
            if position == 9 || (24..32).contains(&position) {
                reply[position] ^= 1;
            }
            let (_, proof) = step(&mut dial, &reply);
            assert!(
                proof.is_empty() || step(&mut answer, &proof).0 == Err(PeerRefusal::Proof),
                "byte {position}"
            );
        }
    }

    #[test]
    fn releases_that_speak_a_level_in_common_are_linked_and_others_are_told() {
        let linked = |levels| {
            let own = PeerHello { levels, channel: Channel::Data, attempt: 0, ..hello(SHIM, 2) };
            let (_, dialled, answered) = shake(5, &mut Handshake::answer(&key(5), own));
            assert_eq!(dialled.is_ok(), answered.is_ok());
            dialled
        };
        let Levels { min, max } = LEVELS;
        assert!(linked(Levels { min, max: max + 3 }).is_ok() && linked(Levels { min: max, max }).is_ok());
        let refused = linked(Levels { min: max + 1, max: max + 2 }).unwrap_err();
        assert!(
            matches!(&refused, PeerRefusal::ByOther(told) if told.contains("speaks") && told.contains("one release")),
            "{refused}"
        );
    }

    /// What a later release says behind what this one knows.
    #[test]
    fn a_longer_hello_is_taken_and_every_byte_of_it_is_proven() {
        let longer = |tail: &[u8]| {
            let mut frame = hello(NODE, 1).frame();
            frame.extend_from_slice(tail);
            let body = (frame.len() - 8) as u16;
            frame[6..8].copy_from_slice(&body.to_be_bytes());
            frame
        };
        let mut answer = answering(5, 2);
        let dialling = longer(b"and more");
        let (greeted, reply) = step(&mut answer, &dialling);
        assert_eq!(greeted, Ok(None));
        let proof_of = |dialling: &[u8]| {
            let transcript = mac(&key(5).0).chain_update(b"dialling").chain_update(dialling);
            let mut out = Vec::new();
            write_proof(&transcript.chain_update(&reply).finalize().into_bytes().into(), &mut out);
            out
        };
        let (stepped, _) = step(&mut answer, &proof_of(&dialling));
        assert_eq!(stepped, Ok(Some(hello(NODE, 1))));
        let mut answer = answering(5, 2);
        assert_eq!(step(&mut answer, &longer(b"and lore")).0, Ok(None));
        assert_eq!(step(&mut answer, &proof_of(&dialling)).0, Err(PeerRefusal::Proof));
        let mut short = hello(NODE, 1).frame();
        (short[6], short[7]) = (0, 51);
        assert_eq!(step(&mut answering(5, 2), &short[..59]).0, Err(PeerRefusal::Malformed));
    }

    #[test]
    fn another_version_is_refused_in_words_that_both_understand() {
        let mut first = Vec::new();
        let mut dial = Handshake::dial(&key(5), hello(NODE, 1), SHIM, &mut first);
        first[4] = 9;
        let (answered, mut reply) = step(&mut answering(5, 2), &first);
        assert_eq!(answered, Err(PeerRefusal::Version(9)));
        write_refusal(&PeerRefusal::Version(9), &mut reply);
        reply[4] = 8;
        let told = step(&mut dial, &reply).0;
        assert!(
            matches!(told, Err(PeerRefusal::ByOther(text)) if text.contains("version 9 is not spoken here"))
        );
    }

    #[test]
    fn the_wrong_peer_at_an_address_is_refused() {
        let mut first = Vec::new();
        let mut dial = Handshake::dial(&key(5), hello(NODE, 1), Peer::Shim(ShimId(2)), &mut first);
        let (_, reply) = step(&mut answering(5, 2), &first);
        let (stepped, proof) = step(&mut dial, &reply);
        assert!(matches!(stepped, Err(PeerRefusal::Identity { .. })), "{stepped:?}");
        assert!(proof.is_empty());
    }

    #[test]
    fn frames_may_come_in_any_pieces_and_strangers_are_told_apart() {
        let ([first, proof], _, _) = shake(5, &mut answering(5, 2));
        let mut answer = answering(5, 2);
        let mut pending = Vec::new();
        let mut ended = Ok(None);
        for byte in first.iter().chain(&proof) {
            assert_eq!(ended, Ok(None));
            pending.push(*byte);
            let mut bytes = Bytes::copy_from_slice(&pending);
            ended = answer.step(&mut bytes, &mut Vec::new());
            pending = bytes.to_vec();
        }
        assert_eq!(ended, Ok(Some(hello(NODE, 1))));
        assert_eq!(step(&mut answering(5, 2), b"*1\r\n").0, Err(PeerRefusal::NotAPeer));
        assert_eq!(step(&mut answering(5, 2), &proof).0, Err(PeerRefusal::Malformed));
    }
}

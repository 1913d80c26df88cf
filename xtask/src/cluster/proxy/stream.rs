//! Cuts a byte stream between roles into handshake frames and messages, and tells control from data connections.
//! Not what becomes of them.

use bytes::Bytes;
use wire::header::HEADER_BYTES;

use super::weather::WeatherKind;

/// Opens every frame of a handshake; its body's length stands in bytes 6 and 7.
const HANDSHAKE_MAGIC: &[u8; 4] = b"DCLK";
const HANDSHAKE_PREFIX_BYTES: usize = 8;
/// In the dialling side's hello: 1 for a control connection.
const CHANNEL_OFFSET: usize = 9;

/// A whole piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A handshake frame, or bytes that are passed on as they are.
    Plain(Vec<u8>),
    Control(WeatherKind, Vec<u8>),
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxiedChannel {
    /// Its first frame has not come.
    Unknown,
    Data,
    Control,
}

/// The channel by the first frame of the dialling side, once it is there. What is no handshake is data.
pub(super) fn channel(first: &[u8]) -> ProxiedChannel {
    let known = first.len().min(HANDSHAKE_MAGIC.len());
    if first[..known] != HANDSHAKE_MAGIC[..known] {
        return ProxiedChannel::Data;
    }
    match first.get(CHANNEL_OFFSET) {
        None => ProxiedChannel::Unknown,
        Some(1) => ProxiedChannel::Control,
        Some(_) => ProxiedChannel::Data,
    }
}

/// Takes the first whole piece off a control connection's bytes. Bytes that are neither frame nor message pass as
/// they are: the receiver is the one to complain.
pub(super) fn take(bytes: &mut Vec<u8>) -> Option<Piece> {
    if bytes.is_empty() {
        return None;
    }
    let length = match bytes.starts_with(&HANDSHAKE_MAGIC[..bytes.len().min(HANDSHAKE_MAGIC.len())]) {
        true => {
            let prefix = bytes.first_chunk::<HANDSHAKE_PREFIX_BYTES>()?;
            HANDSHAKE_PREFIX_BYTES + usize::from(u16::from_be_bytes([prefix[6], prefix[7]]))
        }
        false => match wire::codec::message_bytes(bytes) {
            Ok(length) => length?,
            Err(_) => bytes.len(),
        },
    };
    if bytes.len() < length {
        return None;
    }
    let piece: Vec<u8> = bytes.drain(..length).collect();
    let is_message = piece.len() >= HEADER_BYTES && !piece.starts_with(HANDSHAKE_MAGIC);
    let decoded = is_message.then(|| wire::decode(&mut Bytes::copy_from_slice(&piece)).ok().flatten());
    match decoded.flatten().as_ref().and_then(WeatherKind::of) {
        Some(kind) => Some(Piece::Control(kind, piece)),
        None => Some(Piece::Plain(piece)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Piece, ProxiedChannel, channel, take};
    use crate::cluster::proxy::WeatherKind;
    use wire::Message;
    use wire::message::{Renew, Revoke};

    fn frame(channel: u8) -> Vec<u8> {
        let mut frame = b"DCLK\x01\x01\x00\x28".to_vec();
        frame.extend_from_slice(&[0; 40]);
        frame[9] = channel;
        frame
    }

    #[test]
    fn the_first_frame_tells_the_channel() {
        assert_eq!(channel(&frame(1)), ProxiedChannel::Control);
        assert_eq!(channel(&frame(0)), ProxiedChannel::Data);
        assert_eq!(channel(&frame(1)[..9]), ProxiedChannel::Unknown);
        assert_eq!(channel(b""), ProxiedChannel::Unknown);
        assert_eq!(channel(b"*1\r\n"), ProxiedChannel::Data);
    }

    #[test]
    fn frames_and_messages_are_cut_wherever_they_break() {
        let mut stream = frame(1);
        wire::encode(&Message::Renew(Renew { session: 3, sent: 5, heat_floor: 0 }), &mut stream);
        wire::encode(&Message::Revoke(Revoke { session: 3, number: 1, spares: false }), &mut stream);
        let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
        for byte in &stream {
            bytes.push(*byte);
            pieces.extend(std::iter::from_fn(|| take(&mut bytes)));
        }
        let kinds: Vec<_> = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Plain(_) => None,
                Piece::Control(kind, _) => Some(*kind),
            })
            .collect();
        assert_eq!(kinds, [None, Some(WeatherKind::Renew), Some(WeatherKind::Revoke)]);
        let joined: Vec<u8> = pieces
            .into_iter()
            .flat_map(|piece| match piece {
                Piece::Plain(bytes) | Piece::Control(_, bytes) => bytes,
            })
            .collect();
        assert_eq!(joined, stream);
    }

    #[test]
    fn nonsense_passes_as_it_is() {
        let mut bytes = vec![7; 200];
        assert_eq!(take(&mut bytes), Some(Piece::Plain(vec![7; 200])));
    }
}

//! The fixed 96-byte header that opens every message, as offsets and one plain struct. Not what it means.
//!
//! Big-endian; the key follows the header, then the value. Simple enough for a packet program to parse.
//!
//! | bytes | field |
//! |-------|-------|
//! | 0-1   | magic `DC` |
//! | 2     | protocol version |
//! | 3     | operation |
//! | 4-5   | flags |
//! | 6     | status |
//! | 7     | degree: step of the key's number of places, plus one |
//! | 8-15  | request id; of a GRANT how long its leave lasts |
//! | 16-31 | key digest |
//! | 32-39 | view |
//! | 40-41 | database |
//! | 42-43 | milliseconds that a request waited before it was sent |
//! | 44-47 | key length |
//! | 48-51 | value length |
//! | 52-55 | map epoch |
//! | 56-63 | object version; of a GRANT with leave how long nobody has heard of changes |
//! | 64-95 | tail: four `{node + 1: u32, load: u32}`, or `{session, fill, ttl ms, argument: u64}` |

/// Bytes of a header.
pub const HEADER_BYTES: usize = 96;
/// First two bytes of every message.
pub const MAGIC: u16 = u16::from_be_bytes(*b"DC");
/// The only protocol version that this build speaks.
pub const PROTOCOL_VERSION: u8 = 2;
/// No TTL: `u64::MAX` milliseconds.
pub const TTL_NONE: u64 = u64::MAX;

const TAIL: usize = 64;
const _: () = assert!(TAIL + 4 * size_of::<u64>() == HEADER_BYTES);

pub const FLAG_RESP3: u16 = 1 << 0;
pub const FLAG_ORDERED: u16 = 1 << 1;
pub const FLAG_HIT: u16 = 1 << 2;
pub const FLAG_GRANTED: u16 = 1 << 3;
pub const FLAG_VALUE: u16 = 1 << 4;
pub const FLAG_NOTHING_HELD: u16 = 1 << 5;
/// Parts: the reply to a read may come in parts, or they follow a reply.
pub const FLAG_PARTS: u16 = 1 << 6;
/// The layers that cache the key, in the flags' high byte's low four bits.
pub const FLAG_CACHED_SHIFT: u16 = 8;
pub const FLAG_CACHED_MASK: u16 = 0x0f << FLAG_CACHED_SHIFT;

/// A parsed header: fields as they stand on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub operation: u8,
    pub flags: u16,
    pub status: u8,
    pub degree: u8,
    pub request: u64,
    pub digest: u128,
    pub view: u64,
    pub database: u16,
    pub waited_ms: u16,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub map_epoch: u32,
    pub version: u64,
    pub tail: [u64; 4],
}

/// Why a header is not one of ours. The connection that sent it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("not a DistCache message: it starts with {0:#06x}, expected {MAGIC:#06x}")]
    Magic(u16),
    #[error(
        "protocol version {0} is not spoken here, only {PROTOCOL_VERSION}; run the same release everywhere"
    )]
    Version(u8),
}

impl Header {
    /// Appends the 96 bytes to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut bytes = [0u8; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2] = PROTOCOL_VERSION;
        bytes[3] = self.operation;
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6] = self.status;
        bytes[7] = self.degree;
        bytes[8..16].copy_from_slice(&self.request.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.digest.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.view.to_be_bytes());
        bytes[40..42].copy_from_slice(&self.database.to_be_bytes());
        bytes[42..44].copy_from_slice(&self.waited_ms.to_be_bytes());
        bytes[44..48].copy_from_slice(&self.key_bytes.to_be_bytes());
        bytes[48..52].copy_from_slice(&self.value_bytes.to_be_bytes());
        bytes[52..56].copy_from_slice(&self.map_epoch.to_be_bytes());
        bytes[56..64].copy_from_slice(&self.version.to_be_bytes());
        for (index, word) in self.tail.iter().enumerate() {
            bytes[TAIL + index * 8..TAIL + index * 8 + 8].copy_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&bytes);
    }

    /// Parses the first 96 bytes of a message.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Header, HeaderError> {
        let magic = u16::from_be_bytes(field(bytes, 0));
        if magic != MAGIC {
            return Err(HeaderError::Magic(magic));
        }
        if bytes[2] != PROTOCOL_VERSION {
            return Err(HeaderError::Version(bytes[2]));
        }
        Ok(Header {
            operation: bytes[3],
            flags: u16::from_be_bytes(field(bytes, 4)),
            status: bytes[6],
            degree: bytes[7],
            request: u64::from_be_bytes(field(bytes, 8)),
            digest: u128::from_be_bytes(field(bytes, 16)),
            view: u64::from_be_bytes(field(bytes, 32)),
            database: u16::from_be_bytes(field(bytes, 40)),
            waited_ms: u16::from_be_bytes(field(bytes, 42)),
            key_bytes: u32::from_be_bytes(field(bytes, 44)),
            value_bytes: u32::from_be_bytes(field(bytes, 48)),
            map_epoch: u32::from_be_bytes(field(bytes, 52)),
            version: u64::from_be_bytes(field(bytes, 56)),
            tail: [64, 72, 80, 88].map(|offset| u64::from_be_bytes(field(bytes, offset))),
        })
    }
}

fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

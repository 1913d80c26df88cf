//! The meta protocol's commands, from their command lines: key, flags and what is wrong with them.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use bytes::Bytes;

use super::KEY_BYTES_MAX;
use super::line::{Tokens, int32, uint32, uint64};
use super::request::{BAD_FORMAT, LacksData, MemcachedRequest, RequestLine, whole};

const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";
/// The letter included.
const OPAQUE_BYTES_MAX: usize = 32;
/// Most tokens of a command, the name and the key included.
const TOKENS_MAX: usize = 19;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaVerb {
    Get,
    Set,
    Delete,
    Arithmetic,
    Debug,
}

/// A command of the meta protocol with its flags in the order in which they are to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub verb: MetaVerb,
    /// Decoded, if it came in base64.
    pub key: Bytes,
    pub base64: bool,
    /// Each a letter and what follows it; no letter twice.
    pub flags: Vec<Bytes>,
    pub value: Option<Bytes>,
}

impl Meta {
    /// What follows the letter of a flag, if it is there.
    pub fn flag(&self, letter: u8) -> Option<&[u8]> {
        self.flags.iter().find(|flag| flag[0] == letter).map(|flag| &flag[1..])
    }

    pub fn has(&self, letter: u8) -> bool {
        self.flag(letter).is_some()
    }

    pub fn has_any(&self, letters: &[u8]) -> bool {
        letters.iter().any(|&letter| self.has(letter))
    }

    pub fn int32(&self, letter: u8) -> Option<i32> {
        self.flag(letter).and_then(int32)
    }

    pub fn uint64(&self, letter: u8) -> Option<u64> {
        self.flag(letter).and_then(uint64)
    }

    pub fn client_flags(&self) -> u32 {
        self.flag(b'F').and_then(uint32).unwrap_or(0)
    }

    /// The mode of `ms` and `ma`; zero if there is none.
    pub fn mode(&self) -> u8 {
        self.flag(b'M').and_then(|mode| mode.first().copied()).unwrap_or(0)
    }

    /// Whether the expected answer is left away.
    pub fn quiet(&self) -> bool {
        self.has(b'q')
    }

    /// The key as an answer has it behind `k`.
    pub fn write_key(&self, out: &mut Vec<u8>) {
        match self.base64 {
            false => out.extend_from_slice(&self.key),
            true => {
                out.extend_from_slice(STANDARD.encode(&self.key).as_bytes());
                out.extend_from_slice(b" b");
            }
        }
    }
}

/// As memcached does it: what is no base64 is passed over, and the rest has to be whole.
fn decoded(key: &[u8]) -> Option<Bytes> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
    );
    let legal = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let letters: Vec<u8> = key.iter().copied().filter(legal).collect();
    let decoded = LENIENT.decode(&letters).ok()?;
    (!decoded.is_empty()).then(|| decoded.into())
}

pub(super) fn parse(verb: u8, tokens: &Tokens) -> RequestLine {
    let verb = match verb {
        b'n' => return RequestLine::Whole(MemcachedRequest::Noop),
        b'g' => MetaVerb::Get,
        b's' => MetaVerb::Set,
        b'd' => MetaVerb::Delete,
        b'a' => MetaVerb::Arithmetic,
        b'e' => MetaVerb::Debug,
        _ => return whole("ERROR"),
    };
    let Some(key) = tokens.get(1) else {
        return whole(if verb == MetaVerb::Debug { BAD_FORMAT } else { "ERROR" });
    };
    if key.len() > KEY_BYTES_MAX {
        return whole(BAD_FORMAT);
    }
    if tokens.len() > TOKENS_MAX {
        return whole(match verb {
            MetaVerb::Get => "CLIENT_ERROR options flags are too long",
            _ => "CLIENT_ERROR options flags too long",
        });
    }
    if verb == MetaVerb::Set {
        return set(key, tokens);
    }
    let opaque = |error| whole(error);
    match (flags(verb, key, &tokens[2..]), verb) {
        (Ok(meta), MetaVerb::Arithmetic) if !matches!(meta.mode(), 0 | b'I' | b'+' | b'D' | b'-') => {
            opaque("CLIENT_ERROR invalid mode for ma M token")
        }
        (Ok(meta), _) => RequestLine::Whole(MemcachedRequest::Meta(meta)),
        (Err(OPAQUE_TOO_LONG), _) => opaque(OPAQUE_TOO_LONG),
        (Err(_), MetaVerb::Delete | MetaVerb::Arithmetic) => whole(BAD_FLAG),
        (Err(_), MetaVerb::Debug) => whole(BAD_FORMAT),
        (Err(error), _) => whole(error),
    }
}

/// A wrong flag costs the data block; a wrong length leaves nothing to go by.
fn set(key: &Bytes, tokens: &Tokens) -> RequestLine {
    let bytes = match tokens.get(2).and_then(|length| int32(length)) {
        Some(bytes @ 0..=0x7fff_fffd) => bytes as usize,
        _ => return whole(BAD_FORMAT),
    };
    match flags(MetaVerb::Set, key, &tokens[3..]) {
        Ok(meta) if !matches!(meta.mode(), 0 | b'E' | b'A' | b'P' | b'R' | b'S') => {
            RequestLine::Skip { bytes, error: "CLIENT_ERROR invalid mode for ms M token" }
        }
        Ok(meta) => RequestLine::Data { bytes, pending: LacksData::Meta(meta) },
        Err(error) => RequestLine::Skip { bytes, error },
    }
}

fn flags(verb: MetaVerb, key: &Bytes, tokens: &[Bytes]) -> Result<Meta, &'static str> {
    let mut meta = Meta { verb, key: key.clone(), base64: false, flags: Vec::new(), value: None };
    let mut seen = 0u128;
    let mut wrong = None;
    for token in tokens {
        let letter = token[0];
        if letter >= 127 || seen & (1 << letter) != 0 {
            return Err("CLIENT_ERROR duplicate flag");
        }
        seen |= 1 << letter;
        let value = &token[1..];
        let error = match letter {
            b'b' => match decoded(key) {
                Some(decoded) => {
                    (meta.key, meta.base64) = (decoded, true);
                    None
                }
                _ => Some("CLIENT_ERROR error decoding key"),
            },
            b'N' | b'T' | b'R' => int32(value).is_none().then_some(BAD_TOKEN),
            b'C' => uint64(value).is_none().then_some(BAD_TOKEN),
            b'F' => uint32(value).is_none().then_some(BAD_FORMAT),
            b'J' => uint64(value).is_none().then_some("CLIENT_ERROR invalid numeric initial value"),
            b'D' => uint64(value).is_none().then_some("CLIENT_ERROR invalid numeric delta value"),
            b'M' => (value.len() != 1).then_some("CLIENT_ERROR incorrect length for M token"),
            b'O' => (token.len() > OPAQUE_BYTES_MAX).then_some(OPAQUE_TOO_LONG),
            b'l' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'v' | b'h' | b'u' | b'q' | b'I' => None,
            _ => return Err("CLIENT_ERROR invalid flag"),
        };
        wrong = error.or(wrong);
        meta.flags.push(token.clone());
    }
    wrong.map_or(Ok(meta), Err)
}

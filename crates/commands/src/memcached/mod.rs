//! memcached's requests as commands for storage, and storage's replies as memcached's. Not where commands go: that is
//! `router`, which treats them like any other client's.

mod classic;
mod fetched;
mod meta;
mod native;
mod redis;
mod shape;
mod stats;

use bytes::Bytes;
use wire::memcached::MemcachedRequest;
use wire::resp::Command;

pub use shape::{ReplyShape, write};
pub use stats::Tallies;
pub use stats::{ServerStats, text};

/// The version of memcached whose behaviour clients get.
pub const MEMCACHED_VERSION: &str = "1.6.18";

/// What storage understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Redis' commands: a value is nothing but its bytes.
    #[default]
    Redis,
    /// The commands of `crate::native`: a value has flags and a unique.
    Memcached,
}

/// What one request makes a router do, in order.
#[derive(Debug)]
pub enum MemcachedStep {
    Ask(Command, ReplyShape),
    /// In its turn.
    Say(Bytes),
    /// After the keys of a retrieval.
    End,
    Stats(Vec<Bytes>),
    Hangup,
}

/// What a memcached client has under way besides its operations.
#[derive(Debug, Default)]
pub struct MemcachedFront {
    /// For the next operation that enters the pipeline.
    pub next: Option<Box<ReplyShape>>,
    /// A key of the retrieval that is being answered could not be read: it ends with that error.
    pub(crate) failed: bool,
}

/// The commands that `request` comes to.
pub fn steps(request: MemcachedRequest, dialect: Dialect, tallies: &mut Tallies) -> Vec<MemcachedStep> {
    match request {
        MemcachedRequest::Meta(meta) => vec![meta::step(meta, dialect, tallies)],
        other => classic::steps(other, dialect, tallies),
    }
}

fn say(line: &str) -> MemcachedStep {
    MemcachedStep::Say(Bytes::from(format!("{line}\r\n")))
}

/// How long a value is to live, as memcached reads an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Never,
    InMs(i64),
    /// Since 1970. Negative times are long past.
    AtMs(i64),
}

impl Expiry {
    const RELATIVE_MAX: i32 = 60 * 60 * 24 * 30;

    fn of(exptime: i32) -> Expiry {
        match exptime {
            0 => Expiry::Never,
            1..=Expiry::RELATIVE_MAX => Expiry::InMs(i64::from(exptime) * 1000),
            i32::MIN..0 => Expiry::AtMs(1),
            absolute => Expiry::AtMs(i64::from(absolute) * 1000),
        }
    }
}

/// The unique of a value in storage that keeps none: the first 60 bits of its SHA-1. It tells contents apart, not writes;
/// libmemcached has no room for a number of 20 digits.
fn content_unique(value: &[u8]) -> u64 {
    use sha1::Digest as _;
    let digest = sha1::Sha1::digest(value);
    digest.iter().take(8).fold(0, |unique, &byte| unique << 8 | u64::from(byte)) >> 4
}

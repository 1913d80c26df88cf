//! What a client can ask in the text protocol, from its command line. The meta protocol's commands are in `meta`.

use bytes::Bytes;
use smallvec::SmallVec;

use super::KEY_BYTES_MAX;
use super::line::{Tokens, int32, uint32, uint64};
use super::meta::{self, Meta};

pub(super) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const DELETE_USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
const ERROR: &str = "ERROR";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreVerb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    /// With the unique that the value must still have.
    Cas(u64),
}

/// `set` and its like, with the data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRequest {
    pub verb: StoreVerb,
    pub key: Bytes,
    pub flags: u32,
    pub exptime: i32,
    pub value: Bytes,
    pub noreply: bool,
}

/// One request, well formed or to be refused with memcached's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemcachedRequest {
    /// `get`, `gets`, `gat`, `gats`: the last two with the new expiry time.
    Get {
        keys: SmallVec<[Bytes; 1]>,
        with_cas: bool,
        touch: Option<i32>,
    },
    Store(StoreRequest),
    Delete {
        key: Bytes,
        noreply: bool,
    },
    /// `incr` and `decr`.
    Count {
        key: Bytes,
        delta: u64,
        up: bool,
        noreply: bool,
    },
    Touch {
        key: Bytes,
        exptime: i32,
        noreply: bool,
    },
    Meta(Meta),
    /// `mn`.
    Noop,
    FlushAll {
        delay: i32,
        noreply: bool,
    },
    Stats(SmallVec<[Bytes; 2]>),
    Version,
    Verbosity {
        noreply: bool,
    },
    Quit,
    /// A command that this release does not carry, by its name.
    NotCarried(&'static str),
    /// What memcached answers to it. `stale` is the key of a `set` that was too large: its old value must go.
    Failed {
        error: &'static str,
        noreply: bool,
        stale: Option<Bytes>,
    },
}

/// A command line: a whole request, or one that a data block follows.
#[derive(Debug)]
pub(super) enum RequestLine {
    Whole(MemcachedRequest),
    Data {
        bytes: usize,
        pending: LacksData,
    },
    /// An error after which the data block is to be skipped.
    Skip {
        bytes: usize,
        error: &'static str,
    },
}

/// A request that lacks its data block.
#[derive(Debug)]
pub(super) enum LacksData {
    Store(StoreRequest),
    Meta(Meta),
}

impl MemcachedRequest {
    pub(super) fn failed(error: &'static str, noreply: bool) -> MemcachedRequest {
        MemcachedRequest::Failed { error, noreply, stale: None }
    }
}

impl LacksData {
    /// What a block that is over the limit leaves: only `set` must not leave the old value.
    pub(super) fn too_large(self) -> MemcachedRequest {
        const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
        match self {
            LacksData::Store(store) => MemcachedRequest::Failed {
                error: TOO_LARGE,
                noreply: store.noreply,
                stale: (store.verb == StoreVerb::Set).then_some(store.key),
            },
            LacksData::Meta(meta) => {
                MemcachedRequest::Failed { error: TOO_LARGE, noreply: false, stale: Some(meta.key) }
            }
        }
    }

    pub(super) fn with(self, value: Bytes) -> MemcachedRequest {
        match self {
            LacksData::Store(store) => MemcachedRequest::Store(StoreRequest { value, ..store }),
            LacksData::Meta(meta) => MemcachedRequest::Meta(Meta { value: Some(value), ..meta }),
        }
    }

    pub(super) fn bad_chunk(&self) -> MemcachedRequest {
        let noreply = matches!(self, LacksData::Store(StoreRequest { noreply: true, .. }));
        MemcachedRequest::failed("CLIENT_ERROR bad data chunk", noreply)
    }
}

/// What a command line asks.
pub(super) fn parse(tokens: &Tokens) -> RequestLine {
    let Some(name) = tokens.first().filter(|name| name.len() >= 2) else { return whole(ERROR) };
    match (&name[..], tokens.len()) {
        ([b'm', verb], _) => meta::parse(*verb, tokens),
        (b"get" | b"bget", 2..) => retrieval(&tokens[1..], false, None),
        (b"gets", 2..) => retrieval(&tokens[1..], true, None),
        (b"gat" | b"gats", 2..) => match int32(&tokens[1]) {
            Some(exptime) => retrieval(&tokens[2..], name.len() == 4, Some(exptime)),
            None => whole(BAD_EXPTIME),
        },
        (b"set", 5 | 6) => store(StoreVerb::Set, tokens),
        (b"add", 5 | 6) => store(StoreVerb::Add, tokens),
        (b"replace", 5 | 6) => store(StoreVerb::Replace, tokens),
        (b"append", 5 | 6) => store(StoreVerb::Append, tokens),
        (b"prepend", 5 | 6) => store(StoreVerb::Prepend, tokens),
        (b"cas", 6 | 7) => store(StoreVerb::Cas(0), tokens),
        (b"incr" | b"decr", 3 | 4) => count(tokens, &name[..] == b"incr"),
        (b"delete", 2..=4) => delete(tokens),
        (b"touch", 3 | 4) => touch(tokens),
        (b"flush_all", 1..=3) => flush_all(tokens),
        (b"stats", _) => RequestLine::Whole(MemcachedRequest::Stats(tokens[1..].iter().cloned().collect())),
        (b"version", _) => RequestLine::Whole(MemcachedRequest::Version),
        (b"verbosity", 2 | 3) => verbosity(tokens),
        (b"quit", _) => RequestLine::Whole(MemcachedRequest::Quit),
        (b"shutdown", _) => whole("ERROR: shutdown not enabled"),
        (b"watch", _) => RequestLine::Whole(MemcachedRequest::NotCarried("watch")),
        (b"lru", 2..) => RequestLine::Whole(MemcachedRequest::NotCarried("lru")),
        (b"lru_crawler", _) => RequestLine::Whole(MemcachedRequest::NotCarried("lru_crawler")),
        (b"slabs", _) => RequestLine::Whole(MemcachedRequest::NotCarried("slabs")),
        (b"cache_memlimit", 2 | 3) => RequestLine::Whole(MemcachedRequest::NotCarried("cache_memlimit")),
        (b"extstore", 2..) => RequestLine::Whole(MemcachedRequest::NotCarried("extstore")),
        _ if tokens.last().is_some_and(|last| last.starts_with(b"HTTP/")) => {
            RequestLine::Whole(MemcachedRequest::Quit)
        }
        _ => whole(ERROR),
    }
}

pub(super) fn whole(error: &'static str) -> RequestLine {
    RequestLine::Whole(MemcachedRequest::failed(error, false))
}

fn says_noreply(tokens: &Tokens) -> bool {
    tokens.last().is_some_and(|last| &last[..] == b"noreply")
}

fn too_long(key: &Bytes) -> bool {
    key.len() > KEY_BYTES_MAX
}

fn retrieval(keys: &[Bytes], with_cas: bool, touch: Option<i32>) -> RequestLine {
    if keys.iter().any(too_long) {
        return whole(BAD_FORMAT);
    }
    RequestLine::Whole(MemcachedRequest::Get { keys: keys.iter().cloned().collect(), with_cas, touch })
}

fn store(verb: StoreVerb, tokens: &Tokens) -> RequestLine {
    let noreply = says_noreply(tokens);
    let key = tokens[1].clone();
    let numbers = (uint32(&tokens[2]), int32(&tokens[3]), int32(&tokens[4]));
    let verb = match verb {
        StoreVerb::Cas(_) => uint64(&tokens[5]).map(StoreVerb::Cas),
        other => Some(other),
    };
    match (numbers, verb) {
        ((Some(flags), Some(exptime), Some(bytes @ 0..=0x7fff_fffd)), Some(verb)) if !too_long(&key) => {
            let store = StoreRequest { verb, key, flags, exptime, value: Bytes::new(), noreply };
            RequestLine::Data { bytes: bytes as usize, pending: LacksData::Store(store) }
        }
        _ => RequestLine::Whole(MemcachedRequest::failed(BAD_FORMAT, noreply)),
    }
}

fn count(tokens: &Tokens, up: bool) -> RequestLine {
    let noreply = says_noreply(tokens);
    let key = tokens[1].clone();
    RequestLine::Whole(match uint64(&tokens[2]) {
        _ if too_long(&key) => MemcachedRequest::failed(BAD_FORMAT, noreply),
        Some(delta) => MemcachedRequest::Count { key, delta, up, noreply },
        None => MemcachedRequest::failed(BAD_DELTA, noreply),
    })
}

/// A time that old clients give must be zero.
fn delete(tokens: &Tokens) -> RequestLine {
    let key = tokens[1].clone();
    let noreply = tokens.len() > 2 && says_noreply(tokens);
    let zero = tokens.get(2).is_some_and(|time| &time[..] == b"0");
    let valid = match tokens.len() {
        2 => true,
        3 => zero || noreply,
        _ => zero && noreply,
    };
    RequestLine::Whole(match valid {
        false => MemcachedRequest::failed(DELETE_USAGE, noreply),
        true if too_long(&key) => MemcachedRequest::failed(BAD_FORMAT, noreply),
        true => MemcachedRequest::Delete { key, noreply },
    })
}

fn touch(tokens: &Tokens) -> RequestLine {
    let noreply = says_noreply(tokens);
    let key = tokens[1].clone();
    RequestLine::Whole(match int32(&tokens[2]) {
        _ if too_long(&key) => MemcachedRequest::failed(BAD_FORMAT, noreply),
        Some(exptime) => MemcachedRequest::Touch { key, exptime, noreply },
        None => MemcachedRequest::failed(BAD_EXPTIME, noreply),
    })
}

fn flush_all(tokens: &Tokens) -> RequestLine {
    let noreply = says_noreply(tokens);
    let delay = match tokens.len() - usize::from(noreply) {
        1 => Some(0),
        _ => int32(&tokens[1]),
    };
    RequestLine::Whole(match delay {
        Some(delay) => MemcachedRequest::FlushAll { delay, noreply },
        None => MemcachedRequest::failed(BAD_EXPTIME, noreply),
    })
}

fn verbosity(tokens: &Tokens) -> RequestLine {
    let noreply = says_noreply(tokens);
    RequestLine::Whole(match uint32(&tokens[1]) {
        Some(_) => MemcachedRequest::Verbosity { noreply },
        None => MemcachedRequest::failed(BAD_FORMAT, noreply),
    })
}

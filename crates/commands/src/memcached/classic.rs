//! The text protocol's commands as commands for storage. Not how their replies look: that is `shape`.

use bytes::Bytes;
use wire::memcached::{MemcachedRequest, StoreRequest, StoreVerb};
use wire::resp::Command;

use super::shape::{ExpectedReply, ReplyShape, Tell};
use super::{Dialect, Expiry, MEMCACHED_VERSION, MemcachedStep, Tallies, native, redis, say};

pub(super) const FLAGS_REFUSED: &str =
    "SERVER_ERROR DistCache: flags other than 0 need memcached storage; Redis storage keeps none";

pub(super) fn steps(
    request: MemcachedRequest,
    dialect: Dialect,
    tallies: &mut Tallies,
) -> Vec<MemcachedStep> {
    vec![match request {
        MemcachedRequest::Get { keys, with_cas, touch } => {
            return retrieval(&keys, with_cas, touch, dialect, tallies);
        }
        MemcachedRequest::Store(store) => {
            tallies.sets += 1;
            store_step(&store, dialect)
        }
        MemcachedRequest::Delete { key, noreply } => {
            ask(delete(&key, dialect), counted(dialect), unless(noreply, Tell::Delete))
        }
        MemcachedRequest::Count { key, delta, up, noreply } => {
            let command = count(&key, delta, up, dialect);
            ask(command, ExpectedReply::Meta, unless(noreply, Tell::Count))
        }
        MemcachedRequest::Touch { key, exptime, noreply } => {
            tallies.touches += 1;
            let (command, asked) = match (dialect, Expiry::of(exptime)) {
                (Dialect::Redis, expiry @ Expiry::Never) => {
                    (redis::touch(&key, expiry), ExpectedReply::Value)
                }
                (Dialect::Redis, expiry) => (redis::touch(&key, expiry), ExpectedReply::Counted),
                (Dialect::Memcached, _) => (touching(&key, exptime, &[]), ExpectedReply::Meta),
            };
            ask(command, asked, unless(noreply, Tell::Touch))
        }
        MemcachedRequest::Noop => say("MN"),
        MemcachedRequest::FlushAll { delay: 1.., noreply: true } => MemcachedStep::Say(Bytes::new()),
        MemcachedRequest::FlushAll { delay: 1.., .. } => {
            say("SERVER_ERROR DistCache: flush_all with a delay is not carried; send it when it is due")
        }
        MemcachedRequest::FlushAll { noreply, .. } => {
            tallies.flushes += 1;
            ask(Command::from_args(&["FLUSHALL"]), ExpectedReply::Stored, unless(noreply, Tell::Text("OK")))
        }
        MemcachedRequest::Stats(arguments) => MemcachedStep::Stats(arguments.to_vec()),
        MemcachedRequest::Version => say(&format!("VERSION {MEMCACHED_VERSION}")),
        MemcachedRequest::Verbosity { noreply: true } => MemcachedStep::Say(Bytes::new()),
        MemcachedRequest::Verbosity { noreply: false } => say("OK"),
        MemcachedRequest::Quit => MemcachedStep::Hangup,
        MemcachedRequest::NotCarried(name) => {
            say(&format!("SERVER_ERROR DistCache: '{name}' is not carried; ask the memcached server itself"))
        }
        MemcachedRequest::Failed { error, noreply, stale: Some(key) } => {
            ask(delete(&key, dialect), counted(dialect), unless(noreply, Tell::Text(error)))
        }
        MemcachedRequest::Failed { noreply: true, .. } => MemcachedStep::Say(Bytes::new()),
        MemcachedRequest::Failed { error, .. } => say(error),
        MemcachedRequest::Meta(_) => unreachable!("the meta protocol's commands are translated in `meta`"),
    }]
}

fn ask(command: Command, asked: ExpectedReply, tell: Tell) -> MemcachedStep {
    MemcachedStep::Ask(command, ReplyShape { asked, tell })
}

fn count(key: &Bytes, delta: u64, up: bool, dialect: Dialect) -> Command {
    match dialect {
        Dialect::Redis => {
            let counting = redis::Counting {
                up,
                delta,
                unique: None,
                initial: None,
                touch: None,
                early: false,
                told: Expiry::Never,
            };
            redis::count(key, &counting)
        }
        Dialect::Memcached => {
            let (mode, delta): (&[u8], _) = (if up { b"MI" } else { b"MD" }, format!("D{delta}"));
            native::command(".ma", key, None, &[mode, delta.as_bytes(), b"v"])
        }
    }
}

fn unless(noreply: bool, tell: Tell) -> Tell {
    if noreply { Tell::Nothing } else { tell }
}

/// Each key for itself: hits are answered in order as they come, then `END`.
fn retrieval(
    keys: &[Bytes],
    with_cas: bool,
    touch: Option<i32>,
    dialect: Dialect,
    tallies: &mut Tallies,
) -> Vec<MemcachedStep> {
    let mut steps = Vec::with_capacity(keys.len() + 1);
    for key in keys {
        let (command, asked) = match (touch, dialect) {
            (None, dialect) => (Command::from_args(&[b"GET", &key[..]]), read(dialect)),
            (Some(exptime), Dialect::Redis) => {
                (redis::get_and_touch(key, Expiry::of(exptime)), ExpectedReply::Value)
            }
            (Some(exptime), Dialect::Memcached) => {
                (touching(key, exptime, &[b"v", b"f", b"c"]), ExpectedReply::Meta)
            }
        };
        tallies.touches += u64::from(touch.is_some());
        steps.push(ask(command, asked, Tell::Value { key: key.clone(), with_cas }));
    }
    steps.push(MemcachedStep::End);
    steps
}

/// `mg` with a new expiry time.
fn touching(key: &[u8], exptime: i32, flags: &[&[u8]]) -> Command {
    let exptime = format!("T{exptime}");
    let all: Vec<&[u8]> = flags.iter().copied().chain([exptime.as_bytes()]).collect();
    native::command(".mgt", key, None, &all)
}

/// How the reply to GET reads.
pub(super) fn read(dialect: Dialect) -> ExpectedReply {
    match dialect {
        Dialect::Redis => ExpectedReply::Value,
        Dialect::Memcached => ExpectedReply::Meta,
    }
}

pub(super) fn counted(dialect: Dialect) -> ExpectedReply {
    match dialect {
        Dialect::Redis => ExpectedReply::Counted,
        Dialect::Memcached => ExpectedReply::Meta,
    }
}

pub(super) fn delete(key: &[u8], dialect: Dialect) -> Command {
    match dialect {
        Dialect::Redis => redis::delete(key),
        Dialect::Memcached => native::command(".md", key, None, &[]),
    }
}

fn store_step(store: &StoreRequest, dialect: Dialect) -> MemcachedStep {
    let tell = unless(store.noreply, Tell::Store);
    if dialect == Dialect::Memcached {
        return ask(native_store(store), ExpectedReply::Meta, tell);
    }
    // Appending and prepending leave the flags as they are.
    if store.flags != 0 && !matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend) {
        return if store.noreply { MemcachedStep::Say(Bytes::new()) } else { say(FLAGS_REFUSED) };
    }
    let (key, value, expiry) = (&store.key, &store.value, Expiry::of(store.exptime));
    match store.verb {
        StoreVerb::Set => ask(redis::set(key, value, None, expiry), ExpectedReply::Stored, tell),
        StoreVerb::Add => ask(redis::set(key, value, Some("NX"), expiry), ExpectedReply::Stored, tell),
        StoreVerb::Replace => ask(redis::set(key, value, Some("XX"), expiry), ExpectedReply::Stored, tell),
        StoreVerb::Append => ask(redis::concatenate(key, true, value, None), ExpectedReply::Meta, tell),
        StoreVerb::Prepend => ask(redis::concatenate(key, false, value, None), ExpectedReply::Meta, tell),
        StoreVerb::Cas(unique) => {
            ask(redis::compare_and_set(key, unique, value, expiry), ExpectedReply::Meta, tell)
        }
    }
}

fn native_store(store: &StoreRequest) -> Command {
    let mode: &[u8] = match store.verb {
        StoreVerb::Set | StoreVerb::Cas(_) => b"MS",
        StoreVerb::Add => b"ME",
        StoreVerb::Replace => b"MR",
        StoreVerb::Append => b"MA",
        StoreVerb::Prepend => b"MP",
    };
    let (flags, exptime) = (format!("F{}", store.flags), format!("T{}", store.exptime));
    let unique = match store.verb {
        StoreVerb::Cas(unique) => Some(format!("C{unique}")),
        _ => None,
    };
    let mut all: Vec<&[u8]> = vec![mode, flags.as_bytes(), exptime.as_bytes()];
    all.extend(unique.as_ref().map(String::as_bytes));
    native::command(".ms", &store.key, Some(&store.value), &all)
}

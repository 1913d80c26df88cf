//! The meta protocol's commands as commands for storage. Not how their replies look: that is `shape`.

use wire::memcached::{Meta, MetaVerb};
use wire::resp::Command;

use super::classic::{counted, delete, read};
use super::shape::{ExpectedReply, ReplyShape, Tell};
use super::{Dialect, Expiry, MemcachedStep, Tallies, native, redis, say};

/// Flags of each verb that storage without memcached's items cannot keep, and what they are for.
const NOT_KEPT: [(MetaVerb, &[u8]); 3] =
    [(MetaVerb::Get, b"NRhl"), (MetaVerb::Set, b"I"), (MetaVerb::Delete, b"IT")];

pub(super) fn step(meta: Meta, dialect: Dialect, tallies: &mut Tallies) -> MemcachedStep {
    match meta.verb {
        MetaVerb::Set => tallies.sets += 1,
        MetaVerb::Get if meta.has(b'T') => tallies.touches += 1,
        _ => {}
    }
    let (command, asked) = match dialect {
        Dialect::Memcached => native(&meta),
        Dialect::Redis => match redis(&meta) {
            Ok(asked) => asked,
            Err(refusal) => return say(&refusal),
        },
    };
    MemcachedStep::Ask(command, ReplyShape { asked, tell: Tell::Meta(Box::new(meta)) })
}

fn native(meta: &Meta) -> (Command, ExpectedReply) {
    let name = match meta.verb {
        MetaVerb::Get if meta.has_any(b"TNR") => ".mgt",
        MetaVerb::Get if meta.has_any(b"htl") => ".mg",
        MetaVerb::Get => return (get(meta), ExpectedReply::Meta),
        MetaVerb::Set => ".ms",
        MetaVerb::Delete => ".md",
        MetaVerb::Arithmetic => ".ma",
        MetaVerb::Debug => ".me",
    };
    (native::forward(name, meta), ExpectedReply::Meta)
}

fn get(meta: &Meta) -> Command {
    Command::from_args(&[b"GET", &meta.key[..]])
}

/// The error says which flag cannot be carried.
fn redis(meta: &Meta) -> Result<(Command, ExpectedReply), String> {
    let kept = |letters: &[u8]| meta.flags.iter().find(|flag| letters.contains(&flag[0])).map(|flag| flag[0]);
    let lost = NOT_KEPT.iter().find(|(verb, _)| *verb == meta.verb).and_then(|(_, letters)| kept(letters));
    if let Some(flag) = lost {
        let flag = char::from(flag);
        return Err(format!(
            "SERVER_ERROR DistCache: the flag {flag} needs memcached storage; Redis storage keeps nothing for it"
        ));
    }
    let (key, unique) = (&meta.key[..], meta.uint64(b'C'));
    let touch = meta.int32(b'T').map(Expiry::of);
    let place = |letter| meta.flags.iter().position(|flag| flag[0] == letter);
    let early = place(b't') < place(b'T');
    Ok(match meta.verb {
        MetaVerb::Get => match touch {
            touch if meta.has(b't') => (redis::fetch(key, touch, early), ExpectedReply::Meta),
            Some(expiry) => (redis::get_and_touch(key, expiry), ExpectedReply::Value),
            None => (get(meta), read(Dialect::Redis)),
        },
        MetaVerb::Set => set(meta, unique, touch.unwrap_or(Expiry::Never))?,
        MetaVerb::Delete => match unique {
            Some(unique) => (redis::compare_and_delete(key, unique), ExpectedReply::Meta),
            None => (delete(key, Dialect::Redis), counted(Dialect::Redis)),
        },
        MetaVerb::Arithmetic => {
            let born = meta.int32(b'N').map(|exptime| (meta.uint64(b'J').unwrap_or(0), Expiry::of(exptime)));
            let counting = redis::Counting {
                up: !matches!(meta.mode(), b'D' | b'-'),
                delta: meta.uint64(b'D').unwrap_or(1),
                // Zero is no expectation there.
                unique: unique.filter(|unique| *unique != 0),
                // Of two times the later one stays.
                initial: born.map(|(number, expiry)| match touch {
                    Some(touch) if place(b'T') > place(b'N') => (number, touch),
                    _ => (number, expiry),
                }),
                touch,
                early,
                // Flags are carried out in their order.
                told: meta.flags.iter().take_while(|flag| flag[0] != b't').fold(
                    Expiry::Never,
                    |told, flag| {
                        let sets = matches!(flag[0], b'T' | b'N');
                        sets.then(|| meta.int32(flag[0])).flatten().map_or(told, Expiry::of)
                    },
                ),
            };
            (redis::count(key, &counting), ExpectedReply::Meta)
        }
        MetaVerb::Debug => {
            return Err("SERVER_ERROR DistCache: me is about memcached's own items; Redis storage has none"
                .to_owned());
        }
    })
}

fn set(meta: &Meta, unique: Option<u64>, expiry: Expiry) -> Result<(Command, ExpectedReply), String> {
    let (key, value) = (&meta.key[..], meta.value.as_deref().unwrap_or_default());
    let mode = meta.mode();
    if meta.client_flags() != 0 && !matches!(mode, b'A' | b'P') {
        return Err(super::classic::FLAGS_REFUSED.to_owned());
    }
    Ok(match (mode, unique) {
        (b'A' | b'P', unique) => (redis::concatenate(key, mode == b'A', value, unique), ExpectedReply::Meta),
        (b'E', _) => (redis::set(key, value, Some("NX"), expiry), ExpectedReply::Stored),
        (_, Some(unique)) => (redis::compare_and_set(key, unique, value, expiry), ExpectedReply::Meta),
        (b'R', None) => (redis::set(key, value, Some("XX"), expiry), ExpectedReply::Stored),
        (_, None) => (redis::set(key, value, None, expiry), ExpectedReply::Stored),
    })
}

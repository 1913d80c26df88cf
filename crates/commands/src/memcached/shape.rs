//! How a client gets to read the outcome of what it asked. Not what storage said: that is `fetched`.

use bytes::Bytes;
use wire::memcached::{Meta, MetaVerb};

use super::fetched::{Item, MemcachedOutcome, outcome};
use super::{MemcachedFront, Tallies};

/// Which reply storage gives to the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedReply {
    /// A value or null.
    Value,
    /// A status, or null where nothing was stored.
    Stored,
    /// How many keys it concerned.
    Counted,
    /// A meta command's reply as one string.
    Meta,
}

/// What the client gets for it.
#[derive(Debug)]
pub(crate) enum Tell {
    Nothing,
    /// This line, unless the command failed.
    Text(&'static str),
    Value {
        key: Bytes,
        with_cas: bool,
    },
    End,
    Store,
    Delete,
    Touch,
    Count,
    Meta(Box<Meta>),
}

#[derive(Debug)]
pub struct ReplyShape {
    pub(crate) asked: ExpectedReply,
    pub(crate) tell: Tell,
}

impl ReplyShape {
    pub const END: ReplyShape = ReplyShape { asked: ExpectedReply::Stored, tell: Tell::End };
}

/// Appends to `pieces` what the client gets for this reply; nothing for what it did not want to be answered.
pub fn write(
    shape: ReplyShape,
    reply: &Bytes,
    front: &mut MemcachedFront,
    tallies: &mut Tallies,
    pieces: &mut Vec<Bytes>,
) {
    let line = match shape.tell {
        Tell::Nothing => return,
        Tell::End => {
            if !std::mem::take(&mut front.failed) {
                pieces.push(Bytes::from_static(b"END\r\n"));
            }
            return;
        }
        Tell::Value { key, with_cas } => {
            return value(&key, with_cas, outcome(shape.asked, reply), front, tallies, pieces);
        }
        Tell::Meta(meta) => return self::meta(&meta, outcome(shape.asked, reply), tallies, pieces),
        Tell::Text(text) => plain(outcome(shape.asked, reply), text, [text; 3]),
        Tell::Store => plain(outcome(shape.asked, reply), "STORED", ["NOT_STORED", "EXISTS", "NOT_FOUND"]),
        Tell::Delete => plain(outcome(shape.asked, reply), "DELETED", ["NOT_FOUND"; 3]),
        Tell::Touch => plain(outcome(shape.asked, reply), "TOUCHED", ["NOT_FOUND"; 3]),
        Tell::Count => match outcome(shape.asked, reply) {
            MemcachedOutcome::Done(Item { value: Some(value), .. }) => value.to_vec(),
            other => plain(other, "", ["NOT_FOUND"; 3]),
        },
    };
    pieces.push(ended(line));
}

fn ended(mut line: Vec<u8>) -> Bytes {
    line.extend_from_slice(b"\r\n");
    line.into()
}

/// One word for each outcome: not stored, exists, not found.
fn plain(outcome: MemcachedOutcome, done: &str, [not_stored, exists, not_found]: [&str; 3]) -> Vec<u8> {
    let word = match outcome {
        MemcachedOutcome::Done(_) => done,
        MemcachedOutcome::NotStored => not_stored,
        MemcachedOutcome::Exists => exists,
        MemcachedOutcome::NotFound => not_found,
        MemcachedOutcome::Line(line) => return line.to_vec(),
        MemcachedOutcome::Failed(error) => return error,
    };
    word.as_bytes().to_vec()
}

fn value(
    key: &[u8],
    with_cas: bool,
    outcome: MemcachedOutcome,
    front: &mut MemcachedFront,
    tallies: &mut Tallies,
    pieces: &mut Vec<Bytes>,
) {
    match outcome {
        _ if front.failed => {}
        MemcachedOutcome::Done(item) => {
            tallies.get_hits += 1;
            let unique = with_cas.then(|| item.unique(None));
            let value = item.value.clone().unwrap_or_default();
            let mut head = Vec::with_capacity(key.len() + 48);
            head.extend_from_slice(b"VALUE ");
            head.extend_from_slice(key);
            head.push(b' ');
            head.extend_from_slice(item.client_flags());
            let rest = match unique {
                Some(unique) => format!(" {} {unique}\r\n", value.len()),
                None => format!(" {}\r\n", value.len()),
            };
            head.extend_from_slice(rest.as_bytes());
            pieces.extend([head.into(), value, Bytes::from_static(b"\r\n")]);
        }
        MemcachedOutcome::Failed(error) => {
            front.failed = true;
            pieces.push(ended(error));
        }
        _ => tallies.get_misses += 1,
    }
}

fn meta(meta: &Meta, outcome: MemcachedOutcome, tallies: &mut Tallies, pieces: &mut Vec<Bytes>) {
    let head = match (&outcome, meta.verb) {
        (MemcachedOutcome::Failed(error), _) => return pieces.push(ended(error.clone())),
        (MemcachedOutcome::Line(line), _) => return pieces.push(ended(line.to_vec())),
        (MemcachedOutcome::Done(item), MetaVerb::Get | MetaVerb::Arithmetic) => {
            tallies.get_hits += u64::from(meta.verb == MetaVerb::Get);
            if meta.quiet() && meta.verb == MetaVerb::Arithmetic {
                return;
            }
            match &item.value {
                Some(value) if meta.has(b'v') => format!("VA {}", value.len()),
                _ => "HD".to_owned(),
            }
        }
        (MemcachedOutcome::Done(_), _) if meta.quiet() => return,
        (MemcachedOutcome::Done(_), _) => "HD".to_owned(),
        (MemcachedOutcome::NotStored, _) => "NS".to_owned(),
        (MemcachedOutcome::Exists, _) => "EX".to_owned(),
        (MemcachedOutcome::NotFound, MetaVerb::Get) => {
            tallies.get_misses += 1;
            if meta.quiet() {
                return;
            }
            "EN".to_owned()
        }
        (MemcachedOutcome::NotFound, MetaVerb::Debug) => return pieces.push(Bytes::from_static(b"EN\r\n")),
        (MemcachedOutcome::NotFound, _) => "NF".to_owned(),
    };
    let nothing = Item::default();
    let item = if let MemcachedOutcome::Done(item) = &outcome { Some(item) } else { None };
    let line = with_flags(head, meta, item);
    pieces.push(ended(line));
    let value = item.unwrap_or(&nothing).value.as_ref();
    if let Some(value) = value.filter(|_| meta.has(b'v')) {
        pieces.extend([value.clone(), Bytes::from_static(b"\r\n")]);
    }
}

/// The flags that the client asked to have answered, in its order.
fn with_flags(head: String, meta: &Meta, item: Option<&Item>) -> Vec<u8> {
    let mut line = head.into_bytes();
    for flag in &meta.flags {
        let letter = flag[0];
        match (letter, item, meta.verb) {
            (b'O', _, _) => {
                line.push(b' ');
                line.extend_from_slice(flag);
            }
            (b'k', _, _) => {
                line.extend_from_slice(b" k");
                meta.write_key(&mut line);
            }
            (b'c', Some(item), MetaVerb::Get | MetaVerb::Set | MetaVerb::Arithmetic) => {
                let unique = item.unique(meta.value.as_deref());
                line.extend_from_slice(format!(" c{unique}").as_bytes());
            }
            (b'c', None, MetaVerb::Set) => line.extend_from_slice(b" c0"),
            (b'f', Some(item), MetaVerb::Get) => {
                line.extend_from_slice(b" f");
                line.extend_from_slice(item.client_flags());
            }
            (b's', Some(item), MetaVerb::Get) => match (&item.value, item.token(b's')) {
                (Some(value), _) => line.extend_from_slice(format!(" s{}", value.len()).as_bytes()),
                (None, Some(size)) => line.extend([b" s", size].concat()),
                (None, None) => {}
            },
            (b't' | b'h' | b'l', Some(item), MetaVerb::Get | MetaVerb::Arithmetic) => {
                if let Some(value) = item.token(letter) {
                    line.extend([&[b' ', letter], value].concat());
                }
            }
            _ => {}
        }
    }
    for mark in item.into_iter().flat_map(Item::marks) {
        line.push(b' ');
        line.extend_from_slice(mark);
    }
    line
}

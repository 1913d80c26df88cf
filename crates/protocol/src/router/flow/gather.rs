//! Makes one reply out of the replies to the parts of a command. Works on RESP bytes; sends nothing.

use bytes::Bytes;
use std::collections::BTreeSet;
use wire::resp::{ReplyScanner, Value};
use wire::{ShimId, Status};

use crate::router::flow::reply::PartReply;
use crate::router::flow::storage_info;
use crate::router::replies;

/// How the parts' replies become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// MGET: values in order; a key of another type counts as absent. `places`: the part of each key, if some are named twice.
    Values { places: Option<Box<[u32]>> },
    /// DEL, EXISTS, DBSIZE: the sum.
    Sum,
    /// MSET, FLUSHALL: the first reply if all succeed, else the first error.
    First,
    /// ACL DELUSER: the largest number, if they are numbers and all succeed, else the first error.
    Largest,
    /// SCRIPT KILL: the first success, else the first error.
    Any,
    /// KEYS: arrays one after the other.
    Concatenation,
    /// SCRIPT EXISTS: per element, one only if it is one everywhere.
    Everywhere,
    /// SCAN at one of `shims` servers.
    Scan { index: u64, shims: u64 },
    /// PUBSUB CHANNELS: every name once.
    Union,
    /// PUBSUB NUMSUB: names and numbers in turn, the numbers added.
    Counts,
    /// SUBSCRIBE and its like. Not merged here: whether the client has it now is what counts.
    Subscribed,
    /// EXEC: replies of the router's own go between those of storage, each to its place in the whole.
    Transaction { own: Vec<(usize, Bytes)> },
    /// ACL SETUSER and its like, and the question for the users after it. Not merged here.
    Users,
    /// RANDOMKEY: asks `left` in turn until one has a key.
    RandomKey { left: Vec<ShimId> },
    /// INFO: the router's own text before what all servers say together.
    Info { own: String },
}

const UNEXPECTED: &str = "ERR DistCache: storage gave a reply that does not fit the command";

/// The one reply, complete RESP.
pub(crate) fn merge(merge: &Merge, parts: &[PartReply], resp3: bool) -> Bytes {
    match merge {
        Merge::Values { places: None } => values(parts.iter(), resp3),
        Merge::Values { places: Some(places) } => {
            values(places.iter().filter_map(|place| parts.get(*place as usize)), resp3)
        }
        Merge::Sum => sum(parts),
        Merge::RandomKey { .. } if parts.first().is_some_and(|part| part.status == Status::Nil) => {
            Bytes::from_static(replies::nil(resp3))
        }
        Merge::First | Merge::RandomKey { .. } => first_error(parts)
            .or_else(|| parts.first().map(|part| part.value.clone()))
            .unwrap_or_else(unexpected),
        Merge::Largest => first_error(parts)
            .or_else(|| Some(parts.iter().rev().max_by_key(|part| integer(&part.value))?.value.clone()))
            .unwrap_or_else(unexpected),
        Merge::Any => {
            let success = parts.iter().find(|part| !part.is_error());
            success.or(parts.first()).map_or_else(unexpected, |part| part.value.clone())
        }
        Merge::Concatenation => concatenation(parts),
        Merge::Union => union(parts),
        Merge::Counts => counts(parts),
        Merge::Subscribed | Merge::Users => unexpected(),
        Merge::Everywhere => everywhere(parts),
        Merge::Scan { index, shims } => scan(parts, *index, *shims),
        Merge::Info { own } => storage_info::together(own, parts, resp3),
        Merge::Transaction { own } => transaction(parts, own),
    }
}

fn values<'a>(parts: impl Iterator<Item = &'a PartReply> + Clone, resp3: bool) -> Bytes {
    let (count, bytes) =
        parts.clone().fold((0, 0), |(count, bytes), part| (count + 1, bytes + part.value.len().max(5)));
    let mut out = Vec::with_capacity(bytes + 16);
    replies::array_header(count, &mut out);
    for part in parts {
        if part.status == Status::Nil || part.value.starts_with(b"-WRONGTYPE") {
            out.extend_from_slice(replies::nil(resp3));
        } else if part.is_error() {
            return part.value.clone();
        } else {
            out.extend_from_slice(&part.value);
        }
    }
    out.into()
}

fn sum(parts: &[PartReply]) -> Bytes {
    if let Some(error) = first_error(parts) {
        return error;
    }
    let total = parts.iter().map(|part| integer(&part.value)).sum::<Option<i64>>();
    total.map_or_else(unexpected, replies::integer)
}

fn concatenation(parts: &[PartReply]) -> Bytes {
    if let Some(error) = first_error(parts) {
        return error;
    }
    let Some(arrays) = parts.iter().map(|part| array(&part.value)).collect::<Option<Vec<_>>>() else {
        return unexpected();
    };
    let mut out = Vec::with_capacity(16 + arrays.iter().map(|(_, body)| body.len()).sum::<usize>());
    replies::array_header(arrays.iter().map(|(count, _)| count).sum(), &mut out);
    arrays.iter().for_each(|(_, body)| out.extend_from_slice(body));
    out.into()
}

fn union(parts: &[PartReply]) -> Bytes {
    if let Some(error) = first_error(parts) {
        return error;
    }
    let mut names = BTreeSet::new();
    for part in parts {
        let Ok(Value::Array(values)) = Value::parse(&part.value) else { return unexpected() };
        names.extend(values.iter().filter_map(Value::bytes).cloned());
    }
    let mut out = Vec::new();
    replies::array_header(names.len(), &mut out);
    names.iter().for_each(|name| replies::bulk(name, &mut out));
    out.into()
}

fn counts(parts: &[PartReply]) -> Bytes {
    if let Some(error) = first_error(parts) {
        return error;
    }
    let mut all: Option<Vec<Value>> = None;
    for part in parts {
        let Ok(Value::Array(values)) = Value::parse(&part.value) else { return unexpected() };
        let Some(all) = &mut all else {
            all = Some(values);
            continue;
        };
        for (total, more) in all.iter_mut().zip(values) {
            if let (Value::Integer(total), Value::Integer(more)) = (total, more) {
                *total = total.saturating_add(more);
            }
        }
    }
    let mut out = Vec::new();
    Value::Array(all.unwrap_or_default()).write(true, &mut out);
    out.into()
}

fn everywhere(parts: &[PartReply]) -> Bytes {
    if let Some(error) = first_error(parts) {
        return error;
    }
    let mut all: Option<Vec<i64>> = None;
    for part in parts {
        let Some(own) = integers(&part.value) else { return unexpected() };
        match &mut all {
            None => all = Some(own),
            Some(all) if all.len() == own.len() => {
                all.iter_mut().zip(own).for_each(|(least, own)| *least = own.min(*least));
            }
            Some(_) => return unexpected(),
        }
    }
    let all = all.unwrap_or_default();
    let mut out = Vec::new();
    replies::array_header(all.len(), &mut out);
    all.iter().for_each(|&flag| out.extend_from_slice(&replies::integer(flag)));
    out.into()
}

fn scan(parts: &[PartReply], index: u64, shims: u64) -> Bytes {
    if let Some(error) = first_error(parts) {
        return error;
    }
    let Some((cursor, rest)) = parts.first().and_then(|part| scan_reply(&part.value)) else {
        return unexpected();
    };
    let Some(next) = next_cursor(cursor, index, shims) else {
        return replies::error("ERR DistCache: storage's SCAN cursor is too large to tell the servers apart");
    };
    let next = next.to_string();
    let mut out = Vec::with_capacity(rest.len() + 40);
    replies::array_header(2, &mut out);
    replies::bulk(next.as_bytes(), &mut out);
    out.extend_from_slice(rest);
    out.into()
}

/// Errors and null stay what they are: nothing was executed.
fn transaction(parts: &[PartReply], own: &[(usize, Bytes)]) -> Bytes {
    let Some(reply) = parts.first().map(|part| &part.value) else { return unexpected() };
    let Some((count, mut rest)) = array(reply) else { return reply.clone() };
    let mut out =
        Vec::with_capacity(reply.len() + own.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + 8);
    replies::array_header(count + own.len(), &mut out);
    let mut own = own.iter().peekable();
    for place in 0..count + own.len() {
        if let Some((_, bytes)) = own.next_if(|(at, _)| *at == place) {
            out.extend_from_slice(bytes);
            continue;
        }
        let Ok(Some(bytes)) = ReplyScanner::new().scan(rest) else { return unexpected() };
        let (element, more) = rest.split_at(bytes);
        out.extend_from_slice(element);
        rest = more;
    }
    out.into()
}

/// The client's cursor after `cursor` of server `index`: cursor x servers + index; the next server follows
/// one that has ended, and zero ends the whole.
pub(crate) fn next_cursor(cursor: u64, index: u64, shims: u64) -> Option<u64> {
    match (cursor, index + 1 < shims) {
        (0, true) => Some(index + 1),
        (0, false) => Some(0),
        _ => cursor.checked_mul(shims)?.checked_add(index),
    }
}

fn scan_reply(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let rest = bytes.strip_prefix(b"*2\r\n$")?;
    let (length, rest) = number(rest)?;
    let cursor = rest.get(..length as usize)?;
    let rest = rest[cursor.len()..].strip_prefix(b"\r\n")?;
    Some((std::str::from_utf8(cursor).ok()?.parse().ok()?, rest))
}

fn first_error(parts: &[PartReply]) -> Option<Bytes> {
    parts.iter().find(|part| part.is_error()).map(|part| part.value.clone())
}

fn unexpected() -> Bytes {
    replies::error(UNEXPECTED)
}

/// A number up to its CRLF, and what follows.
fn number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    let rest = bytes[end..].strip_prefix(b"\r\n")?;
    Some((std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?, rest))
}

fn integer(bytes: &[u8]) -> Option<i64> {
    let (value, rest) = number(bytes.strip_prefix(b":")?)?;
    rest.is_empty().then_some(value)
}

fn array(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (count, body) = number(bytes.strip_prefix(b"*").or_else(|| bytes.strip_prefix(b"~"))?)?;
    Some((usize::try_from(count).ok()?, body))
}

fn integers(bytes: &[u8]) -> Option<Vec<i64>> {
    let (count, mut body) = array(bytes)?;
    let mut found = Vec::new();
    for _ in 0..count {
        let (value, rest) = number(body.strip_prefix(b":")?)?;
        found.push(value);
        body = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(how: Merge, parts: &[&str], expected: &str) {
        let parts: Vec<PartReply> = parts
            .iter()
            .map(|part| PartReply {
                status: match part.as_bytes().first() {
                    Some(b'-') => Status::Error,
                    None => Status::Nil,
                    Some(_) => Status::Ok,
                },
                value: Bytes::copy_from_slice(part.as_bytes()),
            })
            .collect();
        assert_eq!(String::from_utf8_lossy(&merge(&how, &parts, false)), expected);
    }

    #[test]
    fn mget_keeps_the_order_and_hides_other_types() {
        let parts = ["$1\r\na\r\n", "", "-WRONGTYPE no string\r\n"];
        check(Merge::Values { places: None }, &parts, "*3\r\n$1\r\na\r\n$-1\r\n$-1\r\n");
        check(Merge::Values { places: None }, &["$1\r\na\r\n", "-ERR broken\r\n"], "-ERR broken\r\n");
        let places = Some([0, 1, 0].into());
        check(
            Merge::Values { places },
            &["$1\r\na\r\n", "$1\r\nb\r\n"],
            "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\na\r\n",
        );
    }

    #[test]
    fn sums_and_firsts_end_at_an_error() {
        check(Merge::Sum, &[":2\r\n", ":40\r\n"], ":42\r\n");
        check(Merge::Sum, &[":2\r\n", "-ERR no\r\n"], "-ERR no\r\n");
        check(Merge::Sum, &[":2\r\n", "+OK\r\n"], &format!("-{UNEXPECTED}\r\n"));
        check(Merge::First, &["+OK\r\n", "-ERR no\r\n"], "-ERR no\r\n");
        check(Merge::First, &["+OK\r\n", "+OK\r\n"], "+OK\r\n");
        check(Merge::Any, &["-NOTBUSY none\r\n", "+OK\r\n"], "+OK\r\n");
    }

    #[test]
    fn arrays_are_joined() {
        check(
            Merge::Concatenation,
            &["*1\r\n$1\r\na\r\n", "*0\r\n", "*1\r\n$1\r\nb\r\n"],
            "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        );
        check(Merge::Everywhere, &["*2\r\n:1\r\n:1\r\n", "*2\r\n:0\r\n:1\r\n"], "*2\r\n:0\r\n:1\r\n");
    }

    #[test]
    fn names_are_joined_and_counts_added() {
        let parts = ["*2\r\n$1\r\nb\r\n$1\r\na\r\n", "*2\r\n$1\r\na\r\n$1\r\nc\r\n"];
        check(Merge::Union, &parts, "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
        check(Merge::Union, &["*0\r\n", "-ERR no\r\n"], "-ERR no\r\n");
        let parts = ["*4\r\n$1\r\na\r\n:2\r\n$1\r\nb\r\n:0\r\n", "*4\r\n$1\r\na\r\n:0\r\n$1\r\nb\r\n:40\r\n"];
        check(Merge::Counts, &parts, "*4\r\n$1\r\na\r\n:2\r\n$1\r\nb\r\n:40\r\n");
        check(Merge::Counts, &["*0\r\n", "*0\r\n"], "*0\r\n");
        check(Merge::Counts, &["+OK\r\n"], &format!("-{UNEXPECTED}\r\n"));
    }

    #[test]
    fn scan_walks_the_servers_one_after_the_other() {
        let scan = |index| Merge::Scan { index, shims: 3 };
        check(scan(1), &["*2\r\n$2\r\n17\r\n*0\r\n"], "*2\r\n$2\r\n52\r\n*0\r\n");
        check(scan(1), &["*2\r\n$1\r\n0\r\n*0\r\n"], "*2\r\n$1\r\n2\r\n*0\r\n");
        check(scan(2), &["*2\r\n$1\r\n0\r\n*0\r\n"], "*2\r\n$1\r\n0\r\n*0\r\n");
    }

    #[test]
    fn nonsense_from_storage_is_an_error_not_a_panic() {
        for bytes in ["*2\r\n$99\r\n1\r\n", "*2\r\n$-1\r\n", "*2\r\n$1", "", "*-1\r\n"] {
            check(Merge::Scan { index: 0, shims: 2 }, &[bytes], &format!("-{UNEXPECTED}\r\n"));
        }
        check(Merge::Concatenation, &["*-1\r\n"], &format!("-{UNEXPECTED}\r\n"));
    }
}

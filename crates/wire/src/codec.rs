//! Messages to bytes and back. Lengths are checked against limits before anything is kept.

use bytes::{Buf, Bytes};

use crate::header::{
    FLAG_CACHED_MASK, FLAG_CACHED_SHIFT, FLAG_GRANTED, FLAG_HIT, FLAG_NOTHING_HELD, FLAG_ORDERED, FLAG_PARTS,
    FLAG_RESP3, FLAG_VALUE, HEADER_BYTES, Header, HeaderError, TTL_NONE,
};
use crate::key::{Digest, Key, View};
use crate::message::{
    Ack, Cancel, Changed, Commit, Credit, Degree, Deliver, EarlyValue, Evict, Execute, Fetch, Fill, Follow,
    Follows, Grant, Handover, HandoverAck, Heat, Hello, Invalidate, LayerSet, Leave, LoadStamp, Loads,
    Message, Offer, Part, Read, Refuse, Reject, Renew, Reply, Revoke, Revoked, SetDegree, Status, Subscribe,
    Subscribers, Tenure, TopicKind, Track, Welcome, Window,
};

/// Most bytes of a key (Redis allows 512 MiB; nobody caches such keys).
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a value: Redis' own limit on a string, with room for the RESP frame around it.
pub const VALUE_BYTES_MAX: usize = (512 << 20) + 4096;

/// Why bytes from a peer are not a message. The connection that sent them is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("unknown operation {0}")]
    Operation(u8),
    #[error("unknown status {0}")]
    Status(u8),
    #[error("unknown kind of subscription {0}")]
    Topic(u64),
    #[error("unknown end {0} of a part of a reply")]
    Part(u8),
    #[error("a key of {0} bytes is over the limit of {KEY_BYTES_MAX}")]
    KeyBytes(u32),
    #[error("a value of {0} bytes is over the limit of {VALUE_BYTES_MAX}")]
    ValueBytes(u32),
}

mod operation {
    pub(super) const READ: u8 = 1;
    pub(super) const REPLY: u8 = 2;
    pub(super) const EXECUTE: u8 = 3;
    pub(super) const CANCEL: u8 = 4;
    pub(super) const FETCH: u8 = 5;
    pub(super) const FILL: u8 = 6;
    pub(super) const OFFER: u8 = 7;
    pub(super) const SUBSCRIBE: u8 = 8;
    pub(super) const SUBSCRIBERS: u8 = 9;
    pub(super) const DELIVER: u8 = 10;
    pub(super) const FOLLOW: u8 = 11;
    pub(super) const TRACK: u8 = 12;
    pub(super) const CHANGED: u8 = 13;
    pub(super) const PART: u8 = 14;
    pub(super) const CREDIT: u8 = 15;
    pub(super) const HELLO: u8 = 16;
    pub(super) const WELCOME: u8 = 17;
    pub(super) const REJECT: u8 = 18;
    pub(super) const RENEW: u8 = 19;
    pub(super) const GRANT: u8 = 20;
    pub(super) const REFUSE: u8 = 21;
    pub(super) const INVALIDATE: u8 = 22;
    pub(super) const ACK: u8 = 23;
    pub(super) const COMMIT: u8 = 24;
    pub(super) const EVICT: u8 = 25;
    pub(super) const REVOKE: u8 = 26;
    pub(super) const REVOKED: u8 = 27;
    pub(super) const WINDOW: u8 = 28;
    pub(super) const HEAT: u8 = 29;
    pub(super) const SET_DEGREE: u8 = 30;
    pub(super) const HANDOVER: u8 = 31;
    pub(super) const HANDOVER_ACK: u8 = 32;
    pub(super) const TENURE: u8 = 33;
}

/// Appends one message to `out`.
pub fn encode(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Read(read) => {
            let flags = flag(read.resp3, FLAG_RESP3)
                | flag(read.ordered, FLAG_ORDERED)
                | flag(read.streams, FLAG_PARTS);
            let (request, view, waited_ms) = (read.request, read.view.0, read.waited_ms);
            let degree = degree_to_byte(read.degree);
            let header = Header { flags, request, view, waited_ms, degree, ..of(operation::READ) };
            frame(header, &read.key, &read.command, out);
        }
        Message::Reply(reply) => encode_reply(reply, out),
        Message::Execute(execute) => {
            let flags = flag(execute.resp3, FLAG_RESP3) | flag(execute.ordered, FLAG_ORDERED);
            let tail = execute.watch.map_or([0; 4], |watch| [1, watch, 0, 0]);
            let (request, waited_ms) = (execute.request, execute.waited_ms);
            let header = Header { flags, request, waited_ms, tail, ..of(operation::EXECUTE) };
            frame(header, &execute.key, &execute.command, out);
        }
        Message::Cancel(cancel) => {
            bare(Header { request: cancel.request, ..of(operation::CANCEL) }, out);
        }
        Message::Fetch(fetch) => {
            let header = Header {
                flags: flag(fetch.resp3, FLAG_RESP3),
                view: fetch.view.0,
                tail: [fetch.session, fetch.fill, 0, 0],
                ..of(operation::FETCH)
            };
            frame(header, &fetch.key, &fetch.command, out);
        }
        Message::Fill(fill) => {
            let header = Header {
                flags: flag(fill.granted, FLAG_GRANTED) | u16::from(fill.cached.0) << FLAG_CACHED_SHIFT,
                status: status_to_byte(fill.status),
                degree: degree_to_byte(fill.degree),
                view: fill.view.0,
                version: fill.version,
                tail: [fill.session, fill.fill, fill.ttl_ms.unwrap_or(TTL_NONE), fill.stale_ms],
                ..of(operation::FILL)
            };
            frame(header, &fill.key, &fill.value, out);
        }
        Message::Offer(offer) => {
            let header = Header {
                flags: flag(offer.resp3, FLAG_RESP3),
                view: offer.view.0,
                tail: [0, 0, 0, u64::from(offer.heat)],
                ..of(operation::OFFER)
            };
            frame(header, &offer.key, &offer.command, out);
        }
        Message::Subscribe(m) => {
            let header = Header { request: m.request, ..of(operation::SUBSCRIBE) };
            encode_topic(header, m.kind, m.clients, &m.name, &Bytes::new(), out);
        }
        Message::Subscribers(m) => {
            encode_topic(of(operation::SUBSCRIBERS), m.kind, m.clients, &m.name, &Bytes::new(), out);
        }
        Message::Deliver(m) => encode_topic(of(operation::DELIVER), m.kind, 0, &m.name, &m.push, out),
        Message::Part(m) => encode_part(m, out),
        Message::Credit(m) => {
            bare(Header { request: m.request, tail: [m.bytes, 0, 0, 0], ..of(operation::CREDIT) }, out);
        }
        other => encode_tracking(other, out),
    }
}

fn encode_tracking(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Follow(m) => {
            let flags = flag(m.follows, FLAG_GRANTED)
                | flag(m.writers, FLAG_VALUE)
                | flag(m.request.is_some(), FLAG_ORDERED);
            let header = Header { flags, request: m.request.unwrap_or(0), ..of(operation::FOLLOW) };
            frame(header, &Key::default(), &m.prefixes, out);
        }
        Message::Track(m) => frame(of(operation::TRACK), &m.key, &Bytes::new(), out),
        Message::Changed(m) => {
            let flags = flag(m.writer.is_some(), FLAG_VALUE);
            let header = Header { flags, request: m.writer.unwrap_or(0), ..of(operation::CHANGED) };
            frame(header, &Key::default(), &m.keys, out);
        }
        other => encode_succession(other, out),
    }
}

fn encode_succession(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Handover(m) => bare(Header { tail: [0, 0, 0, m.number], ..of(operation::HANDOVER) }, out),
        Message::HandoverAck(m) => {
            bare(Header { tail: [0, 0, 0, m.number], ..of(operation::HANDOVER_ACK) }, out);
        }
        Message::Tenure(m) => {
            let flags = flag(m.age.is_some(), FLAG_GRANTED) | flag(m.routers.is_some(), FLAG_VALUE);
            let routers = m.routers.map_or(0, u64::from);
            bare(Header { flags, tail: [0, routers, 0, m.age.unwrap_or(0)], ..of(operation::TENURE) }, out);
        }
        control => encode_control(control, out),
    }
}

fn encode_reply(reply: &Reply, out: &mut Vec<u8>) {
    let header = Header {
        flags: flag(reply.hit, FLAG_HIT)
            | flag(reply.more, FLAG_PARTS)
            | u16::from(reply.cached.0) << FLAG_CACHED_SHIFT,
        status: status_to_byte(reply.status),
        degree: degree_to_byte(reply.degree),
        request: reply.request,
        value_bytes: reply.value.len() as u32,
        tail: reply.loads.map(|stamp| u64::from(stamp.node_plus_one) << 32 | u64::from(stamp.load)),
        ..of(operation::REPLY)
    };
    header.write(out);
    out.extend_from_slice(&reply.value);
}

fn encode_part(part: &Part, out: &mut Vec<u8>) {
    let status = match part.follows {
        Follows::More => 0,
        Follows::Nothing => 1,
        Follows::Lost => 2,
    };
    let header = Header { status, request: part.request, ..of(operation::PART) };
    frame(header, &Key::default(), &part.value, out);
}

fn encode_topic(header: Header, kind: TopicKind, clients: u32, name: &Key, push: &Bytes, out: &mut Vec<u8>) {
    let kind = match kind {
        TopicKind::Channel => 0,
        TopicKind::Pattern => 1,
        TopicKind::ShardChannel => 2,
    };
    frame(Header { tail: [kind, 0, 0, u64::from(clients)], ..header }, name, push, out);
}

fn encode_control(message: &Message, out: &mut Vec<u8>) {
    match message {
        Message::Hello(m) => {
            bare(Header { tail: [m.process, m.nonce, 0, m.number], ..of(operation::HELLO) }, out)
        }
        Message::Welcome(m) => {
            bare(Header { tail: [m.session, m.nonce, m.lease, m.guard], ..of(operation::WELCOME) }, out)
        }
        Message::Reject(m) => bare(Header { tail: [0, m.nonce, 0, m.last], ..of(operation::REJECT) }, out),
        Message::Renew(m) => {
            let tail = [m.session, 0, u64::from(m.heat_floor), m.sent];
            bare(Header { tail, ..of(operation::RENEW) }, out);
        }
        Message::Grant(m) => encode_grant(m, out),
        Message::Refuse(m) => bare(Header { tail: [m.session, 0, 0, 0], ..of(operation::REFUSE) }, out),
        Message::Invalidate(m) => {
            let ttl = m.value.as_ref().and_then(|early| early.ttl_ms).unwrap_or(TTL_NONE);
            let header = Header {
                flags: flag(m.value.is_some(), FLAG_VALUE),
                version: m.version,
                tail: [m.session, 0, ttl, 0],
                ..of(operation::INVALIDATE)
            };
            let empty = Bytes::new();
            frame(header, &m.key, m.value.as_ref().map_or(&empty, |early| &early.value), out);
        }
        Message::Ack(m) => {
            let header = Header {
                flags: flag(m.nothing_held.is_some(), FLAG_NOTHING_HELD),
                version: m.version,
                tail: [m.session, m.nothing_held.unwrap_or(0), 0, 0],
                ..of(operation::ACK)
            };
            frame(header, &m.key, &Bytes::new(), out);
        }
        Message::Commit(m) => {
            let header = Header { version: m.version, tail: [m.session, 0, 0, 0], ..of(operation::COMMIT) };
            frame(header, &m.key, &Bytes::new(), out);
        }
        Message::Evict(m) => {
            let header = Header { tail: [m.session, m.fill, 0, 0], ..of(operation::EVICT) };
            frame(header, &m.key, &Bytes::new(), out);
        }
        Message::Revoke(m) => {
            // A release that spares nothing drops everything.
            let flags = flag(m.spares, FLAG_VALUE);
            bare(Header { flags, tail: [m.session, 0, 0, m.number], ..of(operation::REVOKE) }, out);
        }
        Message::Revoked(m) => {
            bare(Header { tail: [m.session, 0, 0, m.number], ..of(operation::REVOKED) }, out)
        }
        Message::Heat(m) => {
            let tail = [m.session, u64::from(m.invalidations), u64::from(m.permille), u64::from(m.hits)];
            let header = Header { degree: degree_to_byte(m.degree), tail, ..of(operation::HEAT) };
            frame(header, &m.key, &Bytes::new(), out);
        }
        Message::SetDegree(m) => {
            let header = Header { degree: degree_to_byte(m.degree), ..of(operation::SET_DEGREE) };
            frame(header, &m.key, &Bytes::new(), out);
        }
        Message::Window(m) => {
            bare(Header { tail: [0, 0, 0, u64::from(m.requests)], ..of(operation::WINDOW) }, out)
        }
        _ => unreachable!("the others are encoded above"),
    }
}

/// A release that knows of no leave grants nothing by it.
fn encode_grant(grant: &Grant, out: &mut Vec<u8>) {
    let (request, version) = grant.leave.map_or((0, 0), |leave| (leave.duration, leave.unheard));
    let flags = flag(grant.leave.is_some(), FLAG_VALUE);
    let tail = [grant.session, grant.duration, grant.guard, grant.sent];
    bare(Header { flags, request, version, tail, ..of(operation::GRANT) }, out);
}

fn of(operation: u8) -> Header {
    Header { operation, degree: 1, ..Header::default() }
}

fn bare(header: Header, out: &mut Vec<u8>) {
    header.write(out);
}

fn frame(mut header: Header, key: &Key, value: &Bytes, out: &mut Vec<u8>) {
    header.digest = key.digest.0;
    header.database = key.database;
    header.key_bytes = key.bytes.len() as u32;
    header.value_bytes = value.len() as u32;
    header.write(out);
    out.extend_from_slice(&key.bytes);
    out.extend_from_slice(value);
}

fn flag(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

/// The base is what members wrote before there were further steps.
fn degree_to_byte(degree: Degree) -> u8 {
    degree.0.saturating_add(1)
}

fn degree_from_byte(byte: u8) -> Degree {
    Degree(byte.saturating_sub(1))
}

fn status_to_byte(status: Status) -> u8 {
    match status {
        Status::Ok => 0,
        Status::Nil => 1,
        Status::Error => 2,
        Status::Busy => 3,
        Status::Large => 4,
        Status::Unlinked => 5,
        Status::Refused => 6,
    }
}

fn status_from_byte(byte: u8) -> Result<Status, DecodeError> {
    match byte {
        0 => Ok(Status::Ok),
        1 => Ok(Status::Nil),
        2 => Ok(Status::Error),
        3 => Ok(Status::Busy),
        4 => Ok(Status::Large),
        5 => Ok(Status::Unlinked),
        6 => Ok(Status::Refused),
        other => Err(DecodeError::Status(other)),
    }
}

/// How many bytes the message that starts `bytes` has, once its header is there.
pub fn message_bytes(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = checked(header)?;
    Ok(Some(HEADER_BYTES + header.key_bytes as usize + header.value_bytes as usize))
}

/// Takes the first message off `bytes`, also if it is wrong; `None` when it is not whole yet. Key and value share the buffer.
#[inline]
pub fn decode(bytes: &mut Bytes) -> Result<Option<Message>, DecodeError> {
    let Some(raw) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let header = checked(raw)?;
    let (key_bytes, value_bytes) = (header.key_bytes as usize, header.value_bytes as usize);
    let end = HEADER_BYTES + key_bytes + value_bytes;
    if bytes.len() < end {
        return Ok(None);
    }
    // Each part takes another count of references of the buffer, so only those that are there are made.
    let mut key = Key { digest: Digest(header.digest), database: header.database, bytes: Bytes::new() };
    let mut value = bytes.split_to(end);
    value.advance(HEADER_BYTES);
    if key_bytes > 0 {
        key.bytes = if value_bytes > 0 { value.split_to(key_bytes) } else { std::mem::take(&mut value) };
    }
    assemble(&header, key, value).map(Some)
}

fn checked(raw: &[u8; HEADER_BYTES]) -> Result<Header, DecodeError> {
    let header = Header::read(raw)?;
    if header.key_bytes as usize > KEY_BYTES_MAX {
        return Err(DecodeError::KeyBytes(header.key_bytes));
    }
    if header.value_bytes as usize > VALUE_BYTES_MAX {
        return Err(DecodeError::ValueBytes(header.value_bytes));
    }
    Ok(header)
}

fn assemble(header: &Header, key: Key, value: Bytes) -> Result<Message, DecodeError> {
    let has = |bit: u16| header.flags & bit != 0;
    let (resp3, ordered, view) = (has(FLAG_RESP3), has(FLAG_ORDERED), View(header.view));
    let [session, fill, _, argument] = header.tail;
    let request = header.request;
    Ok(match header.operation {
        operation::READ => {
            let streams = has(FLAG_PARTS);
            let (waited_ms, degree) = (header.waited_ms, degree_from_byte(header.degree));
            Message::Read(Read {
                request,
                key,
                view,
                resp3,
                ordered,
                streams,
                waited_ms,
                degree,
                command: value,
            })
        }
        operation::REPLY | operation::FILL => return assemble_answer(header, key, value),
        operation::EXECUTE => {
            let watch = (session == 1).then_some(fill);
            let waited_ms = header.waited_ms;
            Message::Execute(Execute { request, key, resp3, ordered, watch, waited_ms, command: value })
        }
        operation::CANCEL => Message::Cancel(Cancel { request }),
        operation::FETCH => Message::Fetch(Fetch { session, fill, key, view, resp3, command: value }),
        operation::OFFER => Message::Offer(Offer { key, view, resp3, heat: argument as u32, command: value }),
        operation::SUBSCRIBE | operation::SUBSCRIBERS | operation::DELIVER => {
            return assemble_topic(header, key, value);
        }
        operation::FOLLOW => Message::Follow(Follow {
            request: ordered.then_some(request),
            follows: has(FLAG_GRANTED),
            writers: has(FLAG_VALUE),
            prefixes: value,
        }),
        operation::TRACK => Message::Track(Track { key }),
        operation::CHANGED => {
            Message::Changed(Changed { writer: has(FLAG_VALUE).then_some(request), keys: value })
        }
        operation::PART => {
            let follows = match header.status {
                0 => Follows::More,
                1 => Follows::Nothing,
                2 => Follows::Lost,
                other => return Err(DecodeError::Part(other)),
            };
            Message::Part(Part { request, follows, value })
        }
        operation::CREDIT => Message::Credit(Credit { request, bytes: session }),
        _ => return assemble_control(header, key, value),
    })
}

/// A reply to a router, or a fill.
fn assemble_answer(header: &Header, key: Key, value: Bytes) -> Result<Message, DecodeError> {
    let has = |bit: u16| header.flags & bit != 0;
    let cached = LayerSet(((header.flags & FLAG_CACHED_MASK) >> FLAG_CACHED_SHIFT) as u8);
    let (status, degree) = (status_from_byte(header.status)?, degree_from_byte(header.degree));
    if header.operation == operation::REPLY {
        let (request, hit, more) = (header.request, has(FLAG_HIT), has(FLAG_PARTS));
        let loads = loads(&header.tail);
        return Ok(Message::Reply(Reply { request, status, hit, cached, degree, loads, more, value }));
    }
    let [session, fill, ttl, stale_ms] = header.tail;
    Ok(Message::Fill(Fill {
        session,
        fill,
        key,
        view: View(header.view),
        version: header.version,
        granted: has(FLAG_GRANTED),
        status,
        cached,
        degree,
        ttl_ms: ttl_of(ttl),
        stale_ms,
        value,
    }))
}

fn assemble_topic(header: &Header, name: Key, push: Bytes) -> Result<Message, DecodeError> {
    let [kind, .., clients] = header.tail;
    let clients = clients as u32;
    let kind = match kind {
        0 => TopicKind::Channel,
        1 => TopicKind::Pattern,
        2 => TopicKind::ShardChannel,
        other => return Err(DecodeError::Topic(other)),
    };
    Ok(match header.operation {
        operation::SUBSCRIBE => {
            Message::Subscribe(Subscribe { request: header.request, kind, name, clients })
        }
        operation::SUBSCRIBERS => Message::Subscribers(Subscribers { kind, name, clients }),
        _ => Message::Deliver(Deliver { kind, name, push }),
    })
}

fn assemble_control(header: &Header, key: Key, value: Bytes) -> Result<Message, DecodeError> {
    let has = |bit: u16| header.flags & bit != 0;
    let [session, second, ttl, argument] = header.tail;
    let version = header.version;
    Ok(match header.operation {
        operation::HELLO => Message::Hello(Hello { number: argument, nonce: second, process: session }),
        operation::WELCOME => {
            Message::Welcome(Welcome { session, nonce: second, lease: ttl, guard: argument })
        }
        operation::REJECT => Message::Reject(Reject { last: argument, nonce: second }),
        operation::RENEW => Message::Renew(Renew { session, sent: argument, heat_floor: ttl as u32 }),
        operation::GRANT => {
            let leave = Leave { duration: header.request, unheard: version };
            let leave = has(FLAG_VALUE).then_some(leave);
            Message::Grant(Grant { session, sent: argument, duration: second, guard: ttl, leave })
        }
        operation::REFUSE => Message::Refuse(Refuse { session }),
        operation::INVALIDATE => {
            let value = has(FLAG_VALUE).then(|| EarlyValue { ttl_ms: ttl_of(ttl), value });
            Message::Invalidate(Invalidate { session, key, version, value })
        }
        operation::ACK => {
            let nothing_held = has(FLAG_NOTHING_HELD).then_some(second);
            Message::Ack(Ack { session, key, version, nothing_held })
        }
        operation::COMMIT => Message::Commit(Commit { session, key, version }),
        operation::EVICT => Message::Evict(Evict { session, key, fill: second }),
        operation::REVOKE => Message::Revoke(Revoke { session, number: argument, spares: has(FLAG_VALUE) }),
        operation::HEAT => Message::Heat(Heat {
            session,
            key,
            degree: degree_from_byte(header.degree),
            permille: ttl as u32,
            hits: argument as u32,
            invalidations: second as u32,
        }),
        operation::SET_DEGREE => {
            Message::SetDegree(SetDegree { key, degree: degree_from_byte(header.degree) })
        }
        operation::WINDOW => Message::Window(Window { requests: argument as u32 }),
        operation::HANDOVER => Message::Handover(Handover { number: argument }),
        operation::HANDOVER_ACK => Message::HandoverAck(HandoverAck { number: argument }),
        operation::TENURE => Message::Tenure(Tenure {
            age: has(FLAG_GRANTED).then_some(argument),
            routers: has(FLAG_VALUE).then_some(second as u32),
        }),
        operation::REVOKED => Message::Revoked(Revoked { session, number: argument }),
        other => return Err(DecodeError::Operation(other)),
    })
}

fn ttl_of(milliseconds: u64) -> Option<u64> {
    (milliseconds != TTL_NONE).then_some(milliseconds)
}

fn loads(tail: &[u64; 4]) -> Loads {
    tail.map(|word| LoadStamp { node_plus_one: (word >> 32) as u32, load: word as u32 })
}

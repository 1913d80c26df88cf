//! Commands about the connection itself, answered here as Redis answers them. CLIENT is in `client_command`.

use bytes::Bytes;
use wire::resp::{Command, reply};

use crate::router::front::client_line::arity;
use crate::router::front::desk::Desk;
use crate::router::front::reply::RESET;
use crate::router::front::session::{ReplyMode, Session};
use crate::router::front::{
    Front, acl_command, client_command, own_command, slow_log, tracking_command, whole,
};
use crate::router::{replies, words};
use commands::integer;

pub(crate) enum OwnAnswer {
    Reply(Bytes),
    ReplyAndClose(Bytes),
}

/// Answers one command of kind `Connection`, in its turn.
pub(crate) fn answer(front: &mut Front, desk: &mut Desk<'_>, client: u32, command: &Command) {
    if client_command::is_reply(command) {
        return client_command::set_replies(front, desk, client, command);
    }
    if tracking_command::is_tracking(command) {
        return tracking_command::set(front, desk, client, command);
    }
    let resets = words::is(command, 0, "RESET") && command.len() == 1;
    if resets {
        front.set_tracking(desk, client, None);
        front.follow(desk, None);
        let subscribed = front.sessions.get_mut(client).and_then(|session| session.subscribed.take());
        front.leave_all(desk, client, subscribed);
    }
    if let Some(session) = front.sessions.get_mut(client).filter(|_| !keeps_caching(command)) {
        // It spends what CLIENT CACHING said, and reads nothing that the client could keep.
        session.tracking.iter_mut().for_each(|tracking| tracking.caching = false);
    }
    let ends_watch = resets || words::is(command, 0, "UNWATCH") && command.len() == 1;
    if ends_watch && desk.flow.is_watching(client) {
        if resets {
            let _ = evaluate(front, desk, client, command);
        }
        return front.end_watch(desk, client, command);
    }
    if whole::is_whole(command) {
        return front.answer_whole(desk, client, command);
    }
    let Some(answer) = evaluate(front, desk, client, command) else { return };
    match answer {
        OwnAnswer::Reply(bytes) => {
            desk.step.counters.refusals += u64::from(bytes.starts_with(b"-"));
            front.respond(desk, client, bytes);
        }
        OwnAnswer::ReplyAndClose(bytes) => front.respond_and_close(desk, client, bytes),
    }
}

/// CLIENT CACHING is about the next command, but for those of CLIENT; with MULTI it is about the whole transaction.
fn keeps_caching(command: &Command) -> bool {
    words::is(command, 0, "CLIENT") || words::is(command, 0, "MULTI")
}

/// What such a command does and answers, wherever its turn is. Not for CLIENT REPLY, which may have no answer, nor for what is about
/// the whole router.
pub(crate) fn evaluate(
    front: &mut Front,
    desk: &mut Desk<'_>,
    client: u32,
    command: &Command,
) -> Option<OwnAnswer> {
    let name = words::upper(command.name());
    Some(match name.as_slice() {
        b"SLOWLOG" => OwnAnswer::Reply(slow_log::answer(command)),
        b"DISTCACHE" => OwnAnswer::Reply(own_command::answer(front, client, command)),
        b"ACL" => OwnAnswer::Reply(acl_command::answer(front, desk, client, command)?),
        b"AUTH" => OwnAnswer::Reply(front.auth(desk, client, command)),
        b"HELLO" => OwnAnswer::Reply(front.hello(desk, client, command)?),
        b"CLIENT" => OwnAnswer::Reply(client_command::answer(front, desk, client, command)?),
        _ => {
            if words::is(command, 0, "RESET") && command.len() == 1 {
                front.forget_identity(client);
            }
            own(front.sessions.get_mut(client)?, &name, command)
        }
    })
}

fn own(session: &mut Session, name: &[u8], command: &Command) -> OwnAnswer {
    OwnAnswer::Reply(match (name, command.len()) {
        (b"PING", 1 | 2) if session.only_listens() => {
            let mut out = b"*2\r\n$4\r\npong\r\n".to_vec();
            reply::bulk(command.get(1).unwrap_or_default(), &mut out);
            out.into()
        }
        (b"PING", 1) => Bytes::from_static(reply::PONG),
        (b"PING", 2) | (b"ECHO", 2) => replies::bulk_string(command.arg(1)),
        (b"SELECT", 2) => select(command.arg(1)),
        (b"READONLY" | b"READWRITE", 1) => replies::OK,
        (b"ASKING" | b"CLUSTER", _) => replies::error("ERR This instance has cluster support disabled"),
        (b"RESET", 1) => {
            session.resp3 = false;
            session.replies = ReplyMode::On;
            session.labels = None;
            session.transaction = None;
            Bytes::from_static(RESET)
        }
        (b"MULTI", 1) => {
            session.transaction = Some(Box::default());
            replies::OK
        }
        (b"EXEC" | b"DISCARD", 1) => {
            let name = String::from_utf8_lossy(name).into_owned();
            replies::error(&format!("ERR {name} without MULTI"))
        }
        (b"UNWATCH", 1) => replies::OK,
        (b"QUIT", _) => return OwnAnswer::ReplyAndClose(replies::OK),
        (b"PING" | b"ECHO" | b"SELECT" | b"READONLY" | b"READWRITE" | b"RESET", _) => arity(command),
        _ => replies::error(&format!(
            "ERR DistCache: '{}' is not supported here",
            String::from_utf8_lossy(command.name()).to_lowercase()
        )),
    })
}

fn select(index: &[u8]) -> Bytes {
    match integer(index) {
        Some(0) => replies::OK,
        Some(index) if i32::try_from(index).is_err() => {
            replies::error("ERR value is out of range, value must between -2147483648 and 2147483647")
        }
        Some(_) => replies::error("ERR DB index is out of range"),
        None => replies::error("ERR value is not an integer or out of range"),
    }
}

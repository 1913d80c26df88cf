//! The CLIENT command: what a connection says and asks about itself, and about all of its router. Never about other
//! routers' connections.

use std::time::Duration;

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::pause::ClientPause;
use crate::router::front::client_filter::ClientFilter;
use crate::router::front::client_line::{BAD_NAME, is_label, line};
use crate::router::front::desk::Desk;
use crate::router::front::session::{ReplyMode, Session};
use crate::router::front::whole::ThreadShare;
use crate::router::front::{Front, client_tracking, tracking_command};
use crate::router::{replies, words};
use crate::time::Time;
use commands::integer;

const SYNTAX: &str = "ERR syntax error";

pub(crate) fn is_reply(command: &Command) -> bool {
    words::is(command, 0, "CLIENT") && words::is(command, 1, "REPLY")
}

/// Any of them but CLIENT REPLY.
pub(crate) fn answer(
    front: &mut Front,
    desk: &mut Desk<'_>,
    client: u32,
    command: &Command,
) -> Option<Bytes> {
    let sub = if command.len() > 1 { words::upper(command.arg(1)) } else { Default::default() };
    let resp3 = front.sessions.get(client).is_some_and(|session| session.resp3);
    Some(match (sub.as_slice(), command.len()) {
        (b"INFO", 2) => {
            let session = front.sessions.get(client)?;
            let line = line(session, desk.flow.len(client), desk.now()) + "\n";
            replies::verbatim(&line, resp3)
        }
        _ => about_itself(front.sessions.get_mut(client)?, &sub, command),
    })
}

/// What a thread says to CLIENT LIST, KILL, PAUSE, UNPAUSE, UNBLOCK and TRACKING; `own` asks, if it is a client here.
pub(crate) fn share(
    front: &mut Front,
    desk: &mut Desk<'_>,
    own: Option<u32>,
    command: &Command,
) -> Result<ThreadShare, Bytes> {
    match words::upper(command.get(1).unwrap_or_default()).as_slice() {
        b"LIST" => {
            let filter = ClientFilter::list(command)?;
            let chosen = front.sessions.numbered().filter(|(_, session)| filter.fits(session));
            let shown = |(index, session): (u32, &Session)| {
                (session.number, line(session, desk.flow.len(index), desk.now()) + "\n")
            };
            Ok(ThreadShare::Clients(chosen.map(shown).collect()))
        }
        b"KILL" => kill(front, own, command),
        b"PAUSE" => {
            desk.flow.pause(paused(desk.now(), command)?);
            Ok(ThreadShare::Done)
        }
        b"UNPAUSE" => {
            desk.flow.unpause(desk.step.now);
            Ok(ThreadShare::Done)
        }
        b"TRACKING" => {
            let number = tracking_command::redirect_number(command);
            Ok(ThreadShare::Place(number.and_then(|number| front.sessions.find(number))))
        }
        _ => unblock(front, desk, command),
    }
}

/// Ends clients of this thread once the step is over; the one that asks gets its reply first.
fn kill(front: &mut Front, own: Option<u32>, command: &Command) -> Result<ThreadShare, Bytes> {
    let filter = ClientFilter::kill(command)?;
    let chosen = front.sessions.numbered().filter(|(index, session)| {
        filter.fits(session) && !session.closing && (Some(*index) != own || !filter.spares_own)
    });
    let chosen: Vec<u32> = chosen.map(|(index, _)| index).collect();
    let count = chosen.len() as u64;
    front.killed.extend(chosen);
    Ok(ThreadShare::Count(count))
}

/// The reply to a command that has found so many.
pub(crate) fn counted(command: &Command, count: u64) -> Bytes {
    let is_plain_kill = words::is(command, 1, "KILL") && command.len() == 3;
    match (is_plain_kill, count) {
        (true, 0) => replies::error("ERR No such client"),
        (true, _) => replies::OK,
        (false, count) => replies::integer(count as i64),
    }
}

/// CLIENT UNBLOCK id [TIMEOUT | ERROR]: whether that client of this thread was blocked.
fn unblock(front: &Front, desk: &mut Desk<'_>, command: &Command) -> Result<ThreadShare, Bytes> {
    let error = match command.len() {
        3 => false,
        _ if words::is(command, 3, "TIMEOUT") => false,
        _ if words::is(command, 3, "ERROR") => true,
        _ => return Err(replies::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let Some(number) = integer(command.arg(2)) else {
        return Err(replies::error("ERR value is not an integer or out of range"));
    };
    let client = u64::try_from(number).ok().and_then(|number| front.sessions.find(number));
    Ok(ThreadShare::Count(u64::from(client.is_some_and(|client| desk.flow.unblock(client, error)))))
}

/// CLIENT PAUSE timeout [WRITE | ALL]
fn paused(now: Time, command: &Command) -> Result<ClientPause, Bytes> {
    let all = match command.len() {
        3 => true,
        4 if words::is(command, 3, "ALL") => true,
        4 if words::is(command, 3, "WRITE") => false,
        _ => return Err(replies::error("ERR syntax error")),
    };
    match integer(command.arg(2)) {
        None => Err(replies::error("ERR timeout is not an integer or out of range")),
        Some(ms) if ms < 0 => Err(replies::error("ERR timeout is negative")),
        Some(ms) => Ok(ClientPause { until: now.after(Duration::from_millis(ms as u64)), all }),
    }
}

fn about_itself(session: &mut Session, sub: &[u8], command: &Command) -> Bytes {
    match (sub, command.len()) {
        (b"ID", 2) => replies::integer(session.number as i64),
        (b"GETNAME", 2) => match &session.labels {
            Some(labels) if !labels.name.is_empty() => replies::bulk_string(&labels.name),
            _ => Bytes::from_static(replies::nil(session.resp3)),
        },
        (b"SETNAME", 3) if !is_label(command.arg(2)) => replies::error(BAD_NAME),
        (b"SETNAME", 3) => {
            // A copy, because a slice would keep the whole read buffer alive.
            session.labels().name = Bytes::copy_from_slice(command.arg(2));
            replies::OK
        }
        (b"SETINFO", 4) => set_info(session, command),
        (b"NO-EVICT" | b"NO-TOUCH", 3) if words::is(command, 2, "ON") || words::is(command, 2, "OFF") => {
            replies::OK
        }
        (b"GETREDIR", 2) => replies::integer(client_tracking::redirect(session.tracking.as_deref())),
        (b"TRACKINGINFO", 2) => client_tracking::info(session.tracking.as_deref(), session.resp3),
        (b"CACHING", 3) => client_tracking::caching(session.tracking.as_deref_mut(), command),
        (b"TRACKING", 3..) => {
            replies::error("ERR DistCache: CLIENT TRACKING is not possible inside a transaction")
        }
        (
            b"SETNAME" | b"SETINFO" | b"ID" | b"GETNAME" | b"INFO" | b"NO-EVICT" | b"NO-TOUCH" | b"KILL"
            | b"PAUSE" | b"UNPAUSE" | b"UNBLOCK" | b"GETREDIR" | b"TRACKINGINFO" | b"CACHING" | b"TRACKING",
            length,
        ) => {
            if matches!(sub, b"NO-EVICT" | b"NO-TOUCH") && length == 3 {
                return replies::error(SYNTAX);
            }
            let sub = String::from_utf8_lossy(sub).to_lowercase();
            replies::error(&format!("ERR wrong number of arguments for 'client|{sub}' command"))
        }
        (b"", 1) => replies::error("ERR wrong number of arguments for 'client' command"),
        _ => replies::error(&format!(
            "ERR unknown subcommand '{}'. Try CLIENT HELP.",
            String::from_utf8_lossy(command.arg(1))
        )),
    }
}

fn set_info(session: &mut Session, command: &Command) -> Bytes {
    let value = Bytes::copy_from_slice(command.arg(3));
    let option = words::upper(command.arg(2));
    if !matches!(option.as_slice(), b"LIB-NAME" | b"LIB-VER") {
        let option = String::from_utf8_lossy(command.arg(2)).into_owned();
        return replies::error(&format!("ERR Unrecognized option '{option}'"));
    }
    if !is_label(&value) {
        let option = String::from_utf8_lossy(&option).to_lowercase();
        return replies::error(&format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        ));
    }
    match option.as_slice() {
        b"LIB-NAME" => session.labels().library = value,
        _ => session.labels().library_version = value,
    }
    replies::OK
}

/// CLIENT REPLY ON|OFF|SKIP: only ON is answered.
pub(crate) fn set_replies(front: &mut Front, desk: &mut Desk<'_>, client: u32, command: &Command) {
    let Some(session) = front.sessions.get_mut(client) else { return };
    if command.len() != 3 {
        let error = replies::error("ERR wrong number of arguments for 'client|reply' command");
        return front.respond(desk, client, error);
    }
    match words::upper(command.arg(2)).as_slice() {
        b"ON" => {
            session.replies = ReplyMode::On;
            front.respond(desk, client, replies::OK);
        }
        b"OFF" => session.replies = ReplyMode::Off,
        b"SKIP" => {
            if session.replies != ReplyMode::Off {
                session.replies = ReplyMode::SkipNext;
            }
        }
        _ => front.respond(desk, client, replies::error(SYNTAX)),
    }
}

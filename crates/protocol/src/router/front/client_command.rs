//! The CLIENT command: what a connection says and asks about itself. Never about other routers' connections.

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::plan;
use crate::router::front::client::{Client, Replies};
use crate::router::front::client_filter::Filter;
use crate::router::front::client_tracking;
use crate::router::front::connection::{BAD_NAME, is_label, line};
use crate::router::{ClientId, Effect, Router, replies};
use crate::time::Time;

const SYNTAX: &str = "ERR syntax error";

pub(crate) fn is_reply(command: &Command) -> bool {
    plan::is(command, 0, "CLIENT") && plan::is(command, 1, "REPLY")
}

/// Any of them but CLIENT REPLY.
pub(crate) fn answer(router: &mut Router, now: Time, client: u32, command: &Command) -> Option<Bytes> {
    let sub = if command.len() > 1 { plan::upper(command.arg(1)) } else { Default::default() };
    let resp3 = router.clients.get(client).is_some_and(|state| state.resp3);
    Some(match (sub.as_slice(), command.len()) {
        (b"LIST", _) => match Filter::list(command) {
            Err(error) => error,
            Ok(filter) => {
                let chosen = router.clients.all().filter(|client| filter.fits(client));
                let lines: String = chosen.map(|state| line(state, now) + "\n").collect();
                replies::verbatim(&lines, resp3)
            }
        },
        (b"KILL", 3..) => kill(router, client, command),
        (b"UNBLOCK", 3 | 4) => router.unblock(command),
        (b"PAUSE", 3..) => router.begin_pause(now, command),
        (b"UNPAUSE", 2) => router.cut_pause(now),
        (b"INFO", 2) => replies::verbatim(&(line(router.clients.get(client)?, now) + "\n"), resp3),
        _ => about_itself(router.clients.get_mut(client)?, &sub, command),
    })
}

/// Ends clients of this router once the step is over; the one that asks gets its reply first.
fn kill(router: &mut Router, own: u32, command: &Command) -> Bytes {
    let filter = match Filter::kill(command) {
        Ok(filter) => filter,
        Err(error) => return error,
    };
    let chosen = router.clients.numbered().filter(|(index, client)| {
        filter.fits(client) && !client.closing && (*index != own || !filter.spares_own)
    });
    let chosen: Vec<u32> = chosen.map(|(index, _)| index).collect();
    let count = chosen.len();
    router.killed.extend(chosen.into_iter().map(ClientId));
    match (filter.is_plain, count) {
        (true, 0) => replies::error("ERR No such client"),
        (true, _) => replies::OK,
        (false, count) => replies::integer(count as i64),
    }
}

fn about_itself(state: &mut Client, sub: &[u8], command: &Command) -> Bytes {
    match (sub, command.len()) {
        (b"ID", 2) => replies::integer(state.number as i64),
        (b"GETNAME", 2) => match &state.labels {
            Some(labels) if !labels.name.is_empty() => replies::bulk_string(&labels.name),
            _ => Bytes::from_static(replies::nil(state.resp3)),
        },
        (b"SETNAME", 3) if !is_label(command.arg(2)) => replies::error(BAD_NAME),
        (b"SETNAME", 3) => {
            // A copy, because a slice would keep the whole read buffer alive.
            state.labels().name = Bytes::copy_from_slice(command.arg(2));
            replies::OK
        }
        (b"SETINFO", 4) => set_info(state, command),
        (b"NO-EVICT" | b"NO-TOUCH", 3) if plan::is(command, 2, "ON") || plan::is(command, 2, "OFF") => {
            replies::OK
        }
        (b"GETREDIR", 2) => replies::integer(client_tracking::redirect(state)),
        (b"TRACKINGINFO", 2) => client_tracking::info(state),
        (b"CACHING", 3) => client_tracking::caching(state, command),
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

fn set_info(state: &mut Client, command: &Command) -> Bytes {
    let value = Bytes::copy_from_slice(command.arg(3));
    let option = plan::upper(command.arg(2));
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
        b"LIB-NAME" => state.labels().library = value,
        _ => state.labels().library_version = value,
    }
    replies::OK
}

/// CLIENT REPLY ON|OFF|SKIP: only ON is answered.
pub(crate) fn set_replies(
    router: &mut Router,
    now: Time,
    client: u32,
    command: &Command,
    effects: &mut Vec<Effect>,
) {
    let Some(state) = router.clients.get_mut(client) else { return };
    if command.len() != 3 {
        let error = replies::error("ERR wrong number of arguments for 'client|reply' command");
        return router.respond(now, client, error, effects);
    }
    match plan::upper(command.arg(2)).as_slice() {
        b"ON" => {
            state.replies = Replies::On;
            router.respond(now, client, replies::OK, effects);
        }
        b"OFF" => state.replies = Replies::Off,
        b"SKIP" => {
            if state.replies != Replies::Off {
                state.replies = Replies::SkipNext;
            }
        }
        _ => router.respond(now, client, replies::error(SYNTAX), effects),
    }
}

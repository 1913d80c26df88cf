//! CLIENT TRACKING: what a connection asks for of client-side caching. Not what comes of it.

use std::collections::BTreeSet;

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::gather::Merge;
use crate::router::flow::pipeline::OperationProgress;
use crate::router::flow::request::RequestOrigin;
use crate::router::front::Front;
use crate::router::front::client_tracking::{ClientTracking, TrackingChoice};
use crate::router::front::desk::Desk;
use crate::router::front::session::Sessions;
use crate::router::siblings::ThreadClient;
use crate::router::{replies, words};
use commands::integer;

const SYNTAX: &str = "ERR syntax error";
const SWITCHES_BROADCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
                                  and then re-enabling it with a different mode.";
const SWITCHES_OPTION: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
                               then re-enabling it with a different mode.";

pub(crate) fn is_tracking(command: &Command) -> bool {
    words::is(command, 0, "CLIENT") && words::is(command, 1, "TRACKING") && command.len() >= 3
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
pub(crate) fn set(front: &mut Front, desk: &mut Desk<'_>, client: u32, command: &Command) {
    let place = desk.step.config.place;
    let number = redirect_number(command);
    if number.is_some_and(|number| place.thread_of(number) != place.own) {
        return front.find_redirect(desk, client, command);
    }
    let Some(origin) = front.hand(desk, client) else { return };
    let there = number.and_then(|number| front.sessions.find(number));
    set_at(front, desk, origin, command, there);
}

/// The same for a command that has its place; `there`: the place of the client that is to be told instead.
pub(crate) fn set_at(
    front: &mut Front,
    desk: &mut Desk<'_>,
    origin: RequestOrigin,
    command: &Command,
    there: Option<u32>,
) {
    let client = origin.client;
    match parse(&front.sessions, client, command, there) {
        Ok(tracking) => {
            let begins = tracking.is_some();
            front.set_tracking(desk, client, tracking.map(Box::new));
            let parts = front.follow(desk, Some(origin).filter(|_| begins));
            match parts.is_empty() {
                true => desk.flow.finish(origin, replies::OK),
                false => desk.flow.await_fan(origin, OperationProgress::fan(parts, Merge::First)),
            }
        }
        Err(error) => {
            desk.step.counters.refusals += 1;
            desk.flow.finish(origin, replies::error(&error));
        }
    }
}

/// The client that the command wants to be told instead.
pub(crate) fn redirect_number(command: &Command) -> Option<u64> {
    let at = (3..command.len()).find(|at| words::is(command, *at, "REDIRECT"))?;
    command.get(at + 1).and_then(integer).and_then(|number| u64::try_from(number).ok())
}

/// What the client shall have; `None` for OFF. `there`: the place of the client that REDIRECT names.
fn parse(
    sessions: &Sessions,
    client: u32,
    command: &Command,
    there: Option<u32>,
) -> Result<Option<ClientTracking>, String> {
    let (mut redirect, mut prefixes) = (None, Vec::new());
    let (mut broadcast, mut opt_in, mut opt_out, mut noloop) = (false, false, false, false);
    let mut next = 3;
    while next < command.len() {
        let more = next + 1 < command.len();
        match words::upper(command.arg(next)).as_slice() {
            b"REDIRECT" if more => {
                if redirect.is_some() {
                    return Err("ERR A client can only redirect to a single other client".to_owned());
                }
                next += 1;
                redirect = Some(target(sessions, command.arg(next), there)?);
            }
            b"BCAST" => broadcast = true,
            b"OPTIN" => opt_in = true,
            b"OPTOUT" => opt_out = true,
            b"NOLOOP" => noloop = true,
            b"PREFIX" if more => {
                next += 1;
                prefixes.push(Bytes::copy_from_slice(command.arg(next)));
            }
            _ => return Err(SYNTAX.to_owned()),
        }
        next += 1;
    }
    if words::is(command, 2, "OFF") {
        return Ok(None);
    }
    if !words::is(command, 2, "ON") {
        return Err(SYNTAX.to_owned());
    }
    let before = sessions.get(client).and_then(|session| session.tracking.as_ref());
    let choice = match (opt_in, opt_out) {
        (true, _) => TrackingChoice::OptIn,
        (false, true) => TrackingChoice::OptOut,
        (false, false) => TrackingChoice::All,
    };
    if !broadcast && !prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".to_owned());
    }
    if before.is_some_and(|before| before.prefixes.is_some() != broadcast) {
        return Err(SWITCHES_BROADCAST.to_owned());
    }
    if broadcast && (opt_in || opt_out) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".to_owned());
    }
    if opt_in && opt_out {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".to_owned());
    }
    let switches = |before: TrackingChoice| {
        choice != TrackingChoice::All && before != TrackingChoice::All && before != choice
    };
    if before.is_some_and(|before| switches(before.choice)) {
        return Err(SWITCHES_OPTION.to_owned());
    }
    let prefixes = match broadcast {
        true => Some(with_prefixes(before.and_then(|before| before.prefixes.as_ref()), prefixes)?),
        false => None,
    };
    let clean = before.is_none_or(|before| before.clean);
    Ok(Some(ClientTracking { redirect, choice, prefixes, noloop, clean, ..ClientTracking::default() }))
}

/// The client of this number, which is at this place of its thread.
fn target(sessions: &Sessions, number: &[u8], there: Option<u32>) -> Result<ThreadClient, String> {
    let number = integer(number).ok_or("ERR value is not an integer or out of range")?;
    let found = u64::try_from(number).ok().zip(there);
    let (number, client) = found.ok_or("ERR The client ID you want redirect to does not exist")?;
    Ok(ThreadClient { thread: sessions.place.thread_of(number), client, number })
}

/// No key may be reported twice.
fn with_prefixes(own: Option<&BTreeSet<Bytes>>, more: Vec<Bytes>) -> Result<BTreeSet<Bytes>, String> {
    let overlap = |one: &Bytes, other: &Bytes| {
        let bytes = one.len().min(other.len());
        one[..bytes] == other[..bytes]
    };
    let refused = |one: &Bytes, which: &str, other: &Bytes| {
        let [one, other] = [one, other].map(|prefix| String::from_utf8_lossy(prefix).into_owned());
        Err(format!(
            "ERR Prefix '{one}' overlaps with {which} prefix '{other}'. Prefixes for a single client must not overlap."
        ))
    };
    for (index, prefix) in more.iter().enumerate() {
        if let Some(known) = own.into_iter().flatten().find(|known| overlap(known, prefix)) {
            return refused(prefix, "an existing", known);
        }
        if let Some(other) = more[index + 1..].iter().find(|other| overlap(prefix, other)) {
            return refused(prefix, "another provided", other);
        }
    }
    let mut all = own.cloned().unwrap_or_default();
    if more.is_empty() {
        all.insert(Bytes::new());
    }
    all.extend(more);
    Ok(all)
}

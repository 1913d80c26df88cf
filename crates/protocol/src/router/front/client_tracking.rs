//! CLIENT TRACKING and what belongs to it: a connection's own settings of client-side caching, in Redis' words. Not who
//! is told of what.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use wire::resp::{Command, reply};

use crate::router::flow::dispatch::{Origin, answered, fan};
use crate::router::flow::gather::Merge;
use crate::router::flow::pipeline::Operation;
use crate::router::flow::plan;
use crate::router::front::client::Client;
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::integer;

const SYNTAX: &str = "ERR syntax error";
const SWITCHES_BROADCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
                                  and then re-enabling it with a different mode.";
const SWITCHES_OPTION: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
                               then re-enabling it with a different mode.";

/// Which reads are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    #[default]
    All,
    /// Those behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
}

/// What a client is to drop.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Keys(Vec<Bytes>),
    All,
}

#[derive(Debug, Default)]
pub(crate) struct ClientTracking {
    /// The client that is told instead, and its number.
    pub(crate) redirect: Option<(u32, u64)>,
    pub(crate) choice: Choice,
    /// Of a client that is told of all keys with these prefixes, read or not.
    pub(crate) prefixes: Option<BTreeSet<Bytes>>,
    pub(crate) noloop: bool,
    /// CLIENT CACHING was said.
    pub(crate) caching: bool,
    /// The one to be told is gone.
    pub(crate) broken: bool,
    /// It has asked for nothing since it tracks, or since it was told to drop everything.
    pub(crate) clean: bool,
    /// Each behind the reply of this number.
    pub(crate) held: Vec<(u64, Notice)>,
    /// Requests of its latest writes.
    pub(crate) writes: VecDeque<u64>,
}

impl ClientTracking {
    /// Whether it has written itself what has changed, and does not want to hear of that.
    pub(crate) fn loops(&self, writer: Option<u64>) -> bool {
        self.noloop && writer.is_some_and(|writer| self.writes.contains(&writer))
    }

    pub(crate) fn take_caching(&mut self) -> bool {
        self.clean = false;
        let said = std::mem::take(&mut self.caching);
        self.prefixes.is_none()
            && match self.choice {
                Choice::All => true,
                Choice::OptIn => said,
                Choice::OptOut => !said,
            }
    }
}

pub(crate) fn is_tracking(command: &Command) -> bool {
    plan::is(command, 0, "CLIENT") && plan::is(command, 1, "TRACKING") && command.len() >= 3
}

/// `CLIENT TRACKING ON|OFF [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`
pub(crate) fn set(router: &mut Router, now: Time, client: u32, command: &Command, effects: &mut Vec<Effect>) {
    let tracking = match parse(router, client, command) {
        Ok(tracking) => tracking,
        Err(error) => {
            router.counters.refusals += 1;
            return router.respond(now, client, replies::error(&error), effects);
        }
    };
    let begins = tracking.is_some();
    router.set_tracking(client, tracking.map(Box::new));
    let Some(state) = router.clients.get_mut(client) else { return };
    let (sequence, resp3) = (state.pipeline.next(), state.resp3);
    let origin = Origin { client, part: 0, sequence, resp3, waited_ms: 0 };
    let parts = router.follow(begins.then_some(origin), effects);
    if parts.is_empty() {
        return router.respond(now, client, replies::OK, effects);
    }
    let Some(state) = router.clients.get_mut(client) else { return };
    let (progress, silent) = (fan(parts, Merge::First), state.take_silence());
    let operation = Operation { progress, resp3, ..answered(now, Bytes::new(), silent, false) };
    router.enqueue(now, client, operation, effects);
}

/// What the client shall have; `None` for OFF.
fn parse(router: &Router, client: u32, command: &Command) -> Result<Option<ClientTracking>, String> {
    let (mut redirect, mut prefixes) = (None, Vec::new());
    let (mut broadcast, mut opt_in, mut opt_out, mut noloop) = (false, false, false, false);
    let mut next = 3;
    while next < command.len() {
        let more = next + 1 < command.len();
        match plan::upper(command.arg(next)).as_slice() {
            b"REDIRECT" if more => {
                if redirect.is_some() {
                    return Err("ERR A client can only redirect to a single other client".to_owned());
                }
                next += 1;
                let number = integer(command.arg(next));
                let number = number.ok_or("ERR value is not an integer or out of range")?;
                let found = router.clients.find(number as u64);
                let found = found.ok_or("ERR The client ID you want redirect to does not exist")?;
                redirect = Some((found, number as u64));
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
    if plan::is(command, 2, "OFF") {
        return Ok(None);
    }
    if !plan::is(command, 2, "ON") {
        return Err(SYNTAX.to_owned());
    }
    let before = router.clients.get(client).and_then(|state| state.tracking.as_ref());
    let choice = match (opt_in, opt_out) {
        (true, _) => Choice::OptIn,
        (false, true) => Choice::OptOut,
        (false, false) => Choice::All,
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
    let switches = |before: Choice| choice != Choice::All && before != Choice::All && before != choice;
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

/// CLIENT CACHING YES|NO
pub(crate) fn caching(state: &mut Client, command: &Command) -> Bytes {
    let Some(tracking) = &mut state.tracking else {
        return replies::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    let wanted = match plan::upper(command.arg(2)).as_slice() {
        b"YES" => Choice::OptIn,
        b"NO" => Choice::OptOut,
        _ => return replies::error(SYNTAX),
    };
    if tracking.choice != wanted || tracking.prefixes.is_some() {
        return replies::error(match wanted {
            Choice::OptIn => "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            _ => "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        });
    }
    tracking.caching = true;
    replies::OK
}

/// What CLIENT GETREDIR says: -1 does not track, 0 is told itself.
pub(crate) fn redirect(state: &Client) -> i64 {
    let Some(tracking) = &state.tracking else { return -1 };
    tracking.redirect.map_or(0, |(_, number)| number as i64)
}

/// CLIENT TRACKINGINFO
pub(crate) fn info(state: &Client) -> Bytes {
    let mut flags: Vec<&str> = Vec::new();
    let none = ClientTracking::default();
    let tracking = state.tracking.as_deref();
    flags.push(if tracking.is_some() { "on" } else { "off" });
    let own = tracking.unwrap_or(&none);
    let mut flag = |set: bool, name| {
        if set {
            flags.push(name)
        }
    };
    flag(own.prefixes.is_some(), "bcast");
    flag(own.choice == Choice::OptIn, "optin");
    flag(own.choice == Choice::OptIn && own.caching, "caching-yes");
    flag(own.choice == Choice::OptOut, "optout");
    flag(own.choice == Choice::OptOut && own.caching, "caching-no");
    flag(own.noloop, "noloop");
    flag(own.broken, "broken_redirect");
    let mut out = Vec::new();
    reply::map_header(3, state.resp3, &mut out);
    reply::bulk(b"flags", &mut out);
    reply::set_header(flags.len(), state.resp3, &mut out);
    flags.iter().for_each(|flag| reply::bulk(flag.as_bytes(), &mut out));
    reply::bulk(b"redirect", &mut out);
    reply::integer(redirect(state), &mut out);
    reply::bulk(b"prefixes", &mut out);
    let prefixes = own.prefixes.iter().flatten();
    reply::array_header(prefixes.clone().count(), &mut out);
    prefixes.for_each(|prefix| reply::bulk(prefix, &mut out));
    out.into()
}

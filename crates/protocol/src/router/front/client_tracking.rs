//! A connection's own settings of client-side caching, in Redis' words. Not who is told of what.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use wire::resp::{Command, reply};

use crate::router::siblings::ThreadClient;
use crate::router::{replies, words};

const SYNTAX: &str = "ERR syntax error";
/// Writes of one client that are remembered to know their reports (NOLOOP). An older one is taken for anybody's.
const WRITES_MAX: usize = 1024;

/// Which reads are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TrackingChoice {
    #[default]
    All,
    /// Commands behind CLIENT CACHING YES.
    OptIn,
    /// All but those behind CLIENT CACHING NO.
    OptOut,
}

/// What a client is to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Keys(Vec<Bytes>),
    All,
}

#[derive(Debug, Default)]
pub(crate) struct ClientTracking {
    /// The client that is told instead, of this thread or another.
    pub(crate) redirect: Option<ThreadClient>,
    pub(crate) choice: TrackingChoice,
    /// Prefixes of a client that is told of all keys that begin so, read or not.
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
    /// Requests of its latest writes, and how many reads had been kept when each was sent.
    pub(crate) writes: VecDeque<(u64, u64)>,
}

impl ClientTracking {
    /// If it has written itself what has changed, and does not want to hear of that: how many reads had been kept then.
    pub(crate) fn loops(&self, writer: Option<u64>) -> Option<u64> {
        let writer = writer.filter(|_| self.noloop)?;
        self.writes.iter().find(|(request, _)| *request == writer).map(|(_, reads)| *reads)
    }

    /// A write of its own was sent.
    pub(crate) fn wrote(&mut self, request: u64, reads: u64) {
        if !self.noloop {
            return;
        }
        if self.writes.len() >= WRITES_MAX {
            self.writes.pop_front();
        }
        self.writes.push_back((request, reads));
    }

    /// Whether what the next command reads is kept.
    pub(crate) fn take_caching(&mut self) -> bool {
        self.clean = false;
        let said = std::mem::take(&mut self.caching);
        self.prefixes.is_none()
            && match self.choice {
                TrackingChoice::All => true,
                TrackingChoice::OptIn => said,
                TrackingChoice::OptOut => !said,
            }
    }
}

/// CLIENT CACHING YES|NO
pub(crate) fn caching(tracking: Option<&mut ClientTracking>, command: &Command) -> Bytes {
    let Some(tracking) = tracking else {
        return replies::error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    let wanted = match words::upper(command.arg(2)).as_slice() {
        b"YES" => TrackingChoice::OptIn,
        b"NO" => TrackingChoice::OptOut,
        _ => return replies::error(SYNTAX),
    };
    if tracking.choice != wanted || tracking.prefixes.is_some() {
        return replies::error(match wanted {
            TrackingChoice::OptIn => {
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
            }
            _ => "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
        });
    }
    tracking.caching = true;
    replies::OK
}

/// What CLIENT GETREDIR says: -1 does not track, 0 is told itself.
pub(crate) fn redirect(tracking: Option<&ClientTracking>) -> i64 {
    let Some(tracking) = tracking else { return -1 };
    tracking.redirect.map_or(0, |to| to.number as i64)
}

/// CLIENT TRACKINGINFO
pub(crate) fn info(tracking: Option<&ClientTracking>, resp3: bool) -> Bytes {
    let mut flags: Vec<&str> = Vec::new();
    let none = ClientTracking::default();
    flags.push(if tracking.is_some() { "on" } else { "off" });
    let own = tracking.unwrap_or(&none);
    let mut flag = |set: bool, name| {
        if set {
            flags.push(name)
        }
    };
    flag(own.prefixes.is_some(), "bcast");
    flag(own.choice == TrackingChoice::OptIn, "optin");
    flag(own.choice == TrackingChoice::OptIn && own.caching, "caching-yes");
    flag(own.choice == TrackingChoice::OptOut, "optout");
    flag(own.choice == TrackingChoice::OptOut && own.caching, "caching-no");
    flag(own.noloop, "noloop");
    flag(own.broken, "broken_redirect");
    let mut out = Vec::new();
    reply::map_header(3, resp3, &mut out);
    reply::bulk(b"flags", &mut out);
    reply::set_header(flags.len(), resp3, &mut out);
    flags.iter().for_each(|flag| reply::bulk(flag.as_bytes(), &mut out));
    reply::bulk(b"redirect", &mut out);
    reply::integer(redirect(tracking), &mut out);
    reply::bulk(b"prefixes", &mut out);
    let prefixes = own.prefixes.iter().flatten();
    reply::array_header(prefixes.clone().count(), &mut out);
    prefixes.for_each(|prefix| reply::bulk(prefix, &mut out));
    out.into()
}

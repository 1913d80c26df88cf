//! Connections whose TLS handshake is not over: how many there may be, and for how long. Not the handshake itself.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use config::Address;
use protocol::time::Time;

use crate::reactor::{ConnectionId, Io};

/// A handshake takes no longer than this, whoever began it.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Accepted connections that may be in their handshake at one time, unless the driver says otherwise.
const HALF_OPEN_MAX: usize = 1024;
const LOG_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Handshakes {
    half_open_max: usize,
    /// Accepted, with their deadlines; those that are done stay until they are the oldest.
    accepted: VecDeque<(ConnectionId, Time)>,
    dialled: Vec<(ConnectionId, Time)>,
    /// Some have to wait for the next turn: accept no more in this one.
    pub(crate) behind: bool,
    logged: Option<Time>,
    suppressed: u64,
}

impl Default for Handshakes {
    fn default() -> Handshakes {
        Handshakes {
            half_open_max: HALF_OPEN_MAX,
            accepted: VecDeque::new(),
            dialled: Vec::new(),
            behind: false,
            logged: None,
            suppressed: 0,
        }
    }
}

impl Io {
    /// How many accepted connections may be in their TLS handshake. The oldest gives way to the next one: a flood of
    /// silent connections drops its own, as an honest handshake takes milliseconds.
    pub fn set_handshakes_max(&mut self, max: usize) {
        self.handshakes.half_open_max = max;
    }

    pub(crate) fn watch_accepted(&mut self, id: ConnectionId, now: Time) {
        if self.handshakes.accepted.len() >= self.handshakes.half_open_max
            && let Some((oldest, _)) = self.handshakes.accepted.pop_front()
        {
            self.give_up_handshake(oldest, &"too many others came after it", now);
        }
        self.handshakes.accepted.push_back((id, now.after(HANDSHAKE_MAX)));
    }

    pub(crate) fn watch_dialled(&mut self, id: ConnectionId, now: Time) {
        self.handshakes.dialled.push((id, now.after(HANDSHAKE_MAX)));
    }

    /// Ends the handshakes whose time is over.
    pub(crate) fn expire_handshakes(&mut self, now: Time) {
        while let Some(&(oldest, deadline)) = self.handshakes.accepted.front() {
            if now < deadline && self.is_opening(oldest) {
                break;
            }
            self.handshakes.accepted.pop_front();
            self.give_up_handshake(oldest, &"it took too long", now);
        }
        let mut dialled = std::mem::take(&mut self.handshakes.dialled);
        dialled.retain(|&(id, deadline)| {
            let goes_on = self.is_opening(id) && now < deadline;
            if !goes_on && self.is_opening(id) {
                let seconds = HANDSHAKE_MAX.as_secs();
                let what =
                    format!("no TLS handshake within {seconds} s; does the other end speak TLS there?");
                self.fail(id, io::Error::new(io::ErrorKind::TimedOut, what));
            }
            goes_on
        });
        self.handshakes.dialled = dialled;
    }

    fn give_up_handshake(&mut self, id: ConnectionId, reason: &dyn std::fmt::Display, now: Time) {
        if self.is_opening(id) {
            self.complain(id, reason, now);
            self.forget(id);
        }
    }

    /// An accepted connection has failed before the driver could know it.
    pub(crate) fn complain(&mut self, id: ConnectionId, reason: &dyn std::fmt::Display, now: Time) {
        let table = self.count_failed_handshake(id);
        if self.handshakes.logged.is_some_and(|logged| now < logged.after(LOG_EVERY)) {
            self.handshakes.suppressed += 1;
            return;
        }
        self.handshakes.logged = Some(now);
        let from = self.peer_address(id).map_or_else(
            || "?".to_owned(),
            |address| match address {
                Address::Tcp(address) => address.to_string(),
                Address::Unix(path) => path.display().to_string(),
            },
        );
        let suppressed = std::mem::take(&mut self.handshakes.suppressed);
        tracing::warn!(from, table, suppressed, "a TLS handshake has failed: {reason}");
    }
}

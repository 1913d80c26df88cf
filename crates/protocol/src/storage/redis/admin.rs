//! The admin connection: dials, asks what the takeover wants to know, one question at a time. No data commands.

use bytes::Bytes;
use wire::foreign::{Foreign, speaks};
use wire::resp::{ReplyScanner, Value};

use super::takeover::{Progress, Takeover, Trouble};
use crate::storage::backoff::Backoff;
use crate::storage::network::{ConnectionId, Endpoint, Network};

/// How often a settled server is asked whether it is still the same one: one that was made a replica is served for this
/// long at most.
const RECHECK_US: u64 = 250_000;
/// Pauses of a process that was replaced before it looks whether the other is still there. The first lets a successor
/// connect; the last is how long nobody serves after a successor has died.
const STANDBY_MIN_US: u64 = 1_000_000;
const STANDBY_MAX_US: u64 = 16_000_000;
/// How long a server that says BUSY or LOADING is left alone.
const WAIT_US: u64 = 100_000;

/// What a TLS port does with a plain client, if it says nothing.
const MUTE: &str = "; nothing came before: if TLS is spoken there, write rediss:// instead of redis://";

/// Why what listens at the address is no storage of this kind, and what to write.
fn expected(foreign: Foreign) -> String {
    let advice = match foreign {
        Foreign::Memcached => "write memcached:// in `storage`, or the address of a Redis server",
        Foreign::Tls => "write rediss:// instead of redis:// in `storage`",
        _ => "give the address of a Redis server in `storage`",
    };
    format!("RESP expected, this speaks {foreign}: {advice}")
}

/// What has become known on the admin connection.
#[derive(Debug)]
pub(super) enum News {
    /// Connections and grants of the last incarnation are void.
    Void,
    Trouble(Trouble),
}

pub(super) struct Admin {
    endpoint: Endpoint,
    tls: bool,
    connection: Option<ConnectionId>,
    connected: bool,
    /// It has answered on this connection.
    heard: bool,
    scanner: ReplyScanner,
    /// Since when the connection, or the reply to the last question, has been awaited.
    waits_since_us: Option<u64>,
    /// Nothing is dialled or asked before.
    not_before_us: u64,
    checked_us: u64,
    /// The next pause of a process that was replaced.
    standby_us: u64,
    backoff: Backoff,
    pub(super) takeover: Takeover,
}

impl Admin {
    pub(super) fn new((endpoint, tls): (Endpoint, bool), backoff: Backoff, takeover: Takeover) -> Admin {
        Admin {
            endpoint,
            tls,
            connection: None,
            connected: false,
            heard: false,
            scanner: ReplyScanner::new(),
            waits_since_us: None,
            not_before_us: 0,
            checked_us: 0,
            standby_us: STANDBY_MIN_US,
            backoff,
            takeover,
        }
    }

    pub(super) fn is(&self, connection: ConnectionId) -> bool {
        self.connection == Some(connection)
    }

    /// Holds back dialling and questions, so that shims that displace each other do not do it all the time.
    pub(super) fn rest(&mut self, now_us: u64) {
        self.not_before_us = now_us + self.backoff.next_us();
    }

    pub(super) fn reset_backoff(&mut self) {
        self.backoff.reset();
        self.standby_us = STANDBY_MIN_US;
    }

    pub(super) fn connected(&mut self, network: &mut dyn Network, now_us: u64) {
        self.connected = true;
        self.heard = false;
        self.waits_since_us = None;
        self.takeover.restart();
        self.ask(network, now_us);
    }

    pub(super) fn closed(&mut self, now_us: u64, reason: &str) -> News {
        self.connection = None;
        let mute = std::mem::take(&mut self.connected) && !self.heard;
        self.waits_since_us = None;
        self.scanner = ReplyScanner::new();
        self.rest(now_us);
        let hint = if mute && !self.tls { MUTE } else { "" };
        News::Trouble(Trouble::Broken(format!("{reason}{hint}")))
    }

    pub(super) fn data(&mut self, network: &mut dyn Network, now_us: u64, mut bytes: Bytes) -> Option<News> {
        let connection = self.connection?;
        let mut news = None;
        loop {
            match self.scanner.scan(&bytes) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    let reply = bytes.split_to(len);
                    news = self.reply(network, now_us, &reply).or(news);
                    if self.connection.is_none() {
                        return news;
                    }
                }
                Err(error) => {
                    // Only the first bytes tell: what comes later is broken, and not of another kind.
                    let foreign = if self.heard { None } else { speaks(&bytes) };
                    let broken = self.give_up(network, now_us, &error.to_string());
                    return Some(
                        foreign.map_or(broken, |foreign| News::Trouble(Trouble::Refused(expected(foreign)))),
                    );
                }
            }
        }
        network.unread(connection, bytes);
        self.ask(network, now_us);
        news
    }

    fn reply(&mut self, network: &mut dyn Network, now_us: u64, reply: &Bytes) -> Option<News> {
        self.waits_since_us = None;
        self.heard = true;
        let value = match Value::parse(reply) {
            Ok(value) => value,
            Err(error) => return Some(self.give_up(network, now_us, &error.to_string())),
        };
        match self.takeover.reply(&value) {
            Ok(Progress::Next) => None,
            Ok(Progress::Void) => Some(News::Void),
            Err(Trouble::Broken(reason)) => Some(self.give_up(network, now_us, &reason)),
            Err(trouble) => {
                // The same is asked again: what keeps it from being granted may change.
                self.not_before_us = match &trouble {
                    Trouble::Wait(_) => now_us + WAIT_US,
                    Trouble::Replaced(_) if self.takeover.misses_successor() => now_us + STANDBY_MIN_US,
                    Trouble::Replaced(_) => {
                        let pause_us = self.standby_us;
                        self.standby_us = (pause_us * 2).min(STANDBY_MAX_US);
                        now_us + pause_us
                    }
                    _ => now_us + self.backoff.next_us(),
                };
                Some(News::Trouble(trouble))
            }
        }
    }

    /// Whether the server owes an answer for longer than this.
    pub(super) fn overdue(&self, now_us: u64, timeout_us: u64) -> bool {
        self.waits_since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) > timeout_us)
    }

    /// `timeout_us`: how long the server may be silent now.
    pub(super) fn tick(&mut self, network: &mut dyn Network, now_us: u64, timeout_us: u64) -> Option<News> {
        if self.connection.is_none() {
            if now_us >= self.not_before_us {
                self.connection = Some(network.dial(self.endpoint, false));
                self.waits_since_us = Some(now_us);
            }
            return None;
        }
        if self.overdue(now_us, timeout_us) {
            let reason = format!("no answer within {} ms", timeout_us / 1000);
            return Some(self.give_up(network, now_us, &reason));
        }
        if now_us.saturating_sub(self.checked_us) >= RECHECK_US {
            self.checked_us = now_us;
            self.takeover.recheck();
        }
        self.ask(network, now_us);
        None
    }

    /// Asks what the takeover wants to know next.
    pub(super) fn ask(&mut self, network: &mut dyn Network, now_us: u64) {
        let Some(connection) = self.connection.filter(|_| self.connected) else { return };
        if self.waits_since_us.is_some() || now_us < self.not_before_us {
            return;
        }
        if let Some(command) = self.takeover.command() {
            network.out(connection).extend_from_slice(command.frame());
            self.waits_since_us = Some(now_us);
        }
    }

    /// Takes this incarnation's user away and closes.
    pub(super) fn leave(&mut self, network: &mut dyn Network) {
        let Some(connection) = self.connection.take() else { return };
        match self.takeover.farewell().filter(|_| self.connected) {
            Some(command) => {
                network.out(connection).extend_from_slice(command.frame());
                network.close_confirmed(connection);
            }
            None => network.close(connection),
        }
    }

    fn give_up(&mut self, network: &mut dyn Network, now_us: u64, reason: &str) -> News {
        if let Some(connection) = self.connection.take() {
            network.close(connection);
        }
        self.closed(now_us, reason)
    }
}

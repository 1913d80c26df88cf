//! The admin connection: dials, asks what the takeover wants to know, one question at a time. No data commands.

use std::time::Duration;

use bytes::Bytes;
use wire::foreign::{Foreign, speaks};
use wire::resp::{ReplyScanner, Value};

use super::settings::RedisSettings;
use super::takeover::{Progress, Takeover, Trouble};
use crate::storage::backoff::Backoff;
use crate::storage::health::AWAY;
use crate::storage::network::{ConnectionId, Endpoint, Network};
use crate::time::Time;

/// How often a settled server is asked whether it is still the same one: one that was made a replica is served for this
/// long at most.
const RECHECK: Duration = Duration::from_millis(250);
/// Pauses of a process that was replaced before it looks whether the other is still there. The first lets a successor
/// connect; the last is how long nobody serves after a successor has died.
const STANDBY_MIN: Duration = Duration::from_secs(1);
const STANDBY_MAX: Duration = Duration::from_secs(16);
/// The same of a process that is there to stand by,
const WATCH: Duration = Duration::from_millis(200);
/// when it has found nobody for once: who lives has connections again by then,
const WATCH_AGAIN: Duration = Duration::from_millis(1200);
/// and for a while after the other one's process was seen to be gone.
const ALERT: Duration = Duration::from_millis(10);
const ALERT_FOR: Duration = Duration::from_secs(1);
/// At the start the first of them goes ahead.
const START_DELAY: Duration = Duration::from_millis(100);
/// How long a server that says BUSY or LOADING is left alone.
const WAIT: Duration = Duration::from_millis(100);

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
    /// This incarnation's user is gone: another process may be the shim.
    Left,
}

pub(super) struct Admin {
    endpoint: Endpoint,
    tls: bool,
    /// From the first tick to the first dial.
    delay: Option<Duration>,
    connection: Option<ConnectionId>,
    connected: bool,
    /// It has answered on this connection.
    heard: bool,
    scanner: ReplyScanner,
    /// Since when the connection, or the reply to the last question, has been awaited.
    waits_since: Option<Time>,
    /// Nothing is dialled or asked before.
    not_before: Time,
    checked: Time,
    /// The next pause of a process that was replaced.
    standby: Duration,
    /// The other one has left, or is gone.
    alert_until: Time,
    /// Replies to the last commands of an incarnation that hands over.
    farewell_replies: Option<usize>,
    backoff: Backoff,
    pub(super) takeover: Takeover,
}

impl Admin {
    pub(super) fn new(settings: &RedisSettings, backoff: Backoff, takeover: Takeover) -> Admin {
        Admin {
            endpoint: settings.endpoint,
            tls: settings.tls,
            delay: settings.standby.map(|place| START_DELAY * place.into()),
            connection: None,
            connected: false,
            heard: false,
            scanner: ReplyScanner::new(),
            waits_since: None,
            not_before: Time(0),
            checked: Time(0),
            standby: STANDBY_MIN,
            alert_until: Time(0),
            farewell_replies: None,
            backoff,
            takeover,
        }
    }

    pub(super) fn is(&self, connection: ConnectionId) -> bool {
        self.connection == Some(connection)
    }

    /// Holds back dialling and questions, so that shims that displace each other do not do it all the time.
    pub(super) fn rest(&mut self, now: Time) {
        self.not_before = self.not_before.max(now.after(self.backoff.next()));
    }

    /// Another process has its turn: one that stands by looks more often.
    pub(super) fn stay_away(&mut self, now: Time) {
        self.not_before = now.after(AWAY);
    }

    pub(super) fn reset_backoff(&mut self) {
        self.backoff.reset();
        self.standby = STANDBY_MIN;
    }

    pub(super) fn connected(&mut self, network: &mut dyn Network, now: Time) {
        self.connected = true;
        self.heard = false;
        self.waits_since = None;
        self.takeover.restart();
        self.ask(network, now);
    }

    pub(super) fn closed(&mut self, now: Time, reason: &str) -> News {
        self.connection = None;
        let mute = std::mem::take(&mut self.connected) && !self.heard;
        self.waits_since = None;
        self.scanner = ReplyScanner::new();
        self.rest(now);
        if self.farewell_replies.take().is_some() {
            // Whoever comes next finds out how far it came.
            return News::Left;
        }
        let hint = if mute && !self.tls { MUTE } else { "" };
        News::Trouble(Trouble::Broken(format!("{reason}{hint}")))
    }

    pub(super) fn data(&mut self, network: &mut dyn Network, now: Time, mut bytes: Bytes) -> Option<News> {
        let connection = self.connection?;
        let mut news = None;
        loop {
            match self.scanner.scan(&bytes) {
                Ok(None) => break,
                Ok(Some(len)) => {
                    let reply = bytes.split_to(len);
                    news = self.reply(network, now, &reply).or(news);
                    if self.connection.is_none() {
                        return news;
                    }
                }
                Err(error) => {
                    // Only the first bytes tell: what comes later is broken, and not of another kind.
                    let foreign = if self.heard { None } else { speaks(&bytes) };
                    let broken = self.give_up(network, now, &error.to_string());
                    return Some(
                        foreign.map_or(broken, |foreign| News::Trouble(Trouble::Refused(expected(foreign)))),
                    );
                }
            }
        }
        network.unread(connection, bytes);
        self.ask(network, now);
        news
    }

    fn reply(&mut self, network: &mut dyn Network, now: Time, reply: &Bytes) -> Option<News> {
        self.waits_since = None;
        self.heard = true;
        if let Some(left) = &mut self.farewell_replies {
            *left = left.saturating_sub(1);
            let is_last = *left == 0;
            return self.farewell_replies.take_if(|_| is_last).map(|_| News::Left);
        }
        let value = match Value::parse(reply) {
            Ok(value) => value,
            Err(error) => return Some(self.give_up(network, now, &error.to_string())),
        };
        match self.takeover.reply(now, &value) {
            Ok(Progress::Next) => None,
            Ok(Progress::Void) => Some(News::Void),
            Err(Trouble::Broken(reason)) => Some(self.give_up(network, now, &reason)),
            Err(trouble) => {
                // The same is asked again: what keeps it from being granted may change.
                self.not_before = match &trouble {
                    Trouble::Wait(_) => now.after(WAIT),
                    Trouble::Replaced(_) if self.takeover.stands_by() => now.after(self.watch_pause(now)),
                    Trouble::Replaced(_) if self.takeover.misses_successor() => now.after(STANDBY_MIN),
                    Trouble::Replaced(_) => {
                        let pause = self.standby;
                        self.standby = (pause * 2).min(STANDBY_MAX);
                        now.after(pause)
                    }
                    _ => now.after(self.backoff.next()),
                };
                Some(News::Trouble(trouble))
            }
        }
    }

    fn watch_pause(&self, now: Time) -> Duration {
        match self.takeover.misses_successor() {
            _ if now < self.alert_until => ALERT,
            true => WATCH_AGAIN,
            false => WATCH,
        }
    }

    /// Looks at once whether the other one is still there, and often for a while if its process is `gone`. One that has left has
    /// taken its user away.
    pub(super) fn alert(&mut self, network: &mut dyn Network, now: Time, gone: bool) {
        if gone {
            self.alert_until = now.after(ALERT_FOR);
        }
        if self.takeover.is_replaced() && (gone || !self.takeover.misses_successor()) {
            self.not_before = now;
            self.ask(network, now);
        }
    }

    /// Whether the server owes an answer for longer than this.
    pub(super) fn overdue(&self, now: Time, timeout: Duration) -> bool {
        self.waits_since.is_some_and(|since| now.since(since) > timeout)
    }

    /// `timeout`: how long the server may be silent now.
    pub(super) fn tick(&mut self, network: &mut dyn Network, now: Time, timeout: Duration) -> Option<News> {
        if let Some(delay) = self.delay.take() {
            self.not_before = now.after(delay);
        }
        if self.connection.is_none() {
            if now >= self.not_before {
                self.connection = Some(network.dial(self.endpoint, false));
                self.waits_since = Some(now);
            }
            return None;
        }
        if self.overdue(now, timeout) {
            let reason = format!("no answer within {} ms", timeout.as_millis());
            return Some(self.give_up(network, now, &reason));
        }
        if now.since(self.checked) >= RECHECK {
            self.checked = now;
            self.takeover.recheck();
        }
        self.takeover.shrink(now);
        self.ask(network, now);
        None
    }

    /// Asks what the takeover wants to know next.
    pub(super) fn ask(&mut self, network: &mut dyn Network, now: Time) {
        let Some(connection) = self.connection.filter(|_| self.connected) else { return };
        if self.waits_since.is_some() || now < self.not_before || self.farewell_replies.is_some() {
            return;
        }
        if let Some(command) = self.takeover.command(now) {
            network.out(connection).extend_from_slice(command.frame());
            self.waits_since = Some(now);
        }
    }

    /// Takes this incarnation's user away, and tells when the server has done it. False if there is nothing to wait for.
    pub(super) fn hand_over(&mut self, network: &mut dyn Network, now: Time) -> bool {
        let farewell = self.takeover.farewell(now, true).filter(|_| self.connected);
        let (Some(connection), Some(commands)) = (self.connection, farewell) else { return false };
        let out = network.out(connection);
        commands.iter().for_each(|command| out.extend_from_slice(command.frame()));
        self.farewell_replies = Some(commands.len() + usize::from(self.waits_since.is_some()));
        true
    }

    /// Takes this incarnation's user away and closes.
    pub(super) fn leave(&mut self, network: &mut dyn Network, now: Time) {
        let Some(connection) = self.connection.take() else { return };
        let farewell = self.takeover.farewell(now, false).filter(|_| self.farewell_replies.is_none());
        match farewell.filter(|_| self.connected) {
            Some(commands) => {
                let out = network.out(connection);
                commands.iter().for_each(|command| out.extend_from_slice(command.frame()));
                network.close_confirmed(connection);
            }
            None => network.close(connection),
        }
    }

    fn give_up(&mut self, network: &mut dyn Network, now: Time, reason: &str) -> News {
        if let Some(connection) = self.connection.take() {
            network.close(connection);
        }
        self.closed(now, reason)
    }
}

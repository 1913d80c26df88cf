//! Client bytes to commands, handed to the machine while it may have more. Not what becomes of them.

use std::time::Duration;

use bytes::Bytes;
use config::Config;
use protocol::router::{ClientId, Input};
use protocol::time::Time;
use runtime::reactor::{ConnectionId, Io, OUT_LOW_BYTES};
use wire::memcached;
use wire::resp::{ProtocolError, RespLimits, RespTaken, next_command};

use crate::driver::RouterDriver;
use crate::front::Connection;

/// Input that may be a large command, which waits while links are congested; small ones go on.
const LARGE_BYTES: usize = 64 << 10;
/// What is handed in of one client in one go, like a read: others have their turn.
const HANDED_BYTES_MAX: usize = 256 << 10;
/// Commands that are handed in of all clients before it is the first one's turn again: some milliseconds' work. With more, one
/// who asks for one thing at a time waits for long beside hundreds who send hundreds.
const ROUND_COMMANDS: usize = 4096;
/// Commands of one client that are handed on, however many there are: with fewer, replies share fewer writes.
const HANDED_COMMANDS_MIN: usize = 32;
/// What is kept of a client while the members are slower than it sends. More makes nothing faster.
const BUSY_BYTES_MAX: usize = 4 << 20;
/// What is kept of a client that has yet to show who it is.
const STRANGER_BYTES_MAX: usize = 64 << 10;

/// Clients that speak TLS or HTTP are told of no more often than this.
const TOLD_EVERY: Duration = Duration::from_secs(1);

enum Next {
    Input(Input),
    /// No command is whole before there are so many bytes.
    Needs(usize),
    /// Nothing after it can be trusted any more.
    Last(Input),
}

impl RouterDriver {
    /// Hands commands in while the client may have more in flight. The rest is kept, and the socket is read on: a client
    /// may send everything before it reads.
    pub(crate) fn data(&mut self, io: &mut Io, connection: ConnectionId, bytes: Bytes, now: Time) {
        let Some(client) = self.connections.client(connection) else { return };
        let Some(state) = self.connections.get_mut(client) else { return };
        let read_bytes = bytes.len();
        if read_bytes == 0 {
            // What is kept is gone on with.
            state.due = false;
            if !state.kept.is_empty() {
                let front = state.kept.take_front();
                self.hand_in(io, client, front, now);
            }
            return;
        }
        state.seen = now;
        if !state.kept.is_empty() {
            state.kept.push(bytes, read_bytes);
            return self.kept_more(io, client, connection);
        }
        if read_bytes < state.needs {
            return io.unread(connection, bytes);
        }
        // The next command may be shorter than the one that had to be waited for.
        state.needs = 0;
        state.kept.set_front(read_bytes);
        self.hand_in(io, client, bytes, now);
    }

    /// Behind commands that wait already.
    fn kept_more(&mut self, io: &mut Io, client: ClientId, connection: ConnectionId) {
        if self.engine.router.is_closing(client) {
            return self.connections.end_input(io, client);
        }
        self.recount(io, client);
        let Some(state) = self.connections.get_mut(client) else { return };
        let (waits, kept_bytes) = (state.due || state.held_back, state.kept.memory_bytes());
        // With more that waits, more replies may be unread.
        let full = self.connections.output_full(io, connection, kept_bytes);
        if !waits && !full && self.engine.router.ready(client) {
            self.connections.wake(io, client);
        }
    }

    /// Whether nothing goes on before the client reads.
    pub(crate) fn waits_for_client(&self, io: &Io, client: ClientId, state: &Connection) -> bool {
        let streams = self.engine.router.is_streaming(client) && io.out_bytes(state.id) > OUT_LOW_BYTES;
        streams || self.connections.output_full(io, state.id, state.kept.memory_bytes())
    }

    /// Reads the client, or not, by what is kept of it. While the members are waited for it has to wait, too: only one that
    /// may be waited for itself has to be read on.
    pub(crate) fn recount(&mut self, io: &mut Io, client: ClientId) {
        let Some(state) = self.connections.get(client) else { return };
        let bytes_max = match self.engine.router.unauthenticated_since(client) {
            Some(_) => STRANGER_BYTES_MAX,
            None => self.config.limits.client_input_bytes_max.0 as usize,
        };
        let in_bytes_max = match self.waits_for_client(io, client, state) {
            true => bytes_max,
            false => bytes_max.min(BUSY_BYTES_MAX),
        };
        self.connections.recount(io, client, in_bytes_max);
    }

    fn hand_in(&mut self, io: &mut Io, client: ClientId, mut bytes: Bytes, now: Time) {
        let Some(connection) = self.connections.get(client).map(|state| state.id) else { return };
        let (mut handed_bytes, mut handed) = (0, 0);
        // With few clients each has more of a round.
        let handed_max = (ROUND_COMMANDS / self.connections.count().max(1)).max(HANDED_COMMANDS_MIN);
        let others_turn = loop {
            if handed_bytes >= HANDED_BYTES_MAX || handed >= handed_max {
                break true;
            }
            if !self.may_hand_in(io, client, bytes.len()) {
                break false;
            }
            let before = bytes.len();
            match self.next_input(client, &mut bytes) {
                Next::Input(input) => {
                    (handed_bytes, handed) = (handed_bytes + before - bytes.len(), handed + 1);
                    self.step(io, now, input);
                }
                Next::Needs(needs) => {
                    let Some(state) = self.connections.get_mut(client) else { return };
                    match state.kept.join(bytes, needs) {
                        Ok(more) => bytes = more,
                        Err(rest) => {
                            state.needs = needs;
                            return self.handed_in(io, client, rest);
                        }
                    }
                }
                Next::Last(input) => {
                    if let Input::Malformed { error, .. } = &input {
                        self.tell_of_foreigner(io, connection, error);
                    }
                    self.connections.end_input(io, client);
                    return self.step(io, now, input);
                }
            }
            if self.connections.client(connection).is_none() {
                return;
            }
        };
        if self.engine.router.is_closing(client) {
            return self.connections.end_input(io, client);
        }
        let Some(state) = self.connections.get_mut(client) else { return };
        state.kept.put_back(bytes);
        if state.kept.is_empty() {
            state.needs = 0;
            return self.handed_in(io, client, Bytes::new());
        }
        if others_turn {
            self.connections.wake(io, client);
        }
        self.recount(io, client);
    }

    /// Whether the client's next command may go to the machine. If not, something will happen that says when: the machine
    /// has room (`Effect::Resume`), the output is taken (`Event::Writable`), or links have less to take (`held_back`).
    fn may_hand_in(&mut self, io: &mut Io, client: ClientId, front_bytes: usize) -> bool {
        let Some(state) = self.connections.get_mut(client) else { return false };
        // Not less than is counted when the front is back: what is full here has to be full there.
        let (connection, waiting_bytes) = (state.id, state.kept.memory_bytes_with_front());
        if !self.engine.router.ready(client) || self.connections.output_full(io, connection, waiting_bytes) {
            return false;
        }
        if front_bytes <= LARGE_BYTES || !self.engine.is_congested(io) {
            return true;
        }
        if let Some(state) = self.connections.get_mut(client)
            && !std::mem::replace(&mut state.held_back, true)
        {
            self.held_back.push(client);
        }
        false
    }

    /// Nothing is kept any more. `rest`: the start of a command, which the connection keeps and lets grow in place.
    fn handed_in(&mut self, io: &mut Io, client: ClientId, rest: Bytes) {
        let Some(state) = self.connections.get_mut(client) else { return };
        let connection = state.id;
        let ended = std::mem::take(&mut state.ended);
        let was_kept = state.was_kept();
        io.unread(connection, rest);
        if was_kept {
            self.recount(io, client);
        }
        if ended {
            self.step(io, io.now(), Input::Ended { client });
        }
    }

    /// The first whole command of what a client has sent.
    fn next_input(&mut self, client: ClientId, bytes: &mut Bytes) -> Next {
        let stranger = self.engine.router.unauthenticated_since(client).is_some();
        let Some(limits) = &self.memcached else {
            return match next_command(bytes, if stranger { &self.strangers } else { &self.limits }) {
                Ok(RespTaken::Command(command)) => Next::Input(Input::Command { client, command }),
                Ok(RespTaken::Needs(needs)) => Next::Needs(needs),
                Err(error) => Next::Last(Input::Malformed { client, error }),
            };
        };
        let Some(state) = self.connections.get_mut(client) else { return Next::Needs(usize::MAX) };
        match state
            .requests
            .next(bytes, if stranger { &memcached::MemcachedLimits::STRANGER } else { limits })
        {
            memcached::MemcachedTaken::Request(request) => Next::Input(Input::Memcached { client, request }),
            memcached::MemcachedTaken::Needs(needs) => Next::Needs(needs),
            memcached::MemcachedTaken::Hangup(told) => Next::Last(Input::Garbled { client, told }),
        }
    }

    /// The client does not understand the reply, so the log says it too; at most once a second.
    fn tell_of_foreigner(&mut self, io: &Io, connection: ConnectionId, error: &ProtocolError) {
        let told = match error {
            ProtocolError::TlsHello => "a client that speaks TLS came to a plain port",
            ProtocolError::Http => {
                "a client that speaks HTTP was closed: a browser, perhaps sent here by a web page to have commands executed"
            }
            _ => return,
        };
        let now = io.now();
        if now >= self.foreigner_told.after(TOLD_EVERY) {
            self.foreigner_told = now;
            let from = io.peer_address(connection).map_or_else(String::new, |from| from.to_string());
            tracing::warn!(from, "{told}");
        }
    }
}

pub(crate) fn memcached_limits(config: &Config) -> memcached::MemcachedLimits {
    let default = memcached::MemcachedLimits::default();
    let value_bytes_max = default.value_bytes_max.min(config.limits.command_bytes_max.0 as usize);
    memcached::MemcachedLimits { value_bytes_max, ..default }
}

/// Limits of the commands that clients send.
pub(crate) fn limits(config: &Config) -> RespLimits {
    let command_bytes_max = config.limits.command_bytes_max.0 as usize;
    let default = RespLimits::default();
    RespLimits {
        arguments_max: config.limits.arguments_max,
        bulk_bytes_max: command_bytes_max.min(default.bulk_bytes_max),
        frame_bytes_max: command_bytes_max.min(default.frame_bytes_max),
        ..default
    }
}

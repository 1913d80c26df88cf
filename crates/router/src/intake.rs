//! Client bytes to commands, handed to the machine while it may have more. Not what becomes of them.

use bytes::Bytes;
use protocol::router::{ClientId, Input};
use protocol::time::Time;
use runtime::config::Config;
use runtime::reactor::{ConnectionId, Io};
use wire::memcached;
use wire::resp::{Limits, ProtocolError, Taken, next_command};

use crate::driver::RouterDriver;

/// Input that may be a large command, which waits while links are congested; small ones go on.
const LARGE_BYTES: usize = 64 << 10;

enum Next {
    Input(Input),
    /// No command is whole before there are so many bytes.
    Needs(usize),
    /// Nothing after it can be trusted any more.
    Last(Input),
}

impl RouterDriver {
    /// Hands commands in while the client may have more in flight; the rest waits in the connection.
    pub(crate) fn data(&mut self, io: &mut Io, connection: ConnectionId, mut bytes: Bytes, now_us: u64) {
        let Some(client) = self.connections.client(connection) else { return };
        let now = Time(now_us);
        match self.connections.get_mut(client) {
            Some(state) if bytes.len() < state.needs => return io.unread(connection, bytes),
            // The next command may be shorter than the one that had to be waited for.
            Some(state) => (state.seen_us, state.needs) = (now_us, 0),
            None => return,
        }
        loop {
            if !self.engine.router.ready(client) || self.connections.output_full(io, connection) {
                self.connections.halt(io, client);
                return io.unread(connection, bytes);
            }
            if bytes.len() > LARGE_BYTES && self.engine.is_congested(io) {
                self.connections.halt(io, client);
                self.held_back.push(client);
                return io.unread(connection, bytes);
            }
            match self.next_input(client, &mut bytes) {
                Next::Input(input) => self.step(io, now, input),
                Next::Needs(needs) => {
                    if let Some(state) = self.connections.get_mut(client) {
                        state.needs = needs;
                    }
                    return io.unread(connection, bytes);
                }
                Next::Last(input) => {
                    if let Input::Malformed { error, .. } = &input {
                        self.tell_of_tls(io, connection, error);
                    }
                    self.connections.halt(io, client);
                    return self.step(io, now, input);
                }
            }
            if self.connections.client(connection).is_none() {
                return;
            }
        }
    }

    /// The first whole command of what a client has sent.
    fn next_input(&mut self, client: ClientId, bytes: &mut Bytes) -> Next {
        let stranger = self.engine.router.unauthenticated_since(client).is_some();
        let Some(limits) = &self.memcached else {
            return match next_command(bytes, if stranger { &self.strangers } else { &self.limits }) {
                Ok(Taken::Command(command)) => Next::Input(Input::Command { client, command }),
                Ok(Taken::Needs(needs)) => Next::Needs(needs),
                Err(error) => Next::Last(Input::Malformed { client, error }),
            };
        };
        let Some(state) = self.connections.get_mut(client) else { return Next::Needs(usize::MAX) };
        match state.requests.next(bytes, if stranger { &memcached::Limits::STRANGER } else { limits }) {
            memcached::Taken::Request(request) => Next::Input(Input::Memcached { client, request }),
            memcached::Taken::Needs(needs) => Next::Needs(needs),
            memcached::Taken::Hangup(told) => Next::Last(Input::Garbled { client, told }),
        }
    }

    /// The client does not understand the reply, so the log says it too; at most once a second.
    fn tell_of_tls(&mut self, io: &Io, connection: ConnectionId, error: &ProtocolError) {
        let now_us = io.now_us();
        if *error == ProtocolError::TlsHello && now_us >= self.tls_told_us + 1_000_000 {
            self.tls_told_us = now_us;
            let from = io.peer_address(connection).map_or_else(String::new, |from| from.to_string());
            tracing::warn!(router = self.id, from, "a client that speaks TLS came to a plain port");
        }
    }
}

pub(crate) fn memcached_limits(config: &Config) -> memcached::Limits {
    let default = memcached::Limits::default();
    let value_bytes_max = default.value_bytes_max.min(config.limits.command_bytes_max.0 as usize);
    memcached::Limits { value_bytes_max, ..default }
}

/// Of the commands that clients send.
pub(crate) fn limits(config: &Config) -> Limits {
    let command_bytes_max = config.limits.command_bytes_max.0 as usize;
    let default = Limits::default();
    Limits {
        arguments_max: config.limits.arguments_max,
        bulk_bytes_max: command_bytes_max.min(default.bulk_bytes_max),
        frame_bytes_max: command_bytes_max.min(default.frame_bytes_max),
        ..default
    }
}

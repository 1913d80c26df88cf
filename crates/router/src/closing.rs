//! Which clients have to go: silent ones, strangers, and those that hold too much. Not what is said to them.

use protocol::router::ClientId;
use protocol::time::Time;
use runtime::config::ByteSize;
use runtime::reactor::{ConnectionId, Io};

use crate::driver::RouterDriver;
use crate::front::Connection;

/// A client that is not read any more, and reads nothing itself for so long, waits for ever. Shorter, and one that is
/// only slow is lost; longer, and it costs others the memory.
const STUCK_US: u64 = 10_000_000;

impl RouterDriver {
    /// Keeps what clients hold under its limit: those that hold the most have to go.
    pub(crate) fn close_largest(&mut self, io: &mut Io) {
        let bytes_max = self.config.limits.client_buffers_bytes_max.0;
        let router = &self.engine.router;
        let held = |(client, state): (ClientId, &Connection)| {
            let bytes = io.held_bytes_of(state.id) + state.kept.memory_bytes() + router.held_bytes(client);
            (bytes as u64, client, state.id)
        };
        let total: u64 = self.connections.all().map(|found| held(found).0).sum();
        let Some(mut excess) = total.checked_sub(bytes_max).filter(|excess| *excess > 0) else { return };
        let mut all: Vec<(u64, ClientId, ConnectionId)> = self.connections.all().map(held).collect();
        all.sort_unstable_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
        for (bytes, client, connection) in all {
            let reason = format!(
                "all clients of the router held {} and [limits] client_buffers_bytes_max is {}; this one held the \
                 most ({})",
                ByteSize(total),
                ByteSize(bytes_max),
                ByteSize(bytes)
            );
            // Its memory has to be free at once, or most of it.
            let tells = io.out_bytes(connection) as u64 <= bytes / 2;
            self.close_telling(io, (client, connection), &reason, tells);
            self.memory_total += 1;
            excess = excess.saturating_sub(bytes);
            if excess == 0 {
                return;
            }
        }
    }

    /// Closes those that do not read, as far as nothing more can be kept of them: nobody would ever go on.
    pub(crate) fn close_stuck(&mut self, io: &mut Io, now_us: u64) {
        let kept = |(_, state): &(ClientId, &Connection)| state.halted && !state.kept.is_empty();
        let halted: Vec<ClientId> = self.connections.all().filter(kept).map(|(client, _)| client).collect();
        let mut stuck = Vec::new();
        for client in halted {
            // What is waited for may be another by now.
            self.recount(io, client);
            let Some(state) = self.connections.get(client).filter(|state| state.halted) else { continue };
            let (waits, unread) = (self.waits_for_client(io, client, state), io.out_bytes(state.id));
            if !waits && self.engine.router.ready(client) {
                self.connections.wake(io, client);
            }
            let Some(state) = self.connections.get_mut(client) else { continue };
            match state.stuck {
                _ if !waits => state.stuck = None,
                Some((before, since_us)) if unread >= before => {
                    if now_us.saturating_sub(since_us) > STUCK_US {
                        stuck.push((client, state.id, state.kept.memory_bytes(), unread));
                    }
                }
                _ => state.stuck = Some((unread, now_us)),
            }
        }
        for (client, connection, waiting, unread) in stuck {
            let reason = format!(
                "{} of its commands wait and it has read nothing of {} of replies for {} seconds; read while \
                 sending, or send less at once ([limits] client_input_bytes_max)",
                ByteSize(waiting as u64),
                ByteSize(unread as u64),
                STUCK_US / 1_000_000
            );
            self.close_telling(io, (client, connection), &reason, true);
            self.connections.slow_total += 1;
        }
    }

    /// Frees what is kept of the client. `tells`: and says why behind its replies, if all of them are whole.
    fn close_telling(
        &mut self,
        io: &mut Io,
        (client, connection): (ClientId, ConnectionId),
        reason: &str,
        tells: bool,
    ) {
        let from = io.peer_address(connection).map_or_else(String::new, |from| from.to_string());
        tracing::warn!(from, reason, "a client is closed");
        let tells = tells && !self.engine.router.is_streaming(client);
        self.closed(io, connection);
        if !tells {
            return io.close(connection);
        }
        let error = if self.memcached.is_some() { "SERVER_ERROR" } else { "-ERR" };
        let line = format!("{error} DistCache: closed: {reason}\r\n");
        io.out(connection).extend_from_slice(line.as_bytes());
        io.close_lingering(connection);
    }

    pub(crate) fn close_idle(&mut self, io: &mut Io, now_us: u64) {
        let idle_us_max = self.config.limits.client_idle_ms_max.saturating_mul(1_000);
        if idle_us_max == 0 {
            return;
        }
        let idle = |(client, connection): &(ClientId, &Connection)| {
            now_us.saturating_sub(connection.seen_us) > idle_us_max
                && self.engine.router.is_idle(*client)
                && connection.kept.is_empty()
                && !self.engine.router.is_subscribed(*client)
        };
        let idle: Vec<ConnectionId> =
            self.connections.all().filter(idle).map(|(_, connection)| connection.id).collect();
        for connection in idle {
            self.closed(io, connection);
            io.close_flushed(connection);
        }
    }

    /// Whoever does not show who he is in time makes room.
    pub(crate) fn close_strangers(&mut self, io: &mut Io, now_us: u64) {
        let us_max = self.config.limits.authentication_ms_max.saturating_mul(1_000);
        if us_max == 0 {
            return;
        }
        let late = |client| {
            let since = self.engine.router.unauthenticated_since(client);
            since.is_some_and(|since: Time| now_us.saturating_sub(since.0) > us_max)
        };
        let late: Vec<ConnectionId> =
            self.connections.all().filter(|(client, _)| late(*client)).map(|(_, found)| found.id).collect();
        for connection in late {
            self.strangers_total += 1;
            self.closed(io, connection);
            io.close_flushed(connection);
        }
    }
}

//! Which clients have to go: silent ones, strangers, and those that hold too much. Not what is said to them.

use protocol::router::ClientId;
use protocol::time::Time;
use runtime::reactor::{ConnectionId, Io};

use crate::driver::RouterDriver;

impl RouterDriver {
    /// Keeps what clients hold under its limit: those that hold the most have to go.
    pub(crate) fn close_largest(&mut self, io: &mut Io) {
        let bytes_max = self.config.limits.client_buffers_bytes_max.0;
        let router = &self.engine.router;
        let held = |(client, connection): (ClientId, &crate::front::Connection)| {
            ((io.held_bytes_of(connection.id) + router.held_bytes(client)) as u64, connection.id)
        };
        let total: u64 = self.connections.all().map(|found| held(found).0).sum();
        let Some(mut excess) = total.checked_sub(bytes_max).filter(|excess| *excess > 0) else { return };
        let mut all: Vec<(u64, ConnectionId)> = self.connections.all().map(held).collect();
        all.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        tracing::warn!(
            router = self.id,
            bytes = total,
            bytes_max,
            "clients that hold the most memory are closed"
        );
        for (bytes, connection) in all {
            self.closed(io, connection);
            io.close(connection);
            self.memory_total += 1;
            excess = excess.saturating_sub(bytes);
            if excess == 0 {
                return;
            }
        }
    }

    pub(crate) fn close_idle(&mut self, io: &mut Io, now_us: u64) {
        let idle_us_max = self.config.limits.client_idle_ms_max.saturating_mul(1_000);
        if idle_us_max == 0 {
            return;
        }
        let idle = |(client, connection): &(ClientId, &crate::front::Connection)| {
            now_us.saturating_sub(connection.seen_us) > idle_us_max
                && self.engine.router.is_idle(*client)
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

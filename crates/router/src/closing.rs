//! What the clients' connections hold, as the machine is told; and what clients are told that it closes. Not whom it closes.

use config::ByteSize;
use protocol::router::{ClientId, CloseReason, Holdings, Input};
use protocol::time::Time;
use runtime::reactor::Io;

use crate::driver::RouterDriver;
use crate::front::Connection;

impl RouterDriver {
    /// Tells the machine what every client holds.
    pub(crate) fn tell_held(&mut self, io: &mut Io, now: Time) {
        let is_kept = |(_, state): &(ClientId, &Connection)| state.halted && !state.kept.is_empty();
        let halted: Vec<ClientId> =
            self.connections.all().filter(is_kept).map(|(client, _)| client).collect();
        for client in halted {
            // What is waited for may be another by now.
            self.recount(io, client);
            let Some(state) = self.connections.get(client).filter(|state| state.halted) else { continue };
            if !self.waits_for_client(io, client, state) && self.engine.router.ready(client) {
                self.connections.wake(io, client);
            }
        }
        let held = |(client, state): (ClientId, &Connection)| Holdings {
            client,
            kept_bytes: state.kept.memory_bytes() as u64,
            buffer_bytes: io.held_bytes_of(state.id) as u64,
            unread_bytes: io.out_bytes(state.id) as u64,
            waits_for_client: state.halted
                && !state.kept.is_empty()
                && self.waits_for_client(io, client, state),
            seen: state.seen,
        };
        let all: Vec<Holdings> = self.connections.all().map(held).collect();
        let elsewhere_bytes = self.engine.siblings.held_elsewhere();
        self.step(io, now, Input::Held { clients: all, elsewhere_bytes });
    }
}

/// What is said of a client that is closed, if anybody is to know.
pub(crate) fn told(reason: &CloseReason) -> Option<String> {
    match *reason {
        CloseReason::Answered | CloseReason::Idle | CloseReason::Unauthenticated => None,
        CloseReason::Memory { all_bytes, bytes_max, bytes, .. } => Some(format!(
            "all clients of the router held {} and [limits] client_buffers_bytes_max is {}; this one held the most ({})",
            ByteSize(all_bytes),
            ByteSize(bytes_max),
            ByteSize(bytes)
        )),
        CloseReason::Unread { kept_bytes, unread_bytes, waited, .. } => Some(format!(
            "{} of its commands wait and it has read nothing of {} of replies for {} seconds; read while sending, or send \
             less at once ([limits] client_input_bytes_max)",
            ByteSize(kept_bytes),
            ByteSize(unread_bytes),
            waited.as_secs()
        )),
    }
}

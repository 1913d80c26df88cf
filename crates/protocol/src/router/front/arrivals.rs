//! Clients come and go. Not what they ask for, and not why they are closed.

use bytes::Bytes;
use wire::resp::ProtocolError;

use crate::router::effect::ClientId;
use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::replies;

impl Front {
    pub(crate) fn opened(&mut self, desk: &mut Desk<'_>, client: ClientId) {
        desk.step.counters.clients_accepted += 1;
        self.began.get_or_insert(desk.now());
        let identity = self.permissions.newcomer();
        let number = self.sessions.open(desk.now(), client, identity);
        desk.flow.open(client.0, number);
    }

    /// What the client sends makes no sense; it is told, after its earlier replies, and closed.
    pub(crate) fn malformed(&mut self, desk: &mut Desk<'_>, client: u32, error: &ProtocolError) {
        self.hang_up(desk, client, replies::error(&format!("ERR {error}")));
    }

    /// The same in other words.
    pub(crate) fn hang_up(&mut self, desk: &mut Desk<'_>, client: u32, told: Bytes) {
        desk.step.counters.refusals += 1;
        self.respond_and_close(desk, client, told);
    }

    /// The client sends no more, but reads.
    pub(crate) fn ended(&mut self, desk: &mut Desk<'_>, client: u32) {
        let Some(session) = self.sessions.get_mut(client).filter(|session| !session.closing) else { return };
        session.closing = true;
        if desk.flow.give_up(client) || !desk.flow.close_behind_last(client) {
            desk.step.close(client);
        }
    }

    pub(crate) fn closed(&mut self, desk: &mut Desk<'_>, client: u32) {
        let Some(mut session) = self.sessions.close(client) else { return };
        if session.tracking.is_some() {
            self.stop_tracking(desk, client);
        }
        self.unsubscribe_all(desk, client, &mut session);
        desk.flow.close(&mut desk.step, client);
    }
}

//! What the flow tells, and what comes of it: replies to clients, and what the front prepares when its turn has come. Not
//! what the flow does in between.

use commands::CommandKind;
use commands::memcached;

use crate::router::effect::{ClientId, Effect};
use crate::router::flow::event::FlowEvent;
use crate::router::flow::request::{RequestOrigin, Routed};
use crate::router::front::Front;
use crate::router::front::desk::Desk;

impl Front {
    pub(crate) fn take(&mut self, desk: &mut Desk<'_>, event: FlowEvent) {
        match event {
            FlowEvent::Answered { client } => self.deliver(desk, client),
            FlowEvent::Turn { origin, routed } => self.launch(desk, origin, &routed),
            FlowEvent::Subscribed { origin, error } => self.subscribed(desk, origin, error),
            FlowEvent::UsersChanged { origin, replies } => self.users_changed(desk, origin, replies),
            FlowEvent::Told { question, reply } => self.told_users(desk, question, &reply),
            FlowEvent::Keeps { client } => self.keeps(client),
            FlowEvent::Wrote { client, request, reads } => self.wrote(client, request, reads),
            FlowEvent::Forgotten { shim } => self.all_changed(desk, shim),
            FlowEvent::BrokenOff { client } => self.killed.push(client),
            FlowEvent::Settled { client } => self.settled(desk, client),
        }
    }

    fn launch(&mut self, desk: &mut Desk<'_>, origin: RequestOrigin, routed: &Routed) {
        if routed.classified.kind == CommandKind::Subscription {
            return self.launch_subscription(desk, origin, routed);
        }
        self.launch_info(desk, origin, &routed.command);
    }

    /// Gives the client what is due, and reads on where there is room again.
    fn deliver(&mut self, desk: &mut Desk<'_>, client: u32) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        while let Some((operation, bytes)) = desk.flow.next_answered(&mut desk.step, client) {
            let now = desk.step.now;
            // How long a large reply takes is up to its client.
            let ended = if operation.streamed { operation.ran.answered } else { now };
            self.latencies.record(ended.since(operation.received));
            self.slow_log.ended(operation, session);
            if operation.ran.followed().is_some() {
                self.sampler.ended(now, operation, &bytes, session);
            }
            let (reply_bytes, silent, closes) =
                (bytes.len(), operation.manner.silent, operation.manner.closes);
            match (operation.manner.shape.take(), &mut session.memcached) {
                (Some(shape), Some(front)) => {
                    let mut pieces = Vec::with_capacity(3);
                    memcached::write(*shape, &bytes, front, &mut self.tallies, &mut pieces);
                    pieces.into_iter().for_each(|bytes| desk.step.reply(client, bytes));
                }
                _ if !silent && !bytes.is_empty() => desk.step.reply(client, bytes),
                _ => {}
            }
            if closes {
                desk.step.close(client);
            }
            desk.flow.told(&desk.step, client, reply_bytes);
        }
        if !session.awaits_subscription && desk.flow.has_room_again(&desk.step, client) {
            desk.flow.set_stalled(client, false);
            if !session.closing {
                desk.step.effects.push(Effect::Resume { client: ClientId(client) });
            }
        }
        if session.tracking.as_ref().is_some_and(|tracking| !tracking.held.is_empty()) {
            self.release_notices(desk, client);
        }
    }
}

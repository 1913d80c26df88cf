//! Turns where there was no room: dealt to the clients one by one, and taken from those that have waited for too long. Not
//! how much room there is.

use std::time::Duration;

use crate::router::flow::Flow;
use crate::router::flow::callers::TURN_COMMANDS;
use crate::router::flow::event::{Dealing, Hand, Todo};
use crate::router::flow::pipeline::{OperationProgress, RoomTurn};
use crate::router::flow::refusal::too_late;
use crate::router::flow::touch::Freed;
use crate::router::step::RouterStep;

/// How often commands that have waited for too long are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

impl Flow {
    /// Sends what has room now, some commands of each client after the other.
    pub(crate) fn deal_turns(&mut self) {
        if self.traffic.windows.anybody_waits() {
            let mut peers = self.traffic.windows.crowded();
            peers.reverse();
            self.todos.push(Todo::Deal(Dealing { peers, hand: None }));
        }
    }

    /// Deals until a command was sent: what that lets go on comes before the next one.
    pub(crate) fn deal(&mut self, step: &mut RouterStep<'_>, mut dealing: Dealing) {
        while let Some(mut hand) = dealing.hand.take().or_else(|| self.next_hand(&mut dealing)) {
            let Hand { peer, client, number, .. } = hand;
            let room = hand.left > 0 && self.traffic.has_room(peer);
            let caller = self.callers.get(client).filter(|caller| caller.number == number);
            let turn = caller.and_then(|caller| caller.pipeline.first_turn(peer));
            let (Some(caller), Some(turn)) = (caller, turn) else { continue };
            if !room {
                self.traffic.windows.push(peer, (client, number), false);
                continue;
            }
            let operation = caller.pipeline.get(turn.sequence);
            let freed = operation.map_or(Freed::Nothing, |operation| Freed::of(&operation.touch));
            hand.left -= 1;
            dealing.hand = Some(hand);
            if !self.relaunch(step, client, turn.sequence, Some(turn)) {
                self.todos.push(Todo::Deal(dealing));
                return self.todos.advance(client, freed);
            }
        }
    }

    /// The next client that waits at the member whose turns are dealt, or at the next member.
    fn next_hand(&mut self, dealing: &mut Dealing) -> Option<Hand> {
        loop {
            let peer = *dealing.peers.last()?;
            if self.traffic.has_room(peer)
                && let Some((client, number)) = self.traffic.windows.pop(peer)
            {
                return Some(Hand { peer, client, number, left: TURN_COMMANDS });
            }
            dealing.peers.pop();
        }
    }

    /// Nobody waits for longer than is configured, before a command is sent.
    pub(crate) fn find_expired(&mut self, step: &mut RouterStep<'_>) {
        if !self.traffic.windows.anybody_waits() || step.now.since(self.expiry) < EXPIRY_INTERVAL {
            return;
        }
        self.expiry = step.now;
        let mut expired: Vec<(u32, RoomTurn)> = Vec::new();
        for (client, caller) in self.callers.numbered() {
            let late = |turn: &&RoomTurn| step.now.since(turn.since) >= step.config.settings.queue_max;
            expired.extend(caller.pipeline.turns().filter(late).map(|turn| (client, *turn)));
        }
        self.todos.push(Todo::Expired(expired.into_iter()));
    }

    /// One after the other; what each lets go on comes before the next one.
    pub(crate) fn expire(
        &mut self,
        step: &mut RouterStep<'_>,
        mut expired: std::vec::IntoIter<(u32, RoomTurn)>,
    ) {
        let Some((client, turn)) = expired.next() else {
            return self.traffic.windows.forget_absent(&self.callers);
        };
        self.todos.push(Todo::Expired(expired));
        let Some(caller) = self.callers.get_mut(client) else { return };
        let Some((_, left)) = caller.pipeline.take_waiting(turn.sequence) else { return };
        left.iter().for_each(|turn| self.traffic.windows.left(turn.peer));
        caller.pipeline.settle(turn.sequence, OperationProgress::Done(too_late(step.config, turn.peer)));
        let operation = caller.pipeline.get(turn.sequence);
        let freed = operation.map_or(Freed::Nothing, |operation| Freed::of(&operation.touch));
        step.counters.turns_expired += 1;
        self.todos.advance(client, freed);
    }
}

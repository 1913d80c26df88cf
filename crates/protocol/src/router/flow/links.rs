//! Who comes and goes: members by their links and the map, clients by their connections. Not what they ask for.

use std::sync::Arc;

use wire::message::{Cancel, Window};
use wire::{Message, Peer};

use crate::placement::Placement;
use crate::router::flow::Flow;
use crate::router::flow::event::Todo;
use crate::router::flow::learned::Learned;
use crate::router::flow::traffic::RequestTraffic;
use crate::router::step::RouterStep;

impl Flow {
    /// A shim whose link is back has forgotten what is followed.
    pub(crate) fn linked(&mut self, step: &mut RouterStep<'_>, peer: Peer) {
        self.traffic.members.set_linked(peer, true);
        self.traffic.windows.linked(peer, true);
        self.traffic.near.linked(step, peer);
        let told = self.traffic.interests.told().filter(|follow| follow.follows);
        if let (Peer::Shim(_), Some(follow)) = (peer, told) {
            step.send(peer, Message::Follow(follow.clone()));
        }
        if let Peer::Shim(shim) = peer {
            self.end_handover(step, shim);
        }
    }

    pub(crate) fn unlinked(&mut self, step: &mut RouterStep<'_>, peer: Peer) {
        self.traffic.near.unlinked(step, peer);
        let watches = self.callers.all_mut().filter_map(|caller| caller.watch.as_mut());
        watches.filter(|watch| Peer::Shim(watch.home.shim) == peer).for_each(|watch| watch.lost = true);
        if matches!(peer, Peer::Shim(shim) if self.awaits_successor(step, shim)) {
            return;
        }
        self.traffic.members.set_linked(peer, false);
        self.traffic.windows.linked(peer, false);
        self.vanished(|asked| asked == peer);
    }

    /// A member says how much it takes.
    pub(crate) fn told_window(&mut self, step: &RouterStep<'_>, from: Peer, window: &Window) {
        self.traffic.windows.told(from, window);
        self.traffic.members.alive(step.now, from);
    }

    /// Takes a newer map; an older one is ignored. Reads at nodes that are down now are asked again.
    pub(crate) fn take_map(&mut self, step: &mut RouterStep<'_>, placement: Arc<Placement>) {
        let known = self.traffic.placement.as_ref();
        if known.is_some_and(|known| known.epoch() > placement.epoch()) {
            return;
        }
        let down = self.traffic.members.take_map(&placement);
        let RequestTraffic { near, members, .. } = &mut self.traffic;
        near.take_map(step, &placement, members.linked_shims());
        self.traffic.placement = Some(placement);
        self.traffic.places.clear();
        if down.contains(&true) {
            self.vanished(|asked| matches!(asked, Peer::Node(node) if down[usize::from(node.0)]));
        }
    }

    /// Another number than before forgets what was learned.
    pub(crate) fn set_learned_max(&mut self, learned_max: usize) {
        self.traffic.learned = Learned::new(learned_max);
    }

    /// What a shim says about near copies. False if it is something else.
    pub(crate) fn told_of_copies(&mut self, step: &mut RouterStep<'_>, from: Peer, message: Message) -> bool {
        matches!(from, Peer::Shim(shim) if self.traffic.near.told(step, shim, message))
    }

    pub(crate) fn set_near(&mut self, step: &mut RouterStep<'_>) {
        let RequestTraffic { near, members, placement, .. } = &mut self.traffic;
        near.set(step, step.config.settings.near.clone(), placement.as_ref(), members.linked_shims());
    }

    pub(crate) fn drain(&mut self, step: &mut RouterStep<'_>) {
        self.traffic.near.drain(step);
    }

    pub(crate) fn tick(&mut self, step: &mut RouterStep<'_>) {
        self.traffic.near.tick(step);
        self.tick_handovers(step);
        self.traffic.budget.tick(step.now);
        self.todos.push(Todo::FindExpired);
        self.todos.push(Todo::EndPause);
        if self.traffic.members.tick(step.now) {
            self.todos.push(Todo::Hanging { from: 0 });
        }
    }

    pub(crate) fn open(&mut self, client: u32, number: u64) {
        self.callers.open(client, number);
    }

    pub(crate) fn close(&mut self, step: &mut RouterStep<'_>, client: u32) {
        let Some(caller) = self.callers.close(client) else { return };
        if let Some(watch) = caller.watch {
            watch.end(step);
        }
        caller.pipeline.turns().for_each(|turn| self.traffic.windows.left(turn.peer));
        for request in caller.pipeline.requests() {
            let Some(pending) = self.traffic.forget(request) else { continue };
            if pending.blocking || pending.streams {
                step.send(pending.peer, Message::Cancel(Cancel { request }));
            }
        }
    }

    /// The client sends no more. Forgets a command that blocks and is held back, and all behind it: what it would take
    /// belongs to others. Returns whether one that blocks is under way.
    pub(crate) fn give_up(&mut self, client: u32) -> bool {
        let Some(caller) = self.callers.get_mut(client) else { return false };
        let given_up = caller.pipeline.end_before_blocking();
        given_up.iter().for_each(|turn| self.traffic.windows.left(turn.peer));
        let blocks = |request| self.traffic.pending.get(request).is_some_and(|pending| pending.blocking);
        caller.pipeline.requests().any(blocks)
    }
}

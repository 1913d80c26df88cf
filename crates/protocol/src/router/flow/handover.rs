//! Requests for a shim that is becoming another process: they wait here, in their order, and go to that one. Not whether it is.
//!
//! It begins when the shim says that it leaves, or when a shim is lost for which others stand by, and ends when there is a link
//! to the one that is the shim. What has waited for as long as commands may wait is answered as not executed.

use std::collections::{BTreeMap, BTreeSet};

use wire::message::{Execute, Handover, HandoverAck};
use wire::{Message, Peer, ShimId, Status};

use crate::router::Effect;
use crate::router::flow::Flow;
use crate::router::flow::event::{FlowEvent, Todo};
use crate::router::flow::ran::RequestHeard;
use crate::router::flow::refusal::unavailable;
use crate::router::flow::reply::PartReply;
use crate::router::step::RouterStep;
use crate::time::Time;

/// What waits for one shim.
#[derive(Debug)]
struct HeldForShim {
    until: Time,
    /// The process that leaves is still there: what it has been sent is being answered.
    linked: bool,
    messages: Vec<Message>,
    /// Numbers of the requests among them.
    requests: BTreeSet<u64>,
}

impl HeldForShim {
    /// Takes what would begin something there. A request that is given up before it is sent is forgotten.
    fn takes(&mut self, message: &Message) -> bool {
        match message {
            Message::Read(read) => self.requests.insert(read.request),
            // What it is about may be there, or have been sent.
            Message::Execute(execute) if is_unblock(execute) => self.requests.contains(&execute.request),
            Message::Execute(execute) => self.requests.insert(execute.request),
            Message::Subscribe(subscribe) => self.requests.insert(subscribe.request),
            Message::Cancel(cancel) => self.forget(cancel.request),
            Message::Follow(follow) => {
                self.requests.extend(follow.request);
                true
            }
            Message::Subscribers(_) | Message::Track(_) | Message::Fetch(_) => true,
            _ => false,
        }
    }

    fn forget(&mut self, request: u64) -> bool {
        self.messages.retain(|message| !matches!(message, Message::Execute(own) if own.request == request));
        self.requests.remove(&request)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Handovers {
    shims: BTreeMap<ShimId, HeldForShim>,
}

impl Handovers {
    fn begin(&mut self, shim: ShimId, until: Time) {
        self.shims.entry(shim).or_insert_with(|| HeldForShim {
            until,
            linked: true,
            messages: Vec::new(),
            requests: BTreeSet::new(),
        });
    }

    /// Whether this request has not been sent.
    fn holds(&self, request: u64) -> bool {
        self.shims.values().any(|held| held.requests.contains(&request))
    }

    /// Keeps those of `effects`, from this one on, that have to wait.
    fn hold_back(&mut self, effects: &mut Vec<Effect>, from: usize) {
        if self.shims.is_empty() {
            return;
        }
        for effect in effects.split_off(from) {
            match effect {
                Effect::Send { to: Peer::Shim(shim), message } => {
                    if let Some(message) = self.keep(shim, message) {
                        effects.push(Effect::Send { to: Peer::Shim(shim), message });
                    }
                }
                effect => effects.push(effect),
            }
        }
    }

    /// Gives back what does not wait.
    fn keep(&mut self, shim: ShimId, message: Message) -> Option<Message> {
        let Some(held) = self.shims.get_mut(&shim) else { return Some(message) };
        if !held.takes(&message) {
            return Some(message);
        }
        // Near copies ask again once there is a link.
        if !matches!(message, Message::Fetch(_) | Message::Cancel(_)) {
            held.messages.push(message);
        }
        None
    }
}

/// Whether it ends another command, whose number it has.
fn is_unblock(execute: &Execute) -> bool {
    execute.command.starts_with(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nUNBLOCK\r\n")
}

impl Flow {
    /// A shim leaves in order.
    pub(crate) fn told_handover(&mut self, step: &mut RouterStep<'_>, from: Peer, handover: &Handover) {
        let Peer::Shim(shim) = from else { return };
        // It asks once more, behind its last reply.
        step.counters.handovers += u64::from(!self.traffic.handovers.shims.contains_key(&shim));
        self.traffic.handovers.begin(shim, step.now.after(step.config.settings.queue_max));
        step.send(from, Message::HandoverAck(HandoverAck { number: handover.number }));
    }

    /// Whether requests for a shim whose link is lost wait for the next process that is it. What it had been sent is lost.
    pub(crate) fn awaits_successor(&mut self, step: &RouterStep<'_>, shim: ShimId) -> bool {
        let has_standby = step.config.has_standby.get(usize::from(shim.0)).copied().unwrap_or(false);
        if has_standby {
            self.traffic.handovers.begin(shim, step.now.after(step.config.settings.queue_max));
        }
        let Some(held) = self.traffic.handovers.shims.get_mut(&shim) else { return false };
        held.linked = false;
        self.traffic.windows.linked(Peer::Shim(shim), true);
        let waiting = self.traffic.pending.waiting_for(|asked| asked == Peer::Shim(shim));
        let sent = waiting.into_iter().filter(|request| !self.traffic.handovers.holds(*request));
        self.todos.push(Todo::Lost(sent.collect::<Vec<_>>().into_iter()));
        true
    }

    /// There is a link to the shim: what has waited for it goes there.
    pub(crate) fn end_handover(&mut self, step: &mut RouterStep<'_>, shim: ShimId) {
        let Some(held) = self.traffic.handovers.shims.remove(&shim) else { return };
        held.messages.into_iter().for_each(|message| step.send(Peer::Shim(shim), message));
    }

    /// Nothing waits for a successor for ever.
    pub(crate) fn tick_handovers(&mut self, step: &mut RouterStep<'_>) {
        let now = step.now;
        let is_over = |(_, held): &(&ShimId, &HeldForShim)| now >= held.until;
        while let Some((&shim, held)) = self.traffic.handovers.shims.iter().find(is_over) {
            if held.linked {
                // It has stayed, and says itself what it does not carry out.
                self.end_handover(step, shim);
                continue;
            }
            let held = self.traffic.handovers.shims.remove(&shim);
            self.traffic.members.set_linked(Peer::Shim(shim), false);
            self.traffic.windows.linked(Peer::Shim(shim), false);
            let requests = held.map(|held| held.requests).unwrap_or_default();
            self.todos.tell(FlowEvent::Forgotten { shim });
            self.todos.push(Todo::Unsent { shim, requests: Vec::from_iter(requests).into_iter() });
        }
    }

    /// A request that nobody was sent.
    pub(crate) fn unsent(&mut self, step: &mut RouterStep<'_>, shim: ShimId, request: u64) {
        let Some(pending) = self.traffic.forget(request) else { return };
        let reply = PartReply { status: Status::Error, value: unavailable(step, shim) };
        self.part_answered(step, pending.origin, RequestHeard::of(&pending, false), reply);
    }

    /// At the end of a step.
    #[inline]
    pub(crate) fn hold_back(&mut self, step: &mut RouterStep<'_>, from: usize) {
        self.traffic.handovers.hold_back(step.effects, from);
    }
}

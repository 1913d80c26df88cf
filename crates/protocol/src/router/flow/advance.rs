//! What is left to do in a step, one thing after the other: clients are given what is due, and what that frees is sent. Not
//! what they are given.

use wire::{NodeId, Peer};

use crate::router::flow::Flow;
use crate::router::flow::event::{FlowEvent, Todo};
use crate::router::flow::pipeline::ClientOperation;
use crate::router::flow::touch::{Freed, Touch};
use crate::router::step::RouterStep;

impl Flow {
    /// Goes on until there is something to tell the front; `None`: nothing is left to do. The front acts on each before it
    /// asks for the next. Whatever is done takes a command, a request or a turn off, so there is an end.
    #[inline]
    pub(crate) fn next(&mut self, step: &mut RouterStep<'_>) -> Option<FlowEvent> {
        loop {
            match self.todos.pop()? {
                Todo::Advance { client, freed } => {
                    self.todos.push(Todo::Release { client, freed });
                    return Some(FlowEvent::Answered { client });
                }
                Todo::Release { client, freed } => self.release(step, client, freed),
                Todo::GoOnBehind { client, sequence } => {
                    if self.callers.is_answered(client, sequence) {
                        self.todos.advance(client, Freed::All);
                    }
                }
                Todo::Tell(event) => return Some(event),
                rare => self.go_on(step, rare),
            }
        }
    }

    #[cold]
    fn go_on(&mut self, step: &mut RouterStep<'_>, todo: Todo) {
        match todo {
            Todo::Advance { .. } | Todo::Release { .. } | Todo::GoOnBehind { .. } | Todo::Tell(_) => {
                self.todos.push(todo);
            }
            Todo::Lost(mut requests) => {
                if let Some(request) = requests.next() {
                    self.todos.push(Todo::Lost(requests));
                    self.lost(step, request);
                }
            }
            Todo::Unsent { shim, mut requests } => {
                if let Some(request) = requests.next() {
                    self.todos.push(Todo::Unsent { shim, requests });
                    self.unsent(step, shim, request);
                }
            }
            Todo::Hanging { from } => {
                if let Some(index) = self.traffic.members.hanging(step.now, from) {
                    step.counters.breakers_opened += 1;
                    self.todos.push(Todo::Hanging { from: index + 1 });
                    self.vanished(|asked| asked == Peer::Node(NodeId(index as u16)));
                }
            }
            Todo::EndPause => {
                if self.pause.take_if(|pause| step.now >= pause.until).is_some() {
                    let clients: Vec<u32> = self.callers.numbered().map(|(client, _)| client).collect();
                    self.todos.push(Todo::Unpaused(clients.into_iter()));
                }
            }
            Todo::Unpaused(mut clients) => {
                if let Some(client) = clients.next() {
                    self.todos.push(Todo::Unpaused(clients));
                    self.todos.advance(client, Freed::All);
                }
            }
            Todo::FindExpired => self.find_expired(step),
            Todo::Expired(expired) => self.expire(step, expired),
            Todo::Deal(dealing) => self.deal(step, dealing),
        }
    }

    /// Everything in flight to peers that are gone.
    pub(crate) fn vanished(&mut self, gone: impl Fn(Peer) -> bool) {
        self.todos.push(Todo::Lost(self.traffic.pending.waiting_for(gone).into_iter()));
    }

    /// Sends what an answer has freed; if some of that is answered at once, all begins anew.
    fn release(&mut self, step: &mut RouterStep<'_>, client: u32, freed: Freed) {
        let held_back = |flow: &Flow| {
            let caller = flow.callers.get(client).filter(|caller| caller.pipeline.any_held_back())?;
            Some(caller.pipeline.first())
        };
        let Some(front) = held_back(self) else { return };
        let Some(caller) = self.callers.get(client) else { return };
        let alone =
            |operation: &ClientOperation| operation.waiting() && matches!(operation.touch, Touch::All);
        if caller.pipeline.get(front).is_some_and(alone) {
            let has_turn = caller.pipeline.has_turn(front);
            self.todos.push(Todo::GoOnBehind { client, sequence: front });
            if !has_turn {
                self.relaunch(step, client, front, None);
            }
            return;
        }
        let moved = self.release_behind(step, client, freed);
        if moved {
            self.todos.advance(client, Freed::Nothing);
        }
    }

    /// Tries the waiting operations on the keys that are free, in order. One that leaves may let others behind it follow it; one
    /// that stays holds up all behind it that are about its keys. Returns whether any was answered at once.
    fn release_behind(&mut self, step: &mut RouterStep<'_>, client: u32, mut freed: Freed) -> bool {
        let mut any_answered = false;
        let Some(caller) = self.callers.get(client) else { return false };
        for sequence in caller.pipeline.first()..caller.pipeline.next() {
            let Some(caller) = self.callers.get(client) else { break };
            let Some(operation) = caller.pipeline.get(sequence) else { break };
            if freed.is_nothing() || matches!(operation.touch, Touch::All) && !operation.answered() {
                break;
            }
            if !operation.waiting() || !freed.concerns(&operation.touch) {
                continue;
            }
            let stays = caller.pipeline.has_turn(sequence) || self.relaunch(step, client, sequence, None);
            let Some(operation) = self.callers.operation(client, sequence) else { break };
            if stays {
                freed.take_away(&operation.touch);
            } else {
                freed.add(&operation.touch);
                any_answered |= operation.answered();
            }
        }
        any_answered
    }
}

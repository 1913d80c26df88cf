//! One try to send a command: what it takes, and what every such try does. Not where the command goes.

use wire::resp::Command;
use wire::{Key, Peer, ShimId};

use crate::placement::Placement;
use crate::router::flow::callers::Caller;
use crate::router::flow::event::{FlowEvent, Todos};
use crate::router::flow::pipeline::{KeyOrder, OperationProgress, SentRequest, StorageLane};
use crate::router::flow::refusal::{busy, unavailable};
use crate::router::flow::request::{RequestOrigin, low, runs_alone};
use crate::router::flow::send::{Outgoing, writes};
use crate::router::flow::traffic::RequestTraffic;
use crate::router::step::RouterStep;
use commands::Classified;

/// What is being sent for which operation.
pub(crate) struct LaunchJob<'a> {
    pub(crate) client: u32,
    pub(crate) sequence: u64,
    pub(crate) resp3: bool,
    pub(crate) placement: &'a Placement,
    pub(crate) command: &'a Command,
    pub(crate) classified: &'a Classified,
    pub(crate) keys: &'a [Key],
    /// Keys of which the client keeps what it reads.
    pub(crate) kept: &'a [Key],
    /// The member for which it has waited last, if it has its turn there.
    pub(crate) dealt: Option<Peer>,
    pub(crate) waited_ms: u16,
}

impl LaunchJob<'_> {
    fn lane(&self) -> StorageLane {
        StorageLane { resp3: self.resp3, script: self.classified.script }
    }

    pub(crate) fn origin(&self, part: u32) -> RequestOrigin {
        let LaunchJob { client, sequence, resp3, waited_ms, .. } = *self;
        RequestOrigin { client, part, sequence, resp3, waited_ms }
    }
}

/// Why a command is not sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Others come first, or a pause.
    Order,
    /// There is no room at this member.
    Turn(Peer),
    /// It has its turn, and the front says what is sent.
    Front,
}

/// What it takes to send the job.
pub(crate) struct Launch<'a, 's> {
    pub(crate) step: &'a mut RouterStep<'s>,
    pub(crate) traffic: &'a mut RequestTraffic,
    pub(crate) caller: &'a mut Caller,
    pub(crate) todos: &'a mut Todos,
    pub(crate) job: &'a LaunchJob<'a>,
}

impl Launch<'_, '_> {
    pub(crate) fn order(&self, key: &Key) -> KeyOrder {
        if runs_alone(self.job.classified) {
            return KeyOrder::Free;
        }
        self.caller.pipeline.order(self.job.sequence, low(key), self.job.lane())
    }

    /// Right before the command is sent.
    pub(crate) fn keep_all(&mut self) {
        let LaunchJob { client, placement, kept, .. } = *self.job;
        if kept.is_empty() {
            return;
        }
        self.todos.tell(FlowEvent::Keeps { client });
        for key in kept {
            let shim = placement.shim(key);
            if let Some(message) = self.traffic.interests.keep(key, shim, client, self.caller.number) {
                self.step.send(Peer::Shim(shim), message);
            }
        }
    }

    pub(crate) fn execute(&mut self, part: u32, outgoing: Outgoing<'_>) -> SentRequest {
        let kind = outgoing.kind;
        let sent = self.traffic.send_execute(self.step, self.job.origin(part), outgoing);
        if writes(kind) {
            self.wrote(sent);
        }
        sent
    }

    pub(crate) fn wrote(&mut self, sent: SentRequest) {
        if self.traffic.interests.knows_writers() {
            let reads = self.traffic.interests.reads();
            self.todos.tell(FlowEvent::Wrote { client: self.job.client, request: sent.request, reads });
        }
    }

    pub(crate) fn over_limit(&self, more: usize) -> bool {
        self.traffic.over_limit(self.step.config, more)
    }

    pub(crate) fn busy(&mut self) -> OperationProgress {
        OperationProgress::Done(busy(self.step))
    }

    pub(crate) fn unavailable(&mut self, shim: ShimId) -> OperationProgress {
        OperationProgress::Done(unavailable(self.step, shim))
    }
}

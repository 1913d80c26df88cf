//! What the front asks of storage servers itself, and what it answers to a command whose turn it was told of. Not what the
//! answers mean.

use bytes::Bytes;
use wire::ShimId;
use wire::resp::Command;

use crate::router::flow::Flow;
use crate::router::flow::event::{FlowEvent, Todo};
use crate::router::flow::gather::Merge;
use crate::router::flow::pipeline::{FanPart, OperationProgress};
use crate::router::flow::refusal::busy;
use crate::router::flow::request::{NOBODY, RequestOrigin};
use crate::router::flow::send::Outgoing;
use crate::router::flow::storage_info;
use crate::router::flow::touch::Freed;
use crate::router::replies;
use crate::router::step::RouterStep;
use commands::CommandKind;

impl Flow {
    /// The reply to a command of which the front was told.
    pub(crate) fn finish(&mut self, origin: RequestOrigin, bytes: Bytes) {
        if let Some(operation) = self.callers.operation(origin.client, origin.sequence) {
            operation.progress = OperationProgress::Done(bytes);
        }
        self.todos.advance(origin.client, Freed::All);
    }

    /// The same, and the front hears of it when nothing that it has let go on is left to do.
    pub(crate) fn finish_and_tell(&mut self, origin: RequestOrigin, bytes: Bytes) {
        self.todos.push(Todo::Tell(FlowEvent::Settled { client: origin.client }));
        self.finish(origin, bytes);
    }

    /// INFO in its turn: `own` before what all servers say together. Servers that cannot be reached are left out: it is
    /// asked to learn how things are.
    pub(crate) fn ask_info(&mut self, step: &mut RouterStep<'_>, origin: RequestOrigin, info: Info<'_>) {
        let Info { own, asked } = info;
        let shims = self.shims();
        if self.traffic.over_limit(step.config, shims.len()) {
            return self.finish(origin, busy(step));
        }
        let mut arguments: Vec<&[u8]> = vec![b"INFO"];
        arguments.extend(storage_info::wanted(asked).map(str::as_bytes));
        let command = Command::from_args(&arguments);
        let linked = |shim: &ShimId| self.traffic.members.shim_linked(*shim);
        let linked: Vec<ShimId> = shims.into_iter().filter(linked).collect();
        if linked.is_empty() {
            return self.finish(origin, replies::verbatim(&own, origin.resp3));
        }
        let parts = self.ask(step, origin, &linked, command.frame());
        self.await_fan(origin, OperationProgress::fan(parts, Merge::Info { own }));
    }

    /// Asks these servers for their users, for a command that changes them: the answers come as those of the command did.
    pub(crate) fn ask_users(
        &mut self,
        step: &mut RouterStep<'_>,
        origin: RequestOrigin,
        shims: &[ShimId],
        frame: &Bytes,
    ) {
        let parts = self.ask(step, RequestOrigin { resp3: false, ..origin }, shims, frame);
        self.await_fan(origin, OperationProgress::fan(parts, Merge::Users));
    }

    /// A question of the router's own, with its number, for one server.
    pub(crate) fn ask_one(&mut self, step: &mut RouterStep<'_>, shim: ShimId, frame: &Bytes) {
        let question = u32::from(shim.0);
        let origin =
            RequestOrigin { client: NOBODY, part: question, sequence: 0, resp3: false, waited_ms: 0 };
        self.traffic.send_execute(step, origin, Outgoing::keyless(CommandKind::Keyless, shim, frame));
    }

    fn ask(
        &mut self,
        step: &mut RouterStep<'_>,
        origin: RequestOrigin,
        shims: &[ShimId],
        frame: &Bytes,
    ) -> Vec<FanPart> {
        let mut parts = Vec::with_capacity(shims.len());
        for (part, shim) in shims.iter().enumerate() {
            let outgoing = Outgoing::keyless(CommandKind::Keyless, *shim, frame);
            let origin = RequestOrigin { part: part as u32, ..origin };
            parts.push(FanPart::alone(self.traffic.send_execute(step, origin, outgoing)));
        }
        parts
    }

    pub(crate) fn await_fan(&mut self, origin: RequestOrigin, fan: OperationProgress) {
        if let Some(operation) = self.callers.operation(origin.client, origin.sequence) {
            operation.progress = fan;
        }
    }
}

/// The router's own part of an INFO, and the command that asks for it.
pub(crate) struct Info<'a> {
    pub(crate) own: String,
    pub(crate) asked: &'a Command,
}

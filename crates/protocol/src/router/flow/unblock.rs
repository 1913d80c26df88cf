//! CLIENT UNBLOCK: finds what a client waits for, and has the shim end it. The reply comes as ever.

use wire::message::Execute;
use wire::resp::Command;
use wire::{Key, Message};

use crate::router::flow::{Flow, Unblocked};
use crate::router::step::RouterStep;

impl Flow {
    /// Whether the client was blocked; at the end of the step it is no more.
    pub(crate) fn unblock(&mut self, client: u32, error: bool) -> bool {
        let requests = self.callers.get(client).into_iter().flat_map(|caller| caller.pipeline.requests());
        let blocked = requests.into_iter().find_map(|request| {
            let pending = self.traffic.pending.get(request).filter(|pending| pending.blocking)?;
            Some(Unblocked { peer: pending.peer, request, error })
        });
        let found = blocked.is_some();
        self.unblocked.extend(blocked);
        found
    }

    /// In the name of the request that is to end: it is the one that will be answered.
    pub(crate) fn tell_unblocked(&mut self, step: &mut RouterStep<'_>) {
        for Unblocked { peer, request, error } in self.unblocked.drain(..) {
            let reason = if error { "ERROR" } else { "TIMEOUT" };
            let command = Command::from_args(&["CLIENT", "UNBLOCK", reason]).frame().clone();
            let (key, resp3, ordered, watch) = (Key::default(), false, false, None);
            let execute = Execute { request, key, resp3, ordered, watch, waited_ms: 0, command };
            step.send(peer, Message::Execute(execute));
        }
    }
}

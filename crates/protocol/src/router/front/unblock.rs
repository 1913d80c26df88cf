//! CLIENT UNBLOCK: finds what a client waits for, and has the shim end it. The reply comes as ever.

use bytes::Bytes;
use wire::message::Execute;
use wire::resp::Command;
use wire::{Key, Message};

use crate::router::flow::plan;
use crate::router::{Effect, Router, replies};
use commands::integer;

impl Router {
    /// CLIENT UNBLOCK id [TIMEOUT | ERROR]: whether that client of this router was blocked.
    pub(crate) fn unblock(&mut self, command: &Command) -> Bytes {
        let error = match command.len() {
            3 => false,
            _ if plan::is(command, 3, "TIMEOUT") => false,
            _ if plan::is(command, 3, "ERROR") => true,
            _ => return replies::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        };
        let Some(number) = integer(command.arg(2)) else {
            return replies::error("ERR value is not an integer or out of range");
        };
        let client = self.clients.all().find(|client| i64::try_from(client.number) == Ok(number));
        let blocked = client.into_iter().flat_map(|client| client.pipeline.requests()).find_map(|request| {
            let pending = self.pending.get(request).filter(|pending| pending.blocking)?;
            Some((pending.peer, request, error))
        });
        let found = blocked.is_some();
        self.unblocked.extend(blocked);
        replies::integer(i64::from(found))
    }

    /// In the name of the request that is to end: it is the one that will be answered.
    pub(crate) fn tell_unblocked(&mut self, effects: &mut Vec<Effect>) {
        for (to, request, error) in self.unblocked.drain(..) {
            let reason = if error { "ERROR" } else { "TIMEOUT" };
            let command = Command::from_args(&["CLIENT", "UNBLOCK", reason]).frame().clone();
            let (key, resp3, ordered, watch) = (Key::default(), false, false, None);
            let execute = Execute { request, key, resp3, ordered, watch, waited_ms: 0, command };
            effects.push(Effect::Send { to, message: Message::Execute(execute) });
        }
    }
}

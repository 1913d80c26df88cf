//! CLIENT UNBLOCK: a command that blocks is ended as by its time-out or by an error, and takes nothing.

use bytes::Bytes;
use wire::resp::Command;

use super::operation::{Operation, OperationKind, Origin, Phase};
use super::step::ShimStep;
use super::{Effect, Shim};
use crate::storage::{CommandControl, Lane};

const UNBLOCKED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

/// Whether a router asks to end the command of the same request, as an error or not. Clients' own CLIENT never gets here.
pub(super) fn asked(command: &Command) -> Option<bool> {
    let is = |place: usize, word: &str| {
        command.get(place).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    (is(0, "CLIENT") && is(1, "UNBLOCK")).then(|| is(2, "ERROR"))
}

/// What the client of a command hears that has not reached storage.
pub(super) fn reply(operation: &Operation) -> Option<Bytes> {
    let error = operation.unblocked?;
    let resp3 = matches!(operation.lane, Lane::Pinned { resp3: true });
    Some(Bytes::from_static(match (error, resp3) {
        (true, _) => UNBLOCKED,
        (false, true) => b"_\r\n",
        (false, false) => b"*-1\r\n",
    }))
}

impl Shim {
    /// Storage ends it, because only storage knows whether it has got something by now.
    pub(super) fn unblock(&mut self, step: &mut ShimStep<'_>, origin: Origin, error: bool) {
        let asked = |other: Origin| other.is(origin.from, origin.request);
        let wanted = |operation: &Operation| operation.origin.is_some_and(asked);
        let found = self.operations.iter_mut().find(|(_, operation)| wanted(operation));
        let Some((_, operation)) = found else { return };
        if !matches!(operation.kind, OperationKind::Blocking | OperationKind::BlockingQuery) {
            return;
        }
        match operation.phase {
            Phase::Sent { ticket } => {
                step.effects.push(Effect::Control { ticket, control: CommandControl::Unblock { error } })
            }
            Phase::Queued | Phase::Invalidating => operation.unblocked = Some(error),
        }
    }
}

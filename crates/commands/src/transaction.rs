//! What a transaction is as a whole, from the commands in it. Not who has queued them.

use bytes::Bytes;
use wire::resp::{Command, transaction};

use super::classify::{Classified, CommandKind, classify};

/// How a transaction is treated that has been `so_far` and gets one command more. Nothing in it blocks, and as a whole
/// it has no view. Starts with `Keyless`.
pub fn transaction_kind(so_far: CommandKind, more: CommandKind) -> CommandKind {
    match (so_far, more) {
        (CommandKind::Barrier, _) | (_, CommandKind::Barrier) => CommandKind::Barrier,
        (CommandKind::Write, _) | (_, CommandKind::Write | CommandKind::BlockingWrite) => CommandKind::Write,
        (CommandKind::Query, _)
        | (_, CommandKind::Read | CommandKind::Query | CommandKind::BlockingQuery) => CommandKind::Query,
        _ => CommandKind::Keyless,
    }
}

/// A transaction that may go to storage.
pub struct TransactionParts {
    pub commands: Vec<(Command, Classified)>,
    pub kind: CommandKind,
}

impl TransactionParts {
    /// Takes a peer's frame apart. The error says what must not reach a connection that others share.
    pub fn parse(frame: &Bytes) -> Result<TransactionParts, String> {
        let (mut commands, mut kind) = (Vec::new(), CommandKind::Keyless);
        for command in transaction::split(frame).map_err(|error| error.to_string())? {
            let classified = classify(&command).map_err(|refusal| refusal.to_string())?;
            let asks_storage = command.name().eq_ignore_ascii_case(b"COMMAND");
            let own = matches!(
                classified.kind,
                CommandKind::Subscription | CommandKind::Watch | CommandKind::Purge
            );
            if own || (classified.kind == CommandKind::Connection && !asks_storage) {
                let name = classified.spec.name;
                return Err(format!(
                    "ERR DistCache: '{name}' inside a transaction is the router's to answer"
                ));
            }
            kind = transaction_kind(kind, classified.kind);
            commands.push((command, classified));
        }
        Ok(TransactionParts { commands, kind })
    }
}

/// Whether a command changes the keys that it names.
pub fn writes(kind: CommandKind) -> bool {
    matches!(kind, CommandKind::Write | CommandKind::BlockingWrite)
}

//! What a transaction is as a whole, from the commands in it. Not who has queued them.

use bytes::Bytes;
use wire::resp::{Command, transaction};

use super::classify::{Classified, Kind, classify};

/// How a transaction is treated that has been `so_far` and gets one command more. Nothing in it blocks, and as a whole
/// it has no view. Starts with `Keyless`.
pub(crate) fn transaction_kind(so_far: Kind, more: Kind) -> Kind {
    match (so_far, more) {
        (Kind::Barrier, _) | (_, Kind::Barrier) => Kind::Barrier,
        (Kind::Write, _) | (_, Kind::Write | Kind::BlockingWrite) => Kind::Write,
        (Kind::Query, _) | (_, Kind::Read | Kind::Query | Kind::BlockingQuery) => Kind::Query,
        _ => Kind::Keyless,
    }
}

/// A transaction that may go to storage.
pub(crate) struct Parts {
    pub(crate) commands: Vec<(Command, Classified)>,
    pub(crate) kind: Kind,
}

impl Parts {
    /// Takes a peer's frame apart. The error says what must not reach a connection that others share.
    pub(crate) fn parse(frame: &Bytes) -> Result<Parts, String> {
        let (mut commands, mut kind) = (Vec::new(), Kind::Keyless);
        for command in transaction::split(frame).map_err(|error| error.to_string())? {
            let classified = classify(&command).map_err(|refusal| refusal.to_string())?;
            let asks_storage = command.name().eq_ignore_ascii_case(b"COMMAND");
            let own = matches!(classified.kind, Kind::Subscription | Kind::Watch | Kind::Purge);
            if own || (classified.kind == Kind::Connection && !asks_storage) {
                let name = classified.spec.name;
                return Err(format!(
                    "ERR DistCache: '{name}' inside a transaction is the router's to answer"
                ));
            }
            kind = transaction_kind(kind, classified.kind);
            commands.push((command, classified));
        }
        Ok(Parts { commands, kind })
    }
}

/// Whether a command changes the keys that it names.
pub(crate) fn writes(kind: Kind) -> bool {
    matches!(kind, Kind::Write | Kind::BlockingWrite)
}

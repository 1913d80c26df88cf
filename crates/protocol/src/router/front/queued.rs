//! What a client has queued between MULTI and EXEC. Not what becomes of it.

use bytes::Bytes;
use wire::resp::Command;
use wire::resp::transaction::Transaction;

use commands::{Classified, CommandKind, UnnamedKeys};

/// What a client has queued since MULTI.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) storage: Transaction,
    /// Commands that the router answers itself, by their place in the whole, and what storage need not be asked.
    pub(crate) own: Vec<(usize, Own)>,
    pub(crate) own_bytes: usize,
    pub(crate) kind: CommandKind,
    pub(crate) unnamed_keys: UnnamedKeys,
    pub(crate) script: bool,
    /// Keys that commands read whose replies clients may keep.
    pub(crate) reads: Vec<Bytes>,
    /// A command was wrong, so that EXEC will do nothing.
    pub(crate) failed: bool,
}

#[derive(Debug)]
pub(crate) enum Own {
    Command(Command),
    /// Redis would find the mistake while it carries the command out.
    Error(Bytes),
}

impl Default for Queued {
    fn default() -> Queued {
        Queued {
            storage: Transaction::default(),
            own: Vec::new(),
            own_bytes: 0,
            kind: CommandKind::Keyless,
            unnamed_keys: UnnamedKeys::None,
            script: false,
            reads: Vec::new(),
            failed: false,
        }
    }
}

impl Queued {
    pub(crate) fn len(&self) -> usize {
        self.storage.len() + self.own.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.storage.bytes() + self.own_bytes
    }

    /// EXEC will do nothing, so nothing is kept.
    pub(crate) fn fail(&mut self) {
        *self = Queued { failed: true, ..Queued::default() };
    }

    pub(crate) fn push(&mut self, command: &Command, classified: &Classified) {
        // A channel is no key, but has a place as keys have.
        let channel = [1];
        let keys = if classified.kind == CommandKind::Publish { &channel[..] } else { &classified.keys[..] };
        self.storage.push(command, keys);
        self.kind = commands::transaction_kind(self.kind, classified.kind);
        self.unnamed_keys = self.unnamed_keys.max(classified.unnamed_keys);
        self.script |= classified.script;
        if classified.spec.is_tracked() {
            let keys = classified.keys.iter();
            self.reads.extend(keys.map(|&index| Bytes::copy_from_slice(command.arg(index))));
        }
    }

    pub(crate) fn push_own(&mut self, own: Own) {
        self.own_bytes += match &own {
            Own::Command(command) => command.frame().len(),
            Own::Error(bytes) => bytes.len(),
        };
        self.own.push((self.len(), own));
    }
}

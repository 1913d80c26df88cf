//! What clients asked for and were told, per key, in virtual time. Not whether it makes sense.

use crate::model::What;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not answered.
    Pending,
    /// The reply as RESP2 has it.
    Told(Vec<u8>),
    /// It may have happened, and may still happen until `returned`.
    Unknown,
    /// It certainly had no effect, or its reply says nothing.
    Void,
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) what: What,
    pub(crate) invoked: u64,
    pub(crate) returned: u64,
    pub(crate) outcome: Outcome,
    /// The same client's earlier operation on this key, sent ahead of this one without waiting for its reply.
    pub(crate) after: Option<u32>,
}

/// One operation: its key, and its place among that key's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationId {
    pub(crate) key: usize,
    pub(crate) place: u32,
}

#[derive(Debug)]
pub(crate) struct History {
    /// By key, in the order of invocation.
    pub(crate) keys: Vec<Vec<Operation>>,
}

impl History {
    pub(crate) fn new(keys: usize) -> History {
        History { keys: vec![Vec::new(); keys] }
    }

    pub(crate) fn begin(&mut self, now: u64, key: usize, what: What, after: Option<u32>) -> OperationId {
        let (returned, outcome) = (u64::MAX, Outcome::Pending);
        self.keys[key].push(Operation { what, invoked: now, returned, outcome, after });
        OperationId { key, place: self.keys[key].len() as u32 - 1 }
    }

    pub(crate) fn get(&self, id: OperationId) -> &Operation {
        &self.keys[id.key][id.place as usize]
    }

    fn get_mut(&mut self, id: OperationId) -> &mut Operation {
        &mut self.keys[id.key][id.place as usize]
    }

    pub(crate) fn told(&mut self, now: u64, id: OperationId, reply: Vec<u8>) {
        let operation = self.get_mut(id);
        (operation.returned, operation.outcome) = (now, Outcome::Told(reply));
    }

    /// Nobody will say whether it happened.
    pub(crate) fn lost(&mut self, id: OperationId) {
        let operation = self.get_mut(id);
        operation.outcome = if operation.what.reads() { Outcome::Void } else { Outcome::Unknown };
    }

    pub(crate) fn void(&mut self, id: OperationId) {
        self.get_mut(id).outcome = Outcome::Void;
    }
}

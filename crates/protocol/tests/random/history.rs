//! What clients asked for and were told, per key, in real time. Not whether it makes sense.

use crate::model::What;
use crate::network::End;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not answered.
    Pending,
    Told(Vec<u8>),
    /// It may have happened, and may still happen until `returned`. `reported`: the shim said so itself, so it
    /// cannot happen after the next fence.
    Unknown {
        reported: bool,
    },
    /// It certainly had no effect, or its reply says nothing.
    Void,
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) key: usize,
    pub(crate) what: What,
    pub(crate) invoked: u64,
    pub(crate) returned: u64,
    pub(crate) outcome: Outcome,
    /// The same client's earlier operation on this key, sent ahead of this one without waiting for its reply.
    pub(crate) after: Option<usize>,
    pub(crate) to: End,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
}

impl History {
    pub(crate) fn begin(&mut self, now: u64, key: usize, what: What, after: Option<usize>, to: End) -> usize {
        let (returned, outcome) = (u64::MAX, Outcome::Pending);
        self.operations.push(Operation { key, what, invoked: now, returned, outcome, after, to });
        self.operations.len() - 1
    }

    pub(crate) fn told(&mut self, now: u64, index: usize, reply: Vec<u8>) {
        let operation = &mut self.operations[index];
        (operation.returned, operation.outcome) = (now, Outcome::Told(reply));
    }

    /// The client will not hear of it any more, but for an error perhaps that says so.
    pub(crate) fn lost(&mut self, index: usize, reported: bool, latest: u64) {
        let operation = &mut self.operations[index];
        operation.outcome =
            if operation.what.reads() { Outcome::Void } else { Outcome::Unknown { reported } };
        operation.returned = latest;
    }

    pub(crate) fn void(&mut self, index: usize) {
        self.operations[index].outcome = Outcome::Void;
    }

    /// Of what was sent to `slot` and is unknown, nothing can happen after `now`; before the end of its shim that
    /// is true only of what it has reported.
    pub(crate) fn bury(&mut self, now: u64, slot: End, ended: bool) {
        for operation in &mut self.operations {
            let buried = match operation.outcome {
                Outcome::Unknown { reported } => ended || reported,
                _ => false,
            };
            if operation.to == slot && buried {
                operation.returned = operation.returned.min(now);
            }
        }
    }

    pub(crate) fn of_key(&self, key: usize) -> Vec<(usize, &Operation)> {
        let all = self.operations.iter().enumerate();
        all.filter(|(_, operation)| operation.key == key && operation.outcome != Outcome::Void).collect()
    }
}

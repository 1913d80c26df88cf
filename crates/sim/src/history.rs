//! What clients asked for and were told, per key, in virtual time. Not whether it makes sense.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use linearize::{HistoryOperation, HistoryOutcome, ModelState, What};

/// By frame: each time that storage carried the command out.
pub(crate) type Executed = BTreeMap<Bytes, Vec<Execution>>;

#[derive(Clone, Debug)]
pub(crate) struct Execution {
    pub(crate) time: u64,
    /// Orders those of one time.
    pub(crate) serial: u64,
    pub(crate) reply: Bytes,
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
    pub(crate) keys: Vec<Vec<HistoryOperation>>,
}

impl History {
    pub(crate) fn new(keys: usize) -> History {
        History { keys: vec![Vec::new(); keys] }
    }

    pub(crate) fn begin(
        &mut self,
        now: u64,
        key: usize,
        what: What,
        after: Option<u32>,
        frame: Option<Bytes>,
    ) -> OperationId {
        let (returned, outcome) = (u64::MAX, HistoryOutcome::Pending);
        self.keys[key].push(HistoryOperation {
            what,
            invoked: now,
            returned,
            outcome,
            after,
            frame,
            executed: None,
        });
        OperationId { key, place: self.keys[key].len() as u32 - 1 }
    }

    pub(crate) fn get(&self, id: OperationId) -> &HistoryOperation {
        &self.keys[id.key][id.place as usize]
    }

    fn get_mut(&mut self, id: OperationId) -> &mut HistoryOperation {
        &mut self.keys[id.key][id.place as usize]
    }

    pub(crate) fn told(&mut self, now: u64, id: OperationId, reply: Vec<u8>) {
        let operation = self.get_mut(id);
        (operation.returned, operation.outcome) = (now, HistoryOutcome::Told(reply));
    }

    /// Storage lost what had been done to a key; whoever reads sees so between these two times, and from then on.
    pub(crate) fn restored(&mut self, now: u64, until: u64, serial: u64, key: usize, state: ModelState) {
        let id = self.begin(now, key, What::Restore(Box::new(state)), None, None);
        let operation = self.get_mut(id);
        (operation.returned, operation.outcome) = (until, HistoryOutcome::Happened);
        operation.executed = Some((now, serial));
    }

    /// Nobody will say whether it happened.
    pub(crate) fn lost(&mut self, id: OperationId) {
        let operation = self.get_mut(id);
        operation.outcome =
            if operation.what.reads() { HistoryOutcome::Void } else { HistoryOutcome::Unknown };
    }

    pub(crate) fn void(&mut self, id: OperationId) {
        self.get_mut(id).outcome = HistoryOutcome::Void;
    }

    /// Finds for every write of a key when storage carried it out. Those that nobody vouches for have happened by then
    /// or not at all; those that were vouched for must have, and nothing may have happened that nobody asked for.
    pub(crate) fn settle(&mut self, key: usize, executed: &Executed) -> Result<(), String> {
        let mut groups: BTreeMap<Bytes, Vec<usize>> = BTreeMap::new();
        for (place, operation) in self.keys[key].iter().enumerate() {
            if let Some(frame) = &operation.frame {
                groups.entry(frame.clone()).or_default().push(place);
            }
        }
        let mut mistakable = BTreeSet::new();
        for (frame, places) in groups {
            let times = executed.get(&frame).map_or(&[][..], Vec::as_slice);
            let pinned = settle_alike(&mut self.keys[key], &places, times)
                .map_err(|failure| format!("{failure}: {}", frame.escape_ascii()))?;
            if pinned && places.len() > 1 {
                mistakable.extend(places.into_iter().map(|place| place as u32));
            }
        }
        // Another one of those alike may have been meant, so their places in program order mean nothing.
        for (place, operation) in self.keys[key].iter_mut().enumerate() {
            let mistaken = mistakable.contains(&(place as u32));
            operation.after = operation.after.filter(|after| !mistaken && !mistakable.contains(after));
        }
        Ok(())
    }
}

/// Settles operations that storage cannot tell apart: each time goes to the one of them that had to happen first. Says
/// whether one of them that nobody vouches for happened.
fn settle_alike(
    operations: &mut [HistoryOperation],
    places: &[usize],
    executed: &[Execution],
) -> Result<bool, String> {
    let mut pinned = false;
    let mut told: Vec<usize> = Vec::new();
    let mut unknown: Vec<usize> = Vec::new();
    for place in places {
        match operations[*place].outcome {
            HistoryOutcome::Told(_) => told.push(*place),
            // A run that ends early leaves some unanswered.
            HistoryOutcome::Unknown | HistoryOutcome::Pending => unknown.push(*place),
            _ => {}
        }
    }
    for Execution { time, serial, reply } in executed {
        let fits = |place: &usize| {
            let one = &operations[*place];
            let same = matches!(&one.outcome, HistoryOutcome::Told(told) if *told == *reply);
            same && (one.invoked..=one.returned).contains(time)
        };
        let told_of = told.iter().copied().filter(fits).min_by_key(|place| operations[*place].returned);
        if let Some(place) = told_of {
            operations[place].executed = Some((*time, *serial));
            told.retain(|other| *other != place);
            continue;
        }
        let Some(index) = unknown.iter().position(|place| operations[*place].invoked <= *time) else {
            return Err(format!(
                "carried out at {:.6} s without anyone to account for it",
                *time as f64 / 1e6
            ));
        };
        let operation = &mut operations[unknown.remove(index)];
        operation.outcome = HistoryOutcome::Happened;
        (operation.invoked, operation.returned) = (*time, *time);
        operation.executed = Some((*time, *serial));
        pinned = true;
    }
    for place in unknown {
        operations[place].outcome = HistoryOutcome::Void;
    }
    match told.first() {
        None => Ok(pinned),
        Some(place) => Err(format!(
            "never carried out as its client was told, who asked at {}",
            operations[*place].invoked
        )),
    }
}

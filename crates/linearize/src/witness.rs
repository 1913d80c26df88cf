//! Whether the order in which storage carried out the writes of a key explains every reply, without a search. Not whether
//! another order does.
//!
//! Every operation gets an instant between its call and its reply: a write the one at which storage carried it out, a read
//! the first one at which the key was what the client was told. Operations with such instants are in real-time order by
//! themselves, so what is found here is a proof; what is not says nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ABSENT, ModelOutcome, ModelState, ModelWindow};
use crate::operation::{HistoryOperation, HistoryOutcome};
use crate::search::is_required;

/// A read at no time in particular.
const ALWAYS: ModelWindow = ModelWindow { earliest: 0, latest: u64::MAX };

/// What the key was between two writes.
struct Era {
    since: u64,
    /// When the next one began.
    until: u64,
    state: ModelState,
    /// When it expires, if it can: no earlier and no later. It is one instant for all who look.
    expires: Option<ModelWindow>,
    /// The last instant at which a client was told that it had not.
    lived: u64,
}

/// An instant: an era, and the time.
type Instant = (usize, u64);

const NEVER: Instant = (usize::MAX, u64::MAX);

/// Operations by their invocation, and the predecessor of each in program order.
pub(crate) fn explains(
    operations: &[&HistoryOperation],
    after: &[Option<u32>],
    initial: &ModelState,
) -> bool {
    let Some((eras, written)) = eras(operations, initial) else { return false };
    // A predecessor that nobody vouches for binds nobody.
    let bound = |before: &u32| is_required(operations[*before as usize]);
    let after = after.iter().map(|before| before.filter(bound).map(|before| before as usize)).collect();
    let mut witness = Witness { operations, after, eras, written };
    // Where everybody looks as early as can be, an era is seen alive for the shortest time. Then it expires.
    witness.tell_alike_apart();
    witness.place() && witness.fix_expiry() && witness.place()
}

/// What the key was, and the era that each write began.
fn eras(operations: &[&HistoryOperation], initial: &ModelState) -> Option<(Vec<Era>, Vec<Option<usize>>)> {
    let mut writes = Vec::new();
    for (place, operation) in operations.iter().enumerate() {
        match operation.executed.filter(|_| !operation.what.reads()) {
            Some(executed) => writes.push((executed, place)),
            None if operation.what.reads() || !is_required(operation) => {}
            None => return None,
        }
    }
    writes.sort_unstable();
    let mut eras = vec![Era::new(0, initial.clone())];
    let mut written = vec![None; operations.len()];
    for ((time, _), place) in writes {
        let operation = operations[place];
        let last = eras.last_mut()?;
        last.until = time;
        let state = last.after(operation, time)?;
        written[place] = Some(eras.len());
        eras.push(Era::new(time, state));
    }
    Some((eras, written))
}

impl Era {
    fn new(since: u64, state: ModelState) -> Era {
        let expires = state.expires();
        Era { since, until: u64::MAX, state, expires, lived: since }
    }

    /// What a write at `time` makes of it, and what that says of its end.
    fn after(&mut self, operation: &HistoryOperation, time: u64) -> Option<ModelState> {
        let told = |outcome: &ModelOutcome| match &operation.outcome {
            HistoryOutcome::Told(told) => outcome.1 == *told,
            _ => true,
        };
        let when = ModelWindow { earliest: time, latest: time };
        let [living, expired] = self.state.alternatives(&operation.what, when);
        match (living.filter(told), expired.filter(told)) {
            (Some((living, _)), Some((expired, _))) if living == expired => Some(living),
            (Some((living, _)), _) => {
                self.expires =
                    self.expires.map(|end| ModelWindow { earliest: end.earliest.max(time + 1), ..end });
                Some(living)
            }
            (None, Some((expired, _))) => {
                self.expires = self.expires.map(|end| ModelWindow { latest: end.latest.min(time), ..end });
                Some(expired)
            }
            (None, None) => None,
        }
    }

    /// Within which of the times `from` to `to` a read is told so while the key lives, and once it has expired.
    fn windows(&self, operation: &HistoryOperation, from: u64, to: u64) -> [Option<ModelWindow>; 2] {
        let HistoryOutcome::Told(told) = &operation.outcome else { return [None; 2] };
        let is_told =
            |state: &ModelState| state.read(&operation.what, ALWAYS).is_some_and(|reply| reply == *told);
        let window = |earliest: u64, latest: u64, state: &ModelState| {
            (earliest <= latest && is_told(state)).then_some(ModelWindow { earliest, latest })
        };
        let (from, to) = (from.max(self.since), to.min(self.until));
        match self.expires {
            None => [window(from, to, &self.state), None],
            Some(end) => [
                window(from, to.min(end.latest.saturating_sub(1)), &self.state),
                window(from.max(end.earliest), to, &ABSENT),
            ],
        }
    }
}

struct Witness<'a> {
    operations: &'a [&'a HistoryOperation],
    after: Vec<Option<usize>>,
    eras: Vec<Era>,
    /// By operation: the era that it began.
    written: Vec<Option<usize>>,
}

impl Witness<'_> {
    /// Writes that storage cannot tell apart change places: each gets an execution that fits what its client asked for
    /// and saw before and behind it.
    fn tell_alike_apart(&mut self) {
        let mut alike: BTreeMap<(&[u8], &[u8]), Vec<usize>> = BTreeMap::new();
        for (place, operation) in self.operations.iter().enumerate() {
            if let (Some(frame), HistoryOutcome::Told(told)) = (&operation.frame, &operation.outcome) {
                alike.entry((frame, told)).or_default().push(place);
            }
        }
        alike.retain(|_, places| places.len() > 1);
        let ambiguous: BTreeSet<usize> = alike.values().flatten().copied().collect();
        let (earliest, latest) = (self.earliest(&ambiguous), self.latest(&ambiguous));
        for places in alike.into_values() {
            let mut eras: Vec<usize> = places.iter().filter_map(|place| self.written[*place]).collect();
            eras.sort_unstable();
            let mut waiting = places.clone();
            let mut dealt = Vec::new();
            for era in eras {
                let instant = (era, self.eras[era].since);
                let fitting = |place: &usize| earliest[*place] <= instant && instant <= latest[*place];
                let next = waiting.iter().copied().filter(fitting).min_by_key(|place| latest[*place]);
                let Some(next) = next else { break };
                waiting.retain(|place| *place != next);
                dealt.push((next, era));
            }
            if waiting.is_empty() {
                dealt.into_iter().for_each(|(place, era)| self.written[place] = Some(era));
            }
        }
    }

    /// The first instant of each operation, whichever of those alike it was.
    fn earliest(&self, ambiguous: &BTreeSet<usize>) -> Vec<Instant> {
        let mut earliest: Vec<Instant> = Vec::with_capacity(self.operations.len());
        for (place, operation) in self.operations.iter().enumerate() {
            let from = self.after[place].and_then(|before| earliest.get(before)).copied().unwrap_or_default();
            let from = (from.0, from.1.max(operation.invoked));
            earliest.push(match self.written[place].filter(|_| !ambiguous.contains(&place)) {
                Some(era) => (era, self.eras[era].since),
                None if operation.what.reads() => {
                    self.first_look(operation, from).map_or(from, |(first, _)| first)
                }
                None => (self.era_at(from), from.1),
            });
        }
        earliest
    }

    /// The last one.
    fn latest(&self, ambiguous: &BTreeSet<usize>) -> Vec<Instant> {
        let mut latest = vec![NEVER; self.operations.len()];
        for (place, operation) in self.operations.iter().enumerate().rev() {
            let to = (latest[place].0, latest[place].1.min(operation.returned));
            latest[place] = match self.written[place].filter(|_| !ambiguous.contains(&place)) {
                Some(era) => (era, self.eras[era].since),
                None if operation.what.reads() => self.last_look(operation, to).unwrap_or(to),
                None => (to.0.min(self.eras.partition_point(|era| era.since <= to.1) - 1), to.1),
            };
            if let Some(before) = self.after[place].filter(|_| is_required(operation)) {
                latest[before] = latest[before].min(latest[place]);
            }
        }
        latest
    }

    fn era_at(&self, (era, time): Instant) -> usize {
        era.max(self.eras.partition_point(|era| era.until < time))
    }

    /// When a read was told so first, not before `from`, and whether the key lived then.
    fn first_look(&self, operation: &HistoryOperation, from: Instant) -> Option<(Instant, bool)> {
        let to = operation.returned;
        let eras =
            self.eras.iter().enumerate().skip(self.era_at(from)).take_while(|(_, era)| era.since <= to);
        eras.filter_map(|(index, era)| match era.windows(operation, from.1, to) {
            [Some(living), _] => Some(((index, living.earliest), true)),
            [None, expired] => Some(((index, expired?.earliest), false)),
        })
        .next()
    }

    /// When a read was told so last, not after `to`.
    fn last_look(&self, operation: &HistoryOperation, (last, to): Instant) -> Option<Instant> {
        let end = self.eras.partition_point(|era| era.since <= to).min(last.saturating_add(1));
        let eras = self.eras[..end].iter().enumerate().rev();
        let eras = eras.take_while(|(_, era)| era.until >= operation.invoked);
        eras.filter_map(|(index, era)| {
            let window = era.windows(operation, operation.invoked, to).into_iter().flatten().next_back()?;
            Some((index, window.latest))
        })
        .next()
    }

    /// Finds an instant for every operation that happened.
    fn place(&mut self) -> bool {
        let mut instants: Vec<Instant> = Vec::with_capacity(self.operations.len());
        for (place, operation) in self.operations.iter().enumerate() {
            let from = match self.after[place].map(|before| instants.get(before)) {
                Some(Some(instant)) => *instant,
                Some(None) => return false,
                None => (0, 0),
            };
            let found = match self.written[place] {
                Some(era) if (operation.invoked..=operation.returned).contains(&self.eras[era].since) => {
                    (era, self.eras[era].since)
                }
                Some(_) => return false,
                None if !is_required(operation) => from,
                None => match self.first_look(operation, (from.0, from.1.max(operation.invoked))) {
                    Some((instant, living)) => {
                        let era = &mut self.eras[instant.0];
                        era.lived = if living { era.lived.max(instant.1) } else { era.lived };
                        instant
                    }
                    None => return false,
                },
            };
            if found < from && is_required(operation) {
                return false;
            }
            instants.push(found);
        }
        true
    }

    /// Every era that can expire does so at one instant.
    fn fix_expiry(&mut self) -> bool {
        self.eras.iter_mut().all(|era| {
            let Some(end) = era.expires else { return true };
            let instant = end.earliest.max(era.lived + 1);
            era.expires = Some(ModelWindow { earliest: instant, latest: instant });
            instant <= end.latest
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::explains;
    use crate::model::{ModelState, What};
    use crate::operation::{HistoryOperation, HistoryOutcome};

    fn operation(what: What, invoked: u64, returned: u64, reply: &str) -> HistoryOperation {
        let outcome = HistoryOutcome::Told(reply.as_bytes().to_vec());
        HistoryOperation { what, invoked, returned, outcome, after: None, frame: None, executed: None }
    }

    fn write(what: What, invoked: u64, executed: u64, returned: u64, reply: &str) -> HistoryOperation {
        HistoryOperation { executed: Some((executed, executed)), ..operation(what, invoked, returned, reply) }
    }

    fn set(value: &str, invoked: u64, executed: u64, returned: u64) -> HistoryOperation {
        write(What::Set(value.into()), invoked, executed, returned, "+OK\r\n")
    }

    fn get(value: &str, invoked: u64, returned: u64) -> HistoryOperation {
        operation(What::Get, invoked, returned, &format!("${}\r\n{value}\r\n", value.len()))
    }

    fn nil(invoked: u64, returned: u64) -> HistoryOperation {
        operation(What::Get, invoked, returned, "$-1\r\n")
    }

    fn explained(operations: &[HistoryOperation]) -> bool {
        let kept: Vec<&HistoryOperation> = operations.iter().collect();
        let after: Vec<Option<u32>> = operations.iter().map(|operation| operation.after).collect();
        explains(&kept, &after, &ModelState::text())
    }

    #[test]
    fn the_order_of_storage_is_a_proof_where_replies_fit_it() {
        assert!(explained(&[set("a", 0, 1, 9), set("b", 0, 5, 9), get("a", 2, 3), get("b", 4, 8)]));
        assert!(!explained(&[set("a", 0, 1, 9), set("b", 0, 5, 9), get("b", 2, 3)]), "not written yet");
        assert!(!explained(&[set("a", 0, 1, 9), set("b", 0, 5, 9), get("a", 6, 8)]), "overwritten");
        assert!(!explained(&[set("a", 0, 12, 9)]), "storage was later than the reply");
        assert!(!explained(&[operation(What::Set("a".into()), 0, 9, "+OK\r\n")]), "when is not known");
        let appended = write(What::Append("b".into()), 3, 4, 9, ":1\r\n");
        assert!(!explained(&[set("a", 0, 1, 2), appended]), "another reply than the model's");
    }

    #[test]
    fn one_client_s_commands_keep_their_order() {
        let mut reads = [get("b", 2, 9), get("a", 3, 9)];
        let sets = [set("a", 0, 1, 9), set("b", 0, 5, 9)];
        let all = |reads: &[HistoryOperation]| explained(&[sets.as_slice(), reads].concat());
        assert!(all(&reads));
        reads[1].after = Some(2);
        assert!(!all(&reads));
        reads[0].outcome = HistoryOutcome::Unknown;
        assert!(all(&reads), "nobody was told");
    }

    #[test]
    fn writes_that_look_alike_are_told_apart_by_what_their_clients_saw() {
        let deleted = |executed, returned| HistoryOperation {
            frame: Some(Bytes::from_static(b"DEL k")),
            ..write(What::Delete, 0, executed, returned, ":1\r\n")
        };
        let [z, a, b] = [("z", 1), ("a", 20), ("b", 40)].map(|(value, executed)| set(value, 0, executed, 90));
        // Who saw "a" behind his deletion was the first to delete, whatever was taken for his.
        let saw = HistoryOperation { after: Some(4), ..get("a", 0, 90) };
        let all = |first, second| explained(&[z.clone(), a.clone(), b.clone(), first, second, saw.clone()]);
        assert!(all(deleted(30, 90), deleted(10, 90)));
        assert!(all(deleted(10, 90), deleted(30, 90)));
        assert!(!all(deleted(10, 29), deleted(30, 90)), "the other one had heard of his by then");
        assert!(!all(deleted(30, 90), deleted(10, 9)), "so had he");
    }

    #[test]
    fn a_key_expires_at_one_instant() {
        let brief = write(What::SetFor("a".into(), 10), 0, 0, 1, "+OK\r\n");
        // Between 7.9 and 12.1 ms.
        assert!(explained(&[brief.clone(), get("a", 200, 300), nil(11_000, 12_000)]));
        assert!(explained(&[brief.clone(), get("a", 9_000, 12_000), nil(9_000, 12_000)]));
        assert!(!explained(&[brief.clone(), nil(200, 300)]));
        assert!(!explained(&[brief.clone(), nil(9_000, 9_100), get("a", 9_200, 9_300)]));
        assert!(!explained(&[brief.clone(), get("a", 13_000, 13_100)]));
        let deleted = |told| write(What::Delete, 9_150, 9_150, 9_150, told);
        assert!(explained(&[brief.clone(), nil(9_000, 9_100), deleted(":0\r\n")]));
        assert!(
            !explained(&[brief.clone(), nil(9_000, 9_100), deleted(":1\r\n")]),
            "it was there to be deleted"
        );
        assert!(!explained(&[brief, get("a", 9_140, 9_145), deleted(":0\r\n"), get("a", 9_160, 9_170)]));
    }
}

//! Going through the old home until nothing that leaves is there: which key is moved next, and how fast. Not how.

use std::collections::VecDeque;
use std::collections::btree_map::Entry;
use std::hash::Hasher;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::Value;

use super::inspect::hash_all;
use super::moving_key::{MoveStage, MovingKey};
use super::servers::MigrationPlace;
use super::transfer::frame;
use super::{Migration, MigrationPhase, MigrationStep, MoveQuestion};
use crate::storage::StorageEvent;
use crate::time::Time;

/// How many keys a question for the next ones asks for.
pub(super) const PAGE: &[u8] = b"256";
/// After a round in which keys could not be moved, or an answer that was none.
pub(super) const REST: Duration = Duration::from_secs(1);
/// Nobody asks for commands if nobody has for so long.
const QUIET: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// Where the next page begins; none before the first of a round.
    cursor: Option<Bytes>,
    is_asked: bool,
    /// Tells the answers of one round from those of others.
    round: u64,
    /// The round ends with this page.
    is_last: bool,
    /// Keys of the page that leave.
    page: VecDeque<Bytes>,
    /// Transfers under way for which nobody waits.
    pub(super) in_flight: usize,
    /// Keys that were at home in this round, and those that could not be moved.
    pub(super) found: u64,
    pub(super) failed: u64,
    rests_until: Time,
    /// Keys that may begin now, in millionths of one, and as of when.
    credit: u64,
    credited: Time,
}

impl Scan {
    pub(super) fn is_round(&self, round: u64) -> bool {
        self.round == round
    }

    /// Left out: the number of the round, and how many keys are counted beyond none.
    pub(super) fn fingerprint(&self, state: &mut impl Hasher) {
        let Scan { cursor, is_asked, round: _, is_last, page, in_flight, found, failed, .. } = self;
        let Scan { rests_until, credit, credited, .. } = self;
        hash_all(&[cursor, is_asked, is_last, page, in_flight, &(*found > 0), &(*failed > 0)], state);
        hash_all(&[rests_until, credit, credited], state);
    }
}

impl Migration {
    /// From the beginning: what was seen may have come again.
    pub(super) fn restart_scan(&mut self) {
        let in_flight = self.scan.in_flight;
        self.scan = Scan { in_flight, round: self.scan.round + 1, ..Scan::default() };
        if self.phase == MigrationPhase::Moved {
            self.phase = MigrationPhase::Moving;
        }
    }

    /// The next keys, as far as they may be under way.
    pub(super) fn carry_on(&mut self, step: &mut MigrationStep<'_>) {
        if self.phase != MigrationPhase::Moving || !self.home.is_ready() || step.now < self.scan.rests_until {
            return;
        }
        self.credit(step.now);
        for _ in 0..self.begins_max(step.now) {
            if !self.may_begin() {
                break;
            }
            let Some(key) = self.scan.page.pop_front() else { break };
            self.move_unasked(step, key);
        }
        if !self.scan.page.is_empty() || self.scan.is_asked {
            return;
        }
        if self.scan.is_last && self.scan.in_flight == 0 {
            self.end_round(step);
            if self.phase == MigrationPhase::Moved || step.now < self.scan.rests_until {
                return;
            }
        }
        if !self.scan.is_last {
            self.next_page(step);
        }
    }

    /// How many may begin now.
    fn begins_max(&self, now: Time) -> usize {
        let is_asked = self.asked.is_some_and(|asked| now.since(asked) < QUIET);
        match (is_asked, self.scan.in_flight) {
            (false, in_flight) => self.config.transfers_max.saturating_sub(in_flight),
            (true, 0) => {
                let givers = self.departures.as_ref().map_or(1, |departures| departures.givers());
                (self.config.transfers_beside_max / givers.max(1)).max(1)
            }
            (true, _) => 0,
        }
    }

    fn credit(&mut self, now: Time) {
        let rate = u64::from(self.config.keys_per_second_max);
        let elapsed = now.since(self.scan.credited).as_micros() as u64;
        self.scan.credited = now;
        // A tenth of a second's worth at most comes at once.
        self.scan.credit = (self.scan.credit + elapsed.saturating_mul(rate)).min(rate * 100_000);
    }

    fn may_begin(&mut self) -> bool {
        const KEY: u64 = 1_000_000;
        if self.config.keys_per_second_max == 0 {
            return true;
        }
        let enough = self.scan.credit >= KEY && !self.scan.page.is_empty();
        self.scan.credit -= if enough { KEY } else { 0 };
        enough
    }

    fn move_unasked(&mut self, step: &mut MigrationStep<'_>, key: Bytes) {
        let state = match self.keys.entry(key.clone()) {
            Entry::Vacant(place) => place.insert(MovingKey::new(MoveStage::Halted, true)),
            Entry::Occupied(state) => {
                let state = state.into_mut();
                match state.stage {
                    MoveStage::Stuck if state.at_home == 0 => state.is_background = true,
                    MoveStage::Stuck => {
                        self.scan.failed += 1;
                        return;
                    }
                    // Somebody waits for it. Whether it was here is told by another round.
                    _ => {
                        self.scan.found += 1;
                        return;
                    }
                }
                state
            }
        };
        state.stage = MoveStage::Halted;
        self.scan.in_flight += 1;
        self.move_key(step, key);
    }

    fn next_page(&mut self, step: &mut MigrationStep<'_>) {
        self.scan.is_asked = true;
        if self.scan.cursor.is_none() {
            self.progress.seen = 0;
            self.ask(
                step,
                MigrationPlace::Home,
                MoveQuestion::Count,
                SmallVec::from_elem(frame(&[b"DBSIZE"]), 1),
            );
        }
        let cursor = self.scan.cursor.clone().unwrap_or(Bytes::from_static(b"0"));
        let command = frame(&[b"SCAN", &cursor, b"COUNT", PAGE]);
        self.ask(
            step,
            MigrationPlace::Home,
            MoveQuestion::Scan(self.scan.round),
            SmallVec::from_elem(command, 1),
        );
    }

    pub(super) fn counted(&mut self, replies: &[Bytes]) {
        if let Some(Ok(Value::Integer(keys))) = replies.first().map(Value::parse) {
            self.progress.keys = keys.max(0) as u64;
        }
    }

    pub(super) fn scanned(&mut self, step: &mut MigrationStep<'_>, round: u64, replies: &[Bytes]) {
        if round != self.scan.round {
            return;
        }
        self.scan.is_asked = false;
        let parsed = replies.first().map(Value::parse);
        let Some((cursor, keys)) = parsed.as_ref().and_then(|value| page(value.as_ref().ok()?)) else {
            let reply = replies.first().cloned().unwrap_or_default();
            self.progress.reason = Some(format!("SCAN: {}", String::from_utf8_lossy(&reply).trim_end()));
            self.scan.rests_until = step.now.after(REST);
            return;
        };
        self.progress.seen += keys.len() as u64;
        let Some(departures) = &self.departures else { return };
        self.scan.page.extend(keys.into_iter().filter(|key| departures.destination(key).is_some()));
        self.scan.is_last = cursor == "0";
        self.scan.cursor = Some(cursor);
    }

    /// Keys that are there from the beginning to the end of a round have been met, and none comes: so nothing is left once a round
    /// has found nothing.
    fn end_round(&mut self, step: &mut MigrationStep<'_>) {
        let Scan { found, failed, .. } = self.scan;
        self.restart_scan();
        if failed > 0 {
            self.scan.rests_until = step.now.after(REST);
        } else if found == 0 {
            self.progress.reason = None;
            self.phase = MigrationPhase::Moved;
            step.report(StorageEvent::Migrated);
        }
    }
}

/// The cursor of the next page and the keys of this one.
pub(super) fn page(value: &Value) -> Option<(Bytes, Vec<Bytes>)> {
    let [cursor, keys] = value.elements()? else { return None };
    let keys = keys.elements()?.iter().filter_map(|key| key.bytes().cloned()).collect();
    Some((cursor.bytes()?.clone(), keys))
}

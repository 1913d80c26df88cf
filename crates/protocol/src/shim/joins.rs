//! Reads of one view that meet at the shim: one is at storage, the others wait for the next. Not reads behind writes.
//!
//! A reader is never answered by a read that was sent before it came: the key may have expired since, and a write that
//! storage has carried out may not have been answered yet. However many come while one is under way, one more read
//! serves them all.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Key, View};

use super::operation::Origin;
use super::step::ShimStep;
use super::{Purpose, Shim};
use crate::key_view::KeyView;
use crate::storage::Lane;

pub(super) type Origins = SmallVec<[Origin; 1]>;

/// The reads of one view of a key.
#[derive(Clone, Debug, Hash)]
pub(super) struct Reading {
    view: View,
    resp3: bool,
    /// At storage.
    sent: u32,
    /// Readers that came after the last of those was sent.
    waiting: Origins,
    /// Something that came later has been sent: those at storage may not be sent again.
    followed: bool,
    command: Bytes,
}

impl Reading {
    fn answers(&self, asked: &KeyView) -> bool {
        self.view == asked.view && self.resp3 == asked.resp3
    }
}

/// The reads of a key that are under way.
pub(super) type Readings = SmallVec<[Reading; 1]>;

impl Shim {
    /// Whether the reader was taken among those who wait for the next read. One that is `ordered` comes behind what its
    /// client has sent before: it waits with others only if nothing else of the key waits.
    pub(super) fn join(
        &mut self,
        step: &mut ShimStep<'_>,
        origin: Origin,
        asked: &KeyView,
        ordered: bool,
    ) -> bool {
        let Some(readings) = self.readings.get_mut(&asked.key) else { return false };
        let same = readings.iter().position(|reading| reading.answers(asked));
        let joins = match same {
            Some(index) if ordered => {
                let waits =
                    |(other, reading): (usize, &Reading)| reading.waiting.is_empty() != (other == index);
                readings.iter().enumerate().all(waits)
            }
            Some(index) => readings[index].sent > 0,
            None => false,
        };
        match same.filter(|_| joins) {
            Some(index) => {
                readings[index].waiting.push(origin);
                self.joined += 1;
                self.statistics.reads_joined += 1;
            }
            None if ordered => self.send_waiting(step, &asked.key),
            None => {}
        }
        joins
    }

    /// Sends one read for everyone in `origins`.
    pub(super) fn send_reading(
        &mut self,
        step: &mut ShimStep<'_>,
        origins: Origins,
        asked: KeyView,
        command: Bytes,
    ) {
        let readings = self.readings.entry(asked.key.clone()).or_default();
        match readings.iter_mut().find(|reading| reading.answers(&asked)) {
            Some(reading) => reading.sent += 1,
            None => {
                let command = command.clone();
                readings.push(Reading {
                    view: asked.view,
                    resp3: asked.resp3,
                    sent: 1,
                    waiting: SmallVec::new(),
                    followed: false,
                    command,
                });
            }
        }
        self.statistics.storage_reads += 1;
        let (lane, reach) = (Lane::Shared { resp3: asked.resp3 }, self.reach(&asked.key));
        let purpose = Purpose::Read { origins, asked };
        self.store(step, purpose, lane, reach, SmallVec::from_elem(command, 1));
    }

    /// A read has come to its end: those who came meanwhile get one of their own.
    pub(super) fn reading_ended(&mut self, step: &mut ShimStep<'_>, asked: KeyView) {
        let Some(readings) = self.readings.get_mut(&asked.key) else { return };
        let same = readings.iter().position(|reading| reading.answers(&asked));
        let Some(index) = same else { return };
        let reading = &mut readings[index];
        reading.sent -= 1;
        if reading.sent > 0 {
            return;
        }
        reading.followed = false;
        let (origins, command) = (std::mem::take(&mut reading.waiting), reading.command.clone());
        if origins.is_empty() {
            readings.swap_remove(index);
            if readings.is_empty() {
                self.readings.remove(&asked.key);
            }
            return;
        }
        self.joined -= origins.len();
        self.send_reading(step, origins, asked, command);
    }

    /// Takes the only read of a view that is at storage, and those who wait for the next, to be asked in another way. `None`
    /// if more is under way than that: asked again, it might be answered with something newer than what came behind it.
    pub(super) fn take_reading(&mut self, asked: &KeyView) -> Option<(Bytes, Origins)> {
        let readings = self.readings.get(&asked.key)?;
        let alone = |reading: &Reading| reading.answers(asked) && reading.sent == 1 && !reading.followed;
        if !matches!(&readings[..], [reading] if alone(reading)) {
            return None;
        }
        let reading = self.readings.remove(&asked.key)?.pop()?;
        self.joined -= reading.waiting.len();
        Some((reading.command, reading.waiting))
    }

    /// Sends what waits for a key at once: something comes that must not overtake it.
    pub(super) fn send_waiting(&mut self, step: &mut ShimStep<'_>, key: &Key) {
        let Some(readings) = self.readings.get_mut(key) else { return };
        readings.iter_mut().for_each(|reading| reading.followed = true);
        let mut due: SmallVec<[(KeyView, Origins, Bytes); 1]> = SmallVec::new();
        for reading in readings.iter_mut().filter(|reading| !reading.waiting.is_empty()) {
            let origins = std::mem::take(&mut reading.waiting);
            let asked = KeyView { key: key.clone(), view: reading.view, resp3: reading.resp3 };
            due.push((asked, origins, reading.command.clone()));
        }
        for (asked, origins, command) in due {
            self.joined -= origins.len();
            self.send_reading(step, origins, asked, command);
        }
    }
}

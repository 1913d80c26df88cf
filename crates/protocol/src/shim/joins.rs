//! Reads of one view that meet at the shim: one is at storage, the others wait for the next. Not reads behind writes.
//!
//! A reader is never answered by a read that was sent before it came: the key may have expired since, and a write that
//! storage has carried out may not have been answered yet. However many come while one is under way, one more read
//! serves them all.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::{Key, View};

use super::operation::Origin;
use super::{Effect, Purpose, Shim};
use crate::storage::Lane;
use crate::time::Time;

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

/// The reads of a key that are under way.
pub(super) type Readings = SmallVec<[Reading; 1]>;

impl Shim {
    /// Whether the reader was taken among those who wait for the next read. One that is `ordered` comes behind what its
    /// client has sent before: it waits with others only if nothing else of the key waits.
    pub(super) fn join(
        &mut self,
        now: Time,
        origin: Origin,
        (key, view, resp3): (&Key, View, bool),
        ordered: bool,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(readings) = self.readings.get_mut(key) else { return false };
        let same = readings.iter().position(|reading| reading.view == view && reading.resp3 == resp3);
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
            None if ordered => self.send_waiting(now, key, effects),
            None => {}
        }
        joins
    }

    /// Sends one read for everyone in `origins`.
    pub(super) fn send_reading(
        &mut self,
        now: Time,
        origins: Origins,
        (key, view, resp3): (Key, View, bool),
        command: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        let readings = self.readings.entry(key.clone()).or_default();
        match readings.iter_mut().find(|reading| reading.view == view && reading.resp3 == resp3) {
            Some(reading) => reading.sent += 1,
            None => {
                let command = command.clone();
                readings.push(Reading {
                    view,
                    resp3,
                    sent: 1,
                    waiting: SmallVec::new(),
                    followed: false,
                    command,
                });
            }
        }
        self.statistics.storage_reads += 1;
        let reach = self.reach(&key);
        let purpose = Purpose::Read { origins, key, view, resp3 };
        self.store(now, purpose, Lane::Shared { resp3 }, reach, SmallVec::from_elem(command, 1), effects);
    }

    /// A read has come to its end: those who came meanwhile get one of their own.
    pub(super) fn reading_ended(
        &mut self,
        now: Time,
        key: Key,
        (view, resp3): (View, bool),
        effects: &mut Vec<Effect>,
    ) {
        let Some(readings) = self.readings.get_mut(&key) else { return };
        let same = readings.iter().position(|reading| reading.view == view && reading.resp3 == resp3);
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
                self.readings.remove(&key);
            }
            return;
        }
        self.joined -= origins.len();
        self.send_reading(now, origins, (key, view, resp3), command, effects);
    }

    /// Takes the only read of a view that is at storage, and those who wait for the next, to be asked in another way. `None`
    /// if more is under way than that: asked again, it might be answered with something newer than what came behind it.
    pub(super) fn take_reading(
        &mut self,
        key: &Key,
        (view, resp3): (View, bool),
    ) -> Option<(Bytes, Origins)> {
        let readings = self.readings.get(key)?;
        let alone = |reading: &Reading| {
            reading.view == view && reading.resp3 == resp3 && reading.sent == 1 && !reading.followed
        };
        if !matches!(&readings[..], [reading] if alone(reading)) {
            return None;
        }
        let reading = self.readings.remove(key)?.pop()?;
        self.joined -= reading.waiting.len();
        Some((reading.command, reading.waiting))
    }

    /// Sends what waits for a key at once: something comes that must not overtake it.
    pub(super) fn send_waiting(&mut self, now: Time, key: &Key, effects: &mut Vec<Effect>) {
        let Some(readings) = self.readings.get_mut(key) else { return };
        readings.iter_mut().for_each(|reading| reading.followed = true);
        let mut due: SmallVec<[(View, bool, Origins, Bytes); 1]> = SmallVec::new();
        for reading in readings.iter_mut().filter(|reading| !reading.waiting.is_empty()) {
            let origins = std::mem::take(&mut reading.waiting);
            due.push((reading.view, reading.resp3, origins, reading.command.clone()));
        }
        for (view, resp3, origins, command) in due {
            self.joined -= origins.len();
            self.send_reading(now, origins, (key.clone(), view, resp3), command, effects);
        }
    }
}

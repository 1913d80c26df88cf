//! How one key changes its home: read there, restored at the destination, deleted at home, which decides it. Not which key is next.

use std::collections::btree_map::Entry;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use wire::resp::{Command, Value};

use super::libraries::Libraries;
use super::moving_key::{MoveStage, MovingKey};
use super::servers::MigrationPlace;
use super::{Migration, MigrationPhase, MigrationStep, MoveQuestion};

impl Migration {
    /// Has a unit wait for its key, which begins to move if it has not.
    pub(super) fn queue(&mut self, step: &mut MigrationStep<'_>, key: &Bytes, id: usize) {
        let settled = self.phase == MigrationPhase::Moved || self.settled.contains(key);
        let (state, is_new) = match self.keys.entry(key.clone()) {
            Entry::Occupied(state) => (state.into_mut(), false),
            Entry::Vacant(place) => {
                let stage = if settled { MoveStage::Settled } else { MoveStage::Halted };
                (place.insert(MovingKey::new(stage, false)), !settled)
            }
        };
        state.queue.push_back(id);
        if is_new {
            self.move_key(step, key.clone());
        }
    }

    /// Takes a unit out of the queues of its keys, and tells which are first there now.
    pub(super) fn unqueue(&mut self, keys: &[Bytes], id: usize) -> Vec<usize> {
        let mut next = Vec::new();
        for key in keys {
            let Some(state) = self.keys.get_mut(key) else { continue };
            state.queue.retain(|queued| *queued != id);
            next.extend(state.queue.front());
            if state.is_idle() {
                self.keys.remove(key);
                self.settled.asked(key.clone());
            }
        }
        next
    }

    /// Asks its old home for the key, once what was asked of it before can have no effect any more.
    pub(super) fn move_key(&mut self, step: &mut MigrationStep<'_>, key: Bytes) {
        let moves =
            matches!(self.phase, MigrationPhase::Moving | MigrationPhase::Moved | MigrationPhase::Closing);
        let ready = moves && self.is_ready(&key);
        let Some(state) = self.keys.get_mut(&key) else { return };
        if !ready {
            state.stage = MoveStage::Halted;
            return self.halted.push(key);
        }
        state.stage = MoveStage::Moving;
        let commands = smallvec![frame(&[b"PTTL", &key]), frame(&[b"DUMP", &key])];
        self.ask(step, MigrationPlace::Home, MoveQuestion::Dump(key), commands);
    }

    fn destination(&self, key: &[u8]) -> Option<MigrationPlace> {
        self.departures.as_ref()?.destination(key).map(MigrationPlace::Destination)
    }

    fn is_ready(&self, key: &[u8]) -> bool {
        let destination = self.destination(key).and_then(|place| self.server(place));
        self.home.is_ready() && destination.is_some_and(super::servers::MigrationServer::is_ready)
    }

    /// Goes on with keys that waited for a server.
    pub(super) fn resume(&mut self, step: &mut MigrationStep<'_>) {
        if self.halted.is_empty() || !self.home.is_ready() {
            return;
        }
        for key in std::mem::take(&mut self.halted) {
            self.move_key(step, key);
        }
    }

    pub(super) fn answered(
        &mut self,
        step: &mut MigrationStep<'_>,
        question: MoveQuestion,
        replies: &[Bytes],
    ) {
        match question {
            MoveQuestion::Libraries => self.listed(step, replies),
            MoveQuestion::Load => self.loaded(step.now, replies),
            MoveQuestion::Drain(number) => _ = self.drains.remove(&number),
            MoveQuestion::Count => self.counted(replies),
            MoveQuestion::Scan(round) => self.scanned(step, round, replies),
            MoveQuestion::Dump(key) => self.dumped(step, key, replies),
            MoveQuestion::Restore(key) => self.restored(step, key, replies),
            MoveQuestion::Delete { key, restored } => self.deleted(step, key, restored, replies),
            MoveQuestion::Exists(key) => self.looked(step, key, replies),
            MoveQuestion::Undo(key) => self.undone(step, key, replies),
            MoveQuestion::Unwatch => {}
        }
    }

    /// Its key is asked for again: whatever became of it can be seen then.
    pub(super) fn unanswered(&mut self, step: &mut MigrationStep<'_>, question: MoveQuestion) {
        match question {
            // What was asked before it on its connection is lost as well, and is fenced.
            MoveQuestion::Drain(number) => _ = self.drains.remove(&number),
            MoveQuestion::Count | MoveQuestion::Scan(_) => self.restart_scan(),
            MoveQuestion::Libraries | MoveQuestion::Load => self.libraries = Libraries::default(),
            MoveQuestion::Unwatch => {}
            MoveQuestion::Dump(key)
            | MoveQuestion::Restore(key)
            | MoveQuestion::Exists(key)
            | MoveQuestion::Undo(key)
            | MoveQuestion::Delete { key, .. } => self.move_key(step, key),
        }
    }

    fn dumped(&mut self, step: &mut MigrationStep<'_>, key: Bytes, replies: &[Bytes]) {
        let values: Vec<Value> = replies.iter().filter_map(|reply| Value::parse(reply).ok()).collect();
        let (ttl, value) = match &values[..] {
            [_, Value::Null] => return self.settle(step, key),
            [Value::Integer(ttl), value] if value.bytes().is_some() => (*ttl, value.bytes().cloned()),
            _ => return self.stick(step, key, &error(&values)),
        };
        // No time to live is -1 there and 0 here; one that is just over is not none.
        let ttl = if ttl < 0 { 0 } else { ttl.max(1) };
        let ttl = ttl.to_string();
        let Some(place) = self.destination(&key) else { return };
        self.scan.found += 1;
        let command = frame(&[b"RESTORE", &key, ttl.as_bytes(), &value.unwrap_or_default()]);
        self.ask(step, place, MoveQuestion::Restore(key), SmallVec::from_elem(command, 1));
    }

    /// One that is there already is as new as the old home's, or newer: nobody writes at home what was restored, and whatever was
    /// at the destination before has been deleted.
    fn restored(&mut self, step: &mut MigrationStep<'_>, key: Bytes, replies: &[Bytes]) {
        let reply = replies.first().cloned().unwrap_or_default();
        let restored = reply.starts_with(b"+");
        if !restored && !reply.starts_with(b"-BUSYKEY") {
            // One that is short of memory says so before it looks.
            self.progress.reason = Some(format!("RESTORE at the new server: {}", text(&reply)));
            let Some(place) = self.destination(&key) else { return };
            let command = frame(&[b"EXISTS", &key]);
            return self.ask(step, place, MoveQuestion::Exists(key), SmallVec::from_elem(command, 1));
        }
        self.delete(step, key, restored);
    }

    fn looked(&mut self, step: &mut MigrationStep<'_>, key: Bytes, replies: &[Bytes]) {
        match replies.first().map(|reply| &reply[..]) {
            Some(b":0\r\n") => {
                let reason = self.progress.reason.clone().unwrap_or_default();
                self.stick(step, key, &reason);
            }
            Some(b":1\r\n") => self.delete(step, key, false),
            _ => self.move_later(key),
        }
    }

    fn delete(&mut self, step: &mut MigrationStep<'_>, key: Bytes, restored: bool) {
        let command = frame(&[b"UNLINK", &key]);
        self.ask(
            step,
            MigrationPlace::Home,
            MoveQuestion::Delete { key, restored },
            SmallVec::from_elem(command, 1),
        );
    }

    fn deleted(&mut self, step: &mut MigrationStep<'_>, key: Bytes, restored: bool, replies: &[Bytes]) {
        let reply = replies.first().cloned().unwrap_or_default();
        if reply.starts_with(b":") {
            self.progress.moved += 1;
            return self.settle(step, key);
        }
        self.progress.reason = Some(format!("UNLINK at the old server: {}", text(&reply)));
        let place = self.destination(&key).filter(|_| restored);
        let Some(place) = place else {
            // It was there before this process: what is left at home is nobody's any more, and goes with the next try.
            self.scan.failed += 1;
            return self.settle(step, key);
        };
        let command = frame(&[b"UNLINK", &key]);
        self.ask(step, place, MoveQuestion::Undo(key), SmallVec::from_elem(command, 1));
    }

    fn undone(&mut self, step: &mut MigrationStep<'_>, key: Bytes, replies: &[Bytes]) {
        if replies.first().is_some_and(|reply| reply.starts_with(b":")) {
            let reason = self.progress.reason.clone().unwrap_or_default();
            return self.stick(step, key, &reason);
        }
        // At both, equal, and nobody may ask for it: it is tried again.
        self.move_later(key);
    }

    /// Its home is the destination from now on.
    fn settle(&mut self, step: &mut MigrationStep<'_>, key: Bytes) {
        self.landed(&key);
        let Some(state) = self.keys.get_mut(&key) else { return };
        state.stage = MoveStage::Settled;
        let first = state.queue.front().copied();
        if state.is_idle() {
            self.keys.remove(&key);
            self.settled.moved(key);
        }
        if let Some(id) = first {
            self.try_send(step, id);
        }
    }

    /// It stays where it is for now.
    fn stick(&mut self, step: &mut MigrationStep<'_>, key: Bytes, reason: &str) {
        self.landed(&key);
        self.scan.failed += 1;
        self.progress.reason = Some(reason.to_owned());
        let Some(state) = self.keys.get_mut(&key) else { return };
        state.stage = MoveStage::Stuck;
        if let Some(id) = state.queue.front().copied() {
            self.try_send(step, id);
        }
    }

    fn landed(&mut self, key: &Bytes) {
        if let Some(state) = self.keys.get_mut(key)
            && std::mem::take(&mut state.is_background)
        {
            self.scan.in_flight -= 1;
        }
    }

    fn move_later(&mut self, key: Bytes) {
        if let Some(state) = self.keys.get_mut(&key) {
            state.stage = MoveStage::Halted;
            self.later.push(key);
        }
    }

    pub(super) fn stuck_count(&self) -> usize {
        self.keys.values().filter(|state| state.stage == MoveStage::Stuck).count()
    }
}

pub(super) fn frame(words: &[&[u8]]) -> Bytes {
    Command::from_args(words).frame().clone()
}

fn error(values: &[Value]) -> String {
    let errors = values.iter().find_map(|value| match value {
        Value::Error(error) => Some(String::from_utf8_lossy(error).into_owned()),
        _ => None,
    });
    errors.unwrap_or_else(|| "PTTL and DUMP were answered with something else than they are".to_owned())
}

pub(super) fn text(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply.strip_prefix(b"-").unwrap_or(reply)).trim_end().to_owned()
}

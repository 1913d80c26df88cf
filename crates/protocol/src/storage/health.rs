//! Whether a storage server can be used and why not: told to the machine, and to people in the log. Not what decides it.

use super::{NoteLevel, StorageEvent, StorageTraits};

pub(super) struct StorageHealth {
    address: String,
    /// Lines about one trouble after the other come no more often.
    log_interval_us: u64,
    pub(super) logged_us: u64,
    up: bool,
    ups: u64,
    reason: String,
    refusal: Option<String>,
}

impl StorageHealth {
    pub(super) fn new(address: &str, log_interval_us: u64) -> StorageHealth {
        StorageHealth {
            address: address.to_owned(),
            log_interval_us,
            logged_us: 0,
            up: false,
            ups: 0,
            reason: String::new(),
            refusal: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// How often it came back.
    pub(super) fn reconnects(&self) -> u64 {
        self.ups.saturating_sub(1)
    }

    /// Why only a person can make it usable, if so.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn refuse(&mut self, reason: &str) {
        self.refusal = Some(self.named(reason));
    }

    pub(super) fn rise(&mut self, incarnation: u64, traits: StorageTraits, events: &mut Vec<StorageEvent>) {
        self.up = true;
        self.ups += 1;
        self.refusal = None;
        self.reason.clear();
        // Who was told that it is down is told so, too.
        let level = if self.logged_us == 0 { NoteLevel::Info } else { NoteLevel::Warning };
        self.note(level, "storage is up", events);
        events.push(StorageEvent::Up { incarnation, traits });
    }

    pub(super) fn down(&mut self, now_us: u64, reason: &str, events: &mut Vec<StorageEvent>) {
        if !self.up && reason == self.reason {
            return;
        }
        if self.up || now_us.saturating_sub(self.logged_us) >= self.log_interval_us {
            self.logged_us = now_us;
            self.note(NoteLevel::Warning, &format!("storage is down: {reason}"), events);
        }
        self.up = false;
        reason.clone_into(&mut self.reason);
        events.push(StorageEvent::Down { reason: self.named(reason) });
    }

    /// Tells people something about this server.
    pub(super) fn note(&self, level: NoteLevel, text: &str, events: &mut Vec<StorageEvent>) {
        events.push(StorageEvent::Note { level, text: self.named(text) });
    }

    fn named(&self, reason: &str) -> String {
        format!("{}: {reason}", self.address)
    }
}

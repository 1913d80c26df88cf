//! Whether a storage server can be used and why not: told to the machine, and to people in the log. Not what decides it.

use protocol::storage::{StorageEvent, StorageTraits};
use runtime::address::Address;

pub(super) struct Standing {
    shim: String,
    address: Address,
    /// Lines about one trouble after the other come no more often.
    log_interval_us: u64,
    pub(super) logged_us: u64,
    up: bool,
    ups: u64,
    reason: String,
    refusal: Option<String>,
}

impl Standing {
    pub(super) fn new(shim: &str, address: &Address, log_interval_us: u64) -> Standing {
        Standing {
            shim: shim.to_owned(),
            address: address.clone(),
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
        match self.logged_us {
            0 => tracing::info!(shim = self.shim, address = %self.address, "storage is up"),
            _ => tracing::warn!(shim = self.shim, address = %self.address, "storage is up"),
        }
        events.push(StorageEvent::Up { incarnation, traits });
    }

    pub(super) fn down(&mut self, now_us: u64, reason: &str, events: &mut Vec<StorageEvent>) {
        let reason = self.named(reason);
        if !self.up && reason == self.reason {
            return;
        }
        if self.up || now_us.saturating_sub(self.logged_us) >= self.log_interval_us {
            self.logged_us = now_us;
            tracing::warn!(shim = self.shim, reason, "storage is down");
        }
        self.up = false;
        self.reason.clone_from(&reason);
        events.push(StorageEvent::Down { reason });
    }

    fn named(&self, reason: &str) -> String {
        format!("{}: {reason}", self.address)
    }
}

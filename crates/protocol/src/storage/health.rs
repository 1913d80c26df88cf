//! Whether a storage server can be used and why not: told to the machine, and to people in the log. Not what decides it.

use std::time::Duration;

use super::{NoteLevel, StorageEvent, StorageTraits};
use crate::coherence::lease::EarlierIncarnations;
use crate::time::Time;

/// A process that has handed its server over does not ask for it again for so long.
pub(super) const AWAY: Duration = Duration::from_secs(3);
const VOID: &str = "another server, or another run of it: data may be lost";

pub(super) struct StorageHealth {
    address: String,
    /// Lines about one trouble after the other come no more often.
    log_interval: Duration,
    pub(super) logged: Time,
    up: bool,
    ups: u64,
    reason: String,
    refusal: Option<String>,
}

impl StorageHealth {
    pub(super) fn new(address: &str, log_interval: Duration) -> StorageHealth {
        StorageHealth {
            address: address.to_owned(),
            log_interval,
            logged: Time(0),
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

    pub(super) fn rise(
        &mut self,
        incarnation: u64,
        traits: StorageTraits,
        earlier: EarlierIncarnations,
        events: &mut Vec<StorageEvent>,
    ) {
        self.up = true;
        self.ups += 1;
        self.refusal = None;
        self.reason.clear();
        // Who was told that it is down is told so, too.
        let level = if self.logged == Time(0) { NoteLevel::Info } else { NoteLevel::Warning };
        self.note(level, "storage is up", events);
        events.push(StorageEvent::Up { incarnation, traits, earlier });
    }

    /// Nothing answers, or only that it is not ready.
    pub(super) fn down(&mut self, now: Time, reason: &str, events: &mut Vec<StorageEvent>) {
        self.fall(now, reason, true, events);
    }

    /// It answers, and is none that may be used here.
    pub(super) fn unusable(&mut self, now: Time, reason: &str, events: &mut Vec<StorageEvent>) {
        self.fall(now, reason, false, events);
    }

    fn fall(&mut self, now: Time, reason: &str, gone: bool, events: &mut Vec<StorageEvent>) {
        if !self.up && reason == self.reason {
            return;
        }
        if self.up || now.since(self.logged) >= self.log_interval {
            self.logged = now;
            self.note(NoteLevel::Warning, &format!("storage is down: {reason}"), events);
        }
        self.up = false;
        reason.clone_into(&mut self.reason);
        events.push(StorageEvent::Down { reason: self.named(reason), gone });
    }

    /// Somebody else serves it, as is meant.
    pub(super) fn wait(&mut self, reason: &str, events: &mut Vec<StorageEvent>) {
        if reason != self.reason {
            reason.clone_into(&mut self.reason);
            events.push(StorageEvent::Down { reason: self.named(reason), gone: false });
        }
    }

    /// This process has handed it over, as is meant.
    pub(super) fn handed_over(&mut self, events: &mut Vec<StorageEvent>) {
        self.up = false;
        self.wait("this process has handed it over to another one", events);
    }

    /// The server has another state than the one before. People are told whatever they were told a moment ago, because what it
    /// held may be gone: mostly it has just been seen to end.
    pub(super) fn void(&mut self, now: Time, events: &mut Vec<StorageEvent>) {
        if !self.up {
            self.logged = now;
            self.note(NoteLevel::Warning, VOID, events);
        }
        self.unusable(now, VOID, events);
    }

    /// Tells people something about this server.
    pub(super) fn note(&self, level: NoteLevel, text: &str, events: &mut Vec<StorageEvent>) {
        events.push(StorageEvent::Note { level, text: self.named(text) });
    }

    fn named(&self, reason: &str) -> String {
        format!("{}: {reason}", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, EarlierIncarnations, StorageEvent, StorageHealth, StorageTraits, Time, VOID};

    #[test]
    fn what_may_be_lost_is_told_although_the_server_was_seen_to_end_a_moment_ago() {
        let mut health = StorageHealth::new("here", Duration::from_secs(1));
        let mut told = |act: &mut dyn FnMut(&mut StorageHealth, &mut Vec<StorageEvent>)| {
            let mut events = Vec::new();
            act(&mut health, &mut events);
            let notes = events.into_iter().filter_map(|event| match event {
                StorageEvent::Note { text, .. } => Some(text),
                _ => None,
            });
            notes.collect::<Vec<_>>()
        };
        let up = &mut |health: &mut StorageHealth, events: &mut Vec<_>| {
            health.rise(1, StorageTraits::default(), EarlierIncarnations::NONE, events);
        };
        assert_eq!(told(up), ["here: storage is up"]);
        assert_eq!(
            told(&mut |health, events| health.down(Time(5_000_000), "it has ended", events)),
            ["here: storage is down: it has ended"]
        );
        assert_eq!(
            told(&mut |health, events| health.void(Time(5_000_100), events)),
            [format!("here: {VOID}")]
        );
        assert_eq!(told(up), ["here: storage is up"]);
        let while_up = told(&mut |health, events| health.void(Time(5_000_200), events));
        assert_eq!(while_up, [format!("here: storage is down: {VOID}")], "once is enough");
    }
}

//! A client that keeps what it reads and is told of changes: what it has, and how it has asked for it. Not when it asks.

use std::collections::BTreeMap;

use wire::resp::Command;

use crate::random::SimRandom;
use crate::shape::Shape;

/// What a client wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackingChoice {
    /// What it reads.
    All,
    /// What it reads behind CLIENT CACHING YES.
    OptIn,
    /// What it reads, but not behind CLIENT CACHING NO.
    OptOut,
    /// All keys.
    Broadcast,
}

#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    pub(crate) choice: TrackingChoice,
    pub(crate) noloop: bool,
    /// On this connection.
    pub(crate) confirmed: bool,
    /// CLIENT CACHING was said, about the next command.
    pub(crate) said: bool,
    /// Replies as RESP2 has them, by key and form of reading.
    pub(crate) kept: BTreeMap<(usize, usize), Vec<u8>>,
}

impl Tracker {
    pub(crate) fn draw(random: &mut SimRandom) -> Tracker {
        let choice = random.pick(&[
            TrackingChoice::All,
            TrackingChoice::All,
            TrackingChoice::OptIn,
            TrackingChoice::OptOut,
            TrackingChoice::Broadcast,
        ]);
        Tracker { choice, noloop: random.percent(30), confirmed: false, said: false, kept: BTreeMap::new() }
    }

    /// Its connection is gone, and nobody will tell it of changes.
    pub(crate) fn disconnected(&mut self) {
        (self.confirmed, self.said) = (false, false);
        self.kept.clear();
    }

    /// Whether the reply to the next command may be kept.
    pub(crate) fn keeps(&mut self) -> bool {
        let said = std::mem::take(&mut self.said);
        match self.choice {
            TrackingChoice::All | TrackingChoice::Broadcast => true,
            TrackingChoice::OptIn => said,
            TrackingChoice::OptOut => !said,
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut words = vec!["CLIENT", "TRACKING", "ON"];
        words.extend(match self.choice {
            TrackingChoice::All => None,
            TrackingChoice::OptIn => Some("OPTIN"),
            TrackingChoice::OptOut => Some("OPTOUT"),
            TrackingChoice::Broadcast => Some("BCAST"),
        });
        words.extend(self.noloop.then_some("NOLOOP"));
        Command::from_args(&words)
    }
}

/// Until when half of the keys have come to rest.
const SETTLED_US: u64 = 30_000_000;

/// Half of the keys come to rest, if clients keep what they read; what storage has of them expires all the same.
pub(crate) fn settled_at(shape: &Shape, keys: usize, random: &mut SimRandom) -> Vec<u64> {
    let mut at = |key: usize| match shape.trackers > 0 && key % 4 < 2 {
        true => random.below(SETTLED_US),
        false => u64::MAX,
    };
    (0..keys).map(&mut at).collect()
}

//! The explorations of a key that changes its server, and how much may go wrong in each.

use std::fmt::Write as _;

use stateright::Path;

use super::actions::MovingAction;
use super::state::MovingState;
use crate::config::Scale;
use crate::coverage::Seen;
use crate::run::Exploration;

/// A command of a client, on the connection of this RESP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ask {
    Get,
    Append(char),
    Delete,
}

/// What may yet happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MovingBudget {
    /// Steps of the clock, of a second each.
    pub(crate) time: u8,
    /// Connections that break.
    pub(crate) breaks: u8,
    /// Processes that die.
    pub(crate) deaths: u8,
    /// The home ends and comes back as it was at first.
    pub(crate) home_restarts: u8,
    /// The destination ends and comes back with all that it had.
    pub(crate) destination_restarts: u8,
    /// The destination takes nothing new from here on, or does again.
    pub(crate) fills: u8,
    /// How many of these, but time, may happen together. `None`: as many as each of them may.
    pub(crate) faults: Option<u8>,
}

/// What has happened anywhere in an exploration, so that one in which nothing happens fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovingEvent {
    /// Nothing is left at home.
    Migrated,
    Ended,
    /// A command has waited for its key.
    Waited,
    /// A command was carried out that the process knew to be lost.
    Late,
    Fenced,
    /// The destination had the key already.
    Busy,
    /// The key stayed at home since the destination did not take it, and served there.
    Stuck,
    /// A later process found both servers as an earlier one had left them.
    Inherited,
}

impl MovingEvent {
    const ALL: [MovingEvent; 8] = [
        MovingEvent::Migrated,
        MovingEvent::Ended,
        MovingEvent::Waited,
        MovingEvent::Late,
        MovingEvent::Fenced,
        MovingEvent::Busy,
        MovingEvent::Stuck,
        MovingEvent::Inherited,
    ];
}

/// One exploration.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) name: &'static str,
    pub(crate) scale: Scale,
    /// What clients ask for, in this order, each without waiting for the one before.
    pub(crate) asks: &'static [Ask],
    pub(crate) budget: MovingBudget,
    pub(crate) expected: &'static [MovingEvent],
    seen: Seen,
}

impl Moving {
    pub(crate) fn note(&self, event: MovingEvent) {
        self.seen.note(event as u32);
    }

    fn has(&self, event: MovingEvent) -> bool {
        self.seen.has(event as u32)
    }
}

impl Exploration for Moving {
    fn name(&self) -> &'static str {
        self.name
    }

    fn scale(&self) -> Scale {
        self.scale
    }

    fn unseen(&self) -> Option<String> {
        let unseen = self.expected.iter().find(|event| !self.has(**event))?;
        let seen: Vec<_> = MovingEvent::ALL.into_iter().filter(|event| self.has(*event)).collect();
        Some(format!("{unseen:?} never happened; seen: {seen:?}"))
    }

    fn tell(&self, path: Path<MovingState, MovingAction>) -> String {
        let mut text = String::new();
        for (number, (state, action)) in path.into_vec().into_iter().enumerate() {
            let _ = writeln!(text, "        {state:?}");
            if let Some(action) = action {
                let _ = writeln!(text, "{number:>5}  {action:?}");
            }
        }
        text
    }
}

pub(crate) fn configs() -> Vec<Moving> {
    use Ask::{Append, Delete, Get};
    use MovingEvent::{Busy, Ended, Fenced, Inherited, Late, Migrated, Stuck, Waited};
    const WRITES: &[Ask] = &[Append('a'), Get, Append('b')];
    const WRITE: &[Ask] = &[Append('a'), Get];
    let none = MovingBudget::default;
    let moving = |name, asks, budget, expected| Moving {
        name,
        scale: Scale::Ci,
        asks,
        budget,
        expected,
        seen: Seen::default(),
    };
    let any = |faults| MovingBudget {
        time: 1,
        breaks: 1,
        deaths: 1,
        home_restarts: 1,
        destination_restarts: 1,
        fills: 2,
        faults: Some(faults),
    };
    vec![
        Moving { scale: Scale::Small, ..moving("moving", WRITES, none(), &[Migrated, Ended, Waited]) },
        moving("moving-deleted", &[Delete, Append('a'), Get, Delete], none(), &[Migrated, Ended, Waited]),
        moving(
            "moving-breaks",
            WRITE,
            MovingBudget { breaks: 2, ..none() },
            &[Migrated, Ended, Waited, Late, Fenced, Busy],
        ),
        moving(
            "moving-dies",
            WRITE,
            MovingBudget { breaks: 1, deaths: 1, ..none() },
            &[Migrated, Ended, Waited, Late, Fenced, Busy, Inherited],
        ),
        moving(
            "moving-home-restarts",
            WRITES,
            MovingBudget { home_restarts: 1, ..none() },
            &[Migrated, Ended, Waited, Busy],
        ),
        moving(
            "moving-full",
            WRITE,
            MovingBudget { time: 2, breaks: 1, fills: 2, ..none() },
            &[Migrated, Ended, Waited, Stuck],
        ),
        moving("moving-any-two", &[Append('a')], any(2), &[Migrated, Ended, Waited, Late, Busy, Inherited]),
        Moving {
            scale: Scale::Deep,
            ..moving(
                "deep-moving-any-three",
                WRITE,
                any(3),
                &[Migrated, Ended, Waited, Late, Fenced, Busy, Stuck, Inherited],
            )
        },
    ]
}

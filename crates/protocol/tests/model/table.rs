//! The explorations and what each is for.

use super::config::{Budget, Config, Scale, Ticks, Write};
use super::coverage::Event;

const SETS: &[Write] = &[Write::Set(10), Write::Set(20)];

pub(crate) fn configs() -> Vec<Config> {
    let base = Config {
        name: "base",
        scale: Scale::Ci,
        nodes: 1,
        lease_ticks: 2,
        guard_ticks: 0,
        drift: 0,
        ticks: Ticks::Clocked,
        warm: true,
        writes: SETS,
        budget: Budget::default(),
        storage_slots: 1,
        proofs_queue: false,
        expected: &[Event::EarlyCommit, Event::LeaseLost, Event::LeaseLapsed],
        bounded: None,
    };
    vec![
        Config { name: "writes", scale: Scale::Small, ..base.clone() },
        Config {
            name: "pauses",
            scale: Scale::Small,
            ticks: Ticks::Free,
            writes: &SETS[..1],
            ..base.clone()
        },
        Config {
            name: "drift",
            lease_ticks: 3,
            guard_ticks: 1,
            drift: 1,
            writes: &SETS[..1],
            ..base.clone()
        },
        Config {
            name: "reads",
            budget: Budget { reads: 1, ..Budget::default() },
            writes: &SETS[..1],
            expected: &[Event::Hit, Event::Poisoned, Event::EarlyCommit],
            ..base.clone()
        },
        Config { name: "two-nodes", nodes: 2, writes: &SETS[..1], ..base.clone() },
    ]
}

//! What may be cached, as operators draw it anew. Not who is told.

use std::time::Duration;

use protocol::policy::{Eligibility, Policies, Rule};

use crate::random::SimRandom;

/// Prefixes of clients' keys: texts in pairs, counters, hashes, lists, all.
pub(crate) const PREFIXES: [&str; 6] = ["{0}", "{1}", "c", "h", "l", ""];

/// What every process is told, and those that start later as well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) policies: Policies,
    /// Counts reloads.
    pub(crate) number: u32,
}

impl Rules {
    /// Other rules than these.
    pub(crate) fn next(&self, random: &mut SimRandom, stale_if_error: Duration) -> Rules {
        Rules { policies: draw(random, stale_if_error), number: self.number + 1 }
    }
}

fn draw(random: &mut SimRandom, stale_if_error: Duration) -> Policies {
    let rule = |random: &mut SimRandom| Rule {
        cache: random.pick(&[Eligibility::Never, Eligibility::Always, Eligibility::Heat]),
        ttl_ms_max: random.pick(&[20, 300, u64::MAX, u64::MAX]),
        value_bytes_max: random.pick(&[12, usize::MAX, usize::MAX]),
        stale_if_error,
    };
    let mut rules = Vec::new();
    for prefix in PREFIXES {
        if random.percent(40) {
            rules.push((prefix.into(), rule(random)));
        }
    }
    Policies::new(rules)
}

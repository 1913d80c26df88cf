//! The agents whose heartbeats were taken, so that none is taken twice. Not what heartbeats say.

use std::collections::BTreeMap;

use crate::time::Time;

/// Agents remembered against replays. A restarted process is a new one, so the number must be far above that of
/// processes; the one silent for longest goes first.
const AGENTS_MAX: usize = 16_384;

/// The newest heartbeat of one agent.
#[derive(Clone, Debug, Default)]
struct Agent {
    sequence: u64,
    heard: Time,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Agents(BTreeMap<u64, Agent>);

impl Agents {
    /// False if this heartbeat of the agent, or a later one, was here before.
    pub(super) fn admit(&mut self, now: Time, agent: u64, sequence: u64) -> bool {
        if !self.0.contains_key(&agent) && self.0.len() >= AGENTS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, agent)| agent.heard).map(|(id, _)| *id);
            oldest.and_then(|id| self.0.remove(&id));
        }
        let known = self.0.entry(agent).or_default();
        let newer = sequence > known.sequence;
        if newer {
            *known = Agent { sequence, heard: now };
        }
        newer
    }
}

#[cfg(test)]
mod tests {
    use super::{AGENTS_MAX, Agents};
    use crate::time::Time;

    #[test]
    fn each_heartbeat_of_an_agent_is_taken_once_and_in_order() {
        let mut agents = Agents::default();
        let mut admit = |agent, sequence| agents.admit(Time(1), agent, sequence);
        assert!(admit(1, 3) && admit(1, 4) && admit(2, 1));
        assert!(!admit(1, 4) && !admit(1, 3) && !admit(3, 0), "they were here before");
        assert!(admit(1, 5));
    }

    #[test]
    fn the_agent_silent_for_longest_is_forgotten_first() {
        let mut agents = Agents::default();
        for agent in 0..AGENTS_MAX as u64 {
            assert!(agents.admit(Time(10 + agent), agent, 1));
        }
        assert!(agents.admit(Time(100_000), 0, 2) && agents.admit(Time(100_001), u64::MAX, 1));
        assert_eq!(agents.0.len(), AGENTS_MAX);
        assert!(agents.0.contains_key(&0) && !agents.0.contains_key(&1));
    }
}

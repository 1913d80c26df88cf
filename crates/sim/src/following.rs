//! Which map a process acts on and what it tells controllers of itself; and what the operator wants. Not who hears it.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::placement::Placement;
use wire::NodeId;

/// The map that a process acts on, and how it tells each controller that it lives.
pub(crate) struct SimFollower {
    pub(crate) placement: Arc<Placement>,
    /// The history of that map; 0 before it has one of a controller.
    pub(crate) history: u64,
    pub(crate) agents: Vec<SimAgent>,
    /// It has said its last word.
    pub(crate) left: bool,
}

pub(crate) struct SimAgent {
    pub(crate) number: u64,
    pub(crate) sequence: u64,
}

/// A map as a controller tells it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) history: u64,
    pub(crate) placement: Arc<Placement>,
}

impl SimFollower {
    /// `numbers` of its agents, one for each controller.
    pub(crate) fn new(placement: Arc<Placement>, numbers: impl Iterator<Item = u64>) -> SimFollower {
        let agents = numbers.map(|number| SimAgent { number, sequence: 0 }).collect();
        SimFollower { placement, history: 0, agents, left: false }
    }
}

/// What the operator wants, who looks at the map and says again what it does not show.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    pub(crate) drained: BTreeMap<NodeId, bool>,
    /// That every controller takes its file's new members.
    pub(crate) grows: bool,
}

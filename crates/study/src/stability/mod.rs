//! Queues of the model of section 3.2 in simulated time: do they grow under a policy or not. Not the exact optimum.
//!
//! Requests arrive as a Poisson process of rate R = alpha m T, each for object i with p_i, and wait at the node that was
//! chosen, whose service time is exponential with mean 1/T, first come, first served. The chain is simulated by
//! uniformisation: events happen at the sum of all rates, and one at an idle node does nothing. This is exact.
//!
//! `TwoChoices` goes to the least loaded of the object's places as `protocol::load::LoadTable` chooses, which either
//! always knows all queues (`Exact`: join the shortest queue), or learns from the reply to each request the node's
//! requests served in the last second (`Sliding`, as `LoadMeter` counts them; `Completed`: in the last whole second).
//! Requests come through several routers, each with a table of its own.
//!
//! A queue holds `queue_max` requests, and what comes then is dropped. Drops count as growth, so that a full queue does
//! not look steady. A run is called stationary if its queues were not seen to grow (`growth`) and the busiest nodes are
//! not asked for more than they can serve (`overload`).

mod alias;
mod growth;
mod overload;
mod queues;
mod search;
mod telemetry;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::matching::{LayeredModel, ModelError, RoutingPolicy};

pub use search::alpha_stationary;

/// Most routers. Each has a table of all nodes.
pub const ROUTERS_MAX: usize = 1024;

/// What a router knows of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telemetry {
    Exact,
    Sliding,
    Completed,
}

#[derive(Clone, Debug)]
pub struct StabilitySettings {
    pub model: LayeredModel,
    pub policy: RoutingPolicy,
    pub alpha: f64,
    pub telemetry: Telemetry,
    /// How long a report takes to fade; none: it stays as it is.
    pub aging: Option<Duration>,
    pub routers: usize,
    /// T, in requests per second.
    pub node_rate: f64,
    pub seconds: f64,
    pub queue_max: u32,
}

/// What one run shows in its second half, but for drops and the longest queue, which are those of all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StabilityRun {
    /// Requests that wait or were dropped, more per second.
    pub growth_per_s: f64,
    /// Requests served per second.
    pub goodput: f64,
    pub drops: u64,
    /// Longest queue of a node.
    pub queue_max: u32,
    /// Requests in all nodes, on average over time.
    pub queue_mean: f64,
    pub stationary: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StabilityError {
    #[error("a rate of {0}; it must be above 0")]
    Rate(f64),
    #[error("{0} routers; there must be 1 to {ROUTERS_MAX}")]
    Routers(usize),
    #[error("{0} requests/s per node; it must be above 0")]
    NodeRate(f64),
    #[error("{0} seconds; it must be above 0")]
    Seconds(f64),
    #[error("a queue of 0 requests; it must hold at least one")]
    Queue,
    #[error("a matching is computed and not simulated; take two-choices")]
    Matching,
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Simulates one seed.
pub fn run(settings: &StabilitySettings, seed: u64) -> Result<StabilityRun, StabilityError> {
    let positive = |number: f64| number.is_finite() && number > 0.0;
    if !positive(settings.alpha) {
        return Err(StabilityError::Rate(settings.alpha));
    }
    if !(1..=ROUTERS_MAX).contains(&settings.routers) {
        return Err(StabilityError::Routers(settings.routers));
    }
    if !positive(settings.node_rate) {
        return Err(StabilityError::NodeRate(settings.node_rate));
    }
    if !positive(settings.seconds) {
        return Err(StabilityError::Seconds(settings.seconds));
    }
    if settings.queue_max == 0 {
        return Err(StabilityError::Queue);
    }
    if settings.policy == RoutingPolicy::Matching {
        return Err(StabilityError::Matching);
    }
    let rates = settings.model.rates(settings.alpha)?;
    Ok(queues::simulate(settings, &rates, seed))
}

//! What a controller asks of members, and what became of it, both carried by heartbeats. Not how it is done.

use serde::{Deserialize, Serialize};

use crate::orders::PurgeScope;
use config::Reloaded;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Of shims: to drop copies.
    Purge(PurgeScope),
    /// To read the configuration again.
    Reload,
}

/// A task for those of the process' members that are named; told until each has reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    pub number: u64,
    pub task: Task,
    pub members: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Purged { copies: u64 },
    Reloaded(Reloaded),
    Failed { reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub number: u64,
    pub member: String,
    pub outcome: Outcome,
}

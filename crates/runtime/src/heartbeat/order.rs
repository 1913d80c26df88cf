//! What a controller asks of members, and what became of it, both carried by heartbeats. Not how it is done.

use serde::{Deserialize, Serialize};

use crate::orders::PurgeScope;
use config::Reloaded;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderKind {
    /// Asks shims to drop copies.
    Purge(PurgeScope),
    /// Asks a member to read its configuration again.
    Reload,
    /// What only a later release knows.
    #[serde(untagged)]
    Unknown(serde_json::Value),
}

/// An order for those of the process' members that are named; told until each has reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberOrder {
    pub number: u64,
    #[serde(rename = "task")]
    pub kind: OrderKind,
    pub members: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderOutcome {
    Purged { copies: u64 },
    Reloaded(Reloaded),
    Failed { reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderReport {
    pub number: u64,
    pub member: String,
    pub outcome: OrderOutcome,
}

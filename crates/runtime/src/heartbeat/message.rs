//! What heartbeats say, as JSON. Not how they are authenticated.

use std::collections::BTreeMap;

use protocol::placement::agreement::Agreement;
use serde::{Deserialize, Serialize};

use super::order::{MemberOrder, OrderReport};
use crate::status::{HotKeyView, MemberStatus};
use config::{Roster, RosterSize};

/// Where a controller takes heartbeats.
pub const PATH: &str = "/v1/heartbeat";

/// From the agent of a process to a controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Random, for the life of the process.
    pub agent: u64,
    /// Grows with every heartbeat of the agent: an older one is a replay.
    pub sequence: u64,
    /// What the sender's configuration says of where data are.
    #[serde(with = "super::agreement_json")]
    pub agreement: Agreement,
    pub members: Vec<MemberStatus>,
    /// Ids of members that stop in order: this is their last word.
    #[serde(default)]
    pub leaving: Vec<String>,
    /// The history of the map that the sender acts on; 0 if it has only its configuration's.
    #[serde(default)]
    pub history: u64,
    /// The members that the sender knows.
    #[serde(default)]
    pub known: RosterSize,
    /// What became of the controller's orders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<OrderReport>,
}

/// The newest map, told as what differs from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    pub epoch: u32,
    /// Random for the life of a store: epochs of different histories have nothing to do with each other.
    #[serde(default)]
    pub history: u64,
    /// The members that the controllers know. Those that only the receiver's configuration has own nothing yet.
    #[serde(default)]
    pub known: RosterSize,
    /// Thousandths of their partitions that nodes own which do not own the whole.
    pub shares: BTreeMap<String, u16>,
    /// All members, if there are more than the sender knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<Roster>,
    #[serde(rename = "errands", default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<MemberOrder>,
    /// The hottest keys of the cluster, for routers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<HotKeyView>,
}

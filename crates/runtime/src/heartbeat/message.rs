//! What heartbeats say, as JSON. Not how they are authenticated.

use std::collections::BTreeMap;

use protocol::placement::agreement::Agreement;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use super::order::{MemberOrder, OrderReport};
use super::shim_part::ShimPartText;
use crate::status::{HotKeyView, MemberStatus};
use config::{Roster, RosterSize};

/// Where a controller takes heartbeats.
pub const PATH: &str = "/v1/heartbeat";

/// From the agent of a process to a controller. What another release says more is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Random, for the life of the process.
    pub agent: u64,
    /// Grows with every heartbeat of the agent: an older one is a replay.
    pub sequence: u64,
    /// What the sender's configuration says of where data are.
    #[serde(with = "super::agreement_json")]
    pub agreement: Agreement,
    /// The sender's release.
    #[serde(default)]
    pub release: String,
    /// The highest feature level that the sender and the controllers that it hears of speak.
    #[serde(default = "wire::level::first")]
    pub level: u8,
    /// The members whose roles this release knows.
    #[serde(deserialize_with = "known_roles")]
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
    /// The feature level that all members speak.
    #[serde(default = "wire::level::first")]
    pub level: u8,
    /// The highest that the controller speaks.
    #[serde(default = "wire::level::first")]
    pub level_max: u8,
    /// The members that the controllers know. Those that only the receiver's configuration has own nothing yet.
    #[serde(default)]
    pub known: RosterSize,
    /// Thousandths of their partitions that nodes own which do not own the whole.
    pub shares: BTreeMap<String, u16>,
    /// Shims of which there is more to say than that keys are theirs, by id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, ShimPartText>,
    /// All members, if there are more than the sender knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roster: Option<Roster>,
    #[serde(rename = "errands", default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<MemberOrder>,
    /// The hottest keys of the cluster, for routers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot: Vec<HotKeyView>,
}

/// A later release may have further roles, of which this one can say nothing.
fn known_roles<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<MemberStatus>, D::Error> {
    let members = Vec::<Value>::deserialize(deserializer)?;
    let known =
        members.into_iter().filter(|member| member["role"].as_str().is_none_or(MemberStatus::is_role));
    known.map(|member| serde_json::from_value(member).map_err(de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Heartbeat, HeartbeatReply};

    /// As release 0.1.0 has said it, with what only another release knows among it.
    const HEARTBEAT: &str = r#"{"agent":1,"sequence":2,"agreement":[0,1,2,3],"release":"0.1.0","level":1,"mood":"good",
        "members":[{"role":"node","id":"n0","layer":"leaf","epoch":4,"hits_total":5,"colour":"blue"},
                   {"role":"oracle","id":"o0","answer":42}],
        "leaving":["n1"],"history":6,"known":{"layers":1,"nodes":2,"routers":3,"oracles":1},
        "reports":[{"number":7,"member":"n0","outcome":{"purged":{"copies":8}},"took":9}]}"#;
    const REPLY: &str = r#"{"epoch":1,"history":2,"level":1,"level_max":3,"known":{"layers":1,"nodes":2,"routers":3},
        "shares":{"n0":250},"mood":"bad","roster":{"layers":[{"name":"l","by_rack":true,"x":1}],"nodes":[],"shims":[],
        "routers":[],"oracles":[]},"errands":[{"number":4,"task":{"polish":{}},"members":["n0"]}]}"#;

    #[test]
    fn what_another_release_says_more_is_left_out() {
        let heartbeat: Heartbeat = serde_json::from_str(HEARTBEAT).unwrap();
        let ids: Vec<&str> = heartbeat.members.iter().map(crate::status::MemberStatus::id).collect();
        assert_eq!((heartbeat.agent, heartbeat.level, ids), (1, 1, vec!["n0"]));
        assert_eq!((heartbeat.known.routers, heartbeat.reports[0].number), (3, 7));
        let reply: HeartbeatReply = serde_json::from_str(REPLY).unwrap();
        assert_eq!((reply.level_max, reply.shares["n0"], reply.orders[0].number), (3, 250, 4));
        assert!(reply.roster.unwrap().layers[0].by_rack);
        // A role that is known is read as a whole, or not at all.
        let broken = HEARTBEAT.replace(r#""epoch":4"#, r#""epoch":"four""#);
        assert!(serde_json::from_str::<Heartbeat>(&broken).is_err());
    }
}

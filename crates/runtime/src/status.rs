//! What each role tells about itself: plain structs that status, metrics and heartbeats share. Not how it is shown.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use protocol::controller::ControllerStatistics;
use protocol::migration::MigrationProgress;
use protocol::node::NodeStatistics;
use protocol::router::RouterStatistics;
use protocol::shim::{ReshardingPhase, ShimStatistics};
use protocol::statistics::{StatisticKind, Statistics};
use serde::{Deserialize, Serialize};

/// Most hottest keys that a member reports.
pub const HOTTEST_MAX: usize = 32;
/// So much of a long key is shown.
const SHOWN_BYTES_MAX: usize = 1024;

/// A member's statistics stand among its other fields in the JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    pub id: String,
    pub layer: String,
    /// Epoch of the cluster map that the member acts on; so in every role.
    pub epoch: u32,
    #[serde(flatten, with = "crate::statistics_json")]
    pub statistics: NodeStatistics,
    pub leases: Vec<LeaseStatus>,
    pub shims_linked: u64,
    /// Shims that it is not linked to.
    pub shims_missing: Vec<String>,
    /// By the name of the rule that refused.
    pub sheds_total: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub links: LinksStatus,
    pub hottest: Vec<HotKey>,
}

/// A member's links to others. Its fields stand among those of the member in the JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinksStatus {
    pub messages_in_total: u64,
    pub messages_out_total: u64,
    /// Members that it is linked to.
    pub peers: u64,
    /// Connections between members that one of the two ends has refused.
    pub links_refused_total: u64,
    /// Why links to members that it knows are refused now, a sentence for each.
    pub links_refused: Vec<String>,
}

/// What was refused, by the rules of `statistics`.
pub fn sheds(statistics: &impl Statistics) -> BTreeMap<String, u64> {
    let sheds = statistics.walk().filter(|(row, _)| row.kind == StatisticKind::Shed);
    sheds.map(|(row, count)| (row.key.to_owned(), count)).collect()
}

/// A node's lease from one shim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStatus {
    pub shim: String,
    pub held: bool,
    pub remaining_ms: u64,
}

/// A key and its requests per second, as text: bytes that are not UTF-8 are escaped by [`config::key_text`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotKey {
    pub key: String,
    pub heat: u64,
}

impl HotKey {
    pub fn new(key: &[u8], heat: u32) -> HotKey {
        let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
        let rest = if shown.len() < key.len() { "..." } else { "" };
        HotKey { key: config::key_text(shown) + rest, heat: u64::from(heat) }
    }
}

/// A hot key and who sees how much of it, over all members.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKeyView {
    pub key: String,
    /// Requests per second.
    pub heat: u64,
    /// Nodes and routers count the hits of their copies, shims the reads that reach them.
    pub members: BTreeMap<String, u64>,
    /// The layers whose nodes have it among their hottest, and `near` if a router has.
    pub cached: Vec<String>,
    /// The key's share of all requests of all routers.
    pub share: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShimStatus {
    pub id: String,
    /// The shim that it is, or stands by for.
    pub of: String,
    pub rack: String,
    pub epoch: u32,
    #[serde(flatten, with = "crate::statistics_json")]
    pub statistics: ShimStatistics,
    /// Commands that storage has not answered yet.
    pub storage_pending: u64,
    pub storage_up: bool,
    /// Another process of this shim has taken its storage over.
    pub standing_by: bool,
    /// The configuration lists other processes that may be this shim.
    pub replaceable: bool,
    pub storage_reconnects_total: u64,
    /// How far it is with keys that leave it.
    pub resharding: Box<ReshardingStatus>,
    /// Storage reports what changes.
    pub feed_up: bool,
    /// Connections to storage that are none of DistCache's and write, for people; empty if there are none.
    pub foreign_writers: String,
    /// The policy by which storage evicts, if it does and nothing but `noeviction` will do.
    pub eviction: Option<String>,
    /// Nothing of this storage is cached because others write to it, or it evicts.
    pub caching_refused: bool,
    /// The hottest of the keys that clients read past the caches.
    pub hottest: Vec<HotKey>,
    pub sheds_total: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub links: LinksStatus,
}

/// How far a shim is with the keys that leave it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReshardingStatus {
    /// One of `settled`, `preparing`, `prepared`, `moving`, `moved`, `closing` and `ended`; what a later release says is `moving`.
    pub phase: String,
    /// Keys that were moved by this process.
    pub moved: u64,
    /// Keys of the server when it was gone through last, and how many of these have been looked at.
    pub keys: u64,
    pub seen: u64,
    /// Keys that their new server does not take, and why the last was not moved.
    pub stuck: u64,
    pub reason: Option<String>,
}

impl ReshardingStatus {
    pub fn new(phase: ReshardingPhase, progress: Option<MigrationProgress>) -> ReshardingStatus {
        let phase = match phase {
            ReshardingPhase::Settled => "settled",
            ReshardingPhase::Preparing => "preparing",
            ReshardingPhase::Prepared => "prepared",
            ReshardingPhase::Moving => "moving",
            ReshardingPhase::Moved => "moved",
            ReshardingPhase::Purging | ReshardingPhase::Ending => "closing",
            ReshardingPhase::Ended => "ended",
        };
        let MigrationProgress { moved, keys, seen, stuck, reason, .. } = progress.unwrap_or_default();
        ReshardingStatus { phase: phase.to_owned(), moved, keys, seen, stuck, reason }
    }

    pub fn phase(&self) -> ReshardingPhase {
        match &self.phase[..] {
            "" | "settled" => ReshardingPhase::Settled,
            "preparing" => ReshardingPhase::Preparing,
            "prepared" => ReshardingPhase::Prepared,
            "moved" => ReshardingPhase::Moved,
            "closing" => ReshardingPhase::Ending,
            "ended" => ReshardingPhase::Ended,
            _ => ReshardingPhase::Moving,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouterStatus {
    pub id: String,
    pub epoch: u32,
    #[serde(flatten, with = "crate::statistics_json")]
    pub statistics: RouterStatistics,
    pub clients: u64,
    pub clients_refused_total: u64,
    pub spans_exported_total: u64,
    pub spans_dropped_total: u64,
    pub shims_linked: u64,
    /// So many make it ready.
    pub shims_needed: u64,
    /// Shims that it is not linked to.
    pub shims_missing: Vec<String>,
    /// The hottest of its near copies.
    pub hottest: Vec<HotKey>,
    pub sheds_total: BTreeMap<String, u64>,
    #[serde(flatten)]
    pub links: LinksStatus,
    /// From a whole command read to its reply written.
    pub latency: LatencyStatus,
}

impl RouterStatus {
    /// Numbers are summed, the hottest keys of both are there, and what one of the two lacks is lacking. Both have the
    /// latencies of all threads, the one that has put its status down last the newest.
    fn joined(mut self, other: &RouterStatus) -> RouterStatus {
        let own = (self.statistics.users_differing, self.statistics.breakers_open, self.statistics.learned);
        self.statistics.values_mut().zip(other.statistics.values()).for_each(|(own, other)| *own += other);
        // Each thread finds these for itself, and all find the same.
        let theirs = &other.statistics;
        self.statistics.users_differing = own.0.max(theirs.users_differing);
        self.statistics.breakers_open = own.1.max(theirs.breakers_open);
        self.statistics.learned = own.2.max(theirs.learned);
        self.epoch = self.epoch.min(other.epoch);
        self.clients += other.clients;
        self.clients_refused_total += other.clients_refused_total;
        // The queue of spans is one for all threads.
        self.spans_exported_total = self.spans_exported_total.max(other.spans_exported_total);
        self.spans_dropped_total = self.spans_dropped_total.max(other.spans_dropped_total);
        self.shims_linked = self.shims_linked.min(other.shims_linked);
        let more = other.shims_missing.iter().filter(|shim| !self.shims_missing.contains(shim));
        let more: Vec<String> = more.cloned().collect();
        self.shims_missing.extend(more);
        for hot in &other.hottest {
            match self.hottest.iter_mut().find(|own| own.key == hot.key) {
                Some(own) => own.heat += hot.heat,
                None => self.hottest.push(hot.clone()),
            }
        }
        self.hottest.sort_by_key(|hot| std::cmp::Reverse(hot.heat));
        self.hottest.truncate(HOTTEST_MAX);
        self.sheds_total = sheds(&self.statistics);
        self.links.joined(&other.links);
        if other.latency.count > self.latency.count {
            self.latency = other.latency.clone();
        }
        self
    }
}

impl LinksStatus {
    fn joined(&mut self, other: &LinksStatus) {
        self.messages_in_total += other.messages_in_total;
        self.messages_out_total += other.messages_out_total;
        self.peers = self.peers.min(other.peers);
        self.links_refused_total += other.links_refused_total;
        let more = other.links_refused.iter().filter(|why| !self.links_refused.contains(why));
        let more: Vec<String> = more.cloned().collect();
        self.links_refused.extend(more);
    }
}

/// Upper bounds of the exported latency buckets in microseconds: 1-2-5 steps from 10 us to 10 s.
pub const LATENCY_BOUNDS_US: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// A latency histogram, small enough to be sent around.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyStatus {
    /// Not cumulative: one count per bound of [`LATENCY_BOUNDS_US`]; the rest is above the last.
    pub buckets: Vec<u64>,
    pub count: u64,
    pub sum_us: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl LatencyStatus {
    /// Sums up a histogram that counts microseconds.
    pub fn of(histogram: &Histogram<u64>) -> LatencyStatus {
        let mut buckets = vec![0; LATENCY_BOUNDS_US.len()];
        let mut sum_us = 0u64;
        for step in histogram.iter_recorded() {
            let value = step.value_iterated_to();
            sum_us = sum_us.saturating_add(value.saturating_mul(step.count_at_value()));
            let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < value);
            if let Some(count) = buckets.get_mut(bucket) {
                *count += step.count_at_value();
            }
        }
        LatencyStatus {
            buckets,
            count: histogram.len(),
            sum_us,
            p50_us: histogram.value_at_quantile(0.5),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
        }
    }
}

/// What a controller knows about itself; it sends no heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerStatus {
    pub id: String,
    pub epoch: u32,
    pub store_up: bool,
    pub members_up: u64,
    pub members_down: u64,
    #[serde(flatten, with = "crate::statistics_json")]
    pub statistics: ControllerStatistics,
    /// Wrong authentication, unknown member or replay.
    pub heartbeats_refused_total: u64,
}

/// The status of any member; heartbeats carry those of the data path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum MemberStatus {
    Node(NodeStatus),
    Shim(ShimStatus),
    Router(RouterStatus),
    Controller(ControllerStatus),
}

impl MemberStatus {
    /// Whether this release knows members of that role.
    pub fn is_role(name: &str) -> bool {
        ["node", "shim", "router", "controller"].contains(&name)
    }

    pub fn id(&self) -> &str {
        match self {
            MemberStatus::Node(status) => &status.id,
            MemberStatus::Shim(status) => &status.id,
            MemberStatus::Router(status) => &status.id,
            MemberStatus::Controller(status) => &status.id,
        }
    }

    /// The epoch of the map that the member acts on.
    pub fn epoch(&self) -> u32 {
        match self {
            MemberStatus::Node(status) => status.epoch,
            MemberStatus::Shim(status) => status.epoch,
            MemberStatus::Router(status) => status.epoch,
            MemberStatus::Controller(status) => status.epoch,
        }
    }

    /// With that of another thread of the same member. Only routers have several.
    fn joined(self, other: &MemberStatus) -> MemberStatus {
        match (self, other) {
            (MemberStatus::Router(own), MemberStatus::Router(other)) => {
                MemberStatus::Router(own.joined(other))
            }
            (own, _) => own,
        }
    }

    pub fn hottest(&self) -> &[HotKey] {
        match self {
            MemberStatus::Node(status) => &status.hottest,
            MemberStatus::Shim(status) => &status.hottest,
            MemberStatus::Router(status) => &status.hottest,
            MemberStatus::Controller(_) => &[],
        }
    }
}

/// The members of a cluster and the map's epoch: what `distcache status --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    pub epoch: u32,
    /// The feature level that all members speak.
    pub level: u8,
    /// The release of each member that is heard of.
    pub releases: BTreeMap<String, String>,
    pub nodes: Vec<NodeStatus>,
    pub shims: Vec<ShimStatus>,
    pub routers: Vec<RouterStatus>,
}

impl ClusterStatus {
    /// Sorts `members` by role and keeps their order within it.
    pub fn of(epoch: u32, members: impl IntoIterator<Item = MemberStatus>) -> ClusterStatus {
        let mut cluster = ClusterStatus { epoch, ..ClusterStatus::default() };
        for member in members {
            match member {
                MemberStatus::Node(status) => cluster.nodes.push(status),
                MemberStatus::Shim(status) => cluster.shims.push(status),
                MemberStatus::Router(status) => cluster.routers.push(status),
                MemberStatus::Controller(_) => {}
            }
        }
        cluster
    }
}

/// The last status that each thread of a member has put down, about every 100 ms; clones share it.
#[derive(Clone, Debug)]
pub struct StatusCell {
    threads: Arc<[Mutex<(Instant, MemberStatus)>]>,
    /// The thread that puts down by this clone.
    own: usize,
}

/// A member that has put down no status for this long hangs: it is neither healthy nor does it send heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(2);

impl StatusCell {
    pub fn new(status: MemberStatus) -> StatusCell {
        StatusCell::of_threads(&status, 1)
    }

    /// # Panics
    /// If there are no threads.
    pub fn of_threads(status: &MemberStatus, count: usize) -> StatusCell {
        assert!(count > 0, "a member has a thread");
        let thread = |_| Mutex::new((Instant::now(), status.clone()));
        StatusCell { threads: (0..count).map(thread).collect(), own: 0 }
    }

    /// The cell as this thread fills it.
    pub fn of_thread(&self, own: usize) -> StatusCell {
        StatusCell { own, ..self.clone() }
    }

    pub fn set(&self, status: MemberStatus) {
        *self.lock(self.own) = (Instant::now(), status);
    }

    /// The member's status, of all its threads together.
    pub fn get(&self) -> MemberStatus {
        let first = self.lock(0).1.clone();
        (1..self.threads.len()).fold(first, |all, thread| all.joined(&self.lock(thread).1))
    }

    /// Whether all threads of the member still turn.
    pub fn is_fresh(&self) -> bool {
        (0..self.threads.len()).all(|thread| self.lock(thread).0.elapsed() < SILENCE_MAX)
    }

    fn lock(&self, thread: usize) -> MutexGuard<'_, (Instant, MemberStatus)> {
        self.threads[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterStatus, LATENCY_BOUNDS_US, LatencyStatus, LeaseStatus, MemberStatus, NodeStatus};
    use super::{RouterStatus, ShimStatus};
    use hdrhistogram::Histogram;

    fn has_keys(value: &serde_json::Value, keys: &[&str]) {
        for key in keys {
            assert!(value.get(key).is_some(), "{key} is missing in {value}");
        }
    }

    #[test]
    fn the_json_has_every_documented_field() {
        let node = NodeStatus { leases: vec![LeaseStatus::default()], ..NodeStatus::default() };
        let status = ClusterStatus::of(
            7,
            [
                MemberStatus::Router(RouterStatus::default()),
                MemberStatus::Node(node),
                MemberStatus::Shim(ShimStatus::default()),
            ],
        );
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["epoch"], 7);
        let node = &json["nodes"][0];
        has_keys(
            node,
            &["id", "layer", "requests_total", "hits_total", "load", "objects", "bytes", "leases"],
        );
        has_keys(&node["leases"][0], &["shim", "held", "remaining_ms"]);
        has_keys(&json["shims"][0], &["id", "storage_reads_total", "storage_writes_total", "copies"]);
        has_keys(&json["shims"][0], &["invalidations_total", "invalidated_copies_total", "commits_total"]);
        has_keys(&json["shims"][0], &["coherence_messages_total"]);
        let router = &json["routers"][0];
        has_keys(router, &["id", "requests_total", "reads_to_nodes_total", "reads_to_shims_total"]);
        assert_eq!(serde_json::from_value::<ClusterStatus>(json).unwrap(), status);
    }

    #[test]
    fn latency_buckets_count_every_value_once() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap();
        for value in [5, 10, 11, 20, 1_500, 59_000_000] {
            histogram.record(value).unwrap();
        }
        let latency = LatencyStatus::of(&histogram);
        assert_eq!(latency.buckets.len(), LATENCY_BOUNDS_US.len());
        assert_eq!(latency.buckets[..2], [2, 2]);
        assert_eq!(latency.buckets[7], 1);
        assert_eq!((latency.buckets.iter().sum::<u64>(), latency.count), (5, 6));
    }
}

//! Statuses as Prometheus text. The one place that knows metric names; it counts nothing itself.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::status::{
    ControllerStatus, LATENCY_BOUNDS_US, LatencyStatus, MemberStatus, NodeStatus, RouterStatus, ShimStatus,
};
use crate::tls::TlsStatus;

/// What [`render`] returns, for the `Content-Type` header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One metric of role `S`: name after `distcache_ROLE_`, help, and where its value is. Counters get `_total`.
struct Metric<S>(&'static str, MetricType, &'static str, fn(&S) -> u64);

use MetricType::{Counter, Gauge};

const NODE: &[Metric<NodeStatus>] = &[
    Metric("requests", Counter, "Requests received", |s| s.requests_total),
    Metric("hits", Counter, "Reads answered from a copy", |s| s.hits_total),
    Metric("misses", Counter, "Reads that had to ask a shim", |s| s.misses_total),
    Metric("load", Gauge, "Requests in the sliding last second", |s| s.load),
    Metric("objects", Gauge, "Objects held", |s| s.objects),
    Metric("bytes", Gauge, "Bytes held", |s| s.bytes),
    Metric("leases_held", Gauge, "Leases that hold now", |s| {
        s.leases.iter().filter(|l| l.held).count() as u64
    }),
    Metric("leases_lost", Counter, "Leases that lapsed while copies existed", |s| s.leases_lost_total),
    Metric("fills", Counter, "Fills received", |s| s.fills_total),
    Metric("fills_poisoned", Counter, "Fills that an invalidation overtook", |s| s.fills_poisoned_total),
    Metric("fills_ungranted", Counter, "Fills answered without a grant", |s| s.fills_ungranted_total),
    Metric("inserts", Counter, "Objects inserted", |s| s.inserts_total),
    Metric("evictions", Counter, "Objects evicted", |s| s.evictions_total),
    Metric("invalidations", Counter, "Invalidations received", |s| s.invalidations_total),
    Metric("commits", Counter, "Commits received", |s| s.commits_total),
    Metric("offers", Counter, "Hot keys offered by shims", |s| s.offers_total),
    Metric("offers_accepted", Counter, "Offers that were followed by a fetch", |s| s.offers_accepted_total),
    Metric("held_off", Gauge, "Keys held off because they are write-hot", |s| s.held_off),
    Metric("queue_depth", Gauge, "Reads that wait for a fill", |s| s.queue_depth),
    Metric("waiting", Gauge, "Reads that wait to be begun", |s| s.waiting),
    Metric("waited", Counter, "Reads that had to wait to be begun", |s| s.waited_total),
    Metric("messages_in", Counter, "Messages received from peers", |s| s.messages_in_total),
    Metric("messages_out", Counter, "Messages sent to peers", |s| s.messages_out_total),
    Metric("peers", Gauge, "Peers linked", |s| s.peers),
    Metric("epoch", Gauge, "Epoch of the cluster map in use", |s| u64::from(s.epoch)),
    Metric("ready", Gauge, "Whether the node has a map and reaches a shim", |s| u64::from(s.serves())),
    Metric("shims_missing", Gauge, "Shims that it does not reach", |s| s.shims_missing.len() as u64),
];

const SHIM: &[Metric<ShimStatus>] = &[
    Metric("requests", Counter, "Requests received", |s| s.requests_total),
    Metric("load", Gauge, "Requests in the sliding last second", |s| s.load),
    Metric("storage_reads", Counter, "Reads sent to storage", |s| s.storage_reads_total),
    Metric("storage_writes", Counter, "Writes sent to storage", |s| s.storage_writes_total),
    Metric("storage_pending", Gauge, "Commands that storage has not answered", |s| s.storage_pending),
    Metric("storage_limit", Gauge, "Commands that storage may have at a time", |s| s.storage_limit),
    Metric("reads_joined", Counter, "Reads answered together with another one", |s| s.reads_joined_total),
    Metric("large_replies", Counter, "Replies passed on in parts", |s| s.large_replies_total),
    Metric("large_replies_skipped", Counter, "Large replies skipped, to be asked for again in parts", |s| {
        s.large_replies_skipped_total
    }),
    Metric("large_replies_cut", Counter, "Large replies cut off because nobody took them", |s| {
        s.large_replies_cut_total
    }),
    Metric("storage_up", Gauge, "Whether storage can be used", |s| u64::from(s.storage_up)),
    Metric("standing_by", Gauge, "Whether another process of this shim has its storage", |s| {
        u64::from(s.standing_by)
    }),
    Metric("storage_errors", Counter, "Commands lost with a storage connection", |s| s.storage_errors_total),
    Metric("storage_reconnects", Counter, "Connections to storage made again", |s| {
        s.storage_reconnects_total
    }),
    Metric("invalidations", Counter, "Writes that invalidated copies", |s| s.invalidations_total),
    Metric("invalidated_copies", Counter, "Copies invalidated by writes", |s| s.invalidated_copies_total),
    Metric("coherence_messages", Counter, "INV sent and ACK received", |s| s.coherence_messages_total),
    Metric("commits", Counter, "COMMIT sent", |s| s.commits_total),
    Metric("copies", Gauge, "Copies in the directory", |s| s.copies),
    Metric("sessions", Gauge, "Sessions with nodes", |s| s.sessions),
    Metric("fills", Counter, "Fetches answered", |s| s.fills_total),
    Metric("fills_ungranted", Counter, "Fetches answered without a grant", |s| s.fills_ungranted_total),
    Metric("offers", Counter, "Hot keys offered to nodes", |s| s.offers_total),
    Metric("revokes", Counter, "Sessions revoked for a barrier", |s| s.revokes_total),
    Metric("leases_lost", Counter, "Leases that ran out although their nodes had copies", |s| {
        s.leases_lost_total
    }),
    Metric("queue_depth", Gauge, "Commands that wait for their keys", |s| s.queue_depth),
    Metric("waiting", Gauge, "Requests that wait for room at storage", |s| s.waiting),
    Metric("waited", Counter, "Requests that had to wait for room at storage", |s| s.waited_total),
    Metric("subscriptions", Gauge, "Channels and patterns subscribed to at storage", |s| s.subscriptions),
    Metric("messages_delivered", Counter, "Published messages sent to routers", |s| {
        s.messages_delivered_total
    }),
    Metric("feed_up", Gauge, "Whether storage reports changes", |s| u64::from(s.feed_up)),
    Metric("feed_losses", Counter, "Times that storage ceased to report changes", |s| s.feed_losses_total),
    Metric("feed_changes", Counter, "Keys that storage reported as changed", |s| s.feed_changes_total),
    Metric("feed_delay_microseconds", Gauge, "How late reports of changes are at most", |s| s.feed_delay_us),
    Metric("staleness_microseconds", Gauge, "How old an unheard change may be", |s| s.staleness_us),
    Metric("staleness_longest_microseconds", Gauge, "How old one may have been, since start", |s| {
        s.staleness_longest_us
    }),
    Metric("observed_reads", Counter, "Reads while observing only", |s| s.observed_reads_total),
    Metric("observed_hits", Counter, "Reads that copies would have answered", |s| s.observed_hits_total),
    Metric("observed_keys", Gauge, "Keys that would have copies now", |s| s.observed_keys),
    Metric("purged_copies", Counter, "Copies dropped by purges and stricter policies", |s| {
        s.purged_copies_total
    }),
    Metric("tracked_keys", Gauge, "Keys that routers track", |s| s.tracked_keys),
    Metric("changes_told", Counter, "Messages to routers about keys that they track", |s| {
        s.changes_told_total
    }),
    Metric("quarantined", Gauge, "Keys whose last write has an unknown outcome", |s| s.quarantined),
    Metric("messages_in", Counter, "Messages received from peers", |s| s.messages_in_total),
    Metric("messages_out", Counter, "Messages sent to peers", |s| s.messages_out_total),
    Metric("peers", Gauge, "Peers linked", |s| s.peers),
    Metric("epoch", Gauge, "Epoch of the cluster map in use", |s| u64::from(s.epoch)),
    Metric("ready", Gauge, "Whether the shim has a map and its storage", |s| u64::from(s.serves())),
];

const ROUTER: &[Metric<RouterStatus>] = &[
    Metric("requests", Counter, "Commands received from clients", |s| s.requests_total),
    Metric("reads_to_nodes", Counter, "Reads sent to nodes", |s| s.reads_to_nodes_total),
    Metric("reads_to_shims", Counter, "Reads sent to shims", |s| s.reads_to_shims_total),
    Metric("writes", Counter, "Writes sent to shims", |s| s.writes_total),
    Metric("hits", Counter, "Replies that came from a copy", |s| s.hits_total),
    Metric("errors", Counter, "Error replies made by the router", |s| s.errors_total),
    Metric("denials", Counter, "Commands that their user may not run", |s| s.denials_total),
    Metric("users_differing", Gauge, "Users that are not the same at all storage servers", |s| {
        s.users_differing
    }),
    Metric("authentication_failures", Counter, "Wrong users and passwords", |s| {
        s.authentication_failures_total
    }),
    Metric("retries", Counter, "Reads asked again because somebody was busy", |s| s.retries_total),
    Metric("reads_lost", Counter, "Reads asked again because their node was lost", |s| s.reads_lost_total),
    Metric("breakers_opened", Counter, "Times that a node was left alone", |s| s.breakers_opened_total),
    Metric("breakers_open", Gauge, "Nodes that are left alone", |s| s.breakers_open),
    Metric("load", Gauge, "Commands in the last second", |s| s.load),
    Metric("clients", Gauge, "Clients connected", |s| s.clients),
    Metric("clients_accepted", Counter, "Clients accepted", |s| s.clients_total),
    Metric("clients_refused", Counter, "Clients refused by a limit", |s| s.clients_refused_total),
    Metric("queue_depth", Gauge, "Commands sent to nodes and shims that have no reply", |s| s.queue_depth),
    Metric("waiting", Gauge, "Commands that wait for room at a node or shim", |s| s.waiting),
    Metric("waited", Counter, "Commands that had to wait for room at a node or shim", |s| s.waited_total),
    Metric("subscriptions", Gauge, "Channels and patterns that clients have", |s| s.subscriptions),
    Metric("tracked_keys", Gauge, "Keys that clients keep in caches of their own", |s| s.tracked_keys),
    Metric("large_replies", Counter, "Replies that came in parts", |s| s.large_replies_total),
    Metric("large_replies_broken", Counter, "Clients closed in the middle of a reply", |s| {
        s.large_replies_broken_total
    }),
    Metric("pushes", Counter, "Published messages given to clients", |s| s.pushes_total),
    Metric("slow_commands", Counter, "Commands that the slow log has taken", |s| s.slow_commands_total),
    Metric("spans_exported", Counter, "Spans that the collector has taken", |s| s.spans_exported_total),
    Metric("spans_dropped", Counter, "Spans that no collector has taken", |s| s.spans_dropped_total),
    Metric("learned", Gauge, "Keys believed to be cached", |s| s.learned),
    Metric("messages_in", Counter, "Messages received from peers", |s| s.messages_in_total),
    Metric("messages_out", Counter, "Messages sent to peers", |s| s.messages_out_total),
    Metric("peers", Gauge, "Peers linked", |s| s.peers),
    Metric("epoch", Gauge, "Epoch of the cluster map in use", |s| u64::from(s.epoch)),
    Metric("ready", Gauge, "Whether the router has a map and reaches enough shims", |s| {
        u64::from(s.serves())
    }),
    Metric("shims_missing", Gauge, "Shims that it does not reach", |s| s.shims_missing.len() as u64),
];

const CONTROLLER: &[Metric<ControllerStatus>] = &[
    Metric("members_up", Gauge, "Members whose lease holds", |s| s.members_up),
    Metric("members_down", Gauge, "Members without a lease", |s| s.members_down),
    Metric("heartbeats", Counter, "Heartbeats accepted", |s| s.heartbeats_total),
    Metric("heartbeats_refused", Counter, "Heartbeats refused", |s| s.heartbeats_refused_total),
    Metric("maps", Counter, "Cluster maps published", |s| s.maps_total),
    Metric("store_up", Gauge, "1 if the store of the cluster map answers", |s| u64::from(s.store_up)),
    Metric("epoch", Gauge, "Epoch of the newest cluster map", |s| u64::from(s.epoch)),
];

const TLS: &[Metric<TlsStatus>] = &[
    Metric("handshakes", Counter, "TLS handshakes that came to their end", |s| s.handshakes_total),
    Metric("handshakes_failed", Counter, "TLS handshakes that failed", |s| s.handshakes_failed_total),
    Metric("reloads", Counter, "Reloads of the certificates", |s| s.reloads_total),
    Metric("reloads_failed", Counter, "Reloads whose files were refused; the old ones stay in use", |s| {
        s.reloads_failed_total
    }),
];

/// One scrape of all `members` and of the certificates of their process.
pub fn render(members: Vec<MemberStatus>, tls: Vec<TlsStatus>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape { tls, ..Scrape::of(members) }));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("writing to a String does not fail");
    out
}

#[derive(Debug, Default)]
struct Scrape {
    nodes: Vec<NodeStatus>,
    shims: Vec<ShimStatus>,
    routers: Vec<RouterStatus>,
    controllers: Vec<ControllerStatus>,
    tls: Vec<TlsStatus>,
}

impl Scrape {
    fn of(members: Vec<MemberStatus>) -> Scrape {
        let mut scrape = Scrape::default();
        for member in members {
            match member {
                MemberStatus::Node(status) => scrape.nodes.push(status),
                MemberStatus::Shim(status) => scrape.shims.push(status),
                MemberStatus::Router(status) => scrape.routers.push(status),
                MemberStatus::Controller(status) => scrape.controllers.push(status),
            }
        }
        scrape
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        family("node", NODE, &self.nodes, node_labels, &mut encoder)?;
        family("shim", SHIM, &self.shims, shim_labels, &mut encoder)?;
        family("router", ROUTER, &self.routers, |s| vec![("id", s.id.clone())], &mut encoder)?;
        family("controller", CONTROLLER, &self.controllers, |s| vec![("id", s.id.clone())], &mut encoder)?;
        sheds("node", self.nodes.iter().map(|s| (node_labels(s), &s.sheds_total)), &mut encoder)?;
        sheds("shim", self.shims.iter().map(|s| (shim_labels(s), &s.sheds_total)), &mut encoder)?;
        let routers = self.routers.iter().map(|s| (vec![("id", s.id.clone())], &s.sheds_total));
        sheds("router", routers, &mut encoder)?;
        family("tls", TLS, &self.tls, |s| vec![("table", s.table.to_owned())], &mut encoder)?;
        expiries(&self.tls, &mut encoder)?;
        latencies(&self.routers, &mut encoder)
    }
}

type MetricLabels = Vec<(&'static str, String)>;

fn node_labels(status: &NodeStatus) -> MetricLabels {
    vec![("id", status.id.clone()), ("layer", status.layer.clone())]
}

fn shim_labels(status: &ShimStatus) -> MetricLabels {
    vec![("id", status.id.clone()), ("rack", status.rack.clone())]
}

fn family<S>(
    role: &str,
    metrics: &[Metric<S>],
    members: &[S],
    labels: fn(&S) -> MetricLabels,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    if members.is_empty() {
        return Ok(());
    }
    for Metric(name, kind, help, value) in metrics {
        let name = format!("distcache_{role}_{name}");
        let mut metric = encoder.encode_descriptor(&name, help, None, *kind)?;
        for member in members {
            let labels = labels(member);
            number(*kind, value(member), metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn number(kind: MetricType, value: u64, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
}

fn sheds<'a>(
    role: &str,
    members: impl Iterator<Item = (MetricLabels, &'a BTreeMap<String, u64>)>,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let mut members = members.peekable();
    if members.peek().is_none() {
        return Ok(());
    }
    let name = format!("distcache_{role}_sheds");
    let mut metric = encoder.encode_descriptor(&name, "Work refused, by rule", None, Counter)?;
    for (labels, rules) in members {
        for (rule, count) in rules {
            let mut labels = labels.clone();
            labels.push(("rule", rule.clone()));
            number(Counter, *count, metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn expiries(tables: &[TlsStatus], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut tables = tables.iter().filter_map(|s| Some((s.table, s.expires_in_s?))).peekable();
    if tables.peek().is_none() {
        return Ok(());
    }
    let help = "Until the certificate expires; below zero afterwards";
    let name = "distcache_tls_certificate_expires_in_seconds";
    let mut metric = encoder.encode_descriptor(name, help, None, Gauge)?;
    for (table, seconds) in tables {
        metric.encode_family(&[("table", table)])?.encode_gauge(&seconds)?;
    }
    Ok(())
}

fn latencies(routers: &[RouterStatus], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if routers.is_empty() {
        return Ok(());
    }
    let help = "From a whole command read to its reply written";
    let mut metric =
        encoder.encode_descriptor("distcache_router_latency_seconds", help, None, MetricType::Histogram)?;
    for router in routers {
        let labels = [("id", router.id.as_str())];
        let mut encoder = metric.encode_family(&labels)?;
        let latency = &router.latency;
        encoder.encode_histogram::<NoLabelSet>(
            latency.sum_us as f64 / 1e6,
            latency.count,
            &seconds_buckets(latency),
            None,
        )?;
    }
    Ok(())
}

fn seconds_buckets(latency: &LatencyStatus) -> Vec<(f64, u64)> {
    let counts = latency.buckets.iter().copied().chain(std::iter::repeat(0));
    let mut buckets: Vec<(f64, u64)> =
        LATENCY_BOUNDS_US.iter().zip(counts).map(|(bound, count)| (*bound as f64 / 1e6, count)).collect();
    let counted: u64 = buckets.iter().map(|(_, count)| count).sum();
    buckets.push((f64::INFINITY, latency.count.saturating_sub(counted)));
    buckets
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{LATENCY_BOUNDS_US, render};
    use crate::status::{
        ControllerStatus, LatencyStatus, LeaseStatus, MemberStatus, NodeStatus, RouterStatus, ShimStatus,
    };
    use crate::tls::TlsStatus;

    fn tls() -> Vec<TlsStatus> {
        let clients = TlsStatus {
            table: "clients",
            handshakes_total: 7,
            handshakes_failed_total: 0,
            reloads_total: 0,
            reloads_failed_total: 1,
            expires_in_s: Some(-3),
        };
        vec![TlsStatus { table: "storage", expires_in_s: None, ..clients.clone() }, clients]
    }

    fn members() -> Vec<MemberStatus> {
        let mut buckets = vec![0; LATENCY_BOUNDS_US.len()];
        buckets[1] = 3;
        let latency = LatencyStatus { buckets, count: 4, sum_us: 20_000_045, ..LatencyStatus::default() };
        let node = NodeStatus {
            id: "leaf-0".to_owned(),
            layer: "le\"af".to_owned(),
            hits_total: 12,
            leases: vec![LeaseStatus { shim: "s".to_owned(), held: true, remaining_ms: 1 }],
            ..NodeStatus::default()
        };
        let spine = NodeStatus { id: "spine-0".to_owned(), ..NodeStatus::default() };
        let sheds_total = BTreeMap::from([("queue full".to_owned(), 5)]);
        let shim = ShimStatus { id: "shim-0".to_owned(), sheds_total, ..ShimStatus::default() };
        let router = RouterStatus { id: "router-0".to_owned(), latency, ..RouterStatus::default() };
        vec![
            MemberStatus::Node(node),
            MemberStatus::Node(spine),
            MemberStatus::Shim(shim),
            MemberStatus::Router(router),
            MemberStatus::Controller(ControllerStatus::default()),
        ]
    }

    #[test]
    fn no_two_metrics_share_a_name() {
        let text = render(members(), tls());
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len());
        assert!(names.len() > 60, "{names:?}");
        for name in names {
            let legal =
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
            assert!(legal && name.starts_with("distcache_") && !name.ends_with("_total"), "{name}");
        }
    }

    #[test]
    fn every_line_parses_and_no_series_appears_twice() {
        let text = render(members(), tls());
        let mut series = BTreeSet::new();
        let mut described = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                described = rest.split(' ').nth(1).unwrap_or("").to_owned();
                continue;
            }
            let (name_labels, value) = line.rsplit_once(' ').expect("a series and its value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(name_labels.starts_with(&described), "{line} after {described}");
            assert!(
                name_labels.ends_with('}')
                    && (name_labels.contains("id=\"") || name_labels.contains("table=\"")),
                "{line}"
            );
            assert!(series.insert(name_labels.to_owned()), "{line} is there twice");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn values_labels_and_buckets_are_right() {
        let text = render(members(), tls());
        for line in [
            "distcache_node_hits_total{id=\"leaf-0\",layer=\"le\\\"af\"} 12",
            "distcache_node_leases_held{id=\"leaf-0\",layer=\"le\\\"af\"} 1",
            "distcache_shim_sheds_total{id=\"shim-0\",rack=\"\",rule=\"queue full\"} 5",
            "distcache_tls_handshakes_total{table=\"clients\"} 7",
            "distcache_tls_certificate_expires_in_seconds{table=\"clients\"} -3",
            "distcache_router_latency_seconds_sum{id=\"router-0\"} 20.000045",
            "distcache_router_latency_seconds_bucket{le=\"0.00001\",id=\"router-0\"} 0",
            "distcache_router_latency_seconds_bucket{le=\"0.00002\",id=\"router-0\"} 3",
            "distcache_router_latency_seconds_bucket{le=\"10.0\",id=\"router-0\"} 3",
            "distcache_router_latency_seconds_bucket{le=\"+Inf\",id=\"router-0\"} 4",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
        }
    }
}

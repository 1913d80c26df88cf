//! Statuses as Prometheus text: the rows of the machines' tables, and here those of which no machine knows. It counts nothing
//! itself.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use protocol::statistics::{StatisticKind, Statistics};

use crate::status::{
    ControllerStatus, LATENCY_BOUNDS_US, LatencyStatus, LinksStatus, MemberStatus, NodeStatus, RouterStatus,
    ShimStatus,
};
use crate::tls::TlsStatus;

/// What [`render`] returns, for the `Content-Type` header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One metric of role `S`: name after `distcache_ROLE_`, help, and where its value is. Counters get `_total`.
struct Metric<S>(&'static str, MetricType, &'static str, fn(&S) -> u64);

use MetricType::{Counter, Gauge};

/// The metrics of every member that has links.
const LINKS: &[Metric<LinksStatus>] = &[
    Metric("messages_in", Counter, "Messages received from peers", |s| s.messages_in_total),
    Metric("messages_out", Counter, "Messages sent to peers", |s| s.messages_out_total),
    Metric("peers", Gauge, "Peers linked", |s| s.peers),
    Metric("links_refused", Counter, "Connections of peers that either end has refused", |s| {
        s.links_refused_total
    }),
    Metric("peers_refused", Gauge, "Peers that it is not linked to because either end refuses", |s| {
        s.links_refused.len() as u64
    }),
];

const NODE: &[Metric<NodeStatus>] = &[
    Metric("leases_held", Gauge, "Leases that hold now", |s| {
        s.leases.iter().filter(|l| l.held).count() as u64
    }),
    Metric("epoch", Gauge, "Epoch of the cluster map in use", |s| u64::from(s.epoch)),
    Metric("ready", Gauge, "Whether the node has a map and reaches a shim", |s| u64::from(s.serves())),
    Metric("shims_missing", Gauge, "Shims that it does not reach", |s| s.shims_missing.len() as u64),
];

const SHIM: &[Metric<ShimStatus>] = &[
    Metric("storage_pending", Gauge, "Commands that storage has not answered", |s| s.storage_pending),
    Metric("storage_up", Gauge, "Whether storage can be used", |s| u64::from(s.storage_up)),
    Metric("standing_by", Gauge, "Whether another process of this shim has its storage", |s| {
        u64::from(s.standing_by)
    }),
    Metric("storage_reconnects", Counter, "Connections to storage made again", |s| {
        s.storage_reconnects_total
    }),
    Metric("feed_up", Gauge, "Whether storage reports changes", |s| u64::from(s.feed_up)),
    Metric("epoch", Gauge, "Epoch of the cluster map in use", |s| u64::from(s.epoch)),
    Metric("ready", Gauge, "Whether the shim has a map and its storage", |s| u64::from(s.serves())),
];

const ROUTER: &[Metric<RouterStatus>] = &[
    Metric("clients", Gauge, "Clients connected", |s| s.clients),
    Metric("clients_refused", Counter, "Clients refused by a limit", |s| s.clients_refused_total),
    Metric("spans_exported", Counter, "Spans that the collector has taken", |s| s.spans_exported_total),
    Metric("spans_dropped", Counter, "Spans that no collector has taken", |s| s.spans_dropped_total),
    Metric("epoch", Gauge, "Epoch of the cluster map in use", |s| u64::from(s.epoch)),
    Metric("ready", Gauge, "Whether the router has a map and reaches enough shims", |s| {
        u64::from(s.serves())
    }),
    Metric("shims_missing", Gauge, "Shims that it does not reach", |s| s.shims_missing.len() as u64),
];

const CONTROLLER: &[Metric<ControllerStatus>] = &[
    Metric("members_up", Gauge, "Members whose lease holds", |s| s.members_up),
    Metric("members_down", Gauge, "Members without a lease", |s| s.members_down),
    Metric("heartbeats_refused", Counter, "Heartbeats refused", |s| s.heartbeats_refused_total),
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
        let out = &mut encoder;
        let nodes = Family { role: "node", members: &self.nodes, labels: node_labels };
        let shims = Family { role: "shim", members: &self.shims, labels: shim_labels };
        let routers = Family { role: "router", members: &self.routers, labels: router_labels };
        let controllers =
            Family { role: "controller", members: &self.controllers, labels: controller_labels };
        let tls = Family { role: "tls", members: &self.tls, labels: tls_labels };
        nodes.table(|status| &status.statistics, out)?;
        nodes.rows(NODE, out)?;
        nodes.rows_of(|status| &status.links, LINKS, out)?;
        shims.table(|status| &status.statistics, out)?;
        shims.rows(SHIM, out)?;
        shims.rows_of(|status| &status.links, LINKS, out)?;
        routers.table(|status| &status.statistics, out)?;
        routers.rows(ROUTER, out)?;
        routers.rows_of(|status| &status.links, LINKS, out)?;
        controllers.table(|status| &status.statistics, out)?;
        controllers.rows(CONTROLLER, out)?;
        nodes.sheds(|status| &status.sheds_total, out)?;
        shims.sheds(|status| &status.sheds_total, out)?;
        routers.sheds(|status| &status.sheds_total, out)?;
        tls.rows(TLS, out)?;
        expiries(&self.tls, out)?;
        latencies(&self.routers, out)
    }
}

type MetricLabels = Vec<(&'static str, String)>;

fn node_labels(status: &NodeStatus) -> MetricLabels {
    vec![("id", status.id.clone()), ("layer", status.layer.clone())]
}

fn shim_labels(status: &ShimStatus) -> MetricLabels {
    vec![("id", status.id.clone()), ("rack", status.rack.clone())]
}

fn router_labels(status: &RouterStatus) -> MetricLabels {
    vec![("id", status.id.clone())]
}

fn controller_labels(status: &ControllerStatus) -> MetricLabels {
    vec![("id", status.id.clone())]
}

fn tls_labels(status: &TlsStatus) -> MetricLabels {
    vec![("table", status.table.to_owned())]
}

/// The members of a role in this process, who share metrics and differ in their labels.
struct Family<'a, S> {
    role: &'static str,
    members: &'a [S],
    labels: fn(&S) -> MetricLabels,
}

impl<S> Family<'_, S> {
    /// The rows of a machine's table. Its sheds are one metric: see [`Family::sheds`].
    fn table<T: Statistics>(
        &self,
        statistics: fn(&S) -> &T,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        for (index, row) in T::TABLE.iter().enumerate() {
            let kind = match row.kind {
                StatisticKind::Counter => Counter,
                StatisticKind::Gauge => Gauge,
                StatisticKind::Shed => continue,
            };
            let value = |member: &S| statistics(member).values().nth(index).unwrap_or_default();
            self.metric((row.name, kind, row.help), value, encoder)?;
        }
        Ok(())
    }

    fn rows(&self, metrics: &[Metric<S>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.rows_of(|member| member, metrics, encoder)
    }

    /// Rows of a part of a member's status.
    fn rows_of<T>(
        &self,
        part: fn(&S) -> &T,
        metrics: &[Metric<T>],
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        for Metric(name, kind, help, value) in metrics {
            self.metric((name, *kind, help), |member| value(part(member)), encoder)?;
        }
        Ok(())
    }

    fn metric(
        &self,
        (name, kind, help): (&str, MetricType, &str),
        value: impl Fn(&S) -> u64,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        if self.members.is_empty() {
            return Ok(());
        }
        let name = format!("distcache_{}_{name}", self.role);
        let mut metric = encoder.encode_descriptor(&name, help, None, kind)?;
        for member in self.members {
            let labels = (self.labels)(member);
            number(kind, value(member), metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn sheds(
        &self,
        sheds: fn(&S) -> &BTreeMap<String, u64>,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        if self.members.is_empty() {
            return Ok(());
        }
        let name = format!("distcache_{}_sheds", self.role);
        let mut metric = encoder.encode_descriptor(&name, "Work refused, by rule", None, Counter)?;
        for member in self.members {
            for (rule, count) in sheds(member) {
                let mut labels = (self.labels)(member);
                labels.push(("rule", rule.clone()));
                number(Counter, *count, metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn number(kind: MetricType, value: u64, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
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

    use protocol::node::NodeStatistics;

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
            statistics: NodeStatistics { hits: 12, ..NodeStatistics::default() },
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

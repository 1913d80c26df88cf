//! The INFO text: what Redis clients parse from it, and the router's own numbers. Not the metrics page.

use std::fmt::Write;
use std::time::Duration;

use wire::resp::Command;

use crate::router::flow::plan;
use crate::router::{REDIS_VERSION, Router, Routing};
use crate::time::Time;

const RATE_OVER: Duration = Duration::from_secs(1);
const SECTIONS: [&str; 6] = ["server", "clients", "stats", "replication", "cluster", "distcache"];

/// Commands per second over the last whole second, and the start of the clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    started: Option<Time>,
    since: Time,
    requests: u64,
    per_second: u64,
}

impl Rate {
    pub(crate) fn per_second(&self) -> u64 {
        self.per_second
    }

    pub(crate) fn tick(&mut self, now: Time, requests: u64) {
        if self.started.is_none() {
            (self.started, self.since) = (Some(now), now);
        }
        let elapsed = now.since(self.since);
        if elapsed >= RATE_OVER {
            let more = requests - self.requests;
            self.per_second = (more as f64 / elapsed.as_secs_f64()).round() as u64;
            (self.since, self.requests) = (now, requests);
        }
    }
}

pub(crate) fn text(router: &Router, now: Time, command: &Command) -> String {
    let wanted = |section: &str| {
        command.len() == 1
            || (1..command.len()).any(|index| {
                ["all", "default", "everything", section].iter().any(|name| plan::is(command, index, name))
            })
    };
    let mut out = String::new();
    for section in SECTIONS.into_iter().filter(|section| wanted(section)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        let title = section[..1].to_uppercase() + &section[1..];
        // Writing to a String cannot fail.
        let _ = write!(out, "# {title}\r\n");
        for (field, value) in fields(router, now, section) {
            let _ = write!(out, "{field}:{value}\r\n");
        }
    }
    out
}

fn fields(router: &Router, now: Time, section: &str) -> Vec<(&'static str, String)> {
    let counters = &router.counters;
    let uptime = now.since(router.rate.started.unwrap_or(now)).as_secs();
    match section {
        "server" => vec![
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("server_name", "distcache".to_owned()),
            ("distcache_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("arch_bits", usize::BITS.to_string()),
            ("uptime_in_seconds", uptime.to_string()),
            ("uptime_in_days", (uptime / 86_400).to_string()),
        ],
        "clients" => vec![
            ("connected_clients", router.clients.count().to_string()),
            ("tracking_clients", router.tracking.clients_count().to_string()),
            ("blocked_clients", (router.pending.blocking() + router.paused_count(now)).to_string()),
        ],
        "stats" => vec![
            ("total_connections_received", counters.clients_opened.to_string()),
            ("total_commands_processed", counters.requests.to_string()),
            ("instantaneous_ops_per_sec", router.rate.per_second.to_string()),
            ("tracking_total_keys", router.tracking.keys_count().to_string()),
            ("tracking_total_items", router.tracking.items_count().to_string()),
            ("tracking_total_prefixes", router.tracking_prefixes().to_string()),
        ],
        "replication" => vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())],
        "cluster" => vec![("cluster_enabled", "0".to_owned())],
        _ => distcache(router),
    }
}

fn distcache(router: &Router) -> Vec<(&'static str, String)> {
    let counters = &router.counters;
    let linked = |links: &[bool]| links.iter().filter(|linked| **linked).count().to_string();
    let routing = match router.config.routing {
        Routing::Learned => "learned",
        Routing::OnPath => "on-path",
    };
    vec![
        ("routing", routing.to_owned()),
        ("epoch", router.epoch().to_string()),
        ("nodes_linked", linked(&router.nodes_linked)),
        ("shims_linked", linked(&router.shims_linked)),
        ("requests_in_flight", router.pending.len().to_string()),
        ("reads_to_nodes", counters.reads_to_nodes.to_string()),
        ("reads_to_shims", counters.reads_to_shims.to_string()),
        ("hits", counters.hits.to_string()),
        ("retries", counters.retries.to_string()),
        ("reads_lost", counters.reads_lost.to_string()),
        ("ordered_waits", counters.ordered_waits.to_string()),
        ("refusals", counters.refusals.to_string()),
        ("denials", counters.denials.to_string()),
        ("authentication_failures", counters.authentication_failures.to_string()),
        ("sheds", counters.sheds.to_string()),
        ("unavailable", counters.unavailable.to_string()),
        ("lost", counters.lost.to_string()),
        ("errors", counters.errors.to_string()),
        ("late_replies", counters.late_replies.to_string()),
    ]
}

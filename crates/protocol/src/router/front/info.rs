//! The INFO text: what Redis clients parse from it, and the router's own numbers. Not the metrics page.

use std::fmt::Write;

use wire::resp::Command;

use crate::router::config::Routing;
use crate::router::flow::Flow;
use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::words;
use commands::REDIS_VERSION;

const SECTIONS: [&str; 6] = ["server", "clients", "stats", "replication", "cluster", "distcache"];

pub(crate) fn text(front: &Front, desk: &Desk<'_>, command: &Command) -> String {
    let wanted = |section: &str| {
        command.len() == 1
            || (1..command.len()).any(|index| {
                ["all", "default", "everything", section].iter().any(|name| words::is(command, index, name))
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
        for (field, value) in fields(front, desk, section) {
            let _ = write!(out, "{field}:{value}\r\n");
        }
    }
    out
}

fn fields(front: &Front, desk: &Desk<'_>, section: &str) -> Vec<(&'static str, String)> {
    let (counters, flow) = (&desk.step.counters, &desk.flow);
    let uptime = front.rate.uptime(desk.now()).as_secs();
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
            ("connected_clients", front.sessions.count().to_string()),
            ("tracking_clients", front.tracking.clients.len().to_string()),
            ("blocked_clients", (flow.blocking_count() + flow.paused_count(desk.now())).to_string()),
        ],
        "stats" => vec![
            ("total_connections_received", counters.clients_accepted.to_string()),
            ("total_commands_processed", counters.requests.to_string()),
            ("instantaneous_ops_per_sec", front.rate.per_second().to_string()),
            ("tracking_total_keys", flow.interests().keys_count().to_string()),
            ("tracking_total_items", flow.interests().keepers_count().to_string()),
            ("tracking_total_prefixes", prefixes_count(flow).to_string()),
        ],
        "replication" => vec![("role", "master".to_owned()), ("connected_slaves", "0".to_owned())],
        "cluster" => vec![("cluster_enabled", "0".to_owned())],
        _ => distcache(desk),
    }
}

/// Prefixes that clients broadcast, each counted once.
fn prefixes_count(flow: &Flow) -> usize {
    let prefixes = flow.interests().told().map(|told| told.prefixes.clone());
    prefixes.and_then(|prefixes| Command::parse(prefixes).ok()).map_or(0, |prefixes| prefixes.len())
}

fn distcache(desk: &Desk<'_>) -> Vec<(&'static str, String)> {
    let (counters, flow) = (&desk.step.counters, &desk.flow);
    let routing = match desk.step.config.routing {
        Routing::Learned => "learned",
        Routing::OnPath => "on-path",
    };
    vec![
        ("routing", routing.to_owned()),
        ("epoch", flow.epoch().to_string()),
        ("nodes_linked", flow.members().linked_nodes_count().to_string()),
        ("shims_linked", flow.members().linked_shims().count().to_string()),
        ("requests_in_flight", flow.pending_count().to_string()),
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
        ("lost", counters.commands_lost.to_string()),
        ("errors", counters.error_replies.to_string()),
        ("late_replies", counters.late_replies.to_string()),
    ]
}

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

/// A number or word of INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoFigure {
    field: &'static str,
    value: FigureValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FigureValue {
    /// The threads' values make the router's.
    Sum(u64),
    /// The router has what all of them have.
    Least(u64),
    /// Each thread has the same.
    Same(String),
}

/// A thread's own figures, by section.
pub(crate) fn figures(front: &Front, desk: &Desk<'_>) -> Vec<(&'static str, Vec<InfoFigure>)> {
    SECTIONS.into_iter().map(|section| (section, fields(front, desk, section))).collect()
}

/// The figures of two threads together.
pub(crate) fn joined(
    mut all: Vec<(&'static str, Vec<InfoFigure>)>,
    more: Vec<(&'static str, Vec<InfoFigure>)>,
) -> Vec<(&'static str, Vec<InfoFigure>)> {
    for ((_, own), (_, other)) in all.iter_mut().zip(more) {
        for (own, other) in own.iter_mut().zip(other) {
            match (&mut own.value, other.value) {
                (FigureValue::Sum(own), FigureValue::Sum(other)) => *own += other,
                (FigureValue::Least(own), FigureValue::Least(other)) => *own = (*own).min(other),
                _ => {}
            }
        }
    }
    all
}

/// The sections that the command asks for.
pub(crate) fn text(figures: &[(&'static str, Vec<InfoFigure>)], command: &Command) -> String {
    let wanted = |section: &str| {
        command.len() == 1
            || (1..command.len()).any(|index| {
                ["all", "default", "everything", section].iter().any(|name| words::is(command, index, name))
            })
    };
    let mut out = String::new();
    for (section, figures) in figures.iter().filter(|(section, _)| wanted(section)) {
        if !out.is_empty() {
            out.push_str("\r\n");
        }
        let title = section[..1].to_uppercase() + &section[1..];
        // Writing to a String cannot fail.
        let _ = write!(out, "# {title}\r\n");
        for InfoFigure { field, value } in figures {
            let _ = match value {
                FigureValue::Sum(number) | FigureValue::Least(number) => write!(out, "{field}:{number}\r\n"),
                FigureValue::Same(text) => write!(out, "{field}:{text}\r\n"),
            };
        }
    }
    out
}

fn fields(front: &Front, desk: &Desk<'_>, section: &str) -> Vec<InfoFigure> {
    let (counters, flow) = (&desk.step.counters, &desk.flow);
    let uptime = front.rate.uptime(desk.now()).as_secs();
    match section {
        "server" => vec![
            same("redis_version", REDIS_VERSION),
            same("redis_mode", "standalone"),
            same("server_name", "distcache"),
            same("distcache_version", env!("CARGO_PKG_VERSION")),
            same("arch_bits", usize::BITS),
            same("uptime_in_seconds", uptime),
            same("uptime_in_days", uptime / 86_400),
        ],
        "clients" => vec![
            sum("connected_clients", front.sessions.count() as u64),
            sum("tracking_clients", front.tracking.clients.len() as u64),
            sum("blocked_clients", (flow.blocking_count() + flow.paused_count(desk.now())) as u64),
        ],
        "stats" => vec![
            sum("total_connections_received", counters.clients_accepted),
            sum("total_commands_processed", counters.requests),
            sum("instantaneous_ops_per_sec", front.rate.per_second()),
            sum("tracking_total_keys", flow.interests().keys_count() as u64),
            sum("tracking_total_items", flow.interests().keepers_count() as u64),
            sum("tracking_total_prefixes", prefixes_count(flow) as u64),
        ],
        "replication" => vec![same("role", "master"), same("connected_slaves", "0")],
        "cluster" => vec![same("cluster_enabled", "0")],
        _ => distcache(desk),
    }
}

fn sum(field: &'static str, number: u64) -> InfoFigure {
    InfoFigure { field, value: FigureValue::Sum(number) }
}

fn least(field: &'static str, number: u64) -> InfoFigure {
    InfoFigure { field, value: FigureValue::Least(number) }
}

fn same(field: &'static str, text: impl std::fmt::Display) -> InfoFigure {
    InfoFigure { field, value: FigureValue::Same(text.to_string()) }
}

/// Prefixes that clients broadcast, each counted once.
fn prefixes_count(flow: &Flow) -> usize {
    let prefixes = flow.interests().told().map(|told| told.prefixes.clone());
    prefixes.and_then(|prefixes| Command::parse(prefixes).ok()).map_or(0, |prefixes| prefixes.len())
}

fn distcache(desk: &Desk<'_>) -> Vec<InfoFigure> {
    let (counters, flow) = (&desk.step.counters, &desk.flow);
    let routing = match desk.step.config.routing {
        Routing::Learned => "learned",
        Routing::OnPath => "on-path",
    };
    vec![
        same("routing", routing),
        least("epoch", flow.epoch().into()),
        least("nodes_linked", flow.members().linked_nodes_count() as u64),
        least("shims_linked", flow.members().linked_shims().count() as u64),
        sum("requests_in_flight", flow.pending_count() as u64),
        sum("reads_to_nodes", counters.reads_to_nodes),
        sum("reads_to_shims", counters.reads_to_shims),
        sum("hits", counters.hits),
        sum("retries", counters.retries),
        sum("reads_lost", counters.reads_lost),
        sum("ordered_waits", counters.ordered_waits),
        sum("refusals", counters.refusals),
        sum("denials", counters.denials),
        sum("authentication_failures", counters.authentication_failures),
        sum("sheds", counters.sheds),
        sum("unavailable", counters.unavailable),
        sum("lost", counters.commands_lost),
        sum("errors", counters.error_replies),
        sum("late_replies", counters.late_replies),
    ]
}

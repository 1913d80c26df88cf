//! The page of all metrics against what is exported. Rows of what machines count are written from their tables:
//! `UPDATE_PAGES=1 cargo test -p runtime --test documents every_statistic`. Not whether they are well said.

use protocol::controller::ControllerStatistics;
use protocol::node::NodeStatistics;
use protocol::router::RouterStatistics;
use protocol::shim::ShimStatistics;
use protocol::statistics::{Statistic, StatisticKind, Statistics};

use crate::{document, path};

/// Where the page of all metrics is.
const METRICS: &str = "docs/operating/metrics.md";

/// The metrics of a process with a member of every kind and with TLS.
pub(crate) fn metrics() -> String {
    use runtime::status::{ControllerStatus, MemberStatus, NodeStatus, RouterStatus, ShimStatus};
    let sheds_total = || std::collections::BTreeMap::from([("queue".to_owned(), 1)]);
    let members = vec![
        MemberStatus::Controller(ControllerStatus::default()),
        MemberStatus::Node(NodeStatus { sheds_total: sheds_total(), ..NodeStatus::default() }),
        MemberStatus::Shim(ShimStatus { sheds_total: sheds_total(), ..ShimStatus::default() }),
        MemberStatus::Router(RouterStatus { sheds_total: sheds_total(), ..RouterStatus::default() }),
    ];
    let tls = runtime::tls::TlsStatus {
        table: "clients",
        handshakes_total: 0,
        handshakes_failed_total: 0,
        reloads_total: 0,
        reloads_failed_total: 0,
        expires_in_s: Some(0),
    };
    runtime::metrics::render(members, vec![tls])
}

/// One metric: its name as its series have it, its type, its help, and the labels of its series.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) kind: String,
    help: String,
    labels: Vec<String>,
}

pub(crate) fn exported(text: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut help = "";
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", _, text] => help = text.trim_end_matches('.'),
            ["#", "TYPE", name, kind] => {
                let suffix = if kind == "counter" { "_total" } else { "" };
                let (name, kind) = (format!("{name}{suffix}"), kind.to_owned());
                metrics.push(Metric { name, kind, help: help.to_owned(), labels: Vec::new() });
            }
            ["#", ..] => {}
            _ => {
                let (_, labels) = line.split_once('{').unwrap_or_default();
                let labels = labels.split("=\"").map(|part| part.rsplit(['"', ',']).next().unwrap_or(part));
                let labels = labels.filter(|label| !label.is_empty() && !label.starts_with('}'));
                if let Some(metric) = metrics.last_mut() {
                    metric.labels = labels.filter(|label| *label != "le").map(str::to_owned).collect();
                }
            }
        }
    }
    metrics
}

/// The rows of the tables of metrics, with the labels that their section names.
fn described(page: &str) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for section in page.split("\n## ") {
        let labels = section
            .split_once("Labels: ")
            .map_or("", |(_, rest)| rest.split(['(', '.']).next().unwrap_or(rest));
        let labels: Vec<String> = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        for row in section.lines().filter(|line| line.starts_with("| `distcache_")) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [name, kind, unit, help, meaning] = cells[..] else { continue };
            assert!(!meaning.is_empty(), "{METRICS}: {name}: what does it mean?");
            let (name, mut labels) = (name.trim_matches('`').to_owned(), labels.clone());
            if name.ends_with("_sheds_total") {
                labels.push("rule".to_owned());
            }
            check_unit(&name, unit);
            metrics.push(Metric { name, kind: kind.to_owned(), help: help.to_owned(), labels });
        }
    }
    metrics
}

/// A name that ends with a unit is in it.
fn check_unit(name: &str, unit: &str) {
    let units = [("_microseconds", "µs"), ("_seconds", "s"), ("_bytes", "bytes")];
    let expected = units.iter().find(|(end, _)| name.ends_with(end));
    let fits = expected.is_none_or(|(_, expected)| unit == *expected) && !unit.is_empty();
    assert!(fits, "{METRICS}: {name} is not in {unit:?}");
}

/// The machines' tables, by the role in the names of their metrics.
const TABLES: [(&str, &[Statistic]); 4] = [
    ("router", RouterStatistics::TABLE),
    ("node", NodeStatistics::TABLE),
    ("shim", ShimStatistics::TABLE),
    ("controller", ControllerStatistics::TABLE),
];

/// The row of a statistic: in the table of its role's metrics, or in that of all rules.
fn row(role: &str, statistic: &Statistic) -> String {
    let Statistic { name, key, unit, help, meaning, kind } = statistic;
    match kind {
        StatisticKind::Counter => {
            format!("| `distcache_{role}_{name}_total` | counter | {unit} | {help} | {meaning} |")
        }
        StatisticKind::Gauge => {
            format!("| `distcache_{role}_{name}` | gauge | {unit} | {help} | {meaning} |")
        }
        StatisticKind::Shed => format!("| {role} | `{key}` | {help} |"),
    }
}

/// What a row begins with, and no other.
fn cells_before(text: &str) -> &str {
    text.match_indices('`').nth(1).map_or(text, |(end, _)| &text[..=end])
}

/// The page with the rows of all statistics of `kinds` at the head of the tables whose rows begin with `mark`; those that it has
/// besides are kept if `known`.
fn rewritten(page: &str, marks: (&str, &str), rows: &[String], known: impl Fn(&str) -> bool) -> String {
    let (after, mark) = marks;
    let (head, table) = page.split_once(after).unwrap_or_else(|| panic!("{METRICS}: no {after:?}"));
    let begin = table.find(mark).unwrap_or_else(|| panic!("{METRICS}: no row {mark:?} after {after:?}"));
    let end = begin + table[begin..].find("\n\n").map_or(table[begin..].len(), |end| end + 1);
    let own = |line: &&str| rows.iter().all(|row| cells_before(row) != cells_before(line));
    let kept = table[begin..end].lines().filter(own).filter(|line| known(cells_before(line)));
    let rows: String = rows.iter().map(String::as_str).chain(kept).map(|row| format!("{row}\n")).collect();
    format!("{head}{after}{}{rows}{}", &table[..begin], &table[end..])
}

#[test]
fn every_statistic_has_the_row_of_its_table() {
    let (page, exported) = (document(METRICS), exported(&metrics()));
    let known = |cell: &str| exported.iter().any(|metric| cell == format!("| `{}`", metric.name));
    let mut fresh = page.clone();
    let mut rules = Vec::new();
    for (role, table) in TABLES {
        let (sheds, told): (Vec<&Statistic>, _) =
            table.iter().partition(|statistic| statistic.kind == StatisticKind::Shed);
        let rows: Vec<String> = told.into_iter().map(|statistic| row(role, statistic)).collect();
        let first = format!("| `distcache_{role}_");
        fresh = rewritten(&fresh, ("| metric | type | unit | help | ", &first), &rows, known);
        rules.extend(sheds.into_iter().map(|statistic| row(role, statistic)));
    }
    fresh = rewritten(&fresh, ("| role | rule | refused is |", "| router | `"), &rules, |_| true);
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(path(METRICS), &fresh).expect("the page is written");
        return;
    }
    let stale = page.lines().zip(fresh.lines()).find(|(written, told)| written != told);
    assert!(
        page == fresh,
        "{METRICS}: {stale:?}: run `UPDATE_PAGES=1 cargo test -p runtime --test documents every_statistic`"
    );
}

#[test]
fn every_metric_is_described() {
    let page = document(METRICS);
    let (exported, described) = (exported(&metrics()), described(&page));
    let mut flaws = Vec::new();
    for metric in &exported {
        let Metric { name, kind, help, labels } = metric;
        let own: Vec<&Metric> = described.iter().filter(|other| other.name == *name).collect();
        if own != [metric] {
            flaws.push(format!(
                "write one row `| `{name}` | {kind} | unit | {help} | ... |`, labels {labels:?}"
            ));
        }
    }
    for Metric { name, .. } in &described {
        if !exported.iter().any(|metric| metric.name == *name) {
            flaws.push(format!("there is no metric {name}: remove its row"));
        }
    }
    assert!(flaws.is_empty(), "{METRICS}:\n{}", flaws.join("\n"));
    assert!(exported.len() > 100, "{}", exported.len());
}

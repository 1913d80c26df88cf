//! The documents and the code agree: examples are valid, every metric is described, links lead somewhere. Not whether it is
//! well said.

use std::path::Path;

use config::Config;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The `toml` blocks of a Markdown text.
fn examples(text: &str) -> impl Iterator<Item = &str> {
    text.split("```toml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest))
}

/// Whole configurations are valid; parts of one have no key that does not exist.
#[test]
fn examples_of_configurations_are_valid() {
    let mut whole = 0;
    for path in pages() {
        for example in examples(&document(&path)) {
            let is_whole = example.contains("[[shim]]") && example.contains("[cluster]");
            match Config::parse(example).map_err(|error| error.to_string()) {
                Ok(_) => whole += 1,
                Err(error) if is_whole || error.contains("unknown") => panic!("{path}: {error}\n{example}"),
                Err(_) => {}
            }
        }
    }
    assert!(whole > 0, "no page has a whole configuration");
}

/// Where the page of all metrics is.
const METRICS: &str = "docs/operating/metrics.md";

/// The metrics of a process with a member of every kind and with TLS.
fn metrics() -> String {
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
struct Metric {
    name: String,
    kind: String,
    help: String,
    labels: Vec<String>,
}

fn exported(text: &str) -> Vec<Metric> {
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

#[test]
fn metrics_that_pages_name_exist() {
    let exported = exported(&metrics());
    for path in pages() {
        let text = document(&path);
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_name(letter));
        for name in words.filter(|word| word.starts_with("distcache_") && !word.contains("ROLE")) {
            let parts = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_exported = |metric: &Metric| {
                metric.name == name || metric.kind == "histogram" && Some(metric.name.as_str()) == parts
            };
            assert!(exported.iter().any(is_exported), "{path}: there is no metric {name}");
        }
    }
}

/// The pages for those who operate DistCache, and the README.
fn pages() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let pages: Vec<String> = names.map(|name| format!("docs/operating/{name}")).collect();
    assert!(pages.len() > 5, "{pages:?}");
    pages.into_iter().chain(["README.md".to_owned()]).collect()
}

/// Every Markdown file that people read: at the top, and below docs and benches.
fn documents() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut found, mut folders) = (Vec::new(), vec!["docs".to_owned(), "benches".to_owned()]);
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        found.push(name.to_owned());
    }
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(root.join(&folder)).unwrap_or_else(|error| panic!("{folder}: {error}"))
        {
            let file = file.unwrap();
            let path = format!("{folder}/{}", file.file_name().into_string().unwrap());
            match file.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false if path.ends_with(".md") => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// The text without its fenced blocks and code, where `](` is no link.
fn prose(text: &str) -> String {
    let outside = text.split("```").step_by(2).collect::<String>();
    outside.split('`').step_by(2).collect()
}

/// The anchors of a Markdown text as GitHub makes them from its headings.
fn anchors(text: &str) -> Vec<String> {
    let outside = text.split("\n```").step_by(2).collect::<String>();
    let headings = outside.lines().filter_map(|line| line.strip_prefix('#'));
    let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
    let slug = |title: &str| title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
    headings.map(|title| slug(title.trim_start_matches('#').trim())).collect()
}

#[test]
fn links_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut broken, mut count) = (Vec::new(), 0);
    for path in documents() {
        let folder = Path::new(&path).parent().unwrap_or(Path::new(""));
        for link in prose(&document(&path)).split("](").skip(1) {
            let link = link.split(')').next().unwrap_or(link);
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root.join(&path) } else { root.join(folder).join(file) };
            let text = if target.is_dir() { Ok(String::new()) } else { std::fs::read_to_string(&target) };
            match text {
                Err(error) => broken.push(format!("{path}: ({link}): {error}")),
                Ok(text) if !anchor.is_empty() && !anchors(&text).iter().any(|other| other == anchor) => {
                    broken.push(format!("{path}: ({link}): no such heading"));
                }
                Ok(_) => {}
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(count > 100, "{count}");
}

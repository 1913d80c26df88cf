//! The documents and the configuration agree: examples are valid, every key is described. Not whether it is well said.

use std::path::Path;

use runtime::config::Config;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The `toml` blocks of a Markdown text.
fn examples(text: &str) -> impl Iterator<Item = &str> {
    text.split("```toml\n").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest))
}

/// The keys that the section's error about an unknown key lists.
fn keys(section: &str) -> Vec<String> {
    let text = format!("{section}\nno_such_key = 1\n");
    let error = Config::parse(&text).expect_err("the key is unknown").to_string();
    let (_, allowed) = error.split_once("allowed here: ").unwrap_or_else(|| panic!("{section}: {error}"));
    allowed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn examples_in_the_readme_are_valid() {
    let text = document("README.md");
    let mut count = 0;
    for example in examples(&text) {
        Config::parse(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        count += 1;
    }
    assert!(count > 0, "the README has no example");
}

#[test]
fn every_key_is_described() {
    let text = document("docs/operating.md");
    for section in [
        "[cluster]",
        "[security]",
        "[tls.clients]",
        "[[controller]]",
        "[[layer]]",
        "[[node]]",
        "[[shim]]",
        "[[router]]",
        "[[user]]",
        "[limits]",
        "[heat]",
    ] {
        let (_, rest) =
            text.split_once(&format!("### `{section}`")).unwrap_or_else(|| panic!("no {section}"));
        let part = rest.split("\n##").next().unwrap_or(rest);
        for key in keys(section) {
            assert!(
                part.contains(&format!("`{key}`")),
                "docs/operating.md: {section} {key} is not described"
            );
        }
    }
}

#[test]
fn described_metrics_exist() {
    use runtime::status::{MemberStatus, NodeStatus, RouterStatus, ShimStatus};
    let members = vec![
        MemberStatus::Node(NodeStatus::default()),
        MemberStatus::Shim(ShimStatus::default()),
        MemberStatus::Router(RouterStatus::default()),
    ];
    let metrics = runtime::metrics::render(
        members,
        vec![runtime::tls::TlsStatus {
            table: "clients",
            handshakes_total: 0,
            handshakes_failed_total: 0,
            reloads_total: 0,
            reloads_failed_total: 0,
            expires_in_s: Some(0),
        }],
    );
    let text = document("docs/operating.md");
    let (_, table) = text.split_once("| watch | because |").expect("the table of metrics");
    let table = table.split("\n\n").next().unwrap_or(table);
    // The first cell of each row names metrics; `*` stands for every role.
    let cells = table.lines().filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    for name in names.filter(|name| !name.starts_with('*')) {
        assert!(
            metrics.contains(&format!("distcache_{name}")),
            "docs/operating.md: there is no metric {name}"
        );
    }
}

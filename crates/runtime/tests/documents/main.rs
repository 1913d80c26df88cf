//! The documents and the code agree: examples are valid, every metric is described, links lead somewhere. Not whether it is
//! well said.

mod metrics;

use std::path::{Path, PathBuf};

use config::Config;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn document(name: &str) -> String {
    let path = path(name);
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

#[test]
fn metrics_that_pages_name_exist() {
    let exported = metrics::exported(&metrics::metrics());
    for path in pages() {
        let text = document(&path);
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_name(letter));
        for name in words.filter(|word| word.starts_with("distcache_") && !word.contains("ROLE")) {
            let parts = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_exported = |metric: &metrics::Metric| {
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

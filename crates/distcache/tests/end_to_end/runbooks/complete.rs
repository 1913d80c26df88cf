//! The list of who tries what is complete both ways, and whoever it names is a test. Not whether the test does what the row says.

use std::collections::BTreeSet;
use std::path::Path;

use super::page::{page, root, sections};
use super::tried::{LINKED, TRIED, UNTRIED};

#[test]
fn every_row_is_tried_or_says_why_not() {
    let titles: Vec<String> = sections().into_iter().map(|section| section.title).collect();
    let listed: Vec<&str> = TRIED.iter().map(|(title, _)| *title).collect();
    assert_eq!(titles, listed, "the sections of the page and of the list");
    for (section, (title, entries)) in sections().iter().zip(TRIED) {
        let untried = UNTRIED.iter().filter(|(of, ..)| of == title).map(|(_, begin, reason)| {
            assert!(!reason.is_empty());
            *begin
        });
        let begins: Vec<&str> = entries.iter().map(|(begin, _)| *begin).chain(untried).collect();
        assert_eq!(begins.iter().filter(|begin| begin.is_empty()).count(), 1, "{title}: its prose");
        let rows = section.rows();
        for row in &rows {
            let found: Vec<_> =
                begins.iter().filter(|begin| !begin.is_empty() && row.starts_with(**begin)).collect();
            assert_eq!(found.len(), 1, "{title}: {row:?} has the entries {found:?}");
        }
        for begin in begins.iter().filter(|begin| !begin.is_empty()) {
            let found = rows.iter().filter(|row| row.starts_with(*begin)).count();
            assert_eq!(found, 1, "{title}: no row, or several, for the entry {begin:?}");
        }
    }
    let unknown = UNTRIED.iter().find(|(title, ..)| !listed.contains(title));
    assert_eq!(unknown, None, "a section that is not there");
}

#[test]
fn every_remedy_on_another_page_is_tried() {
    let page = page("runbooks.md");
    let links = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let shown = ["README.md", "metrics.md", "clients.md", "settings.md"];
    let is_remedy = |link: &&str| link.contains(".md") && !shown.iter().any(|page| link.starts_with(page));
    let found: BTreeSet<&str> = links.filter(is_remedy).collect();
    let listed: BTreeSet<&str> = LINKED.iter().map(|(link, _)| *link).collect();
    assert_eq!(found, listed);
}

/// Whether a file of the tree has this function as a test.
fn is_test(file: &Path, name: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let after = text.split(&format!("fn {name}(")).next().filter(|before| before.len() < text.len());
    let attributes = after.map(|before| before.rsplit_once("#[test]").map_or("}", |(_, after)| after));
    attributes.is_some_and(|between| !between.contains('}'))
}

#[test]
fn every_test_that_is_named_exists() {
    let rows = TRIED.iter().flat_map(|(_, entries)| entries.iter().map(|(_, tests)| tests));
    for tests in rows.chain(LINKED.iter().map(|(_, tests)| tests)) {
        assert!(!tests.is_empty());
        for test in *tests {
            let (place, name) = test.rsplit_once("::").expect("a path");
            let folder = root().join("crates/distcache/tests/end_to_end").join(place.replace("::", "/"));
            let files = match place.ends_with(".rs") {
                true => vec![root().join(place)],
                false => vec![folder.with_extension("rs"), folder.join("mod.rs")],
            };
            assert!(files.iter().any(|file| is_test(file, name)), "there is no test {test}");
        }
    }
}

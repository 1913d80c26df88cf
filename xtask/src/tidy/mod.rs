//! The house rules as a check: `cargo xtask tidy`, and a test of this crate. Each rule has its own file.

mod banned;
mod decisions;
mod edges;
mod homonyms;
mod licences;
mod names;
mod opening;
mod parameters;
mod size;
mod source;
mod subjects;
mod tracked;
mod words;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use source::Source;

/// A rule that something breaks. Line 0 stands for the whole of it.
pub(crate) struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl Violation {
    fn new(source: &Source, line: usize, rule: &'static str, message: impl Into<String>) -> Violation {
        Violation { path: source.path.clone(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}: {}", self.path, self.rule, self.message),
            line => write!(f, "{}:{line}: {}: {}", self.path, self.rule, self.message),
        }
    }
}

/// The rules in words, with the table of words.
const STYLE: &str = "docs/style.md";

const SOURCE_RULES: [fn(&Source, &mut Vec<Violation>); 5] =
    [size::check, opening::check, banned::check, names::check, subjects::check];

/// Prints what is wrong and fails if anything is.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let found = violations(root)?;
    for violation in &found {
        println!("{violation}");
    }
    anyhow::ensure!(found.is_empty(), "tidy: {} violations of the rules in docs/style.md", found.len());
    Ok(())
}

fn violations(root: &Path) -> anyhow::Result<Vec<Violation>> {
    let mut found = Vec::new();
    let mut sources = Vec::new();
    let mut decisions = decisions::Decisions::default();
    let mut homonyms = homonyms::Homonyms::default();
    let mut parameters = parameters::Parameters::default();
    for path in tracked_files(root)? {
        let bytes = std::fs::read(root.join(&path)).with_context(|| format!("reading {path}"))?;
        // What is not text (images, snapshots) has no lines to check.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        tracked::check(&path, &text, &mut found);
        decisions.see(&path, &text);
        if path.ends_with(".rs") {
            sources.push(Source::parse(&path, &text)?);
        }
    }
    let glossary = std::fs::read_to_string(root.join(STYLE)).with_context(|| format!("reading {STYLE}"))?;
    let glossary = words::Glossary::read(&glossary)?;
    let test_files: HashSet<String> = sources.iter().flat_map(Source::test_files).collect();
    for source in &mut sources {
        source.test_file |= test_files.contains(&source.path);
        for rule in SOURCE_RULES {
            rule(source, &mut found);
        }
        glossary.check(source, &mut found);
        homonyms.see(source);
        parameters.see(source);
    }
    decisions.check(&mut found);
    homonyms.check(&mut found);
    parameters.check(&mut found);
    edges::check(&metadata(root, &["--no-deps", "--offline"])?, &mut found);
    let deny = std::fs::read_to_string(root.join("deny.toml")).context("reading deny.toml")?;
    let everything = metadata(root, &["--locked", "--all-features", "--filter-platform", &crate::host()?])?;
    licences::check(&everything, &licences::allowed(&deny)?, &mut found);
    found.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(found)
}

/// Relative paths of what belongs to the tree: what git tracks or would add; everything where there is no git.
fn tracked_files(root: &Path) -> anyhow::Result<Vec<String>> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let listed = Command::new("git").args(arguments).current_dir(root).output();
    if let Ok(output) = listed
        && output.status.success()
    {
        let text =
            String::from_utf8(output.stdout).context("git ls-files printed a path that is not UTF-8")?;
        let paths = text.split('\0').filter(|path| !path.is_empty());
        // A file that is deleted but not yet committed is still listed.
        return Ok(paths.filter(|path| root.join(path).is_file()).map(str::to_owned).collect());
    }
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            match entry.file_type()? {
                kind if kind.is_dir() && !is_build_folder(&path) => folders.push(path),
                kind if kind.is_file() => files.push(path.to_string_lossy().into_owned()),
                _ => {}
            }
        }
    }
    Ok(files)
}

fn is_build_folder(path: &Path) -> bool {
    path == Path::new("target") || path == Path::new(".git")
}

fn metadata(root: &Path, arguments: &[&str]) -> anyhow::Result<serde_json::Value> {
    let mut metadata = crate::cargo::command();
    metadata.args(["metadata", "--format-version=1"]).args(arguments);
    let output = metadata.current_dir(root).output().context("starting cargo metadata")?;
    anyhow::ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("reading the output of cargo metadata")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the rules that the text breaks.
    pub(crate) fn rules_of(
        rule: fn(&Source, &mut Vec<Violation>),
        path: &str,
        text: &str,
    ) -> Vec<&'static str> {
        let source = Source::parse(path, text).expect("the sample parses");
        let mut found = Vec::new();
        rule(&source, &mut found);
        found.into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn the_tree_is_tidy() {
        let found = violations(crate::root()).expect("the tree can be read");
        let lines: Vec<String> = found.iter().map(Violation::to_string).collect();
        assert!(lines.is_empty(), "run `cargo xtask tidy`:\n{}", lines.join("\n"));
    }

    #[test]
    fn a_file_that_does_not_parse_is_an_error() {
        let error = Source::parse("crates/wire/src/key.rs", "fn {").err().expect("no Rust");
        assert!(error.to_string().contains("crates/wire/src/key.rs"), "{error}");
    }
}

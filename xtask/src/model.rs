//! The model checker over its configurations, as they are or with one rule of the protocol taken out.
//!
//! A mutant is a patch in `crates/protocol/mutants`. Its first line says which rule it removes, its second which
//! configuration catches it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::garden::Garden;
use crate::target_folder;

const RULE: &str = "Rule: ";
const CAUGHT_BY: &str = "Caught by: ";
/// Per configuration: a rule that is missing shows long before.
const MUTANT_SECONDS: &str = "300";

/// Everything that CI explores, or all there is.
pub(crate) fn run(root: &Path, deep: bool) -> anyhow::Result<()> {
    let scale = if deep { "deep" } else { "ci" };
    let mut tester = tester(root, &target_folder(root));
    let status = tester.args(["--", "--nocapture"]).env("MODEL", scale).status().context("starting cargo")?;
    ensure!(status.success(), "model: {status}");
    Ok(())
}

pub(crate) fn ci(root: &Path) -> anyhow::Result<()> {
    run(root, false)
}

/// One rule taken out.
struct Mutant {
    name: String,
    rule: String,
    config: String,
    patch: PathBuf,
}

struct Caught {
    config: String,
    property: String,
    steps: String,
    taken: Duration,
}

/// Tries every mutant, or those whose names begin so.
pub(crate) fn mutants(root: &Path, begins: &str) -> anyhow::Result<()> {
    let all = listed(root)?;
    let chosen: Vec<&Mutant> = all.iter().filter(|mutant| mutant.name.starts_with(begins)).collect();
    ensure!(!chosen.is_empty(), "no mutant begins with {begins:?}; there are: {}", names(&all));
    // In a folder of its own: cargo takes a package of the tree and its copy for the same.
    let folder = target_folder(root).join("mutants");
    let garden = Garden::new(root, &folder)?;
    let build = folder.join("build");
    let configs: Vec<&str> = chosen.iter().map(|mutant| mutant.config.as_str()).collect();
    let clean = explore(&garden, &build, &configs.join(","))?;
    ensure!(clean.status.success(), "without any mutant the model fails:\n{}", text(&clean));
    let mut missed = Vec::new();
    for mutant in chosen {
        garden.apply(&mutant.patch)?;
        let caught = catch(&garden, &build, mutant);
        garden.revert(&mutant.patch)?;
        match caught.with_context(|| mutant.name.clone())? {
            Some(Caught { config, property, steps, taken }) => println!(
                "{:<36} {config:<16} {steps:>3} steps {:>6.1} s  {property}",
                mutant.name,
                taken.as_secs_f64()
            ),
            None => {
                println!("{:<36} MISSED: {}", mutant.name, mutant.rule);
                missed.push(mutant.name.as_str());
            }
        }
    }
    ensure!(missed.is_empty(), "the model does not notice that these rules are gone: {}", missed.join(", "));
    Ok(())
}

pub(crate) fn all_mutants(root: &Path) -> anyhow::Result<()> {
    mutants(root, "")
}

/// With the configuration that the patch names, then with all others.
fn catch(garden: &Garden, build: &Path, mutant: &Mutant) -> anyhow::Result<Option<Caught>> {
    let built = tester(garden.tree(), build).arg("--no-run").output().context("starting cargo")?;
    ensure!(built.status.success(), "does not compile:\n{}", text(&built));
    for configs in [mutant.config.as_str(), "ci"] {
        let began = Instant::now();
        let output = explore(garden, build, configs)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let mut before = "";
        for line in printed.lines() {
            if let Some(found) = line.strip_prefix("counterexample: ") {
                let (property, steps) = found.rsplit_once("; ").context("a counterexample has steps")?;
                let config = before.split_whitespace().next().unwrap_or(configs).to_owned();
                let steps = steps.trim_end_matches(" steps").to_owned();
                let taken = began.elapsed();
                return Ok(Some(Caught { config, property: property.to_owned(), steps, taken }));
            }
            before = line;
        }
        if !output.status.success() && !printed.contains("not complete") {
            bail!("the model fails without a counterexample:\n{}", text(&output));
        }
    }
    Ok(None)
}

fn explore(garden: &Garden, build: &Path, configs: &str) -> anyhow::Result<Output> {
    let mut command = tester(garden.tree(), build);
    command.args(["--", "--nocapture"]).env("MODEL", configs).env("MODEL_SECONDS", MUTANT_SECONDS);
    command.output().context("starting cargo")
}

fn tester(tree: &Path, build: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args([
        "test",
        "--quiet",
        "--locked",
        "--profile",
        "model",
        "--package",
        "protocol",
        "--test",
        "model",
    ]);
    command.current_dir(tree).env("CARGO_TARGET_DIR", build);
    command
}

fn listed(root: &Path) -> anyhow::Result<Vec<Mutant>> {
    let folder = root.join("crates/protocol/mutants");
    let mut mutants = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let patch = entry?.path();
        let text = std::fs::read_to_string(&patch).with_context(|| patch.display().to_string())?;
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name)).map(str::to_owned);
            line.with_context(|| format!("{}: no line {name:?}", patch.display()))
        };
        let (rule, config) = (field(RULE)?, field(CAUGHT_BY)?);
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        mutants.push(Mutant { name, rule, config, patch });
    }
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mutants)
}

fn names(mutants: &[Mutant]) -> String {
    mutants.iter().map(|mutant| mutant.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::listed;
    use crate::cluster::Folder;
    use crate::garden::Garden;

    #[test]
    fn every_mutant_says_what_it_removes_and_applies() {
        let folder = Folder::new("mutants").unwrap();
        let garden = Garden::new(crate::root(), folder.path()).unwrap();
        let mutants = listed(crate::root()).unwrap();
        assert!(mutants.len() >= 20, "{}", mutants.len());
        for mutant in mutants {
            assert!(mutant.rule.ends_with('.'), "{}", mutant.name);
            garden.apply(&mutant.patch).unwrap();
            garden.revert(&mutant.patch).unwrap();
        }
    }
}

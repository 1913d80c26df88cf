//! Bugs planted on purpose, each as a patch in a copy of the tree: a run that does not find them is worth nothing.
//! Never switches in the product.
//!
//! A patch begins with one line that says what the bug is and one `Faults: LIST` with the faults that bring it out; one
//! `Storage: LIST` may follow.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Serialize;

use super::arguments::{JepsenArguments, RunLength};
use crate::cargo;
use crate::garden::Garden;

/// Each bug has to be found within this.
const FIND_MAX: Duration = Duration::from_secs(300);
/// Each bug shows in some shapes of clusters only: they take turns fast.
const ROUND: Duration = Duration::from_secs(20);
const FAULTS: &str = "Faults: ";
const STORAGE: &str = "Storage: ";

/// One patch.
#[derive(Debug)]
pub(super) struct Bug {
    name: String,
    /// What is wrong, in one sentence.
    what: String,
    faults: String,
    storage: String,
    patch: PathBuf,
}

#[derive(Debug, Serialize)]
pub(super) struct PlantedFound {
    name: String,
    what: String,
    faults: String,
    /// From the start of the clients to the verdict of both checkers.
    seconds: Option<f64>,
    operations: u64,
}

/// The planted bugs by name, in the order of their names.
pub(super) fn bugs(root: &Path) -> anyhow::Result<Vec<Bug>> {
    let folder = root.join("xtask/planted");
    let mut bugs = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let patch = entry?.path();
        let text = std::fs::read_to_string(&patch).with_context(|| patch.display().to_string())?;
        let mut lines = text.lines();
        let what = lines.next().unwrap_or_default().to_owned();
        let faults = lines.next().and_then(|line| line.strip_prefix(FAULTS));
        let faults = faults.with_context(|| format!("{}: line 2 is not `{FAULTS}LIST`", patch.display()))?;
        let storage = lines.next().and_then(|line| line.strip_prefix(STORAGE)).unwrap_or("redis").to_owned();
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        bugs.push(Bug { name, what, faults: faults.to_owned(), storage, patch });
    }
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(bugs)
}

/// Plants every bug, or the one of this name, and looks for it.
pub(super) fn run(
    root: &Path,
    name: Option<&str>,
    arguments: &JepsenArguments,
    program: &Path,
    target: &Path,
) -> anyhow::Result<Vec<PlantedFound>> {
    let bugs = bugs(root)?;
    let names: Vec<&str> = bugs.iter().map(|bug| bug.name.as_str()).collect();
    let known = format!("there are: {}", names.join(", "));
    ensure!(name.is_none_or(|name| names.contains(&name)), "no planted bug of this name; {known}");
    let folder = target.join("planted");
    let garden = Garden::new(root, &folder)?;
    let mut all = Vec::new();
    for bug in bugs.iter().filter(|bug| name.is_none_or(|name| name == bug.name)) {
        let binary = plant(&garden, bug, &folder.join("build"))?;
        let found = find(bug, arguments, &binary, program, target)?;
        let how = match found.seconds {
            Some(seconds) => format!("found after {seconds:.1} s and {} operations", found.operations),
            None => format!("NOT FOUND in {} operations", found.operations),
        };
        crate::tell(&format!("planted {}: {how}: {}", bug.name, bug.what));
        all.push(found);
    }
    Ok(all)
}

fn find(
    bug: &Bug,
    arguments: &JepsenArguments,
    binary: &Path,
    program: &Path,
    target: &Path,
) -> anyhow::Result<PlantedFound> {
    let arguments = JepsenArguments {
        length: RunLength::Time(FIND_MAX),
        round: ROUND,
        faults: super::arguments::faults(&bug.faults)?,
        storages: super::arguments::storages(&bug.storage)?,
        ..arguments.clone()
    };
    let started = Instant::now();
    let report = super::trial(&arguments, [binary, binary], program, target)?;
    let seconds = (!report.found.is_empty()).then(|| started.elapsed().as_secs_f64());
    ensure!(report.disagreements.is_empty(), "the checkers disagree: {}", report.disagreements[0]);
    let Bug { name, what, faults, .. } = bug;
    let (name, what, faults) = (name.clone(), what.clone(), faults.clone());
    Ok(PlantedFound { name, what, faults, seconds, operations: report.operations })
}

impl PlantedFound {
    pub(super) fn is_found(&self) -> bool {
        self.seconds.is_some()
    }

    pub(super) fn text(&self) -> String {
        let seconds = self.seconds.map_or("NOT FOUND".to_owned(), |seconds| format!("{seconds:.1} s"));
        format!("{:>10}  {}: {}\n", seconds, self.name, self.what)
    }
}

/// Builds `distcache` with the bug; the tree is clean again afterwards.
fn plant(garden: &Garden, bug: &Bug, build: &Path) -> anyhow::Result<PathBuf> {
    garden.apply(&bug.patch)?;
    let built = build_program(garden, build);
    garden.revert(&bug.patch)?;
    built.with_context(|| format!("building with {}", bug.name))
}

fn build_program(garden: &Garden, build: &Path) -> anyhow::Result<PathBuf> {
    let mut command = cargo::command();
    command.args(["build", "--release", "--locked", "--package", "distcache"]).current_dir(garden.tree());
    // A dozen builds: fast ones, of what a bug has touched.
    command.env("CARGO_TARGET_DIR", build).env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true").env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    let output = command.output().context("starting cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(build.join("release/distcache"))
}

#[cfg(test)]
mod tests {
    use super::bugs;
    use crate::garden::Garden;
    use crate::jepsen::arguments::{faults, storages};

    #[test]
    fn every_patch_says_what_it_plants_and_applies() {
        let folder = crate::cluster::Folder::new("garden").unwrap();
        let garden = Garden::new(crate::root(), folder.path()).unwrap();
        let bugs = bugs(crate::root()).unwrap();
        assert!(bugs.len() >= 10, "{}", bugs.len());
        for bug in bugs {
            assert!(bug.what.ends_with('.') && faults(&bug.faults).is_ok(), "{bug:?}");
            assert!(storages(&bug.storage).is_ok(), "{bug:?}");
            garden.apply(&bug.patch).unwrap();
            garden.revert(&bug.patch).unwrap();
        }
    }
}

//! Tells the binary its commit, profile and target. Outside of a repository, or without git, there is just no commit.

use std::path::Path;
use std::process::Command;

/// Who builds from an archive may say the commit.
const COMMIT: &str = "DISTCACHE_COMMIT";

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The repository must be that of these sources: an archive may be unpacked inside of another one.
fn commit() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    // Otherwise every change of the sources would be said to be this commit's.
    for name in
        ["HEAD", "packed-refs"].map(str::to_owned).into_iter().chain(git(&["symbolic-ref", "-q", "HEAD"]))
    {
        if let Some(path) = git(&["rev-parse", "--git-path", &name]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={COMMIT}");
    let given = Some(variable(COMMIT)).filter(|given| !given.is_empty());
    let commit = given.or_else(commit).unwrap_or_default();
    let number = variable("CARGO_PKG_VERSION");
    let version = if commit.is_empty() { number } else { format!("{number} ({commit})") };
    println!("cargo:rustc-env={COMMIT}={commit}");
    println!("cargo:rustc-env=DISTCACHE_VERSION={version}");
    println!("cargo:rustc-env=DISTCACHE_PROFILE={}", variable("PROFILE"));
    println!("cargo:rustc-env=DISTCACHE_TARGET={}", variable("TARGET"));
}

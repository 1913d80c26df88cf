//! `distcache version`: which build this is, for people and for machines. Not what it can do.

use serde::Serialize;

use lab::terminal::print;

const NUMBER: &str = env!("CARGO_PKG_VERSION");
/// Where it was built from; empty outside of a repository.
const COMMIT: &str = env!("DISTCACHE_COMMIT");
const PROFILE: &str = env!("DISTCACHE_PROFILE");
const TARGET: &str = env!("DISTCACHE_TARGET");

/// What `--version` says after the name.
pub(crate) const LONG: &str = env!("DISTCACHE_VERSION");

/// Show the version, and the commit that it was built from
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VersionArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct VersionOutput {
    version: &'static str,
    /// The commit that it was built from; `None` outside of a repository.
    commit: Option<&'static str>,
    profile: &'static str,
    target: &'static str,
}

pub(crate) fn run(arguments: &VersionArguments) -> anyhow::Result<()> {
    let commit = (!COMMIT.is_empty()).then_some(COMMIT);
    let version = VersionOutput { version: NUMBER, commit, profile: PROFILE, target: TARGET };
    print(&match arguments.json {
        true => serde_json::to_string(&version)?,
        false => format!("distcache {LONG}"),
    });
    Ok(())
}

//! `distcache purge`: drops cached copies and leaves the data. The shims do it; this asks a controller to tell them.

use controller::{PURGE_PATH, Purge, PurgeView};
use runtime::orders::PurgeScope;

use super::ask::CommandArguments;
use lab::terminal::print;

/// Drop the cached copies of a key, of a prefix or of everything; the data stays, and reads fill them again
///
/// Returns when no node can serve what was there.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["key", "prefix", "all"]))]
pub(crate) struct PurgeArguments {
    /// The key; bytes that are no text as \xNN
    #[arg(value_name = "KEY")]
    key: Option<String>,

    /// Drop the copies of all keys that begin so
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,

    /// Drop the copies of all keys
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    command: CommandArguments,
}

pub(crate) fn run(arguments: &PurgeArguments) -> anyhow::Result<()> {
    let scope = match (&arguments.key, &arguments.prefix) {
        (Some(key), _) => PurgeScope::Key(key.clone()),
        (None, Some(prefix)) => PurgeScope::Prefix(prefix.clone()),
        (None, None) => PurgeScope::All,
    };
    let purged: PurgeView = arguments.command.post(PURGE_PATH, &Purge { scope })?;
    print(&match arguments.command.controller.json {
        true => serde_json::to_string(&purged)?,
        false => format!("{} copies dropped", purged.copies),
    });
    Ok(())
}

//! `distcache token`: what requests that change something carry, for those who send them without this program.

use lab::terminal::print;

use super::ask::SecretArguments;

/// Print what a request that changes something carries in its header x-distcache-command
///
/// For requests without this program: curl -X POST -H "x-distcache-command: $(distcache token --config FILE)"
/// http://ADMIN/reload. Whoever has it may drain, purge and reload from a machine of the cluster; it changes with the secret.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TokenArguments {
    #[command(flatten)]
    secret: SecretArguments,
}

pub(crate) fn run(arguments: &TokenArguments) -> anyhow::Result<()> {
    print(&arguments.secret.token()?.text());
    Ok(())
}

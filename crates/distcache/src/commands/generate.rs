//! `distcache completions` and `man`: texts made from the command line's own description. They contact nothing.

use std::path::PathBuf;

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use lab::terminal::print;

/// Print what makes a shell complete this command's words; --help says where it goes
///
/// bash: `distcache completions bash > ~/.local/share/bash-completion/completions/distcache`
/// zsh: `distcache completions zsh > "${fpath[1]}/_distcache"`
/// fish: `distcache completions fish > ~/.config/fish/completions/distcache.fish`
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, command: &mut Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "distcache", &mut script);
        print(String::from_utf8_lossy(&script).trim_end());
        Ok(())
    }
}

/// Write a man page for every command, for example to ~/.local/share/man/man1
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Man {
    /// Where they go; made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, command: Command) -> anyhow::Result<()> {
        let named = || format!("{}", self.directory.display());
        std::fs::create_dir_all(&self.directory).with_context(named)?;
        clap_mangen::generate_to(command, &self.directory).with_context(named)
    }
}

//! Starts cargo from a program that cargo has started. Not what is built.

use std::process::Command;

/// What cargo sets for the programs that it runs and build scripts look at: ring's begins anew when one of these changes, and
/// everything above it would be built again whenever `cargo test` and `cargo xtask` take turns.
const INHERITED: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];

/// Cargo, as a person would start it.
pub(crate) fn command() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if INHERITED.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::{INHERITED, command};

    #[test]
    fn cargo_inherits_nothing_about_this_program() {
        assert!(
            std::env::var_os("CARGO_PKG_NAME").is_some() && std::env::var_os("CARGO_MANIFEST_DIR").is_some()
        );
        let command = command();
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        for prefix in &INHERITED[..2] {
            assert!(removed.iter().any(|(name, _)| name.to_string_lossy().starts_with(prefix)), "{prefix}");
        }
    }
}

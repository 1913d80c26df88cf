//! The commands that Redis does not have: `DISTCACHE` and its subcommands, as the table would describe them. Not what
//! they do.

use bytes::Bytes;
use wire::resp::Command;

use super::spec::Flag::{Admin, NoMulti};
use super::spec::{Group, Spec, command};

pub(super) static DISTCACHE: Spec = command("distcache", -2, Group::Server, &[], &[], &[], &SUBCOMMANDS);

static SUBCOMMANDS: [Spec; 2] = [
    command("distcache|help", 2, Group::Server, &[], &[], &[], &[]),
    command("distcache|purge", -3, Group::Server, &[Admin, NoMulti], &[], &[], &[]),
];

/// Whose copies a purge drops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Key(Bytes),
    Prefix(Bytes),
    All,
}

/// `DISTCACHE PURGE key`, `KEY key` for one that is called ALL, `PREFIX prefix` or `ALL`, and which argument is the key.
pub(super) fn scope(command: &Command) -> Option<(Scope, Option<usize>)> {
    let says = |index: usize, word: &str| command.arg(index).eq_ignore_ascii_case(word.as_bytes());
    match command.len() {
        3 if says(2, "ALL") => Some((Scope::All, None)),
        3 => Some((Scope::Key(command.arg_bytes(2)), Some(2))),
        4 if says(2, "KEY") => Some((Scope::Key(command.arg_bytes(3)), Some(3))),
        4 if says(2, "PREFIX") => Some((Scope::Prefix(command.arg_bytes(3)), None)),
        _ => None,
    }
}

/// The scope of a purge.
pub fn purge_scope(command: &Command) -> Option<Scope> {
    scope(command).map(|(scope, _)| scope)
}

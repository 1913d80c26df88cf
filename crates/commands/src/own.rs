//! The commands that Redis does not have: `DISTCACHE` and its subcommands, as the table would describe them. Not what
//! they do.

use bytes::Bytes;
use wire::resp::Command;

use super::entry::command;
use super::spec::Category as Of;
use super::spec::Flag::{Admin, NoMulti};
use super::spec::{CommandGroup, CommandSpec};
use super::table;

/// How many commands there are: the table's and those here.
pub(crate) const COMMANDS_COUNT: usize = table::COMMANDS_COUNT + 1 + SUBCOMMANDS.len();
const FIRST: u16 = table::COMMANDS_COUNT as u16;

pub(super) static DISTCACHE: CommandSpec =
    command(FIRST, "distcache", -2, CommandGroup::Server).categories(&[Of::Slow]).subcommands(&SUBCOMMANDS);

static SUBCOMMANDS: [CommandSpec; 4] = [
    command(FIRST + 1, "distcache|help", 2, CommandGroup::Server).categories(&[Of::Slow]),
    administrative(FIRST + 2, "distcache|purge", -3),
    administrative(FIRST + 4, "distcache|slowlog", -2),
    administrative(FIRST + 3, "distcache|hotkeys", -2),
];

const fn administrative(number: u16, name: &'static str, arity: i16) -> CommandSpec {
    let categories = &[Of::Admin, Of::Slow, Of::Dangerous];
    command(number, name, arity, CommandGroup::Server).flags(&[Admin, NoMulti]).categories(categories)
}

/// Whose copies a purge drops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PurgeTarget {
    Key(Bytes),
    Prefix(Bytes),
    All,
}

/// `DISTCACHE PURGE key`, `KEY key` for one that is called ALL, `PREFIX prefix` or `ALL`, and which argument is the key.
pub(super) fn scope(command: &Command) -> Option<(PurgeTarget, Option<usize>)> {
    let says = |index: usize, word: &str| command.arg(index).eq_ignore_ascii_case(word.as_bytes());
    match command.len() {
        3 if says(2, "ALL") => Some((PurgeTarget::All, None)),
        3 => Some((PurgeTarget::Key(command.arg_bytes(2)), Some(2))),
        4 if says(2, "KEY") => Some((PurgeTarget::Key(command.arg_bytes(3)), Some(3))),
        4 if says(2, "PREFIX") => Some((PurgeTarget::Prefix(command.arg_bytes(3)), None)),
        _ => None,
    }
}

/// The scope of a purge.
pub fn purge_scope(command: &Command) -> Option<PurgeTarget> {
    scope(command).map(|(scope, _)| scope)
}

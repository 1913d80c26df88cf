//! The commands of storage that is a memcached: meta commands as frames, each name with a dot before it, so that no
//! command of Redis is called so. What the flags in them mean is memcached's business.

use super::entry::{command, keys, range};
use super::own;
use super::spec::Begin::Index;
use super::spec::Flag::{Readonly, Write};
use super::spec::KeyFlag::{Ro, Rw};
use super::spec::Tip::NondeterministicOutput;
use super::spec::{Category, CommandGroup, CommandSpec, KeySpec};

const FIRST: u16 = own::COMMANDS_COUNT as u16;
/// The table's, DistCache's own and those here.
pub(crate) const COMMANDS_COUNT: usize = own::COMMANDS_COUNT + NATIVE.len();

static NATIVE: [CommandSpec; 6] = [
    write(0, ".ma", -2),
    read(1, ".me"),
    // What it is asked for changes without a write: remaining time, time of the last use.
    read(2, ".mg"),
    // Gives a new expiry time, makes what is not there, or takes a mark.
    write(3, ".mgt", -3),
    write(4, ".ms", -3),
    write(5, ".md", -2),
];

const READ: &[KeySpec] = &[keys(&[Ro], Index(1), range(0, 1, 0))];
const WRITTEN: &[KeySpec] = &[keys(&[Rw], Index(1), range(0, 1, 0))];

const fn read(number: u16, name: &'static str) -> CommandSpec {
    command(FIRST + number, name, -2, CommandGroup::String)
        .flags(&[Readonly])
        .tips(&[NondeterministicOutput])
        .categories(&[Category::Read, Category::String])
        .keys(READ)
}

const fn write(number: u16, name: &'static str, arity: i16) -> CommandSpec {
    command(FIRST + number, name, arity, CommandGroup::String)
        .flags(&[Write])
        .categories(&[Category::Write, Category::String])
        .keys(WRITTEN)
}

/// The entry of a command whose name starts with a dot.
pub(super) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    NATIVE.iter().find(|spec| spec.name.as_bytes() == name)
}

/// Not part of Redis' table, but of its categories.
pub(crate) fn natives() -> impl Iterator<Item = &'static CommandSpec> {
    NATIVE.iter()
}

#[cfg(test)]
mod tests {
    use wire::resp::Command;

    use crate::{CommandKind, classify};

    #[test]
    fn what_changes_an_item_is_a_write_of_its_key() {
        for (line, kind) in [
            (".ma k", CommandKind::Write),
            (".ms k v", CommandKind::Write),
            (".md k", CommandKind::Write),
            (".mgt k T0", CommandKind::Write),
            (".mg k t", CommandKind::Query),
            (".me k", CommandKind::Query),
        ] {
            let classified = classify(&Command::from_args(&line.split(' ').collect::<Vec<_>>())).expect(line);
            assert_eq!((classified.kind, classified.keys.as_slice()), (kind, &[1][..]), "{line}");
        }
        assert!(classify(&Command::from_args(&[".mx", "k"])).is_err());
    }
}

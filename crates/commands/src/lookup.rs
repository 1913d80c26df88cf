//! Finds a command in the table, whatever its case, without allocating.

use super::native;
use super::own::DISTCACHE;
use super::spec::CommandSpec;
use super::table::TABLE;

/// Longer than any name in the table.
const NAME_BYTES_MAX: usize = 24;
/// Four times the names, so that most are found at the first probe.
const SLOTS: usize = 1024;
const EMPTY: u16 = u16::MAX;

static INDEX: [u16; SLOTS] = index();

/// The entry of GET.
pub(super) static GET: &CommandSpec = &TABLE[place_of(b"get")];
/// The entry of SET.
pub(super) static SET: &CommandSpec = &TABLE[place_of(b"set")];

const _: () = assert!(TABLE.len() * 2 < SLOTS, "lookups need empty slots to end");

/// The whole table: commands without subcommands, and containers.
pub fn all() -> &'static [CommandSpec] {
    TABLE
}

/// The table entry of a command without subcommands, or of a container.
pub fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    if name.first() == Some(&b'.') {
        return native::find(name);
    }
    let mut folded = [0; NAME_BYTES_MAX];
    for (to, from) in folded.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    let mut slot = slot(&folded, name.len());
    loop {
        let entry = INDEX[slot];
        if entry == EMPTY {
            return (&folded[..name.len()] == DISTCACHE.name.as_bytes()).then_some(&DISTCACHE);
        }
        let spec = &TABLE[usize::from(entry)];
        if spec.name.as_bytes() == &folded[..name.len()] {
            return Some(spec);
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The entry of a container's subcommand.
pub(super) fn find_subcommand(container: &'static CommandSpec, name: &[u8]) -> Option<&'static CommandSpec> {
    let prefix = container.name.len() + 1;
    container.subcommands.iter().find(|spec| spec.name.as_bytes()[prefix..].eq_ignore_ascii_case(name))
}

/// The entry with this full name, as `config|get`.
pub(crate) fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|&byte| byte == b'|') {
        None => find(name),
        Some(bar) => find_subcommand(find(&name[..bar])?, &name[bar + 1..]),
    }
}

/// Every command and container, in the order of their names.
pub(crate) fn containers() -> impl Iterator<Item = &'static CommandSpec> {
    TABLE.iter().chain(std::iter::once(&DISTCACHE))
}

/// Every command, container and subcommand.
pub fn specs() -> impl Iterator<Item = &'static CommandSpec> {
    containers().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands))
}

const fn slot(folded: &[u8; NAME_BYTES_MAX], length: usize) -> usize {
    let mut mixed = length as u64;
    let mut at = 0;
    while at < NAME_BYTES_MAX {
        let mut word = [0; 8];
        let mut byte = 0;
        while byte < 8 {
            word[byte] = folded[at + byte];
            byte += 1;
        }
        mixed = (mixed ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        at += 8;
    }
    (mixed >> 11) as usize % SLOTS
}

/// Panics, while it is compiled, on what is not in the table.
const fn place_of(name: &[u8]) -> usize {
    let mut entry = 0;
    loop {
        let known = TABLE[entry].name.as_bytes();
        let mut byte = 0;
        while byte < name.len() && byte < known.len() && known[byte] == name[byte] {
            byte += 1;
        }
        if byte == name.len() && byte == known.len() {
            return entry;
        }
        entry += 1;
    }
}

const fn index() -> [u16; SLOTS] {
    let mut index = [EMPTY; SLOTS];
    let mut entry = 0;
    while entry < TABLE.len() {
        let name = TABLE[entry].name.as_bytes();
        assert!(name.len() <= NAME_BYTES_MAX, "a name that no lookup would find");
        let mut folded = [0; NAME_BYTES_MAX];
        let mut byte = 0;
        while byte < name.len() {
            folded[byte] = name[byte];
            byte += 1;
        }
        let mut at = slot(&folded, name.len());
        while index[at] != EMPTY {
            at = (at + 1) % SLOTS;
        }
        index[at] = entry as u16;
        entry += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::{TABLE, find, find_subcommand};

    #[test]
    fn every_entry_is_found_by_its_name_in_any_case() {
        for spec in TABLE {
            for name in [spec.name.to_owned(), spec.name.to_uppercase()] {
                assert!(std::ptr::eq(find(name.as_bytes()).expect("in the table"), spec), "{name}");
            }
            for sub in spec.subcommands {
                let (_, name) = sub.name.split_once('|').expect("a subcommand's name");
                let found = find_subcommand(spec, name.to_uppercase().as_bytes()).expect("in the table");
                assert!(std::ptr::eq(found, sub), "{}", sub.name);
            }
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_not_found() {
        for name in
            ["", "ge", "gett", "config|get", "get\0", "\u{c7}et", "a-name-that-is-longer-than-any-of-them"]
        {
            assert!(find(name.as_bytes()).is_none(), "{name}");
        }
        assert_eq!(find(b"DistCache").map(|spec| spec.name), Some("distcache"));
        let config = find(b"config").expect("in the table");
        assert!(find_subcommand(config, b"").is_none());
        assert!(find_subcommand(config, b"getx").is_none());
    }
}

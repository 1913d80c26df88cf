//! Keys whose items in memcached are stale or being made anew, as far as they were made so here. Not their values.
//!
//! The first who reads such an item is told that it is his to make anew. They are not offered to nodes, whose fill, which
//! no client waits for, would be told instead.

use wire::Key;
use wire::resp::Command;

use super::Shim;
use super::reads::own;

/// Beyond it a fill may be the first to read an item that is marked, and no client is told that it is his turn.
const KEYS_MAX: usize = 1 << 16;

impl Shim {
    /// Notes what a write makes of its item.
    pub(super) fn note_marks(&mut self, command: &Command, key: Option<&Key>) {
        let Some(key) = key.filter(|_| command.name().first() == Some(&b'.')) else { return };
        let flag = |from, letters: &[u8]| {
            command.args().skip(from).any(|flag| flag.first().is_some_and(|letter| letters.contains(letter)))
        };
        let marks = match command.name() {
            b".mgt" => flag(2, b"NR"),
            b".md" => flag(2, b"I"),
            // Its value comes before its flags.
            b".ms" => flag(3, b"I"),
            _ => return,
        };
        if !marks && !self.marked.is_empty() && command.name() != b".mgt" {
            self.marked.remove(key);
        }
        if marks && self.marked.len() < KEYS_MAX {
            self.marked.insert(own(key), ());
        }
    }

    pub(super) fn is_marked(&self, key: &Key) -> bool {
        !self.marked.is_empty() && self.marked.contains_key(key)
    }
}

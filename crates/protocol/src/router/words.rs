//! The words of a client's command, compared as Redis compares them. Not what they mean.

use smallvec::SmallVec;
use wire::resp::Command;

/// Whether the argument of this place is `name`, in letters of any size.
pub(crate) fn is(command: &Command, argument: usize, name: &str) -> bool {
    argument < command.len() && command.arg(argument).eq_ignore_ascii_case(name.as_bytes())
}

pub(crate) fn upper(name: &[u8]) -> SmallVec<[u8; 24]> {
    name.iter().map(u8::to_ascii_uppercase).collect()
}

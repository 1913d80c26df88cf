//! The DISTCACHE command as far as the router answers it itself. What concerns copies goes to the shims.

use bytes::Bytes;
use wire::resp::{Command, reply};

use crate::router::{plan, replies};

const HELP: [&str; 10] = [
    "DISTCACHE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "PURGE <key>",
    "PURGE KEY <key>",
    "    Drop the cached copies of a key, not its data. Return how many there were.",
    "PURGE PREFIX <prefix>",
    "    The same for all keys that begin with the prefix.",
    "PURGE ALL",
    "    The same for all keys.",
    "HELP",
    "    Print this help.",
];

pub(crate) fn answer(command: &Command) -> Bytes {
    if plan::is(command, 1, "HELP") {
        return lines(&HELP);
    }
    replies::error("ERR wrong number of arguments for 'distcache' command")
}

fn lines(lines: &[&str]) -> Bytes {
    let mut out = Vec::new();
    replies::array_header(lines.len(), &mut out);
    lines.iter().for_each(|line| reply::simple(line.as_bytes(), &mut out));
    out.into()
}

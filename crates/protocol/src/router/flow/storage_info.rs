//! The sections of INFO that storage knows, of all its servers together. Not the router's own sections.

use std::fmt::Write;

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::reply::PartReply;
use crate::router::{replies, words};

const SECTIONS: [&str; 3] = ["memory", "persistence", "keyspace"];
/// Counts of what every server has a copy of, because it is loaded at all together.
const EVERYWHERE: [&str; 3] = ["number_of_cached_scripts", "number_of_functions", "number_of_libraries"];

/// The sections that an INFO asks storage for.
pub(crate) fn wanted(command: &Command) -> impl Iterator<Item = &'static str> {
    SECTIONS.into_iter().filter(|section| {
        let names = ["all", "default", "everything", section];
        command.len() == 1
            || (1..command.len()).any(|index| names.iter().any(|name| words::is(command, index, name)))
    })
}

/// One INFO text. Servers that answered an error are left out.
pub(crate) fn together(own: &str, parts: &[PartReply], resp3: bool) -> Bytes {
    let texts = parts.iter().filter(|part| !part.is_error()).filter_map(|part| text(&part.value));
    let servers: Vec<&str> = texts.collect();
    let mut out = own.to_owned();
    let Some((first, others)) = servers.split_first() else { return replies::verbatim(own, resp3) };
    for line in first.lines() {
        if line.starts_with('#') {
            let blank = if out.is_empty() { "" } else { "\r\n" };
            // Writing to a String cannot fail.
            let _ = write!(out, "{blank}{line}\r\n");
        } else if let Some((field, value)) = line.split_once(':')
            && let Some(value) = merged(field, value, others)
        {
            let _ = write!(out, "{field}:{value}\r\n");
        }
    }
    // A database that only other servers have.
    for line in others.iter().flat_map(|other| other.lines()) {
        if let Some((field, _)) = line.split_once(':')
            && field.starts_with("db")
            && !out.contains(&format!("\r\n{field}:"))
        {
            let value = merged(field, "keys=0,expires=0,avg_ttl=0", others).unwrap_or_default();
            let _ = write!(out, "{field}:{value}\r\n");
        }
    }
    replies::verbatim(&out, resp3)
}

/// The text of a bulk or verbatim string.
fn text(reply: &[u8]) -> Option<&str> {
    let start = reply.iter().position(|&byte| byte == b'\n')? + 1;
    let body = reply.get(start..reply.len().checked_sub(2)?)?;
    let body = if reply.starts_with(b"=") { body.get(4..)? } else { body };
    std::str::from_utf8(body).ok()
}

/// Numbers are summed, or the largest is taken of what every server has. Anything else is told only where all say the same.
fn merged(field: &str, value: &str, others: &[&str]) -> Option<String> {
    let values = || std::iter::once(value).chain(others.iter().filter_map(|other| value_of(other, field)));
    if field.starts_with("db") && value.starts_with("keys=") {
        return Some(database(values()));
    }
    if EVERYWHERE.contains(&field) {
        return values().filter_map(|value| value.parse::<u64>().ok()).max().map(|most| most.to_string());
    }
    if let Some(sum) = values().map(|value| value.parse::<i64>().ok()).sum::<Option<i64>>() {
        return Some(sum.to_string());
    }
    values().all(|other| other == value).then(|| value.to_owned())
}

fn value_of<'a>(text: &'a str, field: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}

/// `keys=1,expires=2,avg_ttl=3` of several servers; the mean weighs each by its keys that expire.
fn database<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let (mut keys, mut expires, mut time) = (0u64, 0u64, 0u64);
    for value in values {
        let number = |name: &str| {
            let found = value.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            found.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        };
        keys += number("keys");
        expires += number("expires");
        time = time.saturating_add(number("avg_ttl").saturating_mul(number("expires")));
    }
    let mean = time.checked_div(expires).unwrap_or(0);
    format!("keys={keys},expires={expires},avg_ttl={mean}")
}

#[cfg(test)]
mod tests {
    use wire::Status;

    use super::*;

    fn part(text: &str) -> PartReply {
        PartReply { status: Status::Ok, value: format!("${}\r\n{text}\r\n", text.len()).into() }
    }

    fn check(parts: &[PartReply], expected: &str) {
        let reply = together("# Server\r\na:1\r\n", parts, false);
        assert_eq!(text(&reply), Some(expected), "{reply:?}");
    }

    #[test]
    fn one_server_is_told_as_it_is() {
        let own = "# Memory\r\nused_memory:7\r\nused_memory_human:7B\r\n\r\n# Keyspace\r\n";
        check(&[part(own)], &format!("# Server\r\na:1\r\n\r\n{own}"));
    }

    #[test]
    fn several_servers_are_summed() {
        let first = "# Memory\r\nused_memory:7\r\nused_memory_human:7B\r\npolicy:none\r\n\r\n# Keyspace\r\n\
                     db0:keys=3,expires=1,avg_ttl=100\r\n";
        let second = "# Memory\r\nused_memory:2\r\nused_memory_human:2B\r\npolicy:none\r\n\r\n# Keyspace\r\n\
                      db0:keys=1,expires=3,avg_ttl=200\r\ndb1:keys=1,expires=0,avg_ttl=0\r\n";
        check(
            &[part(first), part(second)],
            "# Server\r\na:1\r\n\r\n# Memory\r\nused_memory:9\r\npolicy:none\r\n\r\n# Keyspace\r\n\
             db0:keys=4,expires=4,avg_ttl=175\r\ndb1:keys=1,expires=0,avg_ttl=0\r\n",
        );
    }

    #[test]
    fn a_script_that_every_server_has_is_one() {
        let memory = |scripts| part(&format!("# Memory\r\nnumber_of_cached_scripts:{scripts}\r\n"));
        check(
            &[memory(2), memory(3), memory(2)],
            "# Server\r\na:1\r\n\r\n# Memory\r\nnumber_of_cached_scripts:3\r\n",
        );
    }

    #[test]
    fn servers_that_fail_or_talk_nonsense_are_left_out() {
        let error = PartReply { status: Status::Error, value: "-LOADING\r\n".into() };
        let nonsense = PartReply { status: Status::Ok, value: "$".into() };
        check(&[error, nonsense], "# Server\r\na:1\r\n");
    }
}

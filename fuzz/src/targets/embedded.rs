//! Commands as the embedded storage runs them: each has one whole reply that can be read, whatever its arguments.

use bytes::Bytes;
use shim::storage::embedded::{Embedded, StoreClock};
use wire::resp::{Command, ReplyScanner, RespLimits, Value, take_command};

/// SETRANGE makes strings as long as Redis does: up to 512 MiB, which no bound by the input could allow.
const OFFSET_DIGITS_MAX: usize = 5;

pub(crate) fn run(data: &[u8]) {
    let Some((&step, stream)) = data.split_first() else { return };
    let mut storage = Embedded::new(1);
    let mut now = 1_000_000;
    let mut rest = Bytes::copy_from_slice(stream);
    while let Ok(Some(command)) = take_command(&mut rest, &RespLimits::default()) {
        if command.name().eq_ignore_ascii_case(b"setrange")
            && command.get(2).is_some_and(|offset| offset.len() > OFFSET_DIGITS_MAX)
        {
            continue;
        }
        now += i64::from(step);
        for resp3 in [false, true] {
            let clock = StoreClock { now, unix: 1_700_000_000_000 + now };
            check(&command, storage.execute(clock, &command, resp3));
        }
        storage.expire(now);
    }
}

fn check(command: &Command, reply: Bytes) {
    let length = ReplyScanner::new().scan(&reply);
    assert_eq!(length, Ok(Some(reply.len())), "{command:?} has no whole reply: {}", reply.escape_ascii());
    assert!(Value::parse(&reply).is_ok(), "{command:?}: {}", reply.escape_ascii());
}

//! One command under execution: its arguments, the time, and the reply being written. Not its meaning.

use std::borrow::Cow;

use wire::resp::{Command, reply};

use super::number;

/// The store's own clock, which never steps, and the wall clock, in milliseconds. Their distance stays the same while a store
/// lives, or times to live would change.
#[derive(Clone, Copy, Debug)]
pub struct StoreClock {
    pub now: i64,
    pub unix: i64,
}

impl StoreClock {
    /// From a point of wall-clock time to one of the store's.
    pub(super) fn deadline(self, unix: i64) -> i64 {
        unix.saturating_sub(self.unix.saturating_sub(self.now))
    }

    pub(super) fn unix(self, deadline: i64) -> i64 {
        deadline.saturating_add(self.unix.saturating_sub(self.now))
    }
}

/// An error reply without its leading dash.
pub(super) struct CallFault(Cow<'static, [u8]>);

pub(super) type CallOutcome = Result<(), CallFault>;

pub(super) const SYNTAX: CallFault = CallFault(Cow::Borrowed(b"ERR syntax error"));
pub(super) const NOT_AN_INTEGER: CallFault =
    CallFault(Cow::Borrowed(b"ERR value is not an integer or out of range"));
pub(super) const NO_SUCH_KEY: CallFault = CallFault(Cow::Borrowed(b"ERR no such key"));
pub(super) const TOO_LONG: CallFault =
    CallFault(Cow::Borrowed(b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
const DATABASE_OUT_OF_RANGE: CallFault = CallFault(Cow::Borrowed(b"ERR DB index is out of range"));
const NOT_32_BITS: CallFault =
    CallFault(Cow::Borrowed(b"ERR value is out of range, value must between -2147483648 and 2147483647"));

/// Redis' `proto-max-bulk-len`.
pub(super) const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

impl CallFault {
    pub(super) fn text(text: impl Into<String>) -> CallFault {
        CallFault(Cow::Owned(text.into().into_bytes()))
    }

    /// With a client's argument in the middle, whose bytes are repeated up to a zero byte, as Redis does.
    pub(super) fn quoting(before: &str, argument: &[u8], after: &str) -> CallFault {
        let shown = argument.iter().take_while(|&&byte| byte != 0).copied();
        CallFault(before.bytes().chain(shown).chain(after.bytes()).collect())
    }

    pub(super) fn expire_time(command: &str) -> CallFault {
        CallFault::text(format!("ERR invalid expire time in '{command}' command"))
    }

    pub(super) fn arity(command: &str) -> CallFault {
        CallFault::text(format!("ERR wrong number of arguments for '{command}' command"))
    }
}

pub(super) struct EmbeddedCall<'a> {
    pub(super) command: &'a Command,
    /// In lower case, as errors name it.
    pub(super) name: &'static str,
    pub(super) clock: StoreClock,
    pub(super) random: u64,
    pub(super) reply: CallReply,
}

impl<'a> EmbeddedCall<'a> {
    pub(super) fn len(&self) -> usize {
        self.command.len()
    }

    pub(super) fn arg(&self, index: usize) -> &'a [u8] {
        self.command.arg(index)
    }

    pub(super) fn integer(&self, index: usize) -> Result<i64, CallFault> {
        number::parse_integer(self.arg(index)).ok_or(NOT_AN_INTEGER)
    }

    /// The number of a database, of which there is one.
    pub(super) fn database(&self, index: usize) -> CallOutcome {
        match i32::try_from(self.integer(index)?) {
            Ok(0) => Ok(()),
            Ok(_) => Err(DATABASE_OUT_OF_RANGE),
            Err(_) => Err(NOT_32_BITS),
        }
    }

    /// The error for a subcommand that Redis has (`known`) and this store does not, or that nobody has.
    pub(super) fn subcommand_fault(&self, known: &[&str]) -> CallFault {
        if known.iter().any(|known| self.is(1, known)) {
            return super::not_served(self.name);
        }
        let after = format!("'. Try {} HELP.", self.name.to_uppercase());
        let given = self.arg(1);
        // Redis formats this one with `%.128s`.
        CallFault::quoting("ERR unknown subcommand '", &given[..given.len().min(128)], &after)
    }

    pub(super) fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }
}

/// The reply's bytes in the RESP version of the connection.
pub(super) struct CallReply {
    pub(super) bytes: Vec<u8>,
    pub(super) resp3: bool,
}

impl CallReply {
    pub(super) fn new(resp3: bool) -> CallReply {
        CallReply { bytes: Vec::new(), resp3 }
    }

    pub(super) fn simple(&mut self, text: &str) {
        reply::simple(text.as_bytes(), &mut self.bytes);
    }

    pub(super) fn ok(&mut self) {
        self.bytes.extend_from_slice(reply::OK);
    }

    pub(super) fn error(&mut self, fault: &CallFault) {
        reply::error(&fault.0, &mut self.bytes);
    }

    pub(super) fn integer(&mut self, value: i64) {
        reply::integer(value, &mut self.bytes);
    }

    pub(super) fn boolean(&mut self, value: bool) {
        self.integer(i64::from(value));
    }

    pub(super) fn bulk(&mut self, value: &[u8]) {
        reply::bulk(value, &mut self.bytes);
    }

    pub(super) fn null(&mut self) {
        reply::null(self.resp3, &mut self.bytes);
    }

    pub(super) fn array(&mut self, len: usize) {
        reply::array_header(len, &mut self.bytes);
    }

    pub(super) fn empty_map(&mut self) {
        reply::map_header(0, self.resp3, &mut self.bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        reply::verbatim(text.as_bytes(), self.resp3, &mut self.bytes);
    }
}

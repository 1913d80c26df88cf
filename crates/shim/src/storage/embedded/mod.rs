//! Storage in this process: strings, counters, expiry and keys, replies as Redis'. Not where the keys are.

mod call;
mod keys;
pub mod keyspace;
mod number;
mod server;
mod strings;
pub mod table;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use wire::resp::Command;

pub use call::StoreClock;
use call::{CallFault, CallOutcome, CallReply, EmbeddedCall};
use keyspace::Keyspace;
use table::KeyTable;

/// Objects removed at most before a command: expiry of many at once must not stall one command.
const EXPIRED_PER_COMMAND_MAX: usize = 16;
const EXPIRED_PER_TICK_MAX: usize = 10_000;

/// Longer than the longest name in the table.
const NAME_BYTES_MAX: usize = 16;

/// An embedded store over keys in memory, or over others.
pub struct Embedded<K = KeyTable> {
    keys: K,
    random: SmallRng,
}

type RunCommand = fn(&mut dyn Keyspace, &mut EmbeddedCall<'_>) -> CallOutcome;

/// Name, arity as in Redis' command table (negative: at least), and what it does; sorted by name.
const COMMANDS: &[(&str, i32, RunCommand)] = &[
    ("append", 3, strings::append),
    ("command", -1, server::command),
    ("config", -2, server::config),
    ("copy", -3, keys::copy),
    ("dbsize", 1, keys::dbsize),
    ("decr", 2, strings::increment),
    ("decrby", 3, strings::increment),
    ("del", -2, keys::delete),
    ("echo", 2, server::echo),
    ("exists", -2, keys::exists),
    ("expire", -3, keys::expire),
    ("expireat", -3, keys::expire),
    ("expiretime", 2, keys::ttl),
    ("flushall", -1, keys::flush),
    ("flushdb", -1, keys::flush),
    ("get", 2, strings::get),
    ("getdel", 2, strings::getdel),
    ("getex", -2, strings::getex),
    ("getrange", 4, strings::getrange),
    ("getset", 3, strings::getset),
    ("incr", 2, strings::increment),
    ("incrby", 3, strings::increment),
    ("incrbyfloat", 3, strings::increment_float),
    ("info", -1, server::info),
    ("keys", 2, keys::keys),
    ("mget", -2, strings::mget),
    ("mset", -3, strings::mset),
    ("msetnx", -3, strings::mset),
    ("object", -2, keys::object),
    ("persist", 2, keys::persist),
    ("pexpire", -3, keys::expire),
    ("pexpireat", -3, keys::expire),
    ("pexpiretime", 2, keys::ttl),
    ("ping", -1, server::ping),
    ("psetex", 4, strings::setex),
    ("pttl", 2, keys::ttl),
    ("randomkey", 1, keys::randomkey),
    ("rename", 3, keys::rename),
    ("renamenx", 3, keys::rename),
    ("scan", -2, keys::scan),
    ("select", 2, server::select),
    ("set", -3, strings::set),
    ("setex", 4, strings::setex),
    ("setnx", 3, strings::setnx),
    ("setrange", 4, strings::setrange),
    ("strlen", 2, strings::strlen),
    ("substr", 4, strings::getrange),
    ("time", 1, server::time),
    ("touch", -2, keys::exists),
    ("ttl", 2, keys::ttl),
    ("type", 2, keys::type_of),
    ("unlink", -2, keys::delete),
];

impl Embedded {
    pub fn new(seed: u64) -> Embedded {
        Embedded::over(KeyTable::default(), seed)
    }
}

impl<K: Keyspace> Embedded<K> {
    pub(crate) fn over(keys: K, seed: u64) -> Embedded<K> {
        Embedded { keys, random: SmallRng::seed_from_u64(seed) }
    }

    pub(crate) fn keys(&mut self) -> &mut K {
        &mut self.keys
    }

    /// Runs one command and gives its complete reply.
    pub fn execute(&mut self, clock: StoreClock, command: &Command, resp3: bool) -> Bytes {
        self.keys.expire(clock.now, EXPIRED_PER_COMMAND_MAX);
        let outcome = self.run(clock, command, CallReply::new(resp3));
        let outcome = match self.keys.fault() {
            Some(fault) => Err(CallFault::text(fault)),
            None => outcome,
        };
        let reply = outcome.unwrap_or_else(|fault| {
            let mut reply = CallReply::new(resp3);
            reply.error(&fault);
            reply
        });
        Bytes::from(reply.bytes)
    }

    /// Removes what has expired, so that keys nobody asks for do not stay for ever.
    pub fn expire(&mut self, now: i64) {
        self.keys.expire(now, EXPIRED_PER_TICK_MAX);
    }

    fn run(
        &mut self,
        clock: StoreClock,
        command: &Command,
        reply: CallReply,
    ) -> Result<CallReply, CallFault> {
        let mut lower = [0u8; NAME_BYTES_MAX];
        let given = command.name();
        let name = match lower.get_mut(..given.len()) {
            Some(name) => {
                name.copy_from_slice(given);
                name.make_ascii_lowercase();
                &*name
            }
            None => given,
        };
        let Ok(found) = COMMANDS.binary_search_by(|entry| entry.0.as_bytes().cmp(name)) else {
            return Err(not_served(&String::from_utf8_lossy(name)));
        };
        let (name, arity, run) = COMMANDS[found];
        let wanted = arity.unsigned_abs() as usize;
        if command.len() < wanted || (arity > 0 && command.len() > wanted) {
            return Err(CallFault::arity(name));
        }
        let mut call = EmbeddedCall { command, name, clock, random: self.random.random(), reply };
        run(&mut self.keys, &mut call)?;
        Ok(call.reply)
    }
}

/// The error for everything that this store does not do.
fn not_served(command: &str) -> CallFault {
    CallFault::text(format!(
        "ERR the embedded storage does not serve '{command}': it has strings, counters, expiry and key \
         commands; for the others use `--storage redis` (in a configuration: storage = \"redis://...\")"
    ))
}

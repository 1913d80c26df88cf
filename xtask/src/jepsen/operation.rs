//! One command on one key as a client saw it: what was asked, when, and what came of it. Not whether that is right.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JepsenAction {
    Get,
    Strlen,
    /// With a time to live in milliseconds, perhaps.
    Set(String, Option<u64>),
    Incr,
    /// Two INCR of one transaction.
    IncrTwice,
    /// Sets it to the second if it is the first; a transaction behind WATCH, or a script.
    Swap(Option<String>, String),
    Append(String),
    /// memcached's: sets only what is absent.
    Add(String),
    /// memcached's append, which does nothing to what is absent.
    Extend(String),
    Del,
    Pexpire(u64),
    Hset(String, String),
    Hget(String),
    Hgetall,
    Hlen,
    Lpush(String),
    Lpop,
    Llen,
    Lrange,
    Sadd(String),
    Srem(String),
    Sismember(String),
    Scard,
    Smembers,
}

/// In how many commands an action is worded, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wording {
    Plain,
    /// Between MULTI and EXEC.
    Transaction,
    Script,
}

impl JepsenAction {
    pub(super) fn reads(&self) -> bool {
        matches!(
            self,
            JepsenAction::Get
                | JepsenAction::Strlen
                | JepsenAction::Hget(_)
                | JepsenAction::Hgetall
                | JepsenAction::Hlen
                | JepsenAction::Llen
                | JepsenAction::Lrange
                | JepsenAction::Sismember(_)
                | JepsenAction::Scard
                | JepsenAction::Smembers
        )
    }

    /// The command's arguments, of those that Redis has.
    pub(super) fn arguments<'a>(&'a self, key: &'a str) -> Vec<String> {
        let mut arguments = match self {
            JepsenAction::Get => vec!["GET", key],
            JepsenAction::Strlen => vec!["STRLEN", key],
            JepsenAction::Set(value, _) => vec!["SET", key, value],
            JepsenAction::Incr | JepsenAction::IncrTwice => vec!["INCR", key],
            JepsenAction::Swap(_, value) => vec!["SET", key, value],
            JepsenAction::Append(value) => vec!["APPEND", key, value],
            JepsenAction::Add(value) => vec!["ADD", key, value],
            JepsenAction::Extend(value) => vec!["EXTEND", key, value],
            JepsenAction::Del => vec!["DEL", key],
            JepsenAction::Pexpire(_) => vec!["PEXPIRE", key],
            JepsenAction::Hset(field, value) => vec!["HSET", key, field, value],
            JepsenAction::Hget(field) => vec!["HGET", key, field],
            JepsenAction::Hgetall => vec!["HGETALL", key],
            JepsenAction::Hlen => vec!["HLEN", key],
            JepsenAction::Lpush(value) => vec!["LPUSH", key, value],
            JepsenAction::Lpop => vec!["LPOP", key],
            JepsenAction::Llen => vec!["LLEN", key],
            JepsenAction::Lrange => vec!["LRANGE", key, "0", "-1"],
            JepsenAction::Sadd(member) => vec!["SADD", key, member],
            JepsenAction::Srem(member) => vec!["SREM", key, member],
            JepsenAction::Sismember(member) => vec!["SISMEMBER", key, member],
            JepsenAction::Scard => vec!["SCARD", key],
            JepsenAction::Smembers => vec!["SMEMBERS", key],
        }
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<String>>();
        match self {
            JepsenAction::Set(_, Some(ttl)) => arguments.extend(["PX".to_owned(), ttl.to_string()]),
            JepsenAction::Pexpire(ttl) => arguments.push(ttl.to_string()),
            _ => {}
        }
        arguments
    }

    /// All commands of the action in this wording.
    pub(super) fn commands(&self, key: &str, wording: Wording) -> Vec<Vec<String>> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
        match (wording, self) {
            (Wording::Plain, _) => vec![self.arguments(key)],
            (Wording::Transaction, _) => {
                let times = if *self == JepsenAction::IncrTwice { 2 } else { 1 };
                let inner = std::iter::repeat_n(self.arguments(key), times);
                [words(&["MULTI"])].into_iter().chain(inner).chain([words(&["EXEC"])]).collect()
            }
            (Wording::Script, JepsenAction::Swap(Some(expected), value)) => {
                vec![words(&["EVAL", SWAP, "1", key, expected, value])]
            }
            // The name comes first, then the key, then the rest.
            (Wording::Script, _) => {
                let mut arguments = self.arguments(key);
                let call = format!("return redis.call('{}', KEYS[1], unpack(ARGV))", arguments.remove(0));
                vec![words(&["EVAL", &call, "1"]).into_iter().chain(arguments).collect()]
            }
        }
    }
}

const SWAP: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end; redis.call('SET', KEYS[1], ARGV[2]); return 1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JepsenOutcome {
    Pending,
    /// The reply, written as the models write it.
    Told(String),
    /// It may take effect at any time from its call on, or never.
    Unknown,
    /// It had no effect, or its reply says nothing.
    Void,
}

/// Times are microseconds since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct JepsenOperation {
    pub(super) what: JepsenAction,
    pub(super) call: u64,
    pub(super) returned: u64,
    pub(super) outcome: JepsenOutcome,
    /// The index of the command on this key that the same connection sent before, in the same pipeline.
    pub(super) after: Option<usize>,
    /// Who sent it, for people.
    pub(super) client: usize,
}

impl JepsenOperation {
    pub(super) fn begun(
        what: JepsenAction,
        call: u64,
        after: Option<usize>,
        client: usize,
    ) -> JepsenOperation {
        JepsenOperation { what, call, returned: u64::MAX, outcome: JepsenOutcome::Pending, after, client }
    }
}

/// The whole life of a key, once it is over.
#[derive(Clone, Debug)]
pub(super) struct JepsenHistory {
    pub(super) id: u64,
    pub(super) key: String,
    pub(super) operations: Vec<JepsenOperation>,
}

impl JepsenHistory {
    /// Leaves out what says nothing. A pipeline's earlier command binds a later one only if it was answered.
    pub(super) fn new(id: u64, key: String, operations: &[JepsenOperation]) -> JepsenHistory {
        let kept = |index: &usize| operations[*index].outcome != JepsenOutcome::Void;
        let indices: Vec<usize> = (0..operations.len()).filter(kept).collect();
        let place = |index: usize| match operations[index].outcome {
            JepsenOutcome::Told(_) => indices.binary_search(&index).ok(),
            _ => None,
        };
        let operations = indices.iter().map(|&index| {
            let operation = operations[index].clone();
            let outcome = match operation.outcome {
                JepsenOutcome::Pending => JepsenOutcome::Unknown,
                outcome => outcome,
            };
            JepsenOperation { after: operation.after.and_then(place), outcome, ..operation }
        });
        JepsenHistory { id, key, operations: operations.collect() }
    }

    /// One line a command, marked where `explained` does not have it.
    pub(super) fn text(&self, explained: &[usize]) -> String {
        let mut text = format!(
            "history {} of key {:?}; times in microseconds; * where no order goes on\n",
            self.id, self.key
        );
        for (index, operation) in self.operations.iter().enumerate() {
            let mark = if explained.contains(&index) { ' ' } else { '*' };
            let JepsenOperation { what, call, returned, outcome, after, client } = operation;
            let end = if *outcome == JepsenOutcome::Unknown { "?".to_owned() } else { returned.to_string() };
            let reply = match outcome {
                JepsenOutcome::Told(reply) => reply.as_str(),
                _ => "unknown",
            };
            let after = after.map(|after| format!(" after {after}")).unwrap_or_default();
            text.push_str(&format!(
                "{mark} {index:4}  {call:>10}..{end:<10}  client {client:<2}  {what:?} = {reply}{after}\n"
            ));
        }
        text
    }
}

/// What a member of a set has for a value where sets are told as hashes.
pub(super) const MEMBER: &str = "1";

/// An operation as the independent checker reads it.
#[derive(Serialize)]
pub(super) struct Record<'a> {
    what: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    call: u64,
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    returned: Option<u64>,
    reply: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<usize>,
}

impl<'a> From<&'a JepsenOperation> for Record<'a> {
    fn from(operation: &'a JepsenOperation) -> Record<'a> {
        let (what, field, value, ttl) = match &operation.what {
            JepsenAction::Get => ("get", "", "", None),
            JepsenAction::Strlen => ("strlen", "", "", None),
            JepsenAction::Set(value, ttl) => ("set", "", value.as_str(), *ttl),
            JepsenAction::Incr => ("incr", "", "", None),
            JepsenAction::IncrTwice => ("incrtwice", "", "", None),
            JepsenAction::Swap(None, value) => ("create", "", value.as_str(), None),
            JepsenAction::Swap(Some(expected), value) => ("swap", expected.as_str(), value.as_str(), None),
            JepsenAction::Append(value) => ("append", "", value.as_str(), None),
            JepsenAction::Add(value) => ("add", "", value.as_str(), None),
            JepsenAction::Extend(value) => ("extend", "", value.as_str(), None),
            JepsenAction::Del => ("del", "", "", None),
            JepsenAction::Pexpire(ttl) => ("pexpire", "", "", Some(*ttl)),
            JepsenAction::Hset(field, value) => ("hset", field.as_str(), value.as_str(), None),
            JepsenAction::Hget(field) => ("hget", field.as_str(), "", None),
            JepsenAction::Hgetall => ("hgetall", "", "", None),
            JepsenAction::Hlen | JepsenAction::Scard => ("hlen", "", "", None),
            JepsenAction::Lpush(value) => ("lpush", "", value.as_str(), None),
            JepsenAction::Lpop => ("lpop", "", "", None),
            JepsenAction::Llen => ("llen", "", "", None),
            JepsenAction::Lrange => ("lrange", "", "", None),
            // A set is a hash whose fields are all the same.
            JepsenAction::Sadd(member) => ("hset", member.as_str(), MEMBER, None),
            JepsenAction::Srem(member) => ("hdel", member.as_str(), "", None),
            JepsenAction::Sismember(member) => ("hget", member.as_str(), "", None),
            JepsenAction::Smembers => ("hgetall", "", "", None),
        };
        let (returned, reply) = match &operation.outcome {
            JepsenOutcome::Told(reply) => (Some(operation.returned), reply.as_str()),
            _ => (None, ""),
        };
        Record { what, field, value, ttl, call: operation.call, returned, reply, after: operation.after }
    }
}

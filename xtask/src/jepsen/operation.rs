//! One command on one key as a client saw it: what was asked, when, and what came of it. Not whether that is right.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Get,
    Strlen,
    /// With a time to live in milliseconds, perhaps.
    Set(String, Option<u64>),
    Incr,
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
}

impl What {
    pub(super) fn reads(&self) -> bool {
        matches!(self, What::Get | What::Strlen | What::Hget(_) | What::Hgetall | What::Hlen)
    }

    /// The command's arguments, of those that Redis has.
    pub(super) fn arguments<'a>(&'a self, key: &'a str) -> Vec<String> {
        let mut arguments = match self {
            What::Get => vec!["GET", key],
            What::Strlen => vec!["STRLEN", key],
            What::Set(value, _) => vec!["SET", key, value],
            What::Incr => vec!["INCR", key],
            What::Append(value) => vec!["APPEND", key, value],
            What::Add(value) => vec!["ADD", key, value],
            What::Extend(value) => vec!["EXTEND", key, value],
            What::Del => vec!["DEL", key],
            What::Pexpire(_) => vec!["PEXPIRE", key],
            What::Hset(field, value) => vec!["HSET", key, field, value],
            What::Hget(field) => vec!["HGET", key, field],
            What::Hgetall => vec!["HGETALL", key],
            What::Hlen => vec!["HLEN", key],
        }
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<String>>();
        match self {
            What::Set(_, Some(ttl)) => arguments.extend(["PX".to_owned(), ttl.to_string()]),
            What::Pexpire(ttl) => arguments.push(ttl.to_string()),
            _ => {}
        }
        arguments
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
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
pub(super) struct Operation {
    pub(super) what: What,
    pub(super) call: u64,
    pub(super) returned: u64,
    pub(super) outcome: Outcome,
    /// The index of the command on this key that the same connection sent before, in the same pipeline.
    pub(super) after: Option<usize>,
    /// Who sent it, for people.
    pub(super) client: usize,
}

impl Operation {
    pub(super) fn begun(what: What, call: u64, after: Option<usize>, client: usize) -> Operation {
        Operation { what, call, returned: u64::MAX, outcome: Outcome::Pending, after, client }
    }
}

/// The whole life of a key, once it is over.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) id: u64,
    pub(super) key: String,
    pub(super) operations: Vec<Operation>,
}

impl History {
    /// Leaves out what says nothing. A pipeline's earlier command binds a later one only if it was answered.
    pub(super) fn new(id: u64, key: String, operations: &[Operation]) -> History {
        let kept = |index: &usize| operations[*index].outcome != Outcome::Void;
        let indices: Vec<usize> = (0..operations.len()).filter(kept).collect();
        let place = |index: usize| match operations[index].outcome {
            Outcome::Told(_) => indices.binary_search(&index).ok(),
            _ => None,
        };
        let operations = indices.iter().map(|&index| {
            let operation = operations[index].clone();
            let outcome = match operation.outcome {
                Outcome::Pending => Outcome::Unknown,
                outcome => outcome,
            };
            Operation { after: operation.after.and_then(place), outcome, ..operation }
        });
        History { id, key, operations: operations.collect() }
    }

    /// One line a command, marked where `explained` does not have it.
    pub(super) fn text(&self, explained: &[usize]) -> String {
        let mut text = format!(
            "history {} of key {:?}; times in microseconds; * where no order goes on\n",
            self.id, self.key
        );
        for (index, operation) in self.operations.iter().enumerate() {
            let mark = if explained.contains(&index) { ' ' } else { '*' };
            let Operation { what, call, returned, outcome, after, client } = operation;
            let end = if *outcome == Outcome::Unknown { "?".to_owned() } else { returned.to_string() };
            let reply = match outcome {
                Outcome::Told(reply) => reply.as_str(),
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

impl<'a> From<&'a Operation> for Record<'a> {
    fn from(operation: &'a Operation) -> Record<'a> {
        let (what, field, value, ttl) = match &operation.what {
            What::Get => ("get", "", "", None),
            What::Strlen => ("strlen", "", "", None),
            What::Set(value, ttl) => ("set", "", value.as_str(), *ttl),
            What::Incr => ("incr", "", "", None),
            What::Append(value) => ("append", "", value.as_str(), None),
            What::Add(value) => ("add", "", value.as_str(), None),
            What::Extend(value) => ("extend", "", value.as_str(), None),
            What::Del => ("del", "", "", None),
            What::Pexpire(ttl) => ("pexpire", "", "", Some(*ttl)),
            What::Hset(field, value) => ("hset", field.as_str(), value.as_str(), None),
            What::Hget(field) => ("hget", field.as_str(), "", None),
            What::Hgetall => ("hgetall", "", "", None),
            What::Hlen => ("hlen", "", "", None),
        };
        let (returned, reply) = match &operation.outcome {
            Outcome::Told(reply) => (Some(operation.returned), reply.as_str()),
            _ => (None, ""),
        };
        Record { what, field, value, ttl, call: operation.call, returned, reply, after: operation.after }
    }
}

//! One key as its clients may imagine it: a text or a hash that may expire. Our own model; porcupine has another.

use std::collections::BTreeMap;

use super::operation::{JepsenAction, JepsenOperation, JepsenOutcome};

/// What the key may hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Content {
    Absent,
    /// The window is that of its expiry.
    Text(String, Option<ExpiryWindow>),
    Hash(BTreeMap<String, String>),
}

/// Microseconds between which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ExpiryWindow {
    earliest: u64,
    latest: u64,
}

/// Everything that the key may hold after some operations, and the latest call among those.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RegisterState {
    now: u64,
    contents: Vec<Content>,
}

impl RegisterState {
    pub(super) fn new() -> RegisterState {
        RegisterState { now: 0, contents: vec![Content::Absent] }
    }

    /// After one more operation; none if its reply cannot be explained.
    pub(super) fn after(&self, operation: &JepsenOperation) -> Option<RegisterState> {
        let now = self.now.max(operation.call);
        let (latest, told) = match &operation.outcome {
            JepsenOutcome::Told(reply) => (operation.returned, Some(reply.as_str())),
            _ => (u64::MAX, None),
        };
        let when = ExpiryWindow { earliest: now, latest };
        let mut contents: Vec<Content> = Vec::with_capacity(1);
        for content in &self.contents {
            let expiry = match content {
                Content::Text(_, expiry) => *expiry,
                Content::Absent | Content::Hash(_) => None,
            };
            let lives = expiry.is_none_or(|expiry| when.earliest <= expiry.latest);
            let gone = expiry.is_some_and(|expiry| when.latest >= expiry.earliest);
            let before = [lives.then_some(content), gone.then_some(&Content::Absent)];
            for before in before.into_iter().flatten() {
                let (content, reply) = before.clone().apply(&operation.what, when);
                if told.is_none_or(|told| told == reply) && !contents.contains(&content) {
                    contents.push(content);
                }
            }
        }
        (!contents.is_empty()).then_some(RegisterState { now, contents })
    }
}

impl Content {
    fn apply(self, what: &JepsenAction, when: ExpiryWindow) -> (Content, String) {
        match (what, self) {
            (JepsenAction::Get, Content::Text(text, expiry)) => {
                let reply = format!("${text}");
                (Content::Text(text, expiry), reply)
            }
            (JepsenAction::Get | JepsenAction::Hget(_), Content::Absent) => {
                (Content::Absent, "nil".to_owned())
            }
            (JepsenAction::Strlen, Content::Text(text, expiry)) => {
                let reply = number(text.len());
                (Content::Text(text, expiry), reply)
            }
            (JepsenAction::Strlen | JepsenAction::Hlen, Content::Absent) => (Content::Absent, number(0)),
            (JepsenAction::Set(value, ttl), _) => {
                (Content::Text(value.clone(), ttl.map(|ttl| when.expiry(ttl))), "+OK".to_owned())
            }
            (JepsenAction::Incr, before) => {
                let (text, expiry) = before.text();
                let text = (text.parse::<i64>().unwrap_or(0) + 1).to_string();
                let reply = format!(":{text}");
                (Content::Text(text, expiry), reply)
            }
            (JepsenAction::Append(value), before) => {
                let (mut text, expiry) = before.text();
                text.push_str(value);
                let reply = number(text.len());
                (Content::Text(text, expiry), reply)
            }
            (JepsenAction::Add(value), Content::Absent) => {
                (Content::Text(value.clone(), None), "+OK".to_owned())
            }
            (JepsenAction::Extend(value), Content::Text(text, expiry)) => {
                (Content::Text(text + value, expiry), "+OK".to_owned())
            }
            (JepsenAction::Add(_) | JepsenAction::Extend(_), before) => (before, "+no".to_owned()),
            (JepsenAction::Del, before) => (Content::Absent, number(usize::from(before != Content::Absent))),
            (JepsenAction::Pexpire(ttl), Content::Text(text, _)) => {
                (Content::Text(text, Some(when.expiry(*ttl))), number(1))
            }
            (JepsenAction::Pexpire(_), Content::Absent) => (Content::Absent, number(0)),
            (what, before) => before.apply_to_hash(what),
        }
    }

    fn apply_to_hash(self, what: &JepsenAction) -> (Content, String) {
        let mut fields = match self {
            Content::Hash(fields) => fields,
            Content::Absent | Content::Text(..) => BTreeMap::new(),
        };
        let reply = match what {
            JepsenAction::Hset(field, value) => {
                let old = fields.insert(field.clone(), value.clone());
                number(usize::from(old.is_none()))
            }
            JepsenAction::Hget(field) => {
                fields.get(field).map_or("nil".to_owned(), |value| format!("${value}"))
            }
            JepsenAction::Hlen => number(fields.len()),
            _ => hash_text(fields.iter().map(|(field, value)| (field.as_str(), value.as_str()))),
        };
        let content = if fields.is_empty() { Content::Absent } else { Content::Hash(fields) };
        (content, reply)
    }

    /// INCR and APPEND keep the time to live.
    fn text(self) -> (String, Option<ExpiryWindow>) {
        match self {
            Content::Text(text, expiry) => (text, expiry),
            Content::Absent | Content::Hash(_) => (String::new(), None),
        }
    }
}

impl ExpiryWindow {
    /// Storage's clock may be wrong by 1 %, and it counts whole milliseconds.
    fn expiry(self, ttl_ms: u64) -> ExpiryWindow {
        let earliest = (self.earliest + ttl_ms * 990).saturating_sub(2000);
        ExpiryWindow { earliest, latest: self.latest.saturating_add(ttl_ms * 1010 + 2000) }
    }
}

fn number(number: usize) -> String {
    format!(":{number}")
}

/// The reply to HGETALL, in the order of the fields' names.
pub(super) fn hash_text<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<String> = fields.map(|(field, value)| format!("{field}={value}")).collect();
    format!("{{{}}}", fields.join(","))
}

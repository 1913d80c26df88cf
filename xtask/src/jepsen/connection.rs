//! A client's connection to a router: pipelines out, replies in, and what a reply means for the history.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use wire::resp::{Command, Value};

use super::keys::{ALL_KINDS, KeyKinds, STRINGS};
use super::memcached;
use super::operation::{JepsenAction, JepsenOutcome, MEMBER, Wording};
use crate::replies::ReplyConnection;

const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A client gives up after this; the outcome is unknown then.
const REPLY_MAX: Duration = Duration::from_secs(6);

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    Redis,
    /// Redis' words for strings and keys: no scripts, and nothing is watched.
    RedisStrings,
    Memcached,
}

impl Speech {
    pub(super) fn kinds(self) -> KeyKinds {
        if self == Speech::Redis { ALL_KINDS } else { STRINGS }
    }

    /// The bytes of an action's commands, and how many these are; none if there are no words for it.
    pub(super) fn frames(self, what: &JepsenAction, key: &str, wording: Wording) -> Option<(Vec<u8>, usize)> {
        if self == Speech::Memcached {
            return Some((memcached::request(what, key)?, 1));
        }
        let commands = what.commands(key, wording);
        let frames = commands.iter().flat_map(|arguments| Command::from_args(arguments).frame().to_vec());
        Some((frames.collect(), commands.len()))
    }
}

/// What the replies to an action's commands come to; none if it was told to have changed nothing.
pub(super) fn settled(what: &JepsenAction, wording: Wording, mut replies: Vec<Value>) -> Option<Value> {
    let last = replies.pop()?;
    match (wording, last) {
        // What was watched has changed.
        (Wording::Transaction, Value::Null) => None,
        (Wording::Transaction, Value::Array(mut inner)) => {
            let told = inner.pop()?;
            Some(match (what, inner.pop(), &told) {
                (JepsenAction::IncrTwice, Some(Value::Integer(first)), Value::Integer(second))
                    if first + 1 == *second =>
                {
                    told
                }
                (JepsenAction::IncrTwice, first, _) => {
                    Value::Array(first.into_iter().chain([told]).collect())
                }
                (JepsenAction::Swap(..), None, Value::Simple(_)) => Value::Integer(1),
                (_, None, _) => told,
                (_, Some(first), _) => Value::Array(vec![first, told]),
            })
        }
        (_, last) => Some(last),
    }
}

pub(super) struct JepsenConnection {
    speech: Speech,
    replies: ReplyConnection<TcpStream>,
}

impl JepsenConnection {
    pub(super) fn new(address: SocketAddr, speech: Speech) -> io::Result<JepsenConnection> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_MAX))?;
        stream.set_write_timeout(Some(REPLY_MAX))?;
        Ok(JepsenConnection { speech, replies: ReplyConnection::new(stream) })
    }

    pub(super) fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.replies.send(frames)
    }

    pub(super) fn receive(&mut self) -> io::Result<Value> {
        match self.speech {
            Speech::Redis | Speech::RedisStrings => self.replies.receive(),
            Speech::Memcached => self.replies.receive_as(|received| Ok(memcached::reply(received))),
        }
    }
}

/// Errors that promise that the command had no effect. If one lies, a later read shows it.
const WITHOUT_EFFECT: [&str; 4] =
    ["the command was not executed", "the command changed nothing", "the command had no effect", "BUSY "];

/// What a reply says about a command.
pub(super) fn outcome(what: &JepsenAction, reply: &Value) -> JepsenOutcome {
    match reply {
        Value::Error(text) => {
            let text = String::from_utf8_lossy(text);
            let void = what.reads() || WITHOUT_EFFECT.iter().any(|part| text.contains(part));
            if void { JepsenOutcome::Void } else { JepsenOutcome::Unknown }
        }
        // A counter's value comes as text.
        Value::Bulk(text) if *what == JepsenAction::Incr => {
            JepsenOutcome::Told(format!(":{}", String::from_utf8_lossy(text)))
        }
        Value::Integer(there) if matches!(what, JepsenAction::Sismember(_)) => {
            let value = if *there == 1 { format!("${MEMBER}") } else { "nil".to_owned() };
            JepsenOutcome::Told(value)
        }
        Value::Array(members) | Value::Set(members) if *what == JepsenAction::Smembers => {
            let fields: Vec<Value> =
                members.iter().flat_map(|member| [member.clone(), member_value()]).collect();
            JepsenOutcome::Told(pairs(&fields).unwrap_or_else(|| format!("{reply:?}")))
        }
        Value::Array(values) if *what == JepsenAction::Lrange => {
            let texts: Vec<_> = values
                .iter()
                .filter_map(|value| value.bytes())
                .map(|text| String::from_utf8_lossy(text))
                .collect();
            JepsenOutcome::Told(format!("[{}]", texts.join(",")))
        }
        Value::Null => JepsenOutcome::Told("nil".to_owned()),
        Value::Integer(number) => JepsenOutcome::Told(format!(":{number}")),
        Value::Simple(text) => JepsenOutcome::Told(format!("+{}", String::from_utf8_lossy(text))),
        Value::Bulk(text) => JepsenOutcome::Told(format!("${}", String::from_utf8_lossy(text))),
        Value::Map(entries) => {
            let values: Vec<Value> =
                entries.iter().flat_map(|(field, value)| [field.clone(), value.clone()]).collect();
            JepsenOutcome::Told(pairs(&values).unwrap_or_else(|| format!("{reply:?}")))
        }
        Value::Array(values) => JepsenOutcome::Told(pairs(values).unwrap_or_else(|| format!("{reply:?}"))),
        other => JepsenOutcome::Told(format!("{other:?}")),
    }
}

fn member_value() -> Value {
    Value::Bulk(Bytes::from_static(MEMBER.as_bytes()))
}

/// Fields and values in turn, sorted by field as the models have them.
fn pairs(values: &[Value]) -> Option<String> {
    let texts: Vec<&str> =
        values.iter().map(|value| std::str::from_utf8(value.bytes()?).ok()).collect::<Option<_>>()?;
    let mut fields: Vec<(&str, &str)> =
        texts.chunks(2).map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect::<Option<_>>()?;
    fields.sort_unstable();
    let fields: Vec<String> = fields.into_iter().map(|(field, value)| format!("{field}={value}")).collect();
    Some(format!("{{{}}}", fields.join(",")))
}

#[cfg(test)]
mod tests {
    use super::{JepsenAction, JepsenOutcome, outcome};
    use bytes::Bytes;
    use wire::resp::Value;

    fn error(text: &'static str) -> Value {
        Value::Error(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn replies_are_told_as_the_models_tell_them() {
        let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        let all = Value::Array(vec![bulk("f2"), bulk("b"), bulk("f1"), bulk("a")]);
        assert_eq!(outcome(&JepsenAction::Hgetall, &all), JepsenOutcome::Told("{f1=a,f2=b}".to_owned()));
        assert_eq!(outcome(&JepsenAction::Get, &Value::Null), JepsenOutcome::Told("nil".to_owned()));
        assert_eq!(outcome(&JepsenAction::Incr, &Value::Integer(3)), JepsenOutcome::Told(":3".to_owned()));
    }

    #[test]
    fn errors_say_what_is_known() {
        let lost = error("ERR DistCache: shim s was lost while the command ran; its outcome is unknown");
        assert_eq!(outcome(&JepsenAction::Incr, &lost), JepsenOutcome::Unknown);
        assert_eq!(outcome(&JepsenAction::Get, &lost), JepsenOutcome::Void);
        let refused = error("ERR DistCache: shim s is not reachable; the command was not executed");
        assert_eq!(outcome(&JepsenAction::Incr, &refused), JepsenOutcome::Void);
    }
}

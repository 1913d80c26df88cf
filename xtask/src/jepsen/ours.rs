//! Histories of real processes before the simulator's checker. Not porcupine, which has a model of its own.

use linearize::{HistoryOperation, HistoryOutcome, HistoryVerdict, ModelState, What, check};
use wire::resp::reply;

use super::operation::{JepsenAction, JepsenHistory, JepsenOperation, JepsenOutcome, MEMBER};

pub(super) fn judge(history: &JepsenHistory) -> HistoryVerdict {
    let operations: Vec<HistoryOperation> = history.operations.iter().map(operation).collect();
    let on_hash = |one: &HistoryOperation| {
        matches!(
            one.what,
            What::HashSet(..) | What::HashGet(_) | What::HashLength | What::HashGetAll | What::HashDelete(_)
        )
    };
    let on_list = |one: &HistoryOperation| {
        matches!(one.what, What::Push(_) | What::PopFirst | What::ListLength | What::ListAll)
    };
    let absent = match () {
        () if operations.iter().any(on_hash) => ModelState::Hash(Default::default()),
        () if operations.iter().any(on_list) => ModelState::List(Default::default()),
        () => ModelState::text(),
    };
    check(&operations, absent)
}

fn operation(operation: &JepsenOperation) -> HistoryOperation {
    let (returned, outcome) = match &operation.outcome {
        JepsenOutcome::Told(text) => (operation.returned, HistoryOutcome::Told(resp(text))),
        _ => (u64::MAX, HistoryOutcome::Unknown),
    };
    let (invoked, after) = (operation.call, operation.after.map(|place| place as u32));
    HistoryOperation {
        what: what(&operation.what),
        invoked,
        returned,
        outcome,
        after,
        frame: None,
        executed: None,
    }
}

fn what(what: &JepsenAction) -> What {
    let bytes = |text: &String| text.clone().into_bytes();
    match what {
        JepsenAction::Get => What::Get,
        JepsenAction::Strlen => What::Length,
        JepsenAction::Set(value, None) => What::Set(bytes(value)),
        JepsenAction::Set(value, Some(ttl)) => What::SetFor(bytes(value), *ttl),
        JepsenAction::Incr => What::Increment(1),
        JepsenAction::IncrTwice => What::Increment(2),
        JepsenAction::Swap(expected, value) => What::Swap(expected.as_ref().map(bytes), bytes(value)),
        JepsenAction::Append(value) => What::Append(bytes(value)),
        JepsenAction::Add(value) => What::Add(bytes(value)),
        JepsenAction::Extend(value) => What::Extend(bytes(value)),
        JepsenAction::Del => What::Delete,
        JepsenAction::Pexpire(ttl) => What::Expire(*ttl),
        JepsenAction::Hset(field, value) => What::HashSet(bytes(field), bytes(value)),
        JepsenAction::Hget(field) => What::HashGet(bytes(field)),
        JepsenAction::Hgetall => What::HashGetAll,
        JepsenAction::Hlen | JepsenAction::Scard => What::HashLength,
        JepsenAction::Lpush(value) => What::Push(bytes(value)),
        JepsenAction::Lpop => What::PopFirst,
        JepsenAction::Llen => What::ListLength,
        JepsenAction::Lrange => What::ListAll,
        JepsenAction::Sadd(member) => What::HashSet(bytes(member), MEMBER.into()),
        JepsenAction::Srem(member) => What::HashDelete(bytes(member)),
        JepsenAction::Sismember(member) => What::HashGet(bytes(member)),
        JepsenAction::Smembers => What::HashGetAll,
    }
}

/// A reply as storage writes it. What is none that a model has stays as it is, and nothing explains it.
fn resp(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    match text.split_at_checked(1) {
        _ if text == "nil" => reply::null(false, &mut out),
        Some(("$", value)) => reply::bulk(value.as_bytes(), &mut out),
        Some(("+", word)) => reply::simple(word.as_bytes(), &mut out),
        Some((":", number)) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
        Some(("[", values)) => {
            let words: Vec<&str> =
                values.trim_end_matches(']').split(',').filter(|word| !word.is_empty()).collect();
            reply::array_header(words.len(), &mut out);
            words.iter().for_each(|word| reply::bulk(word.as_bytes(), &mut out));
        }
        Some(("{", fields)) => {
            let pairs = fields.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
            let words: Vec<&str> = pairs.flat_map(|(field, value)| [field, value]).collect();
            reply::array_header(words.len(), &mut out);
            words.iter().for_each(|word| reply::bulk(word.as_bytes(), &mut out));
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{HistoryVerdict, judge};
    use crate::jepsen::samples::samples;

    #[test]
    fn samples_are_judged_as_they_should() {
        for (number, (history, linearizable)) in samples().into_iter().enumerate() {
            assert_eq!(
                judge(&history) == HistoryVerdict::Linearizable,
                linearizable,
                "{number}: {}",
                history.text(&[])
            );
        }
    }
}

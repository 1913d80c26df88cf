//! Histories of real processes before the simulator's checker. Not porcupine, which has a model of its own.

use linearize::{HistoryOperation, HistoryOutcome, HistoryVerdict, ModelState, What, check};
use wire::resp::reply;

use super::operation::{JepsenAction, JepsenHistory, JepsenOperation, JepsenOutcome};

pub(super) fn judge(history: &JepsenHistory) -> HistoryVerdict {
    let operations: Vec<HistoryOperation> = history.operations.iter().map(operation).collect();
    let on_hash = |one: &HistoryOperation| {
        matches!(one.what, What::HashSet(..) | What::HashGet(_) | What::HashLength | What::HashGetAll)
    };
    let is_hash = operations.iter().any(on_hash);
    check(&operations, if is_hash { ModelState::Hash(Default::default()) } else { ModelState::text() })
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
        JepsenAction::Append(value) => What::Append(bytes(value)),
        JepsenAction::Add(value) => What::Add(bytes(value)),
        JepsenAction::Extend(value) => What::Extend(bytes(value)),
        JepsenAction::Del => What::Delete,
        JepsenAction::Pexpire(ttl) => What::Expire(*ttl),
        JepsenAction::Hset(field, value) => What::HashSet(bytes(field), bytes(value)),
        JepsenAction::Hget(field) => What::HashGet(bytes(field)),
        JepsenAction::Hgetall => What::HashGetAll,
        JepsenAction::Hlen => What::HashLength,
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

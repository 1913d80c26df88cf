//! Small histories whose verdicts are known, so that no run trusts a checker that cannot fail.

use super::operation::{JepsenAction, JepsenHistory, JepsenOperation, JepsenOutcome};

fn operation(what: JepsenAction, call: u64, returned: u64, reply: &str) -> JepsenOperation {
    let outcome = match reply {
        "?" => JepsenOutcome::Unknown,
        reply => JepsenOutcome::Told(reply.to_owned()),
    };
    JepsenOperation { what, call, returned, outcome, after: None, client: 0 }
}

fn set(value: &str, call: u64, returned: u64) -> JepsenOperation {
    operation(JepsenAction::Set(value.into(), None), call, returned, "+OK")
}

fn get(value: &str, call: u64, returned: u64) -> JepsenOperation {
    operation(JepsenAction::Get, call, returned, &format!("${value}"))
}

/// Each with whether some order explains it.
pub(super) fn samples() -> Vec<(JepsenHistory, bool)> {
    let all = [registers(), unknown(), pipelines(), expiry(), others(), swaps(), lists_and_sets()].concat();
    let numbered = all.into_iter().enumerate();
    numbered
        .map(|(number, (operations, linearizable))| {
            (JepsenHistory::new(number as u64, format!("sample {number}"), &operations), linearizable)
        })
        .collect()
}

type Samples = Vec<(Vec<JepsenOperation>, bool)>;

fn registers() -> Samples {
    vec![
        (vec![], true),
        (vec![set("a", 0, 1), set("b", 2, 6), get("a", 3, 4), get("b", 5, 7)], true),
        (vec![set("a", 0, 1), set("b", 2, 3), get("a", 4, 5)], false),
        (vec![set("a", 0, 1), set("b", 2, 9), get("b", 3, 4), get("a", 5, 6)], false),
    ]
}

/// A write of unknown outcome happens once, late or never.
fn unknown() -> Samples {
    let write = operation(JepsenAction::Set("b".into(), None), 2, 0, "?");
    let incr = operation(JepsenAction::Incr, 0, 0, "?");
    vec![
        (vec![set("a", 0, 1), write.clone(), get("a", 3, 4)], true),
        (vec![set("a", 0, 1), write.clone(), get("a", 3, 4), get("b", 5, 6)], true),
        (vec![set("a", 0, 1), write, get("b", 3, 4), get("a", 5, 6)], false),
        (vec![incr.clone(), get("1", 1, 2)], true),
        (vec![incr, get("2", 1, 2)], false),
    ]
}

fn pipelines() -> Samples {
    let later = JepsenOperation { after: Some(1), ..get("a", 3, 9) };
    let (first, second) = (set("a", 0, 1), set("b", 2, 8));
    let unknown = JepsenOperation { outcome: JepsenOutcome::Unknown, ..second.clone() };
    vec![
        (vec![first.clone(), second.clone(), get("a", 3, 9)], true),
        (vec![first.clone(), second, later.clone()], false),
        (vec![first, unknown, later], true),
    ]
}

fn expiry() -> Samples {
    let brief = operation(JepsenAction::Set("a".into(), Some(10)), 0, 100, "+OK");
    let longer = operation(JepsenAction::Pexpire(50), 300, 400, ":1");
    let nil = |call, returned| operation(JepsenAction::Get, call, returned, "nil");
    vec![
        (vec![brief.clone(), get("a", 200, 300), nil(11_000, 12_000)], true),
        (vec![brief.clone(), nil(200, 300)], false),
        (vec![brief.clone(), get("a", 15_000, 15_100)], false),
        (vec![brief.clone(), nil(10_000, 10_100), get("a", 10_200, 10_300)], false),
        (vec![brief, longer, get("a", 15_000, 15_100), nil(60_000, 60_100)], true),
    ]
}

fn others() -> Samples {
    let hset = |value: &str, call, reply| {
        operation(JepsenAction::Hset("f".into(), value.into()), call, call + 1, reply)
    };
    let all = |text: &str, call| operation(JepsenAction::Hgetall, call, call + 1, text);
    let hget = |reply: &str, call| operation(JepsenAction::Hget("f".into()), call, call + 1, reply);
    let append = |reply, call| operation(JepsenAction::Append("xy".into()), call, call + 1, reply);
    let add = |reply, call| operation(JepsenAction::Add("xy".into()), call, call + 1, reply);
    let extend = |reply, call| operation(JepsenAction::Extend("xy".into()), call, call + 1, reply);
    let del = |reply, call| operation(JepsenAction::Del, call, call + 1, reply);
    let strlen = operation(JepsenAction::Strlen, 4, 5, ":4");
    vec![
        (vec![hset("a", 0, ":1"), hset("b", 2, ":0"), all("{f=b}", 4), hget("$b", 6)], true),
        (vec![hset("a", 0, ":1"), hset("b", 2, ":0"), all("{f=a}", 4)], false),
        (vec![hset("a", 0, ":1"), del(":1", 2), hget("nil", 4), all("{}", 6)], true),
        (vec![append(":2", 0), append(":4", 2), strlen], true),
        (vec![append(":2", 0), append(":4", 2), get("xy", 4, 5)], false),
        (vec![append(":2", 0), del(":1", 2), del(":0", 4)], true),
        (vec![append(":2", 0), del(":0", 2)], false),
        (vec![extend("+no", 0), add("+OK", 2), extend("+OK", 4), get("xyxy", 6, 7)], true),
        (vec![add("+OK", 0), add("+OK", 2)], false),
        (vec![add("+OK", 0), extend("+no", 2)], false),
        (vec![add("+OK", 0), add("+no", 2), get("xyxy", 4, 5)], false),
    ]
}

fn swaps() -> Samples {
    let swap = |expected: Option<&str>, value: &str, call, reply| {
        operation(JepsenAction::Swap(expected.map(str::to_owned), value.into()), call, call + 1, reply)
    };
    let twice = |reply, call| operation(JepsenAction::IncrTwice, call, call + 1, reply);
    let incr = |reply, call| operation(JepsenAction::Incr, call, call + 1, reply);
    vec![
        (vec![set("a", 0, 1), swap(Some("a"), "b", 2, ":1"), get("b", 4, 5)], true),
        (vec![set("a", 0, 1), swap(Some("a"), "b", 2, ":1"), swap(Some("a"), "c", 4, ":1")], false),
        (vec![set("a", 0, 1), swap(Some("b"), "c", 2, ":0"), get("a", 4, 5)], true),
        (vec![set("a", 0, 1), swap(Some("a"), "b", 2, ":0")], false),
        (vec![swap(None, "a", 0, ":1"), get("a", 2, 3)], true),
        (vec![set("a", 0, 1), swap(None, "b", 2, ":1")], false),
        (vec![set("a", 0, 1), swap(Some("a"), "b", 2, "?"), get("b", 4, 5)], true),
        (vec![set("a", 0, 1), set("c", 2, 3), swap(Some("a"), "b", 4, "?"), get("b", 6, 7)], false),
        (vec![twice(":2", 0), incr(":3", 2), twice(":5", 4)], true),
        (vec![twice(":2", 0), twice(":3", 2)], false),
    ]
}

fn lists_and_sets() -> Samples {
    let of = |what: JepsenAction, call, reply: &str| operation(what, call, call + 1, reply);
    let push = |value: &str, call, reply| of(JepsenAction::Lpush(value.into()), call, reply);
    let pop = |call, reply| of(JepsenAction::Lpop, call, reply);
    let all = |call, reply| of(JepsenAction::Lrange, call, reply);
    let (member, len) = (|| "m".to_owned(), of(JepsenAction::Llen, 4, ":2"));
    let add = |call, reply| of(JepsenAction::Sadd(member()), call, reply);
    let remove = |call, reply| of(JepsenAction::Srem(member()), call, reply);
    let has = |call, reply| of(JepsenAction::Sismember(member()), call, reply);
    let members = |call, reply| of(JepsenAction::Smembers, call, reply);
    let del = |call, reply| of(JepsenAction::Del, call, reply);
    vec![
        (
            vec![push("a", 0, ":1"), push("b", 2, ":2"), len, all(6, "[b,a]"), pop(8, "$b"), all(10, "[a]")],
            true,
        ),
        (vec![push("a", 0, ":1"), push("b", 2, ":2"), all(4, "[a,b]")], false),
        (vec![push("a", 0, ":1"), pop(2, "$a"), pop(4, "nil"), all(6, "[]"), del(8, ":0")], true),
        (vec![push("a", 0, ":1"), pop(2, "$a"), pop(4, "$a")], false),
        (
            vec![
                add(0, ":1"),
                add(2, ":0"),
                has(4, "$1"),
                members(6, "{m=1}"),
                remove(8, ":1"),
                members(10, "{}"),
            ],
            true,
        ),
        (vec![add(0, ":1"), remove(2, ":1"), has(4, "$1")], false),
        (vec![add(0, ":1"), remove(2, ":1"), del(4, ":1")], false),
    ]
}

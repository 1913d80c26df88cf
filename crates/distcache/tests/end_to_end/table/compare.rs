//! When two replies to one invocation are the same: byte by byte, but for what Redis itself gives by chance or by its
//! clock. What DistCache means to answer otherwise is in `intended`.

use wire::resp::Value;

/// How much of a reply may differ between two redis-servers that were told the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freedom {
    /// Elements come in the order of a hash table with a seed of its own.
    Order,
    /// Times are those of another moment, ids made of them as well.
    Clock,
    /// Chance, or the state of a process: only the shape.
    Shape,
}

/// Commands, by their name's beginning.
const FREE: [(&str, Freedom); 50] = [
    ("acl|cat", Freedom::Order),
    ("acl|genpass", Freedom::Shape),
    ("client|id", Freedom::Shape),
    ("client|info", Freedom::Shape),
    ("client|list", Freedom::Shape),
    ("command|docs", Freedom::Order),
    ("command|getkeysandflags", Freedom::Order),
    ("command|info", Freedom::Order),
    ("command|list", Freedom::Order),
    ("command", Freedom::Order),
    ("config|get", Freedom::Order),
    ("dump", Freedom::Shape),
    ("expiretime", Freedom::Clock),
    ("function|dump", Freedom::Shape),
    ("function|list", Freedom::Order),
    ("function|stats", Freedom::Shape),
    ("hello", Freedom::Shape),
    ("hrandfield", Freedom::Shape),
    ("hscan", Freedom::Shape),
    ("info", Freedom::Shape),
    ("keys", Freedom::Order),
    ("lastsave", Freedom::Clock),
    ("latency|doctor", Freedom::Shape),
    ("latency|graph", Freedom::Shape),
    ("latency|histogram", Freedom::Shape),
    ("latency|history", Freedom::Shape),
    ("latency|latest", Freedom::Shape),
    ("lolwut", Freedom::Shape),
    ("memory", Freedom::Shape),
    ("object|freq", Freedom::Shape),
    ("object|idletime", Freedom::Clock),
    ("pexpiretime", Freedom::Clock),
    ("pttl", Freedom::Clock),
    ("pubsub", Freedom::Order),
    ("randomkey", Freedom::Shape),
    ("scan", Freedom::Shape),
    ("sdiff", Freedom::Order),
    ("sinter", Freedom::Order),
    ("smembers", Freedom::Order),
    ("sort", Freedom::Order),
    ("spop", Freedom::Shape),
    ("srandmember", Freedom::Shape),
    ("sscan", Freedom::Shape),
    ("sunion", Freedom::Order),
    ("time", Freedom::Shape),
    ("ttl", Freedom::Clock),
    ("x", Freedom::Clock),
    ("zrandmember", Freedom::Shape),
    ("zscan", Freedom::Shape),
    ("role", Freedom::Shape),
];

/// Between the same step at one server and at the other.
const CLOCK_MS_MAX: i64 = 60_000;

/// Whether both replies are what Redis answers to this command.
pub(crate) fn same(name: &str, redis: &Value, ours: &Value) -> bool {
    if redis == ours {
        return true;
    }
    let freedom = FREE.iter().filter(|(beginning, _)| name.starts_with(beginning));
    // The longest beginning says most.
    match freedom.max_by_key(|(beginning, _)| beginning.len()).map(|(_, freedom)| freedom) {
        Some(Freedom::Order) => sorted(redis) == sorted(ours),
        Some(Freedom::Clock) => near(redis, ours),
        Some(Freedom::Shape) => alike(redis, ours),
        None => false,
    }
}

/// The elements at every depth in an order of their own.
fn sorted(value: &Value) -> String {
    let row = |values: &[Value]| {
        let mut texts: Vec<String> = values.iter().map(sorted).collect();
        texts.sort();
        texts.join(",")
    };
    match value {
        Value::Array(values) => format!("[{}]", row(values)),
        Value::Set(values) => format!("set[{}]", row(values)),
        Value::Map(pairs) => {
            let mut texts: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}={}", sorted(key), sorted(value))).collect();
            texts.sort();
            format!("map[{}]", texts.join(","))
        }
        other => format!("{other:?}"),
    }
}

fn near(redis: &Value, ours: &Value) -> bool {
    let all = |redis: &[Value], ours: &[Value]| {
        redis.len() == ours.len() && redis.iter().zip(ours).all(|(redis, ours)| near(redis, ours))
    };
    match (redis, ours) {
        (Value::Integer(redis), Value::Integer(ours)) => (redis - ours).abs() < CLOCK_MS_MAX,
        (Value::Array(redis), Value::Array(ours)) => all(redis, ours),
        (Value::Map(redis), Value::Map(ours)) => {
            redis.len() == ours.len()
                && redis.iter().zip(ours).all(|(redis, ours)| redis.0 == ours.0 && near(&redis.1, &ours.1))
        }
        (Value::Bulk(redis), Value::Bulk(ours)) => {
            redis == ours
                || made_of_time(redis)
                    .zip(made_of_time(ours))
                    .is_some_and(|(redis, ours)| (redis - ours).abs() < CLOCK_MS_MAX)
        }
        _ => redis == ours,
    }
}

/// The milliseconds of a stream id that was made of the clock.
fn made_of_time(id: &[u8]) -> Option<i64> {
    let (ms, _) = std::str::from_utf8(id).ok()?.split_once('-')?;
    ms.parse().ok().filter(|ms| *ms > 1_600_000_000_000)
}

/// The same type, and as many elements; errors are never by chance.
fn alike(redis: &Value, ours: &Value) -> bool {
    match (redis, ours) {
        (Value::Error(_), _) | (_, Value::Error(_)) => redis == ours,
        (Value::Array(redis), Value::Array(ours)) if redis.len() == ours.len() => {
            redis.iter().zip(ours).all(|(redis, ours)| alike(redis, ours))
        }
        // SPOP and its like give an element or nothing by what is there, which is the same.
        _ => std::mem::discriminant(redis) == std::mem::discriminant(ours),
    }
}

#[cfg(test)]
mod tests {
    use wire::resp::Value;

    use super::same;

    #[test]
    fn freedom_is_only_where_redis_has_it() {
        let row = |items: &[&str]| {
            Value::Array(items.iter().map(|item| Value::Bulk(item.to_string().into())).collect())
        };
        assert!(same("smembers", &row(&["a", "b"]), &row(&["b", "a"])));
        assert!(!same("lrange", &row(&["a", "b"]), &row(&["b", "a"])));
        assert!(!same("smembers", &row(&["a", "b"]), &row(&["b", "c"])));
        assert!(same("pttl", &Value::Integer(1000), &Value::Integer(998)));
        assert!(!same("pttl", &Value::Integer(-1), &Value::Integer(100_000)));
        assert!(!same("strlen", &Value::Integer(1000), &Value::Integer(998)));
        assert!(same("spop", &Value::Bulk("a".into()), &Value::Bulk("b".into())));
        assert!(!same("spop", &Value::Bulk("a".into()), &Value::Null));
        assert!(!same("spop", &Value::Error("a".into()), &Value::Error("b".into())));
        let id = |id: &'static str| Value::Bulk(id.into());
        assert!(same("xadd", &id("1700000000000-0"), &id("1700000000010-0")));
        assert!(!same("xadd", &id("5-0"), &id("6-0")));
    }
}

//! What is in the servers before each invocation, and the values that fit it. All keys share a hash tag.

/// In front of every key.
pub(crate) const TAG: &str = "{t}";

/// Makes every key anew, whatever was left of it.
pub(crate) const SCRIPT: &str = r"
redis.call('DEL', unpack(KEYS))
redis.call('SET', '{t}str', 'hello')
redis.call('SET', '{t}num', '10')
redis.call('SET', '{t}ttl', 'v', 'PXAT', '4102444800000')
redis.call('RPUSH', '{t}list', 'a', 'b', 'c', 'a')
redis.call('RPUSH', '{t}list2', 'x', 'y')
redis.call('RPUSH', '{t}nums', '3', '1', '2')
redis.call('SADD', '{t}set', 'm1', 'm2', 'm3')
redis.call('SADD', '{t}set2', 'm2', 'm3', 'm4')
redis.call('ZADD', '{t}zset', '1', 'm1', '2', 'm2', '3', 'm3')
redis.call('ZADD', '{t}zset2', '1.5', 'm2', '5', 'm4')
redis.call('GEOADD', '{t}geo', '13.361389', '38.115556', 'm1', '15.087269', '37.502669', 'm2')
redis.call('HSET', '{t}hash', 'f1', '1', 'f2', 'v', 'f3', '1.5')
redis.call('PFADD', '{t}hll', 'a', 'b', 'c')
redis.call('PFADD', '{t}hll2', 'c', 'd')
redis.call('XADD', '{t}stream', '1-1', 'f', 'v')
redis.call('XADD', '{t}stream', '2-1', 'f', 'w', 'g', 'x')
redis.call('XADD', '{t}stream', '3-1', 'f', 'z')
redis.call('XGROUP', 'CREATE', '{t}stream', 'g', '0')
redis.call('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', '2', 'STREAMS', '{t}stream', '>')
redis.call('XADD', '{t}stream2', '1-1', 'f', 'v')
return 'OK'
";

pub(crate) const KEYS: [&str; 19] = [
    "{t}str",
    "{t}num",
    "{t}ttl",
    "{t}list",
    "{t}list2",
    "{t}nums",
    "{t}set",
    "{t}set2",
    "{t}zset",
    "{t}zset2",
    "{t}geo",
    "{t}hash",
    "{t}hll",
    "{t}hll2",
    "{t}stream",
    "{t}stream2",
    "{t}missing",
    "{t}missing2",
    "{t}dst",
];

/// What a scripting command finds.
pub(crate) const LIBRARY: &str = "#!lua name=lib\nredis.register_function{function_name='f', callback=function(keys, args) \
                                  return {keys, args} end, flags={'no-writes'}}";
/// The digest of `return 1`.
const SHA: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

/// Keys for an argument: a good one first, one that is missing, one of another type.
pub(crate) fn keys(command: &str, group: &str, argument: &str) -> Vec<&'static str> {
    let destination = ["destination", "destkey", "dst", "newkey"].contains(&argument);
    if destination {
        return vec!["{t}dst", "{t}str", "{t}list", "{t}zset"];
    }
    match group {
        "list" if command.ends_with("rpoplpush") => vec!["{t}list", "{t}list2", "{t}missing", "{t}str"],
        "list" => vec!["{t}list", "{t}list2", "{t}missing", "{t}hash"],
        "set" => vec!["{t}set", "{t}set2", "{t}missing", "{t}str"],
        "sorted-set" => vec!["{t}zset", "{t}zset2", "{t}missing", "{t}str", "{t}set"],
        "hash" => vec!["{t}hash", "{t}missing", "{t}str"],
        "geo" => vec!["{t}geo", "{t}missing", "{t}str"],
        "hyperloglog" => vec!["{t}hll", "{t}hll2", "{t}missing", "{t}str", "{t}list"],
        "stream" => vec!["{t}stream", "{t}stream2", "{t}missing", "{t}str"],
        "string" | "bitmap" if command.contains("cr") || command.contains("bitfield") => {
            vec!["{t}num", "{t}str", "{t}missing", "{t}list"]
        }
        "string" | "bitmap" => vec!["{t}str", "{t}num", "{t}missing", "{t}list"],
        _ if command.starts_with("sort") => {
            vec!["{t}nums", "{t}list", "{t}set", "{t}zset", "{t}missing", "{t}str"]
        }
        _ => vec![
            "{t}str",
            "{t}list",
            "{t}missing",
            "{t}set",
            "{t}zset",
            "{t}hash",
            "{t}stream",
            "{t}ttl",
            "{t}hll",
        ],
    }
}

/// Values for an argument that is no key: a good one first, wrong ones last.
pub(crate) fn values(command: &str, kind: &str, argument: &str) -> &'static [&'static str] {
    let lex = command.contains("lex");
    match (kind, argument) {
        ("integer" | "double", "timeout") if command == "client|pause" => &["1", "0", "-1", "x"],
        ("integer" | "double", "timeout") => &["0.01", "-1", "x"],
        ("integer", "milliseconds") if command.starts_with("xread") => &["1", "-1", "x"],
        ("integer", "milliseconds") => &["100000000", "1000000000000000000", "0", "-1", "x"],
        ("integer", "seconds") => &["100000", "9223372036854775807", "0", "-1", "x"],
        ("integer", "ttl") => &["0", "100000000", "-1", "x"],
        ("integer", "count") => &["2", "1", "0", "-1", "x"],
        ("integer", "min-idle-time") => &["0", "100000000", "-1", "x"],
        ("integer", "protover") => &["3", "2", "4", "x"],
        ("integer", "bit") => &["1", "0", "2", "x"],
        ("integer", "cursor") => &["0", "x"],
        ("integer", "client-id") => &["999999999", "0", "-1", "x"],
        ("integer", _) => &["1", "0", "-1", "100", "x", "9223372036854775808"],
        ("double", "longitude") => &["13.361389", "181", "x"],
        ("double", "latitude") => &["38.115556", "-86", "x"],
        ("double", "radius" | "width" | "height") => &["200", "0", "-1", "x"],
        ("double", "min") => &["1", "-inf", "(1", "x"],
        ("double", "max") => &["3", "+inf", "(3", "x"],
        ("double", _) => &["1.5", "-1", "0", "inf", "x"],
        ("unix-time", "unix-time-seconds") => &["4102444800", "1", "0", "-1", "x"],
        ("unix-time", _) => &["4102444800000", "1", "0", "-1", "x"],
        ("pattern", _) => &["*", "{t}s*", "nothing", "f?"],
        (_, "min") if lex => &["[a", "-", "(m1", "x"],
        (_, "max") if lex => &["[z", "+", "(m3", "x"],
        (_, "min" | "start") if command.starts_with("x") => &["-", "1-1", "(1-1", "2", "x"],
        (_, "max" | "end") if command.starts_with("x") => &["+", "3-1", "(3-1", "2", "x"],
        (_, "min" | "start") => &["1", "0", "(1", "[m1", "-inf", "x"],
        (_, "max" | "stop" | "end") => &["3", "-1", "(3", "[m3", "+inf", "x"],
        (_, "field" | "field_value") => &["f1", "f3", "f2", "nothing"],
        (_, "member" | "member1") => &["m1", "m3", "nothing"],
        (_, "member2") => &["m2", "nothing"],
        (_, "element" | "pivot") => &["a", "b", "nothing"],
        (_, "id") if command == "xadd" => &["5-1", "*", "5-*", "0-0", "1-1", "x"],
        (_, "id") if command == "xread" => &["0", "$", "2-1", "9-9", "x"],
        (_, "id") if command == "xreadgroup" => &[">", "0", "$", "x"],
        (_, "id" | "last-id" | "max_deleted_entry_id") => &["1-1", "2", "$", "9-9", "x"],
        (_, "threshold") => &["2", "0", "x"],
        (_, "group" | "groupname") => &["g", "nothing"],
        (_, "consumer" | "consumername") => &["c", "d"],
        (_, "min-idle-time") => &["0", "100000000", "x"],
        (_, "encoding") => &["u8", "i64", "u64", "x"],
        (_, "offset") => &["0", "#1", "-1", "x"],
        (_, "operation") => &["AND", "OR", "XOR", "NOT", "x"],
        (_, "type") => &["string", "zset", "nothing"],
        (_, "script") => &["return 1", "return {KEYS, ARGV}", "return redis.call('GET', KEYS[1])", "x"],
        (_, "sha1") => &[SHA, "x"],
        (_, "function") => &["f", "nothing"],
        (_, "function-code") => {
            &["#!lua name=l2\nredis.register_function('f2', function() return 1 end)", "x"]
        }
        (_, "library-name" | "library-name-pattern") => &["lib", "*", "nothing"],
        (_, "command" | "command-name") => &["get", "config|get", "nothing"],
        (_, "section") => &["keyspace", "nothing"],
        (_, "parameter") => &["hz", "list-max-*", "nothing"],
        (_, "category" | "categoryname") => &["string", "nothing"],
        (_, "username") => &["default", "nothing"],
        (_, "event") => &["command", "nothing"],
        (_, "message") => &["hello"],
        (_, "value") if command == "config|set" => &["10", "x"],
        (_, "value") => &["10", "v", "1.5", ""],
        _ => &["x", "10", ""],
    }
}

//! The command table, the key extraction and the error texts against a real redis-server, where there is one.

use bytes::Bytes;
use commands::{Classified, CommandKind, REDIS_VERSION, classify, find};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use redis_server::{Connection, Redis};
use wire::resp::{Command, RespLimits, Value, take_command};

mod redis_server;

/// The keys that Redis finds, or its error.
fn keys_of(redis: &mut Connection, args: &[&str]) -> Result<Vec<Bytes>, String> {
    let ask: Vec<&str> = ["COMMAND", "GETKEYS"].into_iter().chain(args.iter().copied()).collect();
    match redis.ask(&ask) {
        Value::Error(text) if text == "ERR The command has no key arguments" => Ok(Vec::new()),
        Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
        reply => Ok(reply.elements().expect("an array").iter().filter_map(Value::bytes).cloned().collect()),
    }
}

/// A line of words; `""` is the empty one.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').map(|word| if word == "\"\"" { "" } else { word }).collect()
}

fn key_bytes(command: &Command, classified: &Classified) -> Vec<Bytes> {
    classified.keys.iter().map(|index| command.arg_bytes(*index)).collect()
}

const WITH_KEYS: &str = "\
GET k
get k
SET k v
SET k v GET EX 10
GETEX k PERSIST
GETDEL k
GETSET k v
SETEX k 1 v
MGET a b c
MSET a 1 b 2 c 3
MSETNX a 1 b 2
DEL a b a
UNLINK a
EXISTS a b
TOUCH a
INCR k
APPEND k v
LCS a b LEN
OBJECT ENCODING k
object freq k
OBJECT HELP
MEMORY USAGE k SAMPLES 5
MEMORY DOCTOR
DUMP k
RESTORE k 0 x REPLACE
COPY a b REPLACE
RENAME a b
RENAMENX a b
EXPIRE k 10 NX
PERSIST k
PTTL k
TYPE k
SORT k
SORT k BY w_* GET # GET o_* LIMIT 0 5 DESC ALPHA STORE d
SORT k STORE a STORE b
SORT k BY store GET store
SORT_RO k BY nosort
BITOP AND d a b c
BITOP NOT d a
BITCOUNT k 0 -1
BITFIELD k GET u8 0
BITFIELD_RO k GET u8 0
SETBIT k 1 1
PFADD k a
PFCOUNT a b
PFMERGE d a b
LPUSH k a b
LPOP k 2
LMOVE a b LEFT RIGHT
RPOPLPUSH a b
LMPOP 2 a b LEFT COUNT 2
BLPOP a b 0
BRPOP a 0
BLMOVE a b LEFT RIGHT 0
BRPOPLPUSH a b 0
BLMPOP 0 2 a b LEFT
BZPOPMIN a b 0
BZMPOP 0 1 a MIN
HSET k f v
HGETALL k
HMGET k a b
HSCAN k 0
SADD k a
SMOVE a b m
SINTER a b c
SINTERCARD 2 a b LIMIT 1
SINTERSTORE d a b
SUNIONSTORE d a
SDIFF a
ZADD k 1 a
ZRANGE k 0 -1 WITHSCORES
ZRANGESTORE d s 0 -1
ZUNION 2 a b WEIGHTS 1 2
ZINTER 1 a
ZDIFF 2 a b
ZINTERCARD 2 a b
ZUNIONSTORE d 2 a b WEIGHTS 1 2 AGGREGATE SUM
ZINTERSTORE d 1 a
ZDIFFSTORE d 2 a b
ZMPOP 2 a b MIN
GEOADD k 1 2 m
GEOSEARCH k FROMMEMBER m BYRADIUS 1 m
GEOSEARCHSTORE d s FROMMEMBER m BYRADIUS 1 m
GEORADIUS k 1 2 3 m
GEORADIUS k 1 2 3 m STORE d
GEORADIUS k 1 2 3 m ASC storedist d
GEORADIUSBYMEMBER k m 3 m STORE d
GEORADIUS_RO k 1 2 3 m
XADD k * f v
XRANGE k - +
XREAD STREAMS a b 0 0
XREAD COUNT 2 BLOCK 0 STREAMS a 0
xread streams streams 0
XREADGROUP GROUP g c STREAMS a b > >
XREADGROUP GROUP g c COUNT 1 BLOCK 0 NOACK STREAMS a >
XGROUP CREATE k g $ MKSTREAM
XGROUP DELCONSUMER k g c
XINFO STREAM k FULL
XINFO GROUPS k
XINFO HELP
XACK k g 1-1
XCLAIM k g c 0 1-1
XAUTOCLAIM k g c 0 0
EVAL s 2 a b x
EVALSHA s 1 a
EVAL s 0
EVAL s 0 a b
EVAL_RO s 1 a
EVALSHA_RO s 2 a b
FCALL f 1 a x
FCALL_RO f 0
SCRIPT LOAD s
FUNCTION LIST";

#[test]
fn keys_are_found_where_redis_finds_them() {
    let Some(redis) = Redis::start("keys") else { return };
    let mut connection = redis.connect();
    for line in WITH_KEYS.lines() {
        let args = words(line);
        let command = Command::from_args(&args);
        let classified = classify(&command).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(Ok(key_bytes(&command, &classified)), keys_of(&mut connection, &args), "{line}");
    }
}

/// Every command of the server with arguments made of words that options are made of.
#[test]
fn keys_are_found_among_confusing_arguments_too() {
    const WORDS: [&str; 16] = [
        "0", "1", "2", "3", "-1", "01", "a", "b", "c", "STREAMS", "block", "COUNT", "GROUP", "LIMIT", "", "x",
    ];
    let Some(redis) = Redis::start("confusing") else { return };
    let mut connection = redis.connect();
    let names = names(&connection.ask(&["COMMAND"]));
    let mut compared = 0;
    for case in cases::seeds(40) {
        let mut random = SmallRng::seed_from_u64(case.seed);
        let mut random = |bound: usize| random.random_range(0..bound);
        for name in &names {
            let mut args: Vec<&str> = name.split('|').collect();
            args.extend((0..random(9)).map(|_| WORDS[random(WORDS.len())]));
            let command = Command::from_args(&args);
            let Ok(classified) = classify(&command) else { continue };
            // Redis parses an option's argument that looks like STREAMS as the former; its key search does not.
            let options = args.iter().filter(|arg| arg.eq_ignore_ascii_case("streams")).count();
            if classified.kind == CommandKind::Connection || options > 1 {
                continue;
            }
            let Ok(expected) = keys_of(&mut connection, &args) else { continue };
            assert_eq!(key_bytes(&command, &classified), expected, "{args:?}");
            compared += 1;
        }
    }
    assert!(cases::alone() || compared > 1000, "{compared} commands compared");
}

fn names(reply: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for entry in reply.elements().expect("an array") {
        let fields = entry.elements().expect("an entry");
        let subcommands = self::names(&fields[9]);
        if subcommands.is_empty() {
            names.push(String::from_utf8_lossy(fields[0].bytes().expect("a name")).into_owned());
        }
        names.extend(subcommands);
    }
    names
}

#[test]
fn the_table_has_every_command_of_its_version() {
    let Some(redis) = Redis::start("table") else { return };
    let mut connection = redis.connect();
    let info = connection.ask(&["INFO", "server"]);
    let info = String::from_utf8_lossy(info.bytes().expect("text")).into_owned();
    if !info.contains(&format!("redis_version:{REDIS_VERSION}\r\n")) {
        return;
    }
    for name in names(&connection.ask(&["COMMAND"])) {
        let container = name.split('|').next().expect("a name");
        assert!(find(container.as_bytes()).is_some(), "{name}");
    }
}

/// Wrong in a way that the router has to see, because it needs the keys.
const WRONG: &str = "\
GET
GET a b
SET k
MSET a 1 b
MSETNX a
CONFIG
CONFIG NO
CONFIG GET
XINFO NO k
object no k
OBJECT ENCODING
XGROUP CREATE k
EVAL s x
EVAL s -1
EVAL s 2 a
EVAL s 01 a
EVAL s 9223372036854775807
EVAL_RO s -1 a
ZUNION 0 a
ZUNION x a
ZUNION 3 a b
ZUNIONSTORE d 0 a
ZINTERSTORE d -1 a
ZDIFFSTORE d 5 a
ZINTERCARD 0 a
SINTERCARD 0 a
SINTERCARD x a
SINTERCARD 3 a b
LMPOP 0 a LEFT
LMPOP x a LEFT
LMPOP 5 a LEFT
ZMPOP -1 a MIN
BLMPOP 0 0 a LEFT
BZMPOP 0 4 a MIN
XREAD COUNT 1 a
XREAD STREAMS a b 0
XREAD COUNT 1 STREAMS
XREADGROUP GROUP g c STREAMS a b >
XREADGROUP GROUP g c COUNT 1 BLOCK 0";

#[test]
fn wrong_commands_get_the_errors_of_redis() {
    let Some(redis) = Redis::start("errors") else { return };
    let mut connection = redis.connect();
    for line in WRONG.lines() {
        let args = words(line);
        let Value::Error(expected) = connection.ask(&args) else { panic!("{line}: Redis takes it") };
        let refusal = classify(&Command::from_args(&args)).expect_err(line);
        assert_eq!(refusal.to_string(), String::from_utf8_lossy(&expected), "{line}");
    }
    for line in ["NOSUCH", "NOSUCH a b", "nosuch \"\" 'x", "CONFIG|GET a"] {
        let args = words(line);
        let Value::Error(expected) = connection.ask(&args) else { panic!("{line}: Redis takes it") };
        let refusal = classify(&Command::from_args(&args)).expect_err(line).to_string();
        assert!(refusal.as_bytes().starts_with(&expected), "{refusal} {expected:?}");
    }
}

#[test]
fn malformed_streams_get_the_errors_of_redis() {
    let Some(redis) = Redis::start("malformed") else { return };
    let long = [b"*1\r\n$".as_slice(), &vec![b'1'; 70_000]].concat();
    for stream in [
        &b"*x\r\n"[..],
        b"*2147483648\r\n",
        b"*01\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n\n\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$536870913\r\n",
        b"*1\r\n$+1\r\n",
        b"SET k \"v\r\n",
        b"SET k 'v'x\r\n",
        &[b'a'; 70_000],
        &long,
    ] {
        let mut connection = redis.connect();
        connection.send(stream);
        let Value::Error(expected) = connection.reply() else { panic!("Redis takes it") };
        let error =
            take_command(&mut Bytes::copy_from_slice(stream), &RespLimits::default()).expect_err("malformed");
        let shown = stream[..stream.len().min(40)].escape_ascii();
        assert_eq!(format!("ERR {error}"), String::from_utf8_lossy(&expected), "{shown}");
    }
}

#[test]
fn inline_commands_are_split_as_redis_splits_them() {
    let Some(redis) = Redis::start("inline") else { return };
    let mut connection = redis.connect();
    for line in [
        "ECHO a",
        "  ECHO\t\"a b\"  ",
        r#"ECHO "\x41\x0a\n\q""#,
        r"ECHO 'it\'s'",
        r#"ECHO a"b""#,
        r#"ECHO a'b c'"#,
        "ECHO a\u{b}b",
        "ECHO \"\"",
        "ECHO \u{e9}",
    ] {
        let stream = format!("{line}\r\n");
        connection.send(stream.as_bytes());
        let expected = connection.reply();
        let command = take_command(&mut Bytes::from(stream), &RespLimits::default()).expect("well formed");
        let command = command.expect("whole");
        assert_eq!(command.len(), 2, "{line}");
        assert_eq!(Some(&command.arg_bytes(1)), expected.bytes(), "{line}");
    }
}

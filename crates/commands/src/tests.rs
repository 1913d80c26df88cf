//! Which command is of which kind. The lists are written out, so that a new table shows what it changes.

use wire::resp::Command;

use super::spec::CommandRule;
use super::spec::{CommandSpec, Flag};
use super::table::TABLE;
use super::{CommandKind, UnnamedKeys, classify};

fn check(expected: CommandKind, lines: &[&str]) {
    for line in lines {
        let args: Vec<&str> = line.split(' ').collect();
        let classified =
            classify(&Command::from_args(&args)).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(classified.kind, expected, "{line}");
    }
}

/// The names of all commands with this rule, containers without subcommands of their own left out.
fn names(wanted: impl Fn(CommandRule) -> bool) -> String {
    let leaves = |spec: &'static CommandSpec| {
        if spec.subcommands.is_empty() { std::slice::from_ref(spec) } else { spec.subcommands }
    };
    let names = TABLE.iter().flat_map(leaves).filter(|spec| wanted(spec.rule)).map(|spec| spec.name);
    names.collect::<Vec<_>>().join(" ")
}

#[test]
fn these_reads_are_cached() {
    let expected = "bitcount bitfield_ro bitpos exists geodist geohash geopos georadius_ro georadiusbymember_ro \
        geosearch get getbit getrange hexists hget hgetall hkeys hlen hmget hstrlen hvals lcs lindex llen lpos \
        lrange mget scard sdiff sinter sintercard sismember smembers smismember strlen substr sunion type \
        xinfo|groups xinfo|stream xlen xrange xrevrange zcard zcount zdiff zinter zintercard zlexcount zmscore \
        zrange zrangebylex zrangebyscore zrank zrevrange zrevrangebylex zrevrangebyscore zrevrank zscore zunion";
    assert_eq!(names(|rule| rule == CommandRule::Read), expected);
}

#[test]
fn these_reads_are_not_cached() {
    let expected = "dump eval_ro evalsha_ro expiretime fcall_ro hrandfield hscan memory|usage object|encoding \
        object|freq object|idletime object|refcount pexpiretime pttl sort_ro srandmember sscan touch ttl \
        xinfo|consumers xpending zrandmember zscan";
    assert_eq!(names(|rule| rule == CommandRule::Query), expected);
    let blocking = "blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin xread xreadgroup";
    assert_eq!(
        names(|rule| matches!(rule, CommandRule::BlockingQuery | CommandRule::BlockingWrite)),
        blocking
    );
}

#[test]
fn these_commands_have_nothing_to_do_with_keys() {
    let expected = "acl|genpass acl|help command|count command|docs command|getkeys \
        command|getkeysandflags command|help command|info command|list config|get config|help \
        config|resetstat config|set dbsize \
        function|dump function|help function|kill function|list function|stats keys lastsave latency|doctor \
        latency|graph latency|help latency|histogram latency|history latency|latest latency|reset lolwut \
        memory|doctor memory|help memory|malloc-stats memory|purge memory|stats module|help module|list \
        object|help pfselftest pubsub|channels pubsub|help pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub \
        randomkey role scan script|exists script|flush script|help script|kill script|load time \
        xgroup|help xinfo|help";
    assert_eq!(names(|rule| rule == CommandRule::Keyless), expected);
}

#[test]
fn parameters_that_coherence_depends_on_stay_with_storage() {
    check(
        CommandKind::Keyless,
        &["CONFIG SET notify-keyspace-events KEA", "config set HZ 10 list-compress-depth 1"],
    );
    for line in ["CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET hz 10 requirepass x"] {
        let command = Command::from_args(&line.split(' ').collect::<Vec<_>>());
        let text = classify(&command).expect_err("it is refused").to_string();
        assert!(text.contains("set it at the storage server itself"), "{text}");
    }
}

#[test]
fn no_write_is_taken_for_a_read() {
    for spec in TABLE.iter().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands)) {
        if spec.has(Flag::Write) {
            let safe =
                matches!(spec.rule, CommandRule::Write | CommandRule::BlockingWrite | CommandRule::Refuse(_));
            assert!(safe, "{} is {:?}", spec.name, spec.rule);
        }
        if spec.rule == CommandRule::Read {
            assert!(spec.has(Flag::Readonly) && !spec.has(Flag::Blocking), "{}", spec.name);
        }
    }
}

#[test]
fn kinds_follow_the_arguments() {
    check(
        CommandKind::Read,
        &["GET k", "hgetall k", "EXISTS k", "SINTER k", "ZUNION 1 k", "XINFO STREAM k", "MGET k"],
    );
    check(
        CommandKind::Query,
        &["EXISTS a b", "SINTER a b", "ZUNION 2 a b", "LCS a b", "TTL k", "TOUCH k", "SORT_RO k"],
    );
    check(
        CommandKind::Query,
        &["XREAD STREAMS a 0", "XREAD COUNT 1 STREAMS block 0", "EVAL_RO s 1 k", "OBJECT FREQ k"],
    );
    check(
        CommandKind::BlockingQuery,
        &["XREAD BLOCK 0 STREAMS a 0", "xread count 1 block 5 streams a b 0 0"],
    );
    check(
        CommandKind::Write,
        &["SET k v", "MSET a 1 b 2", "PFCOUNT k", "SORT k", "GETEX k", "XREADGROUP GROUP g c STREAMS k >"],
    );
    check(
        CommandKind::Write,
        &["EVAL s 1 k", "FCALL f 2 a b", "GEORADIUS k 1 2 3 m", "COPY a b", "XGROUP CREATE k g 0"],
    );
    check(
        CommandKind::Write,
        &["XREADGROUP GROUP block streams STREAMS k >", "EXPIRE k 1", "PERSIST k", "PFMERGE d"],
    );
    check(CommandKind::BlockingWrite, &["BLPOP a b 0", "BLMOVE a b LEFT LEFT 0", "BZMPOP 0 1 k MIN"]);
    check(CommandKind::BlockingWrite, &["XREADGROUP GROUP g c NOACK BLOCK 0 STREAMS k >"]);
    check(
        CommandKind::Barrier,
        &["FLUSHALL", "FLUSHDB ASYNC", "SWAPDB 0 1", "EVAL s 0", "EVALSHA s 0 a", "FCALL f 0"],
    );
    check(CommandKind::Barrier, &["FUNCTION LOAD s", "FUNCTION FLUSH"]);
    check(
        CommandKind::Keyless,
        &["DBSIZE", "SCAN 0", "EVAL_RO s 0", "COMMAND", "COMMAND DOCS get", "OBJECT HELP"],
    );
    check(CommandKind::Subscription, &["SUBSCRIBE c", "punsubscribe", "SSUBSCRIBE a b", "SUNSUBSCRIBE a"]);
    check(CommandKind::Purge, &["DISTCACHE PURGE k", "distcache purge ALL", "DistCache Purge Prefix p"]);
    check(CommandKind::Connection, &["DISTCACHE HELP"]);
    check(CommandKind::Publish, &["PUBLISH c m", "spublish c m"]);
    check(CommandKind::Keyless, &["PUBSUB NUMPAT", "PUBSUB CHANNELS a*"]);
    check(
        CommandKind::Connection,
        &["PING", "HELLO 3", "CLIENT ID", "CLIENT SETINFO LIB-NAME x", "SELECT 1", "INFO", "RESET"],
    );
    check(CommandKind::Connection, &["MULTI", "EXEC", "DISCARD", "UNWATCH"]);
    check(CommandKind::Watch, &["WATCH a b"]);
}

#[test]
fn the_last_destination_is_the_one_that_is_written() {
    for (line, expected) in [
        ("SORT k STORE a STORE b", &[1, 5][..]),
        ("SORT k BY store GET store LIMIT store store", &[1]),
        ("GEORADIUS k 1 2 3 m STORE a STOREDIST b", &[1, 9]),
        ("GEORADIUS k 1 2 3 m STOREDIST a STORE b", &[1, 9]),
        ("GEORADIUSBYMEMBER store m 3 m STORE store", &[1, 6]),
        ("XREADGROUP GROUP streams c STREAMS k >", &[5]),
        ("XREADGROUP COUNT 1 GROUP streams c STREAMS k >", &[7]),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let classified = classify(&Command::from_args(&args)).expect(line);
        assert_eq!(classified.keys.as_slice(), expected, "{line}");
    }
}

#[test]
fn keys_that_a_pattern_makes_are_noticed() {
    for (line, expected) in [
        ("SORT k BY w_*", UnnamedKeys::Any),
        ("sort_ro k get o_*->f", UnnamedKeys::Any),
        ("SORT k GET #", UnnamedKeys::None),
        ("SORT k BY nosort STORE *", UnnamedKeys::None),
        ("SORT by LIMIT get *", UnnamedKeys::None),
        ("SORT {t}k BY {t}w_* GET {t}o_*->f GET #", UnnamedKeys::Tagged),
        ("SORT t BY {t}w_*", UnnamedKeys::Tagged),
        ("SORT {t}k BY {t}w_* GET o_*", UnnamedKeys::Any),
        ("SORT {t}k BY {u}w_*", UnnamedKeys::Any),
        ("SORT {t}k BY w_*{t}", UnnamedKeys::Any),
        ("SORT {t*}k BY {t*}w", UnnamedKeys::Any),
        ("SORT t BY t*", UnnamedKeys::Any),
        ("SORT {} BY {}*", UnnamedKeys::Any),
        ("KEYS *", UnnamedKeys::None),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(classify(&Command::from_args(&args)).expect(line).unnamed_keys, expected, "{line}");
    }
}

#[test]
fn what_is_not_carried_is_refused_with_its_reason() {
    for (line, expected) in [
        ("CLUSTER NODES", "ERR This instance has cluster support disabled"),
        ("READONLY", "ERR This instance has cluster support disabled"),
        (
            "MOVE k 1",
            "ERR DistCache does not carry 'move': it writes to a database other than the connection's",
        ),
        (
            "COPY a b DB 1",
            "ERR DistCache does not carry 'copy': it writes to a database other than the connection's",
        ),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        assert_eq!(classify(&Command::from_args(&args)).expect_err(line).to_string(), expected);
    }
    let lines = "MONITOR|SYNC|PSYNC ? -1|\
        REPLICAOF no one|FAILOVER|WAIT 1 0|SHUTDOWN|DEBUG SLEEP 0|CONFIG SET a b|\
        MIGRATE h 1 k 0 1|ASKING|RESTORE-ASKING k 0 v|SCRIPT DEBUG YES|REPLCONF a|SAVE|BGSAVE";
    for line in lines.split('|') {
        let args: Vec<&str> = line.split(' ').collect();
        assert!(classify(&Command::from_args(&args)).is_err(), "{line}");
    }
}

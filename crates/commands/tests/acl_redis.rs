//! Users and their permissions against a real redis-server: random rules, random commands, equal words.

use bytes::Bytes;
use commands::CommandSpec;
use commands::acl::{Denied, User, Users};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use redis_server::{Connection, Redis};
use wire::resp::{Command, Value};

mod redis_server;

/// How many commands are allowed hangs on a few users who may do nearly everything: of 400 users one run of many had 982.
const USERS: u32 = 800;
const COMMANDS_PER_USER: usize = 60;

const FIXED_RULES: [&str; 36] = [
    "on",
    "off",
    "nopass",
    "resetpass",
    ">secret",
    ">other",
    "<secret",
    "allkeys",
    "~*",
    "resetkeys",
    "allchannels",
    "&*",
    "resetchannels",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@read",
    "-@write",
    "+@fast",
    "-@dangerous",
    "+@nothing",
    "+select|0",
    "+select|1",
    "-select|0",
    "+config|get|x",
    "+get|",
    "+client|nothing",
    "clearselectors",
    "skip-sanitize-payload",
    "sanitize-payload",
    "%R~a*",
    "%W~a*",
    "%RW~b:*",
    "%x~a",
    "!abc",
];
const PATTERNS: [&str; 8] = ["*", "a", "a*", "b:*", "[ab]", "?", "news*", "GET"];
const WORDS: [&str; 30] = [
    "a",
    "b",
    "ab",
    "b:1",
    "c",
    "news",
    "news.1",
    "other",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "x",
    "STREAMS",
    "STORE",
    "STOREDIST",
    "GET",
    "SET",
    "BY",
    "LIMIT",
    "COUNT",
    "BLOCK",
    "GROUP",
    "OVERFLOW",
    "u8",
    "NX",
    "AND",
    "MATCH",
    "get",
];

struct Draw(SmallRng);

impl Draw {
    fn one<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from.choose(&mut self.0).expect("not empty")
    }

    fn spec(&mut self) -> &'static CommandSpec {
        let all: Vec<&'static CommandSpec> = commands::specs().filter(|spec| !is_own(spec.name)).collect();
        all.choose(&mut self.0).expect("not empty")
    }

    fn rule(&mut self, in_selector: bool) -> String {
        let pattern = self.one(&PATTERNS);
        match self.0.random_range(0..12) {
            0..=2 => format!("{}{}", self.one(&["+", "-"]), self.spec().name),
            3 | 4 => {
                let category = self.one(&["read", "write", "keyspace", "slow", "pubsub", "hash", "STRING"]);
                format!("{}@{category}", self.one(&["+", "-"]))
            }
            5 | 6 => format!("{}{pattern}", self.one(&["~", "%R~", "%W~", "%rw~"])),
            7 => format!("&{pattern}"),
            8 if !in_selector => {
                let rules: Vec<String> = (0..self.0.random_range(0..5)).map(|_| self.rule(true)).collect();
                format!("({})", rules.join(" "))
            }
            _ => self.one(&FIXED_RULES).to_owned(),
        }
    }

    /// Rules that hold together more often than not, for the wrong ones hide the rest.
    fn rules(&mut self) -> Vec<String> {
        let mut rules: Vec<String> = Vec::new();
        for _ in 0..self.0.random_range(1..9) {
            let rule = self.rule(false);
            rules.extend(rule.split(' ').map(str::to_owned));
        }
        rules
    }

    fn command(&mut self) -> Vec<String> {
        let spec = std::iter::repeat_with(|| self.spec()).find(|spec| spec.subcommands.is_empty());
        let spec = spec.expect("most have none");
        let mut args: Vec<String> = spec.name.split('|').map(str::to_owned).collect();
        let least = usize::from(spec.arity.unsigned_abs());
        let most = if spec.arity < 0 { least + self.0.random_range(0..6) } else { least };
        while args.len() < most {
            args.push(self.one(&WORDS).to_owned());
        }
        if spec.name == "migrate" {
            self.migrate(&mut args);
        }
        args
    }

    /// MIGRATE has its keys at its end if the one in front is empty.
    fn migrate(&mut self, args: &mut [String]) {
        if self.0.random() {
            args[3].clear();
        }
        for arg in &mut args[6..] {
            if self.0.random() {
                *arg = self.one(&["KEYS", "auth", "AUTH2", "copy", "replace"]).to_owned();
            }
        }
    }
}

/// Commands that Redis does not have.
fn is_own(name: &str) -> bool {
    name.trim_start_matches(['+', '-']).starts_with("distcache")
}

/// Redis prints single commands in the order of a hash table with a random seed.
fn sorted(line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(line).replace('(', "( ").replace(')', " )");
    let mut words: Vec<String> = text.split(' ').filter(|word| !is_own(word)).map(str::to_owned).collect();
    let single = |word: &String| word.starts_with(['+', '-']) && !word[1..].starts_with('@');
    words.chunk_by_mut(|one, other| single(one) && single(other)).for_each(<[String]>::sort);
    words
}

fn ask(redis: &mut Connection, words: &[&str], more: &[String]) -> Value {
    let args: Vec<&str> = words.iter().copied().chain(more.iter().map(String::as_str)).collect();
    redis.ask(&args)
}

fn text(value: &Value) -> String {
    match value {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        value => value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default(),
    }
}

/// The user of this name as Redis prints it.
fn line_of(redis: &mut Connection, name: &str) -> Bytes {
    let list = redis.ask(&["ACL", "LIST"]);
    let lines = list.elements().expect("an array").iter().filter_map(Value::bytes);
    let start = format!("user {name} ");
    lines.into_iter().find(|line| line.starts_with(start.as_bytes())).expect("listed").clone()
}

fn verdict(user: &User, command: &Command) -> String {
    let spec = commands::resolve(command).expect("a known command");
    let access = |index: usize, what: &str| {
        let name = String::from_utf8_lossy(command.arg(index));
        format!("This user has no permissions to access the '{name}' {what}")
    };
    match user.check(spec, command) {
        Ok(()) => "OK".to_owned(),
        Err(Denied::Command) => format!("This user has no permissions to run the '{}' command", spec.name),
        Err(Denied::Key(index)) => access(index, "key"),
        Err(Denied::Channel(index)) => access(index, "channel"),
    }
}

/// Where Redis overlooks a key that the command will use, DistCache does not.
fn is_stricter(command: &[String]) -> bool {
    let names = ["pfmerge", "georadius", "georadiusbymember", "xread", "xreadgroup", "migrate"];
    names.contains(&command[0].as_str())
}

#[test]
fn rules_and_verdicts_are_those_of_redis() {
    let Some(server) = Redis::start("acl-redis") else { return };
    let mut redis = server.connect();
    let (mut defined, mut allowed, mut denied) = (0, 0, 0);
    // MIGRATE with KEYS at its end has the key at its place; with a key at its place and more behind KEYS, Redis checks none.
    for case in cases::seeds(USERS).after(&[7841838552039418986]) {
        let mut draw = Draw(SmallRng::seed_from_u64(case.seed));
        let (name, rules) = (format!("u{}", case.seed), draw.rules());
        let reply = ask(&mut redis, &["ACL", "SETUSER", &name], &rules);
        let users = match Users::configured(&[(name.clone(), rules.clone())]) {
            Ok(users) => users,
            Err((_, error)) => {
                // Redis crashes when it has to print a pattern that permits nothing.
                assert_eq!(text(&reply), format!("ERR {error}"), "{rules:?}");
                continue;
            }
        };
        assert_eq!(text(&reply), "OK", "{rules:?}");
        defined += 1;
        let user = users.get(name.as_bytes()).expect("just defined");
        let theirs = line_of(&mut redis, &name);
        assert_eq!(sorted(&user.line()), sorted(&theirs), "{rules:?}");
        let (read, odd) = Users::of_storage(&[vec![theirs]]);
        let again = read.get(name.as_bytes()).expect("all rules are known");
        assert!(odd.is_empty(), "{odd:?}");
        for _ in 0..COMMANDS_PER_USER {
            let args = draw.command();
            let expected = text(&ask(&mut redis, &["ACL", "DRYRUN", &name], &args));
            let got = verdict(user, &Command::from_args(&args));
            if expected == "OK" && is_stricter(&args) && got != "OK" {
                continue;
            }
            assert_eq!(got, expected, "{rules:?} {args:?}");
            // Redis prints `%RW~*`, which does not match the empty key, as `~*`, which allows every key.
            if !args.iter().any(String::is_empty) {
                assert_eq!(verdict(again, &Command::from_args(&args)), got, "{rules:?} {args:?}");
            }
            *(if got == "OK" { &mut allowed } else { &mut denied }) += 1;
        }
    }
    let enough = defined > USERS / 3 && allowed > 1000 && denied > 1000;
    assert!(cases::alone() || enough, "{defined} {allowed} {denied}");
}

/// What is checked of a command covers every key by which it would be routed and carried out.
#[test]
fn no_key_of_a_command_goes_unchecked() {
    let rules = ["on", "nopass", "+@all", "allchannels"];
    let users = Users::configured(&[("nobody".to_owned(), rules.to_vec())]).expect("right");
    let user = users.get(b"nobody").expect("just defined");
    let mut seen = 0;
    for case in cases::seeds(50_000) {
        let mut draw = Draw(SmallRng::seed_from_u64(case.seed));
        let command = Command::from_args(&draw.command());
        let Ok(classified) = commands::classify(&command) else { continue };
        for index in &classified.keys {
            seen += 1;
            // A user that may use all the other keys may still not use this one.
            let args = command.args().enumerate();
            let patterns = args.filter(|(other, arg)| other != index && *arg != command.arg(*index));
            let patterns = patterns.map(|(_, arg)| format!("~{}", String::from_utf8_lossy(arg)));
            let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).chain(patterns).collect();
            let users = Users::configured(&[("some".to_owned(), rules)]).expect("right");
            let some = users.get(b"some").expect("just defined");
            assert!(user.check(classified.spec, &command).is_err(), "{command:?}");
            assert!(some.check(classified.spec, &command).is_err(), "{command:?} {index}");
        }
    }
    assert!(cases::alone() || seen > 10_000, "{seen}");
}

#[test]
fn commands_of_a_category_are_those_of_redis() {
    let Some(server) = Redis::start("acl-cat") else { return };
    let mut redis = server.connect();
    let categories = redis.ask(&["ACL", "CAT"]);
    let names = categories.elements().expect("an array").iter().map(text).collect::<Vec<_>>();
    assert_eq!(names, Users::categories().collect::<Vec<_>>());
    for name in names {
        let reply = redis.ask(&["ACL", "CAT", &name]);
        let mut theirs: Vec<String> = reply.elements().expect("an array").iter().map(text).collect();
        theirs.sort();
        let mut ours: Vec<&str> = Users::commands_of(name.as_bytes()).expect("known").collect();
        ours.retain(|name| !is_own(name));
        ours.sort_unstable();
        assert_eq!(ours, theirs, "{name}");
    }
}

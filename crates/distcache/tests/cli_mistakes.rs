//! Mistakes that people make on the command line and in files: each is answered by the place, the wrong word and what to
//! write, and by its exit code. A mistake that is answered badly gets a row here.

use std::path::PathBuf;
use std::process::Command;

const GOOD: &str = r#"[cluster]
name = "demo"
secret = "00112233445566778899aabbccddeeff"
[[controller]]
id = "controller"
listen = "127.0.0.1:7000"
[[layer]]
name = "leaf"
partition = "rack"
[[layer]]
name = "spine"
partition = "hash"
[[node]]
id = "leaf-0"
layer = "leaf"
rack = "r0"
listen = "127.0.0.1:7200"
[[node]]
id = "spine-0"
layer = "spine"
listen = "127.0.0.1:7300"
[[shim]]
id = "shim-0"
rack = "r0"
listen = "127.0.0.1:7100"
storage = "redis://127.0.0.1:6391"
[[router]]
id = "router-0"
listen = "127.0.0.1:6380"
"#;

/// What is typed after `distcache` (GOOD is a good file, NONE a path that is not there), the exit code, and parts of the
/// answer.
const LINES: &[(&str, i32, &[&str])] = &[
    ("", 2, &["Usage: distcache", "Commands:"]),
    ("stauts", 2, &["'stauts'", "'status'"]),
    ("trace inof", 2, &["'inof'", "'info'"]),
    ("status", 2, &["--controller <URL>", "for example http://127.0.0.1:7000", "DISTCACHE_CONTROLLER"]),
    ("status --controler x", 2, &["'--controler'", "'--controller'"]),
    ("status --controller", 2, &["'--controller <URL>'", "http://127.0.0.1:7000"]),
    ("status --controller https://x:1", 2, &["--controller https://x:1", "--ca-file FILE is missing"]),
    (
        "status --controller ftp://x:1",
        2,
        &["--controller ftp://x:1", "write http://HOST:PORT, or https://HOST:PORT"],
    ),
    ("status --controller https://x:1 --ca-file /nowhere", 2, &["--ca-file = \"/nowhere\"", "no such file"]),
    ("status --controller 127.0.0.1:99999", 2, &["--controller", "\"99999\" is no port", "http://HOST:PORT"]),
    (
        "status --controller 127.0.0.1",
        2,
        &["--controller 127.0.0.1", "the port is missing", "[[controller]]"],
    ),
    ("up --config GOOD --host a", 2, &["--host \"a\"", "GOOD has no [[host]]", "name and address"]),
    ("status --controller :7000", 2, &["--controller :7000", "\"\" is no host", "write http://HOST:PORT"]),
    (
        "status --controller 127.0.0.1:1",
        1,
        &["127.0.0.1:1", "nothing listens there", "is the controller running"],
    ),
    ("check", 2, &["--config <FILE>", "configuration file (TOML)", "DISTCACHE_CONFIG"]),
    ("check GOOD", 2, &["unexpected argument", "write --config GOOD"]),
    ("check --config NONE", 2, &["NONE", "there is no such file", "check the path after --config"]),
    ("check --config /", 2, &["/: this is a directory", "give a file"]),
    (
        "check --config GOOD --set lease",
        2,
        &["--set lease", "write SECTION.KEY=VALUE", "cluster.lease_ms=500"],
    ),
    (
        "check --config GOOD --set clutser.lease_ms=3",
        2,
        &["--set clutser.lease_ms=3", "cluster, placement, security"],
    ),
    (
        "check --config GOOD --set cluster.leas_ms=3",
        2,
        &["--set cluster.leas_ms", "did you mean `lease_ms`?"],
    ),
    (
        "check --config GOOD --set cluster.lease_ms=1s",
        2,
        &["--set cluster.lease_ms", "\"1s\"", "lease_ms = 1000"],
    ),
    ("check --config GOOD --set cluster.lease_ms=1", 2, &["lease_ms = 1", "write 20 to 60000"]),
    ("check --config GOOD --set cluster.observe_only=yes", 2, &["observe_only", "\"yes\"", "true or false"]),
    ("check --config GOOD --log loud", 2, &["--log \"loud\"", "error, warn, info, debug or trace"]),
    ("check --config GOOD --log a=b=c", 2, &["--log \"a=b=c\"", "info,router=debug"]),
    ("check --config GOOD --log-format xml", 2, &["'xml'", "--log-format <FORMAT>", "text, json"]),
    ("run --config GOOD", 2, &["--id <ID>", "its id in the file", "DISTCACHE_ID"]),
    (
        "run --config GOOD --id leaf-9",
        2,
        &["--id \"leaf-9\"", "no such member", "shim-0, leaf-0, spine-0, router-0"],
    ),
    ("up --config GOOD --id leaf-0", 2, &["'--id'", "Usage: distcache up --config <FILE>"]),
    ("up --config NONE", 2, &["NONE", "there is no such file"]),
    ("doctor --config NONE", 2, &["NONE", "there is no such file"]),
    ("doctor --config GOOD --timeout 0", 2, &["'0'", "--timeout <SECONDS>", "1..=600"]),
    ("drain --controller x:1", 2, &["<ID>...", "Which nodes: ids of the configuration"]),
    ("drain leaf-0 --timeout soon --controller x:1", 2, &["'soon'", "--timeout", "write a whole number"]),
    ("purge --controller x:1", 2, &["<KEY|--prefix <PREFIX>|--all>"]),
    ("purge k --all --controller x:1", 2, &["'[KEY]'", "'--all'", "cannot be used with"]),
    ("inspect --controller x:1", 2, &["<KEY>", "bytes that are no text as \\xNN"]),
    ("top --limit many --controller x:1", 2, &["'many'", "--limit <N>", "write a whole number"]),
    ("reload", 2, &["--controller <URL>", "http://127.0.0.1:7000"]),
    ("completions", 2, &["<SHELL>", "Usage: distcache completions <SHELL>"]),
    ("completions tcsh", 2, &["'tcsh'", "bash", "zsh", "fish"]),
    ("man", 2, &["<DIR>", "made if it is not there"]),
    ("version --jsn", 2, &["'--jsn'", "'--json'"]),
    ("bench", 2, &["--target <URL>", "redis://[USER:PASSWORD@]HOST:PORT"]),
    ("bench --target 127.0.0.1:6380", 2, &["--target: not a URL", "use redis://"]),
    ("bench --target http://127.0.0.1:1", 2, &["--target", "unknown scheme http", "use redis://"]),
    (
        "bench --target memcached://127.0.0.1:1",
        2,
        &["--target", "memcached:// is not in this release", "redis://"],
    ),
    ("bench --target redis://127.0.0.1:x", 2, &["--target", "\"x\" is not a port", "write 1 to 65535"]),
    ("bench --target redis://", 2, &["--target", "the host is missing", "use redis://"]),
    ("bench --target redis://127.0.0.1/3", 2, &["--target", "database \"3\"", "leave the path away"]),
    ("bench --target rediss://127.0.0.1:1", 2, &["--target rediss://", "--ca-file"]),
    ("bench --target redis://127.0.0.1:1 --ca-file x", 2, &["--ca-file is for TLS", "write rediss://"]),
    ("bench --target redis://127.0.0.1:1 --keys 0", 2, &["--keys 0", "write 1 to"]),
    ("bench --target redis://127.0.0.1:1 --dist zipff:1", 2, &["--dist zipff:1", "use uniform, zipf:A"]),
    ("bench --target redis://127.0.0.1:1 --dist zipf:x", 2, &["--dist zipf:x", "\"x\"", "as in zipf:0.99"]),
    ("bench --target redis://127.0.0.1:1 --dist trace:NONE", 2, &["--dist trace:NONE", "No such file"]),
    ("bench --target redis://127.0.0.1:1 --write-ratio 2", 2, &["--write-ratio 2", "write 0 to 1"]),
    ("bench --target redis://127.0.0.1:1 --write-ratio half", 2, &["'half'", "--write-ratio", "such as 0.5"]),
    (
        "bench --target redis://127.0.0.1:1 --value-bytes 64KB",
        2,
        &["'64KB'", "--value-bytes", "a whole number"],
    ),
    ("bench --target redis://127.0.0.1:1 --connections 0", 2, &["--connections 0", "write 1 to 60000"]),
    ("bench --target redis://127.0.0.1:1 --pipeline 0", 2, &["--pipeline 0", "write 1 to 100000"]),
    ("bench --target redis://127.0.0.1:1 --mget 0", 2, &["--mget 0", "write 1 to 10000"]),
    ("bench --target redis://127.0.0.1:1 --rate -1", 2, &["--rate -1", "above 0"]),
    ("bench --target redis://127.0.0.1:1 --seconds 0", 2, &["--seconds 0", "write more than 0"]),
    ("bench --target redis://127.0.0.1:1 --requests 0", 2, &["--requests 0", "write at least 1"]),
    ("bench --target redis://127.0.0.1:1 --series NONE/x", 2, &["--series NONE/x", "cannot be written"]),
    ("bench --target redis://127.0.0.1:1 --seconds 1", 1, &["127.0.0.1:1", "is the server running there?"]),
    ("sim --seeds 9..3", 2, &["--seeds \"9..3\"", "write A..B", "0..1000"]),
    ("trace info NONE", 2, &["NONE", "No such file"]),
    ("plan --servers few", 2, &["'few'", "--servers <N>", "write a whole number"]),
];

/// A part of the good file, what is written instead, and parts of the answer. The exit code is 2.
const FILES: &[(&str, &str, &[&str])] = &[
    (
        "layer = \"spine\"",
        "layer = \"spin\"",
        &[":20: ", "\"spine-0\"", "layer = \"spin\"", "did you mean `spine`?"],
    ),
    (
        "layer = \"leaf\"",
        "layer = \"spin\"",
        &[":15: ", "layer = \"spin\"", "no [[layer]] has this name", "\"leaf\""],
    ),
    ("name = \"spine\"", "name = \"spin\"", &[":20: ", "\"spine\"", "did you mean `spin`?"]),
    ("name = \"demo\"", "lease_ms = \"1s\"", &[":2: ", "lease_ms", "\"1s\"", "lease_ms = 1000"]),
    ("name = \"demo\"", "lease_ms = \"500\"", &[":2: ", "\"500\"", "without quotes, lease_ms = 500"]),
    ("name = \"demo\"", "lease_ms = 1.5", &[":2: ", "lease_ms: 1.5", "a whole number of milliseconds"]),
    ("name = \"demo\"", "lease_ms = -5", &[":2: ", "-5", "a whole number of milliseconds"]),
    ("name = \"demo\"", "lease_ms = 5", &[":2: ", "lease_ms = 5", "write 20 to 60000"]),
    ("name = \"demo\"", "lease_guard_ms = 900", &[":2: ", "lease_guard_ms = 900", "write at most 500"]),
    ("name = \"demo\"", "lease = 500", &[":2: ", "unknown key `lease`", "did you mean `lease_ms`?"]),
    ("name = \"demo\"", "name = demo", &[":2: ", "demo is no value", "name = \"demo\""]),
    ("name = \"demo\"", "name = \"demo", &[":2: ", "does not end", "quotation mark"]),
    ("name = \"demo\"", "name = 5", &[":2: ", "name: 5", "name = \"5\""]),
    ("name = \"demo\"", "name = \"a\"\nname = \"b\"", &[":3: ", "`name` is given twice", "keep one"]),
    ("name = \"demo\"", "mode = \"strikt\"", &[":2: ", "`strikt`", "did you mean `strict`?", "\"bounded\""]),
    ("name = \"demo\"", "routing = \"random\"", &[":2: ", "`random`", "\"learned\" or \"on-path\""]),
    ("name = \"demo\"", "observe_only = \"yes\"", &[":2: ", "\"yes\"", "write true or false"]),
    (
        "secret = \"00112233445566778899aabbccddeeff\"",
        "secret = \"hush\"",
        &[":3: ", "hexadecimal", "openssl rand"],
    ),
    (
        "secret = \"00112233445566778899aabbccddeeff\"",
        "secret = \"0011\"",
        &[":3: ", "4 digits", "32 hexadecimal"],
    ),
    (
        "secret = \"00112233445566778899aabbccddeeff\"",
        "secret_file = \"/nonexistent\"",
        &["[cluster] secret_file = \"/nonexistent\"", "there is no such file", "write the secret into it"],
    ),
    ("[cluster]", "[clutser]", &[":1: ", "unknown section `clutser`", "did you mean `cluster`?"]),
    ("[cluster]", "[cluster", &[":1: ", "expected `]`"]),
    ("[cluster]", "[[cluster]]", &[":1: ", "write [cluster] with one pair of brackets"]),
    ("[[node]]", "[node]", &["write [[node]] each time"]),
    ("[[node]]", "[[nodes]]", &[":13: ", "`nodes`", "did you mean `node`?"]),
    ("[[shim]]", "[shim]", &[":22: ", "write [[shim]] with two pairs of brackets"]),
    ("[[router]]", "[[ruoter]]", &[":27: ", "`ruoter`", "did you mean `router`?"]),
    (
        "partition = \"rack\"",
        "partition = \"racks\"",
        &[":9: ", "`racks`", "did you mean `rack`?", "\"hash\""],
    ),
    ("partition = \"rack\"\n", "", &[":7: ", "`partition` is missing", "partition = \"rack\" or \"hash\""]),
    ("id = \"leaf-0\"", "id = 0", &[":14: ", "id: 0", "id = \"0\""]),
    ("id = \"leaf-0\"", "id = \"leaf 0\"", &[":14: ", "id = \"leaf 0\"", "letters, digits"]),
    ("id = \"leaf-0\"", "id = \"spine-0\"", &[":19: ", "id = \"spine-0\"", "ids are unique"]),
    (
        "rack = \"r0\"\nlisten = \"127.0.0.1:7200\"",
        "listen = \"127.0.0.1:7200\"",
        &[":13: ", "rack is missing", "\"r0\""],
    ),
    (
        "rack = \"r0\"\nlisten = \"127.0.0.1:7200\"",
        "rack = \"r9\"\nlisten = \"127.0.0.1:7200\"",
        &[":16: ", "rack = \"r9\"", "racks of the shims: \"r0\""],
    ),
    ("layer = \"spine\"", "layer = \"spine\"\nrack = \"r0\"", &[":21: ", "rack = \"r0\"", "remove rack"]),
    (
        "id = \"leaf-0\"",
        "id = \"leaf-0\"\nhost = \"a\"",
        &[":15: ", "host = \"a\"", "no [[host]] has this name", "add it, with its name and its address"],
    ),
    (
        "[[layer]]",
        "[[host]]\nname = \"a\"\n[[layer]]",
        &[":7: ", "`address` is missing", "address = \"10.0.0.1\""],
    ),
    (
        "[[layer]]",
        "[[host]]\nname = \"a\"\naddress = \"cache-a\"\n[[layer]]",
        &[":9: ", "\"cache-a\" is no address", "write an IP address"],
    ),
    (
        "[[layer]]",
        "[[host]]\nname = \"a\"\naddress = \"127.0.0.1\"\n[[layer]]",
        &[":4: ", "[[controller]] \"controller\": host is missing", "there are \"a\""],
    ),
    (
        "listen = \"127.0.0.1:7200\"",
        "listen = \"localhost:7200\"",
        &[":17: ", "\"localhost:7200\"", "write IP:PORT"],
    ),
    ("listen = \"127.0.0.1:7200\"", "listen = \"127.0.0.1:72000\"", &[":17: ", "72000", "write IP:PORT"]),
    ("listen = \"127.0.0.1:7200\"", "listen = 7200", &[":17: ", "listen: 7200", "write text in quotes"]),
    ("listen = \"127.0.0.1:7200\"", "listen = \"0.0.0.0:7200\"", &[":17: ", "not encrypted", "[tls.peers]"]),
    (
        "listen = \"127.0.0.1:7200\"",
        "listen = \"127.0.0.1:7300\"",
        &[":21: ", "\"leaf-0\" has it", "its own address"],
    ),
    (
        "listen = \"127.0.0.1:7200\"",
        "listn = \"127.0.0.1:7200\"",
        &[":17: ", "`listn`", "did you mean `listen`?"],
    ),
    ("[[shim]]", "bytes_max = \"64 megs\"\n[[shim]]", &[":22: ", "\"64 megs\" is not a size", "\"64MiB\""]),
    ("[[shim]]", "bytes_max = \"1B\"\n[[shim]]", &[":22: ", "bytes_max = \"1B\"", "write \"1KiB\" to"]),
    ("[[shim]]", "objects_max = \"10k\"\n[[shim]]", &[":22: ", "\"10k\"", "objects_max = 10000"]),
    ("[[shim]]", "capacity = 0.0\n[[shim]]", &[":22: ", "capacity = 0", "write 0.001 to 1000.0"]),
    ("[[shim]]", "capacity = \"half\"\n[[shim]]", &[":22: ", "\"half\"", "capacity = 1.5"]),
    (
        "[[shim]]",
        "admin = \"7290\"\n[[shim]]",
        &[":22: ", "admin: \"7290\" is no address", "\"127.0.0.1:7000\""],
    ),
    (
        "listen = \"127.0.0.1:7000\"",
        "listen = \"localhost:7000\"",
        &[":6: ", "\"localhost:7000\"", "\"IP:PORT\""],
    ),
    ("[[layer]]", "store = \"etcd\"\n[[layer]]", &[":7: ", "store = \"etcd\"", "\"etcd://HOST:PORT\""]),
    (
        "[[layer]]",
        "store = \"etcd://x\"\n[[layer]]",
        &[":7: ", "\"x\" is not HOST:PORT", "etcd://127.0.0.1:2379"],
    ),
    ("[[layer]]", "member_lease_ms = 10\n[[layer]]", &[":7: ", "member_lease_ms = 10", "write 1000 to"]),
    (
        "redis://127.0.0.1:6391",
        "127.0.0.1:6391",
        &[":26: ", "no storage URL", "redis://USER:PASSWORD@HOST:PORT"],
    ),
    ("redis://127.0.0.1:6391", "http://127.0.0.1:80", &[":26: ", "\"http\"", "memcached://HOST:PORT"]),
    ("redis://127.0.0.1:6391", "redis://127.0.0.1:port", &[":26: ", "\"port\" is not a port", "1 to 65535"]),
    ("redis://127.0.0.1:6391", "redis://127.0.0.1/2", &[":26: ", "database \"2\"", "leave the path away"]),
    (
        "redis://127.0.0.1:6391",
        "redis://me@127.0.0.1",
        &[":26: ", "a user without a password", "USER:PASSWORD@"],
    ),
    ("redis://127.0.0.1:6391", "rediss://127.0.0.1", &[":26: ", "no [tls.storage]", "ca_file"]),
    ("redis://127.0.0.1:6391", "redis+unix://tmp/x", &[":26: ", "start with a slash", "redis+unix:///PATH"]),
    ("redis://127.0.0.1:6391", "redis+sentinel://127.0.0.1", &[":26: ", "the name", "HOST:PORT/NAME"]),
    (
        "[[router]]",
        "storage_password_file = \"/nonexistent\"\n[[router]]",
        &["\"shim-0\"", "storage_password_file = \"/nonexistent\"", "there is no such file"],
    ),
    (
        "listen = \"127.0.0.1:6380\"",
        "listen = \"127.0.0.1:7300\"",
        &[":29: ", "\"spine-0\" has it", "its own address"],
    ),
    (
        "id = \"router-0\"",
        "id = \"router-0\"\nprotocol = \"resp\"",
        &[":29: ", "`resp`", "\"redis\" or \"memcached\""],
    ),
    (
        "id = \"router-0\"",
        "id = \"router-0\"\nready_shims = 3",
        &[":29: ", "ready_shims = 3", "\"any\" or \"all\""],
    ),
    (
        "id = \"router-0\"",
        "id = \"router-0\"\nready_shims = \"some\"",
        &[":29: ", "\"some\"", "\"any\", \"all\""],
    ),
    ("id = \"router-0\"", "id = \"router-0\"\ndrain_ms = \"5s\"", &[":29: ", "\"5s\"", "drain_ms = 5000"]),
    (
        "id = \"router-0\"",
        "id = \"router-0\"\nlisten_unix = \"x\"",
        &[":29: ", "listen_unix", "an absolute path"],
    ),
    (
        "id = \"router-0\"",
        "id = \"router-0\"\nlisten_tls = \"127.0.0.1:1\"",
        &[":29: ", "[tls.clients]", "key_file"],
    ),
    (
        "[[controller]]",
        "[limits]\nclients_max = 0\n[[controller]]",
        &[":5: ", "clients_max = 0", "write 1 to"],
    ),
    (
        "[[controller]]",
        "[limits]\nlearned_max = 6553600000000\n[[controller]]",
        &[":5: ", "learned_max = 6553600000000", "write 1 to 16777216", "reserves 10 bytes for each"],
    ),
    (
        "[[controller]]",
        "[limits]\nstorage_ms_max = 18446744073709552\n[[controller]]",
        &[":5: ", "storage_ms_max = 18446744073709552", "write 100 to 3600000"],
    ),
    ("[[controller]]", "[limits]\nclient_max = 1\n[[controller]]", &[":5: ", "did you mean `clients_max`?"]),
    (
        "[[controller]]",
        "[heat]\ncounters = 1000\n[[controller]]",
        &[":5: ", "counters = 1000", "a power of two"],
    ),
    (
        "[[controller]]",
        "[heat]\nhysteresis = 0.5\n[[controller]]",
        &[":5: ", "hysteresis = 0.5", "1.0 to 100.0"],
    ),
    (
        "[[controller]]",
        "[slowlog]\nentries_max = 99999\n[[controller]]",
        &[":5: ", "99999", "write 0 to 16384"],
    ),
    (
        "[[controller]]",
        "[log]\nfilter = \"loud\"\n[[controller]]",
        &["[log] filter", "\"loud\" is no level", "info"],
    ),
    (
        "[[controller]]",
        "[[policy]]\nprefix = \"p\"\ncache = \"newer\"\n[[controller]]",
        &[":6: ", "did you mean `never`?"],
    ),
    (
        "[[controller]]",
        "[[policy]]\ncache = \"never\"\n[[controller]]",
        &[":4: ", "`prefix` is missing", "prefix = "],
    ),
    ("[[controller]]", "[[user]]\nname = \"u\"\n[[controller]]", &[":4: ", "`rules` is missing", "rules = "]),
    (
        "[[controller]]",
        "[[user]]\nname = \"u\"\nrules = \"+gett\"\n[[controller]]",
        &["\"u\"", "'+gett'", "Unknown command"],
    ),
    (
        "[[controller]]",
        "[security]\nusers = \"storag\"\n[[controller]]",
        &[":5: ", "did you mean `storage`?"],
    ),
    (
        "[[controller]]",
        "[tls.clients]\ncertificate_file = \"x\"\n[[controller]]",
        &[":4: ", "`key_file` is missing"],
    ),
    (
        "[[controller]]",
        "[tls.clients]\ncertificate_file = \"/nonexistent\"\nkey_file = \"x\"\n[[controller]]",
        &["[tls.clients] certificate_file = \"/nonexistent\"", "there is no such file"],
    ),
];

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("distcache-mistakes-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What is wrong with the answer to these arguments.
fn flaw(arguments: &[String], code: i32, parts: &[String]) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        command.env_remove(&name);
    }
    let output = command.args(arguments).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let missing: Vec<&String> = parts.iter().filter(|part| !stderr.contains(*part)).collect();
    let found = output.status.code();
    let escapes = stderr.contains('\x1b');
    let good = found == Some(code) && missing.is_empty() && output.stdout.is_empty() && !escapes;
    let line = arguments.join(" ");
    (!good)
        .then(|| format!("{line}\n  exit code {found:?}, not said: {missing:?}\n  said: {}", stderr.trim()))
}

fn owned(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

#[test]
fn every_mistake_on_the_command_line_is_answered() {
    let folder = Folder::new("lines");
    let good = folder.file("good.toml", GOOD.as_bytes());
    let none = format!("{}/none", folder.0.display());
    let named = |text: &str| text.replace("GOOD", &good).replace("NONE", &none);
    let flaws: Vec<String> = LINES
        .iter()
        .filter_map(|(line, code, parts)| {
            let arguments: Vec<String> = line.split_whitespace().map(named).collect();
            let parts: Vec<String> = parts.iter().map(|part| named(part)).collect();
            flaw(&arguments, *code, &parts)
        })
        .collect();
    assert!(flaws.is_empty(), "{} of {}\n{}", flaws.len(), LINES.len(), flaws.join("\n"));
}

#[test]
fn every_mistake_in_a_file_is_answered() {
    let folder = Folder::new("files");
    let check = |name: &str, text: &[u8], parts: &[&str]| {
        let file = folder.file(name, text);
        let mut parts = owned(parts);
        parts.push(file.clone());
        flaw(&owned(&["check", "--config", &file]), 2, &parts)
            .map(|flaw| format!("{flaw}\n  file: {}", String::from_utf8_lossy(text).lines().count()))
    };
    let mut flaws = Vec::new();
    for (index, (old, new, parts)) in FILES.iter().enumerate() {
        assert!(GOOD.contains(old), "{old}");
        let text = GOOD.replacen(old, new, 1);
        flaws.extend(
            check(&format!("{index}.toml"), text.as_bytes(), parts).map(|flaw| format!("{new}: {flaw}")),
        );
    }
    for (index, (text, parts)) in [
        (&b""[..], &["[[shim]]: there is none", "add one"][..]),
        (b"{\"cluster\": 1}", &[":1: ", "no line of TOML", "key = value"]),
        (b"\xff\xfe", &["no text in UTF-8", "is it the right file?"]),
        (
            b"[cluster]\nsecret = \"00112233445566778899aabbccddeeff\"\n",
            &["[[shim]]: there is none", "add one"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        flaws.extend(check(&format!("whole-{index}.toml"), text, parts));
    }
    assert!(flaws.is_empty(), "{} of {}\n{}", flaws.len(), FILES.len(), flaws.join("\n"));
}

#[test]
fn every_mistake_in_the_environment_names_its_variable() {
    let folder = Folder::new("environment");
    let good = folder.file("good.toml", GOOD.as_bytes());
    for (name, value, parts) in [
        ("DISTCACHE_CLUSTER_LEASE_MS", "fast", ["DISTCACHE_CLUSTER_LEASE_MS", "\"fast\"", "a whole number"]),
        (
            "DISTCACHE_CLUSTER_LEES_MS",
            "500",
            ["DISTCACHE_CLUSTER_LEES_MS", "`lees_ms`", "did you mean `lease_ms`?"],
        ),
        ("DISTCACHE_LOG", "loud", ["DISTCACHE_LOG", "\"loud\" is no level", "info"]),
        ("DISTCACHE_CONFIG", "/nonexistent.toml", ["/nonexistent.toml", "there is no such file", "path"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
        command.arg("check").env("DISTCACHE_CONFIG", &good).env(name, value);
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{name}: {stderr}");
    }
}

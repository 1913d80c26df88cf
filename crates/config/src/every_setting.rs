//! Every setting that a configuration may have, changed in a file that is read again: it is either acted on or named as
//! needing a restart, and never half of both.

use super::Config;

pub(super) const TEXT: &str = r#"
[cluster]
secret = "00112233445566778899aabbccddeeff"
[placement]
distribution = "jedis"
[security]
[limits]
[heat]
[near]
[slowlog]
[log]
[tracing]
[[policy]]
prefix = "p"
[[host]]
name = "a"
address = "127.0.0.1"
[[controller]]
id = "c0"
host = "a"
listen = "127.0.0.1:7000"
[[layer]]
name = "leaf"
partition = "hash"
[[node]]
id = "n0"
host = "a"
layer = "leaf"
listen = "127.0.0.1:7200"
[[shim]]
id = "s0"
host = "a"
rack = "r0"
listen = "127.0.0.1:7100"
storage = "redis://127.0.0.1:6379"
[[standby]]
id = "b0"
host = "a"
listen = "127.0.0.1:7600"
[[router]]
id = "x0"
host = "a"
listen = "127.0.0.1:6380"
[[user]]
name = "u"
rules = "on nopass +@all ~*"
"#;

/// Settings whose new value must be of a kind, or go with others; the others take a number.
const VALUES: [(&str, &str, &str); 49] = [
    ("[cluster]", "name", "\"other\""),
    ("[cluster]", "mode", "\"bounded\""),
    ("[cluster]", "routing", "\"on-path\""),
    ("[cluster]", "cache_expiring_hashes", "true"),
    ("[cluster]", "observe_only", "true"),
    ("[placement]", "distribution", "\"jedis-2\""),
    ("[placement]", "hash_tag", "\"{}\""),
    ("[security]", "insecure_listen", "true"),
    ("[security]", "http_hosts", "[\"cache.internal\"]"),
    ("[security]", "hide_keys", "true"),
    ("[security]", "foreign_writers", "\"refuse\""),
    ("[limits]", "client_input_bytes_max", "\"1MiB\""),
    ("[limits]", "command_bytes_max", "\"1MiB\""),
    ("[limits]", "transaction_bytes_max", "\"1MiB\""),
    ("[limits]", "client_buffers_bytes_max", "\"1MiB\""),
    ("[limits]", "unread_replies_bytes_max", "\"1MiB\""),
    ("[heat]", "rows", "3"),
    ("[heat]", "filter_rows", "2"),
    ("[heat]", "hysteresis", "2.0"),
    ("[log]", "filter", "\"info\""),
    ("[tracing]", "service_name", "\"other\""),
    ("[[host]]", "address", "\"127.0.0.2\""),
    ("[[host]]", "admin", "\"127.0.0.1:6391\""),
    ("[[policy]]", "prefix", "\"other\""),
    ("[[policy]]", "cache", "\"always\""),
    ("[[controller]]", "id", "\"c1\""),
    ("[[controller]]", "listen", "\"127.0.0.1:7001\""),
    ("[[controller]]", "store", "\"etcd://127.0.0.1:2379\""),
    ("[[controller]]", "member_lease_ms", "3000"),
    ("[limits]", "overload", "\"refuse\""),
    ("[[node]]", "bytes_max", "\"2KiB\""),
    ("[[node]]", "listen", "\"127.0.0.1:7201\""),
    ("[[node]]", "admin", "\"127.0.0.1:7290\""),
    ("[[shim]]", "id", "\"s1\""),
    ("[[shim]]", "rack", "\"r1\""),
    ("[[shim]]", "listen", "\"127.0.0.1:7101\""),
    ("[[shim]]", "storage", "\"redis://127.0.0.1:6378\""),
    ("[[shim]]", "admin", "\"127.0.0.1:7190\""),
    ("[[shim]]", "server_name", "\"other\""),
    ("[[standby]]", "id", "\"b1\""),
    ("[[standby]]", "listen", "\"127.0.0.1:7601\""),
    ("[[standby]]", "admin", "\"127.0.0.1:7690\""),
    ("[[router]]", "listen", "\"127.0.0.1:6390\""),
    ("[[router]]", "listen_unix", "\"/tmp/x0.sock\""),
    ("[[router]]", "threads", "2"),
    ("[[router]]", "ready_shims", "\"all\""),
    ("[[router]]", "admin", "\"127.0.0.1:6391\""),
    ("[[user]]", "name", "\"v\""),
    ("[[user]]", "rules", "\"on nopass +get ~*\""),
];

/// Settings that need files, members or other settings beside them.
const ELSEWHERE: [(&str, &str); 26] = [
    // Nothing shows it.
    ("[cluster]", "secret"),
    ("[cluster]", "secret_file"),
    ("[placement]", "hash"),
    ("[security]", "users"),
    ("[tracing]", "otlp_endpoint"),
    ("[tracing]", "sample_one_in"),
    ("[tracing]", "headers_file"),
    ("[[host]]", "name"),
    ("[[controller]]", "host"),
    ("[[node]]", "host"),
    ("[[shim]]", "host"),
    ("[[standby]]", "host"),
    ("[[router]]", "host"),
    ("[[policy]]", "stale_if_error_ms"),
    ("[[layer]]", "name"),
    ("[[layer]]", "partition"),
    ("[[node]]", "layer"),
    ("[[node]]", "rack"),
    ("[[controller]]", "store_password_file"),
    ("[[shim]]", "storage_password_file"),
    ("[[shim]]", "durability"),
    ("[[shim]]", "state"),
    ("[[shim]]", "slots"),
    ("[[standby]]", "of"),
    ("[[router]]", "listen_tls"),
    ("[[user]]", "password_file"),
];

/// A new entry, which a controller tells of: its number is its place, so it is the old one that is renamed.
const RENAMED: [(&str, &str); 3] = [("[[node]]", "id"), ("[[router]]", "id"), ("[[router]]", "protocol")];

/// The keys that a section may have, from the error about one that it may not.
fn keys(section: &str) -> Vec<String> {
    let text = TEXT.replacen(section, &format!("{section}\nno_such_key = 1"), 1);
    let error = Config::parse(&text).expect_err("no section has such a key").to_string();
    let (_, allowed) = error.split_once("allowed here: ").unwrap_or_else(|| panic!("{section}: {error}"));
    allowed.split(", ").flat_map(|part| part.split('`').nth(1)).map(str::to_owned).collect()
}

fn with(section: &str, key: &str, value: &str) -> String {
    let (before, after) = TEXT.split_once(&format!("{section}\n")).expect("the section is there");
    let end = after.find("\n[").unwrap_or(after.len());
    let (body, rest) = after.split_at(end);
    let others = body.lines().filter(|line| !line.starts_with(&format!("{key} =")));
    let body: String = others.map(|line| format!("{line}\n")).collect();
    format!("{before}{section}\n{key} = {value}\n{body}{rest}")
}

/// What a process acts on, without where it was read from.
fn acted_on(config: &Config) -> String {
    let (source, table, started, assumed) = Default::default();
    format!("{:?}", Config { source, table, started, assumed, ..config.clone() })
}

/// What is wrong with how this setting is read again.
fn flaw(before: &Config, section: &str, key: &str, value: &str) -> Option<String> {
    let after = match Config::parse(&with(section, key, value)) {
        Ok(after) => after,
        Err(error) => return Some(error.to_string()),
    };
    let (config, reloaded) = match before.changed_to(&after) {
        Ok(changed) => changed,
        Err(error) => return Some(error.to_string()),
    };
    let (old, acted, new) = (acted_on(before), acted_on(&config), acted_on(&after));
    match (reloaded.changed.is_empty(), reloaded.restart_needed.is_empty()) {
        _ if new == old => Some("the value is no other than before".to_owned()),
        (false, true) if acted != new => Some("it is said to be acted on and is not".to_owned()),
        (true, false) if acted != old => Some("it is said to need a restart and is acted on".to_owned()),
        (false, true) | (true, false) => None,
        _ => Some(format!("one of both: {reloaded:?}")),
    }
}

#[test]
fn every_setting_is_acted_on_or_named_as_needing_a_restart() {
    let before = Config::parse(TEXT).unwrap();
    let (mut tried, mut flaws) = (0, Vec::new());
    for section in TEXT.lines().filter(|line| line.starts_with('[')) {
        for key in keys(section) {
            let is = |other: &(&str, &str)| *other == (section, key.as_str());
            if ELSEWHERE.iter().chain(&RENAMED).any(is) {
                continue;
            }
            let value = VALUES.iter().find(|(other, name, _)| is(&(other, name)));
            // No default is this, and it is a power of two where one is asked for.
            let value = value.map_or("256", |(.., value)| *value);
            tried += 1;
            let flaw = flaw(&before, section, &key, value);
            flaws.extend(flaw.map(|flaw| format!("{section} {key} = {value}: {flaw}")));
        }
    }
    assert!(flaws.is_empty(), "{}", flaws.join("\n"));
    assert!(tried > 70, "{tried}");
}

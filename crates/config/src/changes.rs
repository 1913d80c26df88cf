//! What differs between two readings of a configuration file, and which of it can be acted on while serving. Not the
//! acting.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Config;
use super::load::ConfigError;

/// What a reload has come to, field by field, as `[section] key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Acted on from now on.
    pub changed: Vec<String>,
    /// Different in the file since the process started, and not acted on before it starts again.
    pub restart_needed: Vec<String>,
}

/// Makes `is_hot` and `take_hot` of one list: whole sections, keys of sections, keys of members, and the only keys of
/// `[limits]` that are not in it.
macro_rules! hot {
    (
        whole: $($section:literal $whole:ident),+;
        keys: $($of:ident.$key:ident),+;
        members: $($kind:literal $members:ident: $($setting:ident),+);+;
        limits but $($cold:ident),+;
    ) => {
        /// Whether a process acts on this field while it serves; a restart is needed for the others.
        pub(super) fn is_hot(section: &str, key: &str) -> bool {
            match section {
                $($section)|+ => true,
                "limits" => ![$(stringify!($cold)),+].contains(&key),
                $($kind => [$(stringify!($setting)),+].contains(&key),)+
                section => [$((stringify!($of), stringify!($key))),+].contains(&(section, key)),
            }
        }

        impl Config {
            /// Takes those settings of `newer` that `is_hot` tells.
            fn take_hot(&mut self, newer: &Config) {
                $(self.$whole = newer.$whole.clone();)+
                $(self.$of.$key = newer.$of.$key;)+
                let limits = self.limits.clone();
                self.limits = crate::Limits { $($cold: limits.$cold,)+ ..newer.limits.clone() };
                $(for member in &mut self.$members {
                    if let Some(newer) = newer.$members.iter().find(|newer| newer.id == member.id) {
                        $(member.$setting = newer.$setting;)+
                    }
                })+
            }
        }
    };
}

hot! {
    whole: "heat" heat, "policy" policies, "near" near, "slowlog" slowlog, "log" log, "user" users;
    keys: cluster.observe_only, security.hide_keys, security.foreign_writers, tracing.sample_one_in;
    members: "node" nodes: objects_max, bytes_max, rate_max; "shim" shims: rate_max; "router" routers: ready_shims;
    limits but handshake_ms_max, blocking_max, large_replies_max, moved_keys_rate_max, unread_replies_bytes_max, storage_ms_max;
}

impl Config {
    /// This configuration with those settings of `newer` that can change while serving, and the names of what differs.
    ///
    /// # Errors
    /// The two do not go together.
    pub fn changed_to(&self, newer: &Config) -> Result<(Config, Reloaded), ConfigError> {
        let mut config = self.clone();
        config.take_hot(newer);
        config.validate()?;
        let changed = differences(&self.table, &newer.table).hot;
        let restart_needed = differences(&self.started, &newer.table).cold;
        config.table = newer.table.clone();
        Ok((config, Reloaded { changed, restart_needed }))
    }
}

/// The names of fields that differ.
#[derive(Default)]
struct Differences {
    /// What can change while serving.
    hot: Vec<String>,
    cold: Vec<String>,
}

fn differences(old: &Table, new: &Table) -> Differences {
    let mut found = Differences::default();
    for section in names(old, new) {
        match (old.get(section), new.get(section)) {
            (old, new) if old == new => {}
            (Some(Value::Array(_)) | None, Some(Value::Array(_)) | None) => {
                let members =
                    |table: Option<&Value>| table.and_then(Value::as_array).cloned().unwrap_or_default();
                let (old, new) = (members(old.get(section)), members(new.get(section)));
                compare_members(section, &old, &new, &mut found);
            }
            (old, new) => {
                let fields =
                    |value: Option<&Value>| value.and_then(Value::as_table).cloned().unwrap_or_default();
                let at = format!("[{section}]");
                compare_fields(&FieldPlace { section, at }, &fields(old), &fields(new), &mut found);
            }
        }
    }
    found
}

/// Where fields are, for the rules and for people.
struct FieldPlace<'a> {
    section: &'a str,
    at: String,
}

fn compare_fields(place: &FieldPlace<'_>, old: &Table, new: &Table, found: &mut Differences) {
    let FieldPlace { section, at } = place;
    for key in names(old, new).into_iter().filter(|key| old.get(*key) != new.get(*key)) {
        let list = if is_hot(section, key) { &mut found.hot } else { &mut found.cold };
        list.push(format!("{at} {key}"));
    }
}

/// Members that were added are `distcache reload`'s business: whoever runs already learns of them from a controller.
fn compare_members(section: &str, old: &[Value], new: &[Value], found: &mut Differences) {
    let name = |member: &Value| {
        let named = ["id", "prefix", "name"].iter().find_map(|key| member.get(key)?.as_str());
        named.unwrap_or_default().to_owned()
    };
    let find =
        |members: &[Value], wanted: &str| members.iter().find(|member| name(member) == wanted).cloned();
    for member in old.iter().chain(new.iter().filter(|member| find(old, &name(member)).is_none())) {
        let id = name(member);
        let at = format!("[[{section}]] {id:?}");
        let fields = |members| find(members, &id).and_then(|member| member.as_table().cloned());
        match (fields(old), fields(new)) {
            (Some(old), Some(new)) => compare_fields(&FieldPlace { section, at }, &old, &new, found),
            _ if is_hot(section, "") => found.hot.push(at),
            (None, _) if matches!(section, "host" | "node" | "layer" | "router") => {}
            _ => found.cold.push(at),
        }
    }
}

fn names<'a>(old: &'a Table, new: &'a Table) -> BTreeSet<&'a str> {
    old.keys().chain(new.keys()).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use crate::Reloaded;

    const TEXT: &str = r#"
[cluster]
secret = "00112233445566778899aabbccddeeff"
[limits]
clients_max = 10
[[layer]]
name = "leaf"
partition = "hash"
[[node]]
id = "n0"
layer = "leaf"
listen = "127.0.0.1:7200"
objects_max = 5
[[shim]]
id = "s0"
rack = "r0"
listen = "127.0.0.1:7100"
[[router]]
id = "x0"
listen = "127.0.0.1:6380"
"#;

    fn check(old: &str, new: &str, changed: &[&str], restart_needed: &[&str]) -> Config {
        assert!(TEXT.contains(old), "{old:?}");
        let before = Config::parse(TEXT).unwrap();
        let after = Config::parse(&TEXT.replacen(old, new, 1)).unwrap();
        let (config, reloaded) = before.changed_to(&after).unwrap();
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = Reloaded { changed: owned(changed), restart_needed: owned(restart_needed) };
        assert_eq!(reloaded, expected, "{new}");
        config
    }

    #[test]
    fn settings_change_and_are_named() {
        let config = check("clients_max = 10", "clients_max = 20", &["[limits] clients_max"], &[]);
        assert_eq!(config.limits.clients_max, 20);
        let config = check(
            "objects_max = 5",
            "objects_max = 6\nrate_max = 7",
            &["[[node]] \"n0\" objects_max", "[[node]] \"n0\" rate_max"],
            &[],
        );
        assert_eq!((config.nodes[0].objects_max, config.nodes[0].rate_max), (6, 7));
        let config = check("[limits]", "[heat]\nthreshold = 9\n[limits]", &["[heat] threshold"], &[]);
        assert_eq!(config.heat.threshold, 9);
        let policy = "[[policy]]\nprefix = \"a\"\ncache = \"never\"\n[[shim]]";
        let config = check("[[shim]]", policy, &["[[policy]] \"a\""], &[]);
        assert_eq!(config.policies.len(), 1);
        check("[cluster]", "# a comment\n[cluster]", &[], &[]);
    }

    #[test]
    fn what_needs_a_restart_is_named_and_left_alone() {
        let config = check("[limits]", "[limits]\nblocking_max = 3", &[], &["[limits] blocking_max"]);
        assert_eq!(config.limits.blocking_max, 1000);
        let config = check("secret", "lease_ms = 500\nsecret", &[], &["[cluster] lease_ms"]);
        assert_eq!(config.cluster.lease_ms, 1000);
        let moved = "listen = \"127.0.0.1:6390\"";
        check("listen = \"127.0.0.1:6380\"", moved, &[], &["[[router]] \"x0\" listen"]);
        let added = "[[node]]\nid = \"n1\"\nlayer = \"leaf\"\nlisten = \"127.0.0.1:7201\"\n[[shim]]";
        let config = check("[[shim]]", added, &[], &[]);
        assert_eq!(config.nodes.len(), 1, "members come from a controller");
    }

    #[test]
    fn a_restart_is_asked_for_until_it_comes() {
        let before = Config::parse(TEXT).unwrap();
        let moved = TEXT.replace("6380", "6390");
        let (once, _) = before.changed_to(&Config::parse(&moved).unwrap()).unwrap();
        let more = moved.replace("clients_max = 10", "clients_max = 30");
        let (config, reloaded) = once.changed_to(&Config::parse(&more).unwrap()).unwrap();
        assert_eq!(reloaded.changed, ["[limits] clients_max"]);
        assert_eq!(reloaded.restart_needed, ["[[router]] \"x0\" listen"]);
        let (_, reloaded) = config.changed_to(&before).unwrap();
        assert!(reloaded.restart_needed.is_empty(), "the file says again what the process does");
    }
}

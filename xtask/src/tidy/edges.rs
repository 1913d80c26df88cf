//! Which crate may depend on which: the table of the architecture page, checked against `cargo metadata`.

use serde_json::Value;

use super::Violation;

/// Our own crates that each crate may use. `distcache`, `fuzz` and `xtask` stand at the top and are not listed.
const EDGES: [(&str, &[&str]); 18] = [
    (OF_TESTS, &[]),
    ("wire", &[]),
    ("policies", &[]),
    ("flash", &[]),
    ("trace", &[]),
    ("commands", &["wire"]),
    ("protocol", &["commands", "wire"]),
    ("config", &["protocol", "wire"]),
    ("runtime", &["config", "protocol", "wire"]),
    ("xdp", &["wire"]),
    ("node", &["runtime", "config", "protocol", "wire", "xdp"]),
    ("router", &["runtime", "config", "protocol", "commands", "wire", "xdp"]),
    ("shim", &["runtime", "config", "protocol", "commands", "wire"]),
    ("controller", &["runtime", "config", "protocol", "wire"]),
    ("linearize", &["wire"]),
    ("sim", &["protocol", "commands", "linearize", "trace", "wire"]),
    ("study", &["protocol", "policies", "flash", "trace", "wire"]),
    (
        "lab",
        &[
            "node", "router", "shim", "runtime", "config", "protocol", "wire", "sim", "study", "trace",
            "policies", "flash",
        ],
    ),
];
/// Has commands with their errors, and is below the binary.
const OF_COMMANDS: &str = "lab";

/// May use every other crate, and nothing may use them.
const TOPS: [&str; 3] = ["distcache", "fuzz", "xtask"];

/// May be a dev-dependency of every crate, and nothing else: it decides the seeds of tests.
const OF_TESTS: &str = "cases";

/// Crates that have neither sockets nor threads, and the crates from outside that must stay out of them.
const WITHOUT_EFFECTS: [&str; 7] = ["wire", "commands", "config", "protocol", "policies", "flash", "trace"];
const EFFECTS: [&str; 10] =
    ["tokio", "mio", "socket2", "rustix", "rustls", "axum", "ureq", "signal-hook", "libc", "io-uring"];
/// But for these, with which `flash::device` reaches files.
const OF_DEVICES: [&str; 3] = ["rustix", "libc", "io-uring"];

/// Checks the output of `cargo metadata --no-deps`.
pub(crate) fn check(metadata: &Value, found: &mut Vec<Violation>) {
    for package in array(&metadata["packages"]) {
        let name = text(&package["name"]);
        let mut report = |message: String| {
            let path = format!("crate {name}");
            found.push(Violation { path, line: 0, rule: "edge", message });
        };
        if !TOPS.contains(&name) && !EDGES.iter().any(|(known, _)| *known == name) {
            report("not in the table of crates: a new one needs a decision record".to_owned());
            continue;
        }
        for dependency in array(&package["dependencies"]) {
            if let Some(message) = refuse(name, dependency) {
                report(message);
            }
        }
    }
}

fn refuse(name: &str, dependency: &Value) -> Option<String> {
    let target = text(&dependency["name"]);
    let ours = !dependency["path"].is_null();
    let shipped = dependency["kind"].is_null();
    if ours && TOPS.contains(&target) {
        return Some(format!("nothing depends on `{target}`"));
    }
    if ours && target == OF_TESTS {
        let dev = dependency["kind"] == "dev";
        return (!dev).then(|| format!("`{target}` is for tests, so only a dev-dependency"));
    }
    if TOPS.contains(&name) {
        return None;
    }
    let (_, allowed) = EDGES.iter().find(|(known, _)| *known == name)?;
    if ours && !allowed.contains(&target) {
        return Some(format!("must not depend on `{target}`; it may use: {}", allowed.join(", ")));
    }
    if shipped && target == "anyhow" && name != OF_COMMANDS {
        return Some(
            "`anyhow` is for commands (`distcache`, `lab`, `xtask`); a library has its own small error"
                .to_owned(),
        );
    }
    let device = name == "flash" && OF_DEVICES.contains(&target);
    if shipped && WITHOUT_EFFECTS.contains(&name) && EFFECTS.contains(&target) && !device {
        return Some(format!("has neither sockets nor threads, so it must not depend on `{target}`"));
    }
    None
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(name: &str, target: &str, path: Option<&str>, kind: Option<&str>) -> usize {
        let dependency = json!({ "name": target, "path": path, "kind": kind });
        let metadata = json!({ "packages": [{ "name": name, "dependencies": [dependency] }] });
        let mut found = Vec::new();
        check(&metadata, &mut found);
        found.len()
    }

    fn ours(name: &str, target: &str) -> usize {
        messages(name, target, Some("crates/x"), None)
    }

    #[test]
    fn dependencies_point_one_way() {
        assert_eq!(ours("node", "protocol"), 0);
        assert_eq!(ours("distcache", "router"), 0);
        assert_eq!(ours("protocol", "runtime"), 1);
        assert_eq!(ours("wire", "protocol"), 1);
        assert_eq!(ours("node", "router"), 1, "no role depends on a role");
        assert_eq!(ours("shim", "flash"), 1);
        assert_eq!(ours("node", "distcache"), 1, "nothing depends on the binary");
        assert_eq!(ours("distcache", "xtask"), 1);
    }

    #[test]
    fn dev_dependencies_are_no_way_round() {
        assert_eq!(messages("protocol", "runtime", Some("crates/x"), Some("dev")), 1);
        assert_eq!(messages("distcache", "trace", Some("crates/x"), Some("dev")), 0);
        assert_eq!(messages("wire", "cases", Some("crates/x"), Some("dev")), 0);
        assert_eq!(ours("wire", "cases") + ours("distcache", "cases"), 2, "the seeds of tests stay in tests");
    }

    #[test]
    fn unknown_crates_fail() {
        let metadata = json!({ "packages": [{ "name": "extras", "dependencies": [] }] });
        let mut found = Vec::new();
        check(&metadata, &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn effects_and_anyhow_stay_out_of_the_libraries() {
        assert_eq!(messages("protocol", "tokio", None, None), 1);
        assert_eq!(messages("protocol", "bytes", None, None), 0);
        assert_eq!(messages("runtime", "mio", None, None), 0);
        assert_eq!(messages("config", "mio", None, None) + messages("config", "rustls", None, None), 2);
        assert_eq!(messages("flash", "io-uring", None, None), 0, "devices");
        assert_eq!(messages("flash", "mio", None, None) + messages("trace", "libc", None, None), 2);
        assert_eq!(messages("shim", "anyhow", None, None), 1);
        assert_eq!(messages("distcache", "anyhow", None, None) + messages("lab", "anyhow", None, None), 0);
    }
}

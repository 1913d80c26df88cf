//! `distcache reproduce` as a user meets it: the files that it writes, and what it refuses. Not what the claims say.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn reproduce(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        command.env_remove(&name);
    }
    command.arg("reproduce").args(arguments).output().expect("the binary runs")
}

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_report_has_its_table_figures_and_values() {
    let folder = Folder(std::env::temp_dir().join(format!("distcache-reproduce-{}", std::process::id())));
    let out = folder.0.to_str().expect("a path of letters");
    let ran = reproduce(&["--quick", "--claims", "M6,s1", "--out", out]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.stderr.is_empty(), "progress is for terminals");
    let read = |name: &str| std::fs::read_to_string(folder.0.join(name)).expect(name);
    let claims: Vec<Value> = serde_json::from_str(&read("claims.json")).expect("JSON");
    let ids: Vec<&str> = claims.iter().filter_map(|claim| claim["id"].as_str()).collect();
    assert_eq!(ids, ["S1", "M6"]);
    for claim in &claims {
        let mut keys: Vec<&String> = claim.as_object().expect("an object").keys().collect();
        keys.sort();
        assert_eq!(keys, ["command", "id", "ours", "paper", "verdict"]);
        assert!(
            ["holds", "holds in shape", "does not hold"].contains(&claim["verdict"].as_str().expect("text"))
        );
    }
    for id in ["small-cache-5", "small-cache-6", "mbalancer-12", "mbalancer-13"] {
        assert!(read(&format!("{id}.svg")).starts_with("<svg "));
        let png = std::fs::read(folder.0.join(format!("{id}.png"))).expect(id);
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        let csv = read(&format!("{id}.csv"));
        // From the right, because names may have commas: high, low, y.
        let values = csv.lines().skip(1).filter_map(|line| line.rsplit(',').nth(2));
        let values: Vec<f64> = values.map(|value| value.parse().expect("a number")).collect();
        assert!(values.len() > 10 && values.iter().all(|value| value.is_finite()), "{id}");
    }
    let report = read("report.html");
    assert!(ids.iter().all(|id| report.contains(&format!("<tr id=\"{id}\">"))));
    assert!(!report.contains("http"), "nothing outside is referred to");
}

#[test]
fn what_makes_no_sense_is_refused_with_one_line() {
    for (arguments, part) in [
        (&["--out", "/tmp/never", "--claims", "D1,D12"][..], "no claim \"D12\""),
        (&["--out", "/tmp/never", "--claims", ""], "no claim is named"),
        (&["--quick"], "--out <DIR>"),
    ] {
        let ran = reproduce(arguments);
        assert_eq!(ran.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(part), "{arguments:?}");
    }
    let ran = reproduce(&["--out", "/proc/never", "--claims", "S1"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("/proc/never: cannot be made"));
}

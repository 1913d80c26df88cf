//! `distcache study capacity` as a user meets it: its fields, and one clear line about what is wrong. Not its numbers.

use std::process::{Command, Output};

fn study(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    command.args(["study", "capacity", "--racks", "4", "--spines", "4", "--servers-per-rack", "4"]);
    command.args(["--leaf-rate", "4", "--spine-rate", "4", "--objects", "5000", "--slots", "8"]);
    command.args(arguments).output().expect("the binary starts")
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = study(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn json_has_the_fields_of_the_issue_and_the_same_numbers_each_time() {
    let first = json(&["--json", "--seeds", "3"]);
    let fields = "throughput throughput_min throughput_max ideal bound bound_share hit_ratio_leaf hit_ratio_spine distinct_objects";
    for field in fields.split(' ') {
        assert!(first[field].is_number(), "{field}");
    }
    assert_eq!(first["ideal"], 16.0);
    assert!(["server", "leaf", "spine", "object"].iter().any(|name| first["binding"] == *name));
    assert_eq!(first, json(&["--json", "--seeds", "3"]));
    assert_ne!(first["throughput"], json(&["--json", "--seeds", "3", "--seed", "7"])["throughput"]);
}

#[test]
fn elastic_copies_stand_beside_plain_ones_and_replication() {
    let elastic = json(&["--json", "--elastic", "--dist", "adversary:1"]);
    assert_eq!((&elastic["copies"], &elastic["degree_max"]), (&8.0.into(), &8.into()));
    assert_eq!((&elastic["copies_extra"], &elastic["copies_extra_per_node"]), (&6.0.into(), &0.75.into()));
    assert_eq!((&elastic["bound"], &elastic["bound_share"]), (&32.0.into(), &1.0.into()));
    let names: Vec<&str> = elastic["beside"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| row["mechanism"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["distcache", "replication-slots", "replication-distinct"]);
    let text = study(&["--elastic", "--dist", "adversary:1"]).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("throughput  32.0 without overload, 200.0 % of ideal"), "{text}");
    assert!(
        text.contains("bound       32.0 is what all nodes and servers together allow; 100.0 %"),
        "{text}"
    );
    let copies =
        "elastic     8 copies of the hottest object; 6 more in all than one in each layer, 0.75 per node";
    assert!(text.contains(copies), "{text}");
    assert!(text.contains("replication-slots"), "{text}");
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_exit_code_2() {
    let cases: [(&[&str], &str); 11] = [
        (&["--racks", "0"], "--racks 0"),
        (&["--racks", "-1"], "'-1' for '--racks <N>'"),
        (&["--server-rate=-1"], "--server-rate -1"),
        (&["--server-rate", "-1"], "--server-rate -1"),
        (&["--server-rate", "fast"], "--server-rate"),
        (&["--dist", "zipf:0"], "zipf"),
        (&["--dist", "file:/nowhere"], "/nowhere"),
        (&["--write-ratio", "2"], "--write-ratio 2"),
        (&["--fail-spines", "32"], "--fail-spines 32"),
        (&["--elastic", "--mechanism", "nocache"], "--elastic"),
        (&["--mechanism", "magic"], "magic"),
    ];
    for (arguments, part) in cases {
        // The last of two equal flags would be an error of its own, so these come without the usual ones.
        let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
        let output = command.args(["study", "capacity"]).args(arguments).output().expect("the binary starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.lines().next().is_some_and(|line| line.contains(part)), "{arguments:?}: {text}");
    }
}

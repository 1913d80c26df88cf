//! `distcache study hot-keys` as a user meets it: fields, defaults and refusals. Its numbers are tested in `study`.

use std::process::{Command, Output};

use serde_json::Value;

fn hot_keys(line: &str) -> Output {
    let arguments = ["study", "hot-keys"].into_iter().chain(line.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_distcache")).args(arguments).output().unwrap()
}

fn json(line: &str) -> Value {
    let output = hot_keys(&format!("{line} --json"));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn fields_belong_to_the_hot_keys_and_plain_ones_stand_beside() {
    let result = json("--servers 10 --keys 1000 --hot 10 --runs 20");
    assert_eq!(result, json("--runs 20"), "these are the defaults");
    let number = |name: &str| result[name].as_f64().unwrap();
    assert!(number("imbalance_factor") > number("imbalance_factor_plain"));
    assert!(number("jain") > number("jain_plain") && number("cv") < number("cv_plain"));
    assert!((number("hot_share") - 0.3913).abs() < 1e-4);
    assert!(number("servers_to_add") > 0.0 && number("imbalance_factor_sd") > 0.0);
    let plain = json("--hot 0 --runs 20");
    assert_eq!(plain["imbalance_factor"], result["imbalance_factor_plain"]);
    assert_eq!((&plain["hot_share"], &plain["servers_to_add"]), (&0.0.into(), &0.0.into()));
    assert_eq!(plain["hot_min"], result["hot_min"]);
    assert_eq!(json("--servers 20 --keys 20 --groups 20 --threshold 1 --runs 5")["hot_min"], Value::Null);
    assert_ne!(json("--placement ketama --runs 5"), json("--runs 5"));
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    for (line, expected) in [
        ("--servers 0", "0 servers"),
        ("--servers -1", "--servers <N>"),
        ("--keys 0", "0 objects"),
        ("--zipf 0", "an exponent above 0"),
        ("--zipf -0.9", "an exponent above 0"),
        ("--groups 11", "11 groups of 10 servers"),
        ("--threshold 1.5", "a threshold of 1.5"),
        ("--runs 0", "0 runs"),
        ("--hot x", "--hot <H>"),
    ] {
        let output = hot_keys(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{line}: {stderr}");
    }
}

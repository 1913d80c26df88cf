//! `distcache study matching` and `stability` as a user meets them: fields, defaults and refusals. Not their numbers.

use std::process::{Command, Output};

use serde_json::Value;

fn study(line: &str) -> Output {
    let arguments = std::iter::once("study").chain(line.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_distcache")).args(arguments).output().unwrap()
}

fn json(line: &str) -> Value {
    let output = study(&format!("{line} --json"));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} is no number in {value}"))
}

#[test]
fn the_largest_alpha_and_the_probability_belong_together() {
    let largest = json("matching --m 16 --find-max --seeds 9");
    assert_eq!(largest, json("matching --m 16 --seeds 9"));
    assert_eq!(largest["probability"], Value::Null);
    assert_eq!(largest["objects"], 45, "16 ln 16, rounded up");
    let (min, mean, max) =
        (number(&largest, "alpha_min"), number(&largest, "alpha_mean"), number(&largest, "alpha_max"));
    assert!(0.5 < min && min < mean && mean < max && max <= 2.0, "{largest}");
    for (rate, due) in [(min * 0.999, 1.0), (max * 1.001, 0.0)] {
        let given = json(&format!("matching --m 16 --rate {rate} --seeds 9"));
        assert_eq!((number(&given, "probability"), number(&given, "alpha_mean")), (due, mean));
    }
    let adversary = json("matching --m 16 --dist adversary --seeds 9");
    assert_eq!(adversary["alpha_mean"], largest["alpha_mean"], "equal rates are equal rates");
}

#[test]
fn a_policy_layers_and_a_cap_change_the_answer() {
    let mean = |line: &str| number(&json(&format!("matching --m 16 --seeds 5 {line}")), "alpha_mean");
    let plain = mean("");
    for policy in ["random-of-two", "one-hash", "one-hash-over-all"] {
        assert!(mean(&format!("--policy {policy}")) < 0.8 * plain, "{policy}");
    }
    assert!(mean("--layers 3") > plain + 0.5);
    assert!(mean("--m-spine 32") > plain + 0.1);
    assert!(mean("--m-spine 8 --spine-rate 4") > plain);
    assert!(mean("--dist zipf:0.99") < 0.8 && mean("--dist zipf:0.99 --cap-half") > 1.0);
    let simulated = json("matching --m 4 --policy two-choices --rate 0.5 --seeds 2 --seconds 2000");
    assert_eq!((&simulated["probability"], &simulated["alpha_mean"]), (&1.0.into(), &Value::Null));
}

#[test]
fn life_and_death_are_told_apart() {
    let line = "stability --m 8 --dist zipf:0.99 --k 40 --cap-half --rate 1.45 --seconds 20 --seeds 2";
    let life = json(line);
    assert_eq!((number(&life, "stationary"), number(&life, "feasible")), (1.0, 1.0));
    assert_eq!(life["drops_total"], 0);
    assert_eq!(number(&life, "offered"), 11_600.0);
    assert!((number(&life, "goodput") / 11_600.0 - 1.0).abs() < 0.02, "{life}");
    for policy in ["random-of-two", "one-hash"] {
        let death = json(&format!("{line} --policy {policy} --queue-max 500"));
        assert_eq!((number(&death, "stationary"), number(&death, "feasible")), (0.0, 0.0), "{policy}");
        assert!(number(&death, "growth_per_s") > 100.0 && number(&death, "drops_total") > 100.0, "{death}");
        assert_eq!(death["queue_max"], 500);
    }
    let told = json(&format!("{line} --telemetry sliding --routers 3 --aging-ms 500"));
    assert_eq!(number(&told, "stationary"), 1.0);
    assert!(number(&told, "queue_mean") > number(&life, "queue_mean"), "{told}");
    let text = String::from_utf8(study(line).stdout).unwrap();
    assert!(text.contains("stationary      2 of 2 seeds"), "{text}");
}

#[test]
fn what_makes_no_sense_is_one_line_and_exit_code_2() {
    for (line, part) in [
        ("matching --m 0", "'0' for '--m <N>'"),
        ("matching --m -1", "'-1' for '--m <N>'"),
        ("matching --m-spine 0", "'0' for '--m-spine <N>'"),
        ("matching --k 0", "0 objects"),
        ("matching --k many", "write a number of objects, or mlogm"),
        ("matching --k 20000000", "20000000 objects"),
        ("matching --dist zipf:0", "zipf"),
        ("matching --dist file:/nowhere/weights", "/nowhere/weights"),
        ("matching --rate -1", "write a number above 0"),
        ("matching --rate 1 --find-max", "cannot be used with"),
        ("matching --layers 5", "5 is not in 1..=4"),
        ("matching --seeds 0", "0 is not in 1..="),
        ("matching --m 40000", "has 80000 nodes"),
        ("matching --spine-rate -2", "write a number above 0"),
        ("matching --k 20 --cap-half --rate 1", "20 objects of at most T/2"),
        ("stability --rate 0", "write a number above 0"),
        ("stability --policy matching", "take two-choices"),
        ("stability --routers 0", "0 routers"),
        ("stability --routers -1", "'-1' for '--routers <N>'"),
        ("stability --node-rate -5", "write a number above 0"),
        ("stability --queue-max 0", "queue of 0"),
        ("stability --seconds nan", "write a number above 0"),
        ("stability --telemetry guessed", "guessed"),
    ] {
        let output = study(line);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(part), "{line}: {error}");
    }
}

//! `distcache study small-cache` as a user meets it: fields, units, defaults and refusals. Its numbers are tested in `study`.

use std::process::{Command, Output};

use serde_json::Value;

fn small_cache(line: &str) -> Output {
    let arguments = ["study", "small-cache"].into_iter().chain(line.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_distcache")).args(arguments).output().unwrap()
}

fn json(line: &str) -> Value {
    let output = small_cache(&format!("{line} --json"));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn check(value: &Value, due: f64) {
    let own = value.as_f64().unwrap();
    assert!((own - due).abs() <= 1e-9 * due.abs(), "{own}, not {due}");
}

#[test]
fn bounds_are_those_of_the_equations() {
    let given = json("bound --n 100 --c 1000");
    assert_eq!(given["cache_objects"], 1000.0);
    check(&given["normalized_load"], 1.582_569_163_236_608);
    check(&given["throughput"], 63.188_391_586_933_21);
    check(&given["worst_x"], 3_713.817_850_038_281);
    let factor = json("bound --n 100 --k 8 --node-rate 10000 --x 9999");
    check(&factor["cache_objects"], 3_685.136_148_790_473);
    check(&factor["throughput"], 1e6 / 1.207_106_781_186_547_5);
    assert!(factor["normalized_load_at_x"].as_f64() < factor["normalized_load"].as_f64());
    check(&json("bound --n 85 --k 8 --v 2.5")["cache_objects"], 9_111.201_380_219_602);
    let one = json("bound --n 1");
    assert_eq!((&one["normalized_load"], &one["worst_x"]), (&1.0.into(), &Value::Null));
}

#[test]
fn simulations_are_normalised_and_repeatable() {
    let line = "simulate --n 85 --c 0 --x 100 --runs 100 --seed 5";
    let result = json(line);
    assert_eq!(result, json(line));
    assert_eq!((&result["runs"], &result["hit_ratio"]), (&100.into(), &0.0.into()));
    let number = |name: &str| result[name].as_f64().unwrap();
    assert!(number("max_load_min") <= number("max_load_mean"));
    assert!(number("max_load_mean") <= number("max_load_max"));
    assert!((24.0..28.0).contains(&number("idle_nodes_mean")), "{result}");
    let keys = number("max_load_min") * 100.0 / 85.0;
    assert!((keys - keys.round()).abs() < 1e-9, "the most loaded node has {keys} keys");
    assert_ne!(result, json("simulate --n 85 --c 0 --x 100 --runs 100 --seed 6"));
    assert_eq!(json("simulate --n 85 --c 0 --x 100 --runs 10 --seeds 10 --seed 5"), result);
}

#[test]
fn throughput_has_the_unit_of_the_nodes_rate() {
    let line = "throughput --n 20 --c 300 --x 900 --keys 1000";
    let (relative, absolute) = (json(line), json(&format!("{line} --node-rate 5000")));
    check(&absolute["throughput"], 5000.0 * relative["throughput"].as_f64().unwrap());
    let part = |name: &str| absolute[name].as_f64().unwrap();
    check(&absolute["throughput"], part("cache_throughput") + part("backend_throughput"));
    check(&absolute["cache_throughput"], part("throughput") / 3.0);
    assert_eq!(json("throughput --n 20 --c 300 --x 300 --keys 1000")["throughput"], Value::Null);
    assert_eq!(json("throughput --n 20 --c 0 --dist adversary:1")["throughput"], 1.0);
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    for (line, expected) in [
        ("bound --n 0", "0 nodes"),
        ("bound --n -3", "--n <N>"),
        ("bound --c 1", "a cache of 1 objects"),
        ("bound --k 0", "write a number above 0"),
        ("bound --alpha -1", "write a number above 0"),
        ("bound --v 0.5", "0.5 virtual nodes"),
        ("bound --node-rate nan", "write a number above 0"),
        ("bound --c 9 --k 9", "cannot be used with"),
        ("simulate --x 0", "--x <KEYS>"),
        ("simulate --x 9 --keys 8", "adversary:9 needs at least 9 objects"),
        ("simulate --dist zipf:0", "not an exponent"),
        ("throughput --dist file:/nonexistent", "/nonexistent: No such file"),
        ("throughput --keys 0", "0 objects"),
        ("throughput --runs 10000000 --seeds 10000000", "--runs times --seeds"),
    ] {
        let output = small_cache(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{line}: {stderr}");
    }
}

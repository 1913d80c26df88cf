//! `distcache study machines` against `distcache study capacity`: what the product's machines reach in virtual time is the
//! optimum of the model, for the same places of all objects. Not a test of either alone.

use std::process::{Command, Output};

use serde_json::Value as Json;

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    command.arg("study").args(arguments).output().expect("the binary runs")
}

fn json(arguments: &[&str]) -> Json {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else")
}

fn number(json: &Json, name: &str) -> f64 {
    json[name].as_f64().unwrap_or_else(|| panic!("{name} in {json}"))
}

const CLUSTER: &str = "--racks 4 --spines 5 --servers-per-rack 4 --leaf-rate 4 --spine-rate 4 --objects 3000 \
                       --placement ring --seeds 1 --json";

#[test]
fn the_machines_reach_what_the_model_says_is_possible() {
    let cases = [
        "--mechanism nocache --dist zipf:0.99",
        "--mechanism nocache --dist uniform --write-ratio 0.2",
        "--mechanism partition-leaf --dist zipf:0.9 --slots 20",
        "--mechanism partition-leaf --dist zipf:1.2 --slots 5",
        "--dist zipf:0.9 --slots 20",
        "--dist zipf:0.99 --slots 5 --seed 2",
        "--dist zipf:1.2 --slots 10 --seed 3",
        "--dist adversary:40 --slots 10 --seed 4",
        "--dist zipf:0.99 --slots 10 --write-ratio 0.02 --coherence-cost 2",
        "--dist zipf:0.99 --slots 10 --write-ratio 0.2",
        "--dist zipf:0.99 --slots 10 --fail-spines 2",
        "--dist zipf:0.99 --slots 10 --fail-spines 2 --remap",
    ];
    for (case, machines) in compared(CLUSTER, &cases.map(str::to_owned)) {
        assert_eq!(number(&machines, "ideal"), 16.0);
        for ratio in ["hit_ratio_leaf", "hit_ratio_spine"] {
            assert!((0.0..=1.0).contains(&number(&machines, ratio)), "{case}: {machines}");
        }
    }
}

/// Figures 9 to 11 at an eighth of the paper's size in each direction: what `distcache reproduce --engine machines` draws.
#[test]
fn the_machines_draw_the_figures_of_the_model() {
    let sized = |racks: u16| {
        format!("--racks {racks} --spines {racks} --servers-per-rack 8 --leaf-rate 8 --spine-rate 8")
    };
    let mechanisms = |flags: &str| {
        ["nocache", "partition-leaf", "distcache"].map(|mechanism| format!("--mechanism {mechanism} {flags}"))
    };
    let eight = sized(8);
    let mut cases: Vec<String> = Vec::new();
    for law in ["uniform", "zipf:0.9", "zipf:0.99"] {
        cases.extend(mechanisms(&format!("{eight} --dist {law} --slots 30")));
    }
    cases.extend(mechanisms(&format!("{eight} --slots 3")));
    cases.extend(mechanisms(&format!("{} --slots 30", sized(12))));
    for (law, slots) in [("zipf:0.9", 3), ("zipf:0.99", 30)] {
        for ratio in [0.05, 0.5] {
            let flags = format!("{eight} --dist {law} --slots {slots} --write-ratio {ratio}");
            cases.extend(mechanisms(&flags).into_iter().skip(1));
        }
    }
    cases.push(format!("{eight} --slots 30 --fail-spines 1"));
    cases.push(format!("{eight} --slots 30 --fail-spines 1 --remap"));
    compared("--objects 200000 --placement ring --seeds 1 --seed 5 --json", &cases);
}

/// Runs both and returns what the machines say. Routers that send every read through a node ask nodes that do not hold
/// the object, too; the model's never do.
fn compared(common: &str, cases: &[String]) -> Vec<(String, Json)> {
    let both = |case: &String| {
        let said = |study: &str| json(&format!("{study} {common} {case}").split(' ').collect::<Vec<_>>());
        let (machines, model) = (said("machines --seconds 5 --routing learned"), said("capacity"));
        let (own, due) = (number(&machines, "throughput"), number(&model, "throughput"));
        assert!((own / due - 1.0).abs() < 0.05, "{case}: {machines}\n{model}");
        (case.clone(), machines)
    };
    cases.iter().map(both).collect()
}

#[test]
fn a_series_has_a_line_for_every_second_and_names_what_happens() {
    let arguments = ["machines", "--offered", "5", "--series", "--fail-spines", "2", "--step", "2"];
    let arguments: Vec<&str> = arguments.into_iter().chain(CLUSTER.split(' ')).collect();
    let points = json(&arguments);
    let points = points.as_array().expect("a list");
    assert_eq!(points.len(), 12);
    let events: Vec<(u64, &str)> = points
        .iter()
        .filter_map(|point| Some((point["second"].as_u64()?, point["event"].as_str()?)))
        .collect();
    assert_eq!(events, [(2, "fail"), (4, "fail"), (6, "remap"), (8, "return")]);
    for point in points {
        assert_eq!(number(point, "offered"), 5.0);
        assert!(number(point, "throughput") > 4.5, "{point}");
    }
}

#[test]
fn what_makes_no_sense_is_one_line_and_exit_code_2() {
    for (arguments, part) in [
        ("--fail-spines 32", "one must be left"),
        ("--write-ratio 1.5", "write ratio"),
        ("--offered=-3", "--offered"),
        ("--offered -3", "--offered -3"),
        ("--racks 0", "--racks"),
        ("--dist zipf:0", "zipf"),
        ("--objects 0", "0 objects"),
        ("--leaf-rate=-1", "leaf rate"),
        ("--series", "--offered"),
        ("--mechanism replication", "--mechanism"),
    ] {
        let arguments: Vec<&str> = ["machines"].into_iter().chain(arguments.split(' ')).collect();
        let output = run(&arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

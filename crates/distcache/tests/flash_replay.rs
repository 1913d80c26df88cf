//! `distcache flash replay` as a user meets it: fields, engines, devices, refusals, and caches that are opened again after
//! a kill. What the caches do is tested in `engine`.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    command.args(line.split_whitespace());
    command
}

fn run(line: &str) -> Output {
    command(line).output().unwrap()
}

fn folder() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flash-replay");
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// 40,000 requests for objects of 500 to 4,000 bytes.
fn trace() -> &'static str {
    static TRACE: OnceLock<String> = OnceLock::new();
    TRACE.get_or_init(|| {
        let path = folder().join("trace.oracleGeneral.bin").display().to_string();
        let line = format!(
            "trace generate {path} --requests 40000 --objects 8000 --dist zipf:0.9 --sizes uniform:500:4000"
        );
        let output = run(&line);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        path
    })
}

fn json(line: &str) -> Value {
    let output = run(&format!("flash replay --trace {} {line} --json", trace()));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no bar without a terminal");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_engine_tells_all_that_was_measured() {
    let of = |line: &str| json(&format!("{line} --block-size 32KiB --erase-block 32KiB --size 0.2ws"));
    let number =
        |result: &Value, name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{name} in {result}"));
    let [ripq, sipq, fifo] =
        ["ripq", "sipq", "fifo"].map(|engine| of(&format!("--engine {engine} --policy slru:3")));
    for result in [&ripq, &sipq, &fifo] {
        assert!((0.9..1.15).contains(&number(result, "fidelity")), "{result}");
        assert!((0.3..0.9).contains(&number(result, "hit_ratio")), "{result}");
        let product = number(result, "wa_implementation") * number(result, "wa_device");
        assert!((number(result, "wa_total") - product).abs() < 1e-9);
        assert!(number(result, "wa_device") >= 1.0);
        for name in ["byte_hit_ratio", "requests_per_s", "cpu_us_per_request", "read_p99_us"] {
            assert!(number(result, name) > 0.0, "{name}");
        }
        assert!(
            number(&result["dram_bytes"], "index") > 0.0 && number(&result["dram_bytes"], "buffers") > 0.0
        );
        assert_eq!(result["requests"], 40_000);
    }
    assert_eq!((&ripq["policy"], &ripq["exact_policy"]), (&"slru:3".into(), &"slru-borrow:3".into()));
    assert!((0.98..1.02).contains(&number(&ripq, "fidelity")), "{ripq}");
    assert!(number(&ripq, "hit_ratio") > number(&fifo, "hit_ratio"));
    assert!(number(&ripq["dram_bytes"], "buffers") > 2.0 * number(&sipq["dram_bytes"], "buffers"));
    assert!(number(&fifo, "wa_implementation") < number(&sipq, "wa_implementation"));
    for result in [&ripq, &sipq] {
        let (strict, exact) = (number(result, "strict_hit_ratio"), number(result, "exact_hit_ratio"));
        assert!(strict > 0.0 && strict < exact, "its upper segments are empty at first: {result}");
    }
    assert_eq!(fifo["strict_hit_ratio"], Value::Null);
    assert_eq!(of("--policy slru:1")["strict_hit_ratio"], Value::Null);
    let memory = of("--policy gdsf:3 --device mem --warmup 0.5");
    assert_eq!((&memory["wa_device"], &memory["wa_total"]), (&Value::Null, &Value::Null));
    assert_eq!(memory["requests"], 20_000);
}

#[test]
fn a_replay_can_be_repeated() {
    let path = folder().join("repeated");
    for device in ["ftl".to_owned(), format!("{} --overwrite", path.display())] {
        let once = || {
            let mut result = json(&format!("--size 12MiB --block-size 64KiB --device {device}"));
            for time in ["requests_per_s", "cpu_us_per_request", "read_p50_us", "read_p99_us"] {
                assert!(result[time].take().is_f64(), "{time} in {result}");
            }
            result
        };
        assert_eq!(once(), once());
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_cache_that_is_opened_again_keeps_its_size_and_is_not_compared() {
    let path = folder().join("again");
    let device = format!("--device {} --block-size 64KiB", path.display());
    let made = json(&format!("{device} --overwrite --size 16MiB"));
    assert_eq!(made["capacity_bytes"], 16 << 20);
    for size in ["", "--size 16MiB"] {
        let again = json(&format!("{device} --reopen {size}"));
        assert_eq!(again["capacity_bytes"], 16 << 20);
        assert!(again["hit_ratio"].as_f64() > made["hit_ratio"].as_f64(), "it was warm");
        for name in
            ["fidelity", "exact_policy", "exact_hit_ratio", "exact_byte_hit_ratio", "strict_hit_ratio"]
        {
            assert_eq!(again[name], Value::Null, "{name}");
        }
    }
    let replay = |rest: &str| run(&format!("flash replay --trace {} {device} --reopen {rest}", trace()));
    let text = String::from_utf8(replay("").stdout).unwrap();
    assert!(text.contains("not comparable: the cache was warm"), "{text}");
    for other in ["8MiB", "32MiB"] {
        let output = replay(&format!("--size {other}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("--size {other}: the cache on this device was made")), "{error}");
    }
    std::fs::remove_file(path).unwrap();
}

/// By numbers, and with so little memory that it would not go unnoticed if it were taken.
#[test]
fn a_size_that_cannot_be_is_refused_before_anything_is_taken() {
    let path = folder().join("impossible");
    drop(std::fs::remove_file(&path));
    let target = format!("{} --overwrite", path.display());
    for (line, parts) in [
        ("--size 18446744073709551615", ["--size", "131071 is the most"]),
        ("--size 1000TiB --device mem", ["--size 1000TiB", "131071 is the most"]),
        ("--size 500000ws", ["--size 500000ws", "131071 is the most"]),
        ("--size 8GiB", ["--size 8GiB: takes", "are available"]),
        ("--size 8GiB --device mem", ["--size 8GiB: takes 8GiB of memory", "are available"]),
        ("--size 10TiB --block-size 128MiB", ["--size 10TiB: takes", "are available"]),
        ("--size 1GiB --utilisation 1e-300", ["--size 1GiB: takes", "are available"]),
        ("--size 2MiB", ["--size 2MiB: a cache of 2MiB is too small", "at least 11520KiB"]),
        ("--size 1 --device mem", ["--size 1B: a cache of 4KiB is too small", "at least 2304KiB"]),
        ("--block-size 4097", ["--block-size 4097", "must be a multiple"]),
        ("--size 0.01ws", ["--size 0.01ws", "at least 11520KiB"]),
        (&format!("--size 1MiB --device {target}"), ["--block-size 256KiB: give", "at least 2304KiB"]),
    ] {
        let command = "ulimit -v 1000000; exec \"$0\" \"$@\"";
        let arguments = format!("flash replay --trace {} {line}", trace());
        let mut sh = Command::new("sh");
        sh.args(["-c", command, env!("CARGO_BIN_EXE_distcache")]).args(arguments.split_whitespace());
        let output = sh.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(
            parts.iter().all(|part| error.contains(part)) && error.lines().count() == 1,
            "{line}: {error}"
        );
    }
    assert!(!path.exists());
    for (size, device) in [("11520KiB", "ftl"), ("2304KiB", "mem"), ("2304KiB", &target)] {
        json(&format!("--size {size} --device {device}"));
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_cache_that_was_killed_is_opened_again_with_what_was_sealed() {
    let path = folder().join("killed");
    let device = format!("--device {} --block-size 32KiB --size 0.4ws --policy slru:2", path.display());
    json(&format!("{device} --overwrite"));
    for round in 1..=4_u64 {
        let line = format!("flash replay --trace {} {device} --reopen --tell-every 500", trace());
        let mut child = command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(10 * round as usize);
        let last = lines.map(Result::unwrap).last().expect("it tells how far it is");
        child.kill().unwrap();
        child.wait().unwrap();
        let sealed = serde_json::from_str::<Value>(&last).unwrap()["durable"]["bytes"].as_u64().unwrap();
        let check = json(&format!("{device} --reopen --check"));
        let found = check["durable_bytes"].as_u64().unwrap();
        assert!(
            found as f64 >= 0.95 * sealed as f64,
            "round {round}: {found} of {sealed} sealed bytes are back"
        );
        assert_eq!(check["found"], check["durable_objects"]);
    }
}

/// What the engines of others have in common.
#[cfg(any(feature = "rocksdb", feature = "foyer"))]
fn is_measured(engine: &str, line: &str) -> Value {
    let path = folder().join(engine);
    let result = json(&format!(
        "--engine {engine} {line} --device {} --overwrite --size 0.2ws --block-size 64KiB",
        path.display()
    ));
    for name in ["hit_ratio", "byte_hit_ratio", "requests_per_s", "wa_implementation", "read_p99_us"] {
        assert!(result[name].as_f64().is_some_and(|value| value > 0.0), "{name} in {result}");
    }
    assert_eq!(result["requests"], 40_000);
    assert!(result["hit_ratio"].as_f64() < Some(0.9), "{result}");
    result
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_keeps_what_the_exact_policy_keeps() {
    for policy in ["slru:3", "gdsf:3"] {
        let result = is_measured("rocksdb", &format!("--policy {policy} --theta 0.9"));
        let fidelity = result["fidelity"].as_f64().unwrap();
        assert!((0.99..1.01).contains(&fidelity), "{policy}: {result}");
    }
}

#[cfg(feature = "foyer")]
#[test]
fn foyer_keeps_most_of_what_fits() {
    let result = is_measured("foyer", "");
    assert!(result["hit_ratio"].as_f64() > Some(0.3), "{result}");
}

#[cfg(not(any(feature = "rocksdb", feature = "foyer")))]
#[test]
fn what_was_not_built_in_says_how_to_build_it() {
    for engine in ["rocksdb", "foyer"] {
        let output = run(&format!("flash replay --trace {} --engine {engine} --device /nowhere", trace()));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("--features {engine}")) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let there = folder().join("precious");
    std::fs::write(&there, "precious").unwrap();
    let foreign = folder().join("foreign");
    std::fs::write(&foreign, [b'x'; 1 << 20]).unwrap();
    let (there, foreign) = (there.display(), foreign.display());
    for (line, part) in [
        (format!("--device {there}"), "is there; --overwrite lets the replay destroy"),
        (format!("--device {there} --reopen"), "precious"),
        (
            format!("--device {foreign} --reopen"),
            "foreign: what is on this device is not a cache of DistCache",
        ),
        ("--device /nowhere/cache".to_owned(), "/nowhere/cache"),
        ("--device cache --reopen".to_owned(), "--reopen: there is no cache"),
        ("--policy arc".to_owned(), "arc"),
        ("--device mem --alpha 0".to_owned(), "--alpha 0: must be from"),
        ("--device mem --engine sipq --theta 1".to_owned(), "--theta 1: must be from 0 to 0.95"),
        ("--theta -1".to_owned(), "--theta -1: must be from 0 to 0.95"),
        ("--skip 1".to_owned(), "--skip 1: must be"),
        ("--tell-every 0".to_owned(), "--tell-every"),
        ("--reopen".to_owned(), "give --device the path"),
        ("--warmup 1".to_owned(), "--warmup 1: write a share from 0 to less than 1"),
        ("--utilisation 0".to_owned(), "--utilisation 0: write a share above 0 and below 1"),
        ("--device mem --alpha 0.7".to_owned(), "--alpha 0.7"),
        ("--engine rocksdb --device x --reopen".to_owned(), "--engine rocksdb: a replay cannot go on"),
        ("--engine foyer --device x --tell-every 1".to_owned(), "--engine foyer: a replay cannot go on"),
        ("--erase-block 1".to_owned(), "--erase-block 1"),
        ("--size 64MiB --erase-block 1GiB".to_owned(), "--erase-block 1GiB: make those smaller"),
    ] {
        let output = run(&format!("flash replay --trace {} --block-size 32KiB {line}", trace()));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(error.contains(part), "{line}: {error}");
    }
    assert_eq!(std::fs::read(folder().join("precious")).unwrap(), b"precious");
    let output = run("flash replay --trace /nowhere/trace");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/nowhere/trace"));
}

/// Under any of its names.
#[test]
fn neither_the_trace_nor_a_protected_file_is_destroyed() {
    let folder = folder().join("kept");
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    let [own, link, protected] = ["own.bin", "link", "protected"].map(|name| folder.join(name));
    std::fs::copy(trace(), &own).unwrap();
    std::fs::hard_link(&own, &link).unwrap();
    std::fs::write(&protected, "precious").unwrap();
    std::fs::set_permissions(&protected, Permissions::from_mode(0o444)).unwrap();
    for (device, allowed, part) in [
        (&own, "--overwrite", "is the trace itself"),
        (&link, "--overwrite", "is the trace itself"),
        (&link, "--reopen", "is the trace itself"),
        (&protected, "--overwrite", "is write-protected"),
        (&folder, "", "is a directory"),
        (&folder, "--overwrite", "is a directory"),
    ] {
        let (own, device) = (own.display(), device.display());
        let output = run(&format!("flash replay --trace {own} --device {device} {allowed} --size 16MiB"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{device}: {error}");
        assert!(error.contains(part) && error.lines().count() == 1, "{device}: {error}");
    }
    assert_eq!(std::fs::read(&own).unwrap(), std::fs::read(trace()).unwrap());
    assert_eq!(std::fs::read(&protected).unwrap(), b"precious");
}

/// Before the run, and not when it comes to the exact policy: nothing is printed, and no device is made.
#[test]
fn an_object_that_cannot_be_simulated_is_refused_at_once() {
    let (path, device) = (folder().join("huge.csv"), folder().join("huge"));
    let requests: String = (0..100).map(|number| format!("{number},{},1000\n", number % 50)).collect();
    std::fs::write(&path, format!("time,object,size\n{requests}100,50,5000000000\n")).unwrap();
    drop(std::fs::remove_file(&device));
    let (trace, target) = (path.display(), device.display());
    let output = run(&format!("flash replay --trace {trace} --device {target} --size 16MiB --tell-every 10"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    let why = "huge.csv: an object of 5000000000 bytes; the exact policy takes at most 4294967295";
    assert!(error.contains(why) && error.lines().count() == 1, "{error}");
    assert!(output.stdout.is_empty() && !device.exists(), "it has begun");
}

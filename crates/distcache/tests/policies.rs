//! `distcache policies` as a user meets it: fields, sizes, warm-up, figures and refusals. Its numbers are tested in `study`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A trace that is removed in the end: 3,000 requests over 100 objects of 1 to 10 bytes.
struct Trace(PathBuf);

impl Trace {
    fn new(name: &str) -> Trace {
        let mut text = String::from("time,object,size\n");
        for number in 0..3000_u64 {
            let object = (number * number + number / 7) % 100;
            writeln!(text, "{number},{object},{}", object % 10 + 1).unwrap();
        }
        Trace::with(name, &text)
    }

    fn with(name: &str, text: &str) -> Trace {
        let path = std::env::temp_dir().join(format!("distcache-policies-{}-{name}.csv", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Trace(path)
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
        command.args(["policies", "--trace"]).arg(&self.0).args(line.split_whitespace()).output().unwrap()
    }

    fn text(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, line: &str) -> Vec<Value> {
        serde_json::from_str(&self.text(&format!("{line} --json"))).unwrap()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

const ALL: &str = "fifo,lru,lfu,s4lru,s4lru-fill,slru:3,slru-borrow:3,gdsf,gdsf:3,clairvoyant,infinite,random,\
                   clock,arc,lirs,2q,s3fifo,sieve,wtinylfu";

#[test]
fn every_policy_has_a_row_at_every_size() {
    let trace = Trace::new("rows");
    let rows = trace.json(&format!("--policy {ALL} --size 50,100B,0.5ws"));
    assert_eq!(rows.len(), 19 * 3);
    let names: Vec<&str> = rows.iter().step_by(3).map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(names.join(","), ALL);
    for row in &rows {
        let fields: Vec<&String> = row.as_object().unwrap().keys().collect();
        let expected =
            ["byte_miss_ratio", "miss_ratio", "objects", "policy", "requests", "requests_per_s", "size"];
        let mut sorted = fields.clone();
        sorted.sort();
        assert_eq!(sorted, expected);
        assert_eq!((row["requests"].as_u64(), row["objects"].as_u64()), (Some(3000), Some(100)));
        assert!((0.0..=1.0).contains(&row["miss_ratio"].as_f64().unwrap()));
        assert!(row["requests_per_s"].as_f64().unwrap() > 0.0);
    }
    let sizes: Vec<u64> = rows[..3].iter().map(|row| row["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [50, 100, 275], "the working set has 550 bytes");
}

#[test]
fn ratios_are_those_of_the_requests_that_count() {
    let trace = Trace::with("few", "object,size\na,10\nb,30\na,10\na,10\nb,30\nc,60\nc,60\na,10\n");
    for (line, requests, misses, bytes, byte_misses) in [
        ("--policy lru --size 1000", 8.0, 3.0, 220.0, 100.0),
        ("--policy lru --size 1000 --warmup 0.25", 6.0, 1.0, 180.0, 60.0),
        ("--policy lru --size 1 --ignore-size", 8.0, 6.0, 8.0, 6.0),
        ("--policy infinite --size 1", 8.0, 3.0, 220.0, 100.0),
    ] {
        let row = &trace.json(line)[0];
        let near = |name: &str, expected: f64| (row[name].as_f64().unwrap() - expected).abs() < 1e-12;
        assert!(near("requests", requests) && near("objects", 3.0), "{line}: {row}");
        assert!(near("miss_ratio", misses / requests), "{line}: {row}");
        assert!(near("byte_miss_ratio", byte_misses / bytes), "{line}: {row}");
    }
}

#[test]
fn threads_change_nothing_but_the_time() {
    let trace = Trace::new("threads");
    let mut rows =
        [1, 2, 5].map(|threads| trace.json(&format!("--policy {ALL} --size 60,0.3ws --threads {threads}")));
    for row in rows.iter_mut().flatten() {
        row["requests_per_s"] = Value::Null;
    }
    assert_eq!((&rows[0], &rows[0]), (&rows[1], &rows[2]));
}

#[test]
fn people_get_a_table_and_programs_csv() {
    let trace = Trace::new("table");
    let table = trace.text("--policy lru,sieve,clairvoyant --size 0.5ws,50");
    let first = "3000 requests counted, 100 objects; * least of its size, but for clairvoyant and infinite\n\n50 bytes\n";
    assert!(table.starts_with(first) && table.contains("\n275 bytes (0.5ws)\n"), "{table}");
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("lru").contains('*') || line("sieve").contains('*'), "{table}");
    assert!(!line("clairvoyant").contains('*'), "a bound is not the best: {table}");
    let csv = trace.text("--policy lru,sieve --size 50,200 --csv");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("policy,size,requests,objects,miss_ratio,byte_miss_ratio,requests_per_s"));
    let beginnings: Vec<bool> = lines.clone().map(|line| line.starts_with("lru,50,3000,100,0.")).collect();
    assert_eq!(beginnings, [true, false, false, false], "{csv}");
    assert!(lines.all(|line| line.split(',').count() == 7), "{csv}");
}

#[test]
fn curves_are_drawn_as_the_file_is_called() {
    let trace = Trace::new("curves");
    for (ending, beginning) in [("svg", b"<svg".as_slice()), ("png", b"\x89PNG".as_slice())] {
        let path = trace.0.with_extension(ending);
        trace.text(&format!("--policy lru,fifo --size 20,50,100,200,400 --plot {}", path.display()));
        let drawn = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(drawn.starts_with(beginning), "{ending}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    let trace = Trace::new("refused");
    for (line, expected) in [
        ("--policy lruu", "\"lruu\" is no policy; write one of fifo, lru"),
        ("--policy lru,slru:0", "segments from 1 to 15"),
        ("--policy gdsf:x", "1 or more"),
        ("--size 0", "write a size above 0 such as 8000, 64MiB or 0.1ws"),
        ("--size 10,x", "write a size above 0"),
        ("--size -1", "\"-1\": write a size above 0"),
        ("--size 64mib", "units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB and ws"),
        ("--threads -1", "-1 is not in 1..=1024"),
        ("--plot /no/curve.svg", "--plot /no/curve.svg: the directory /no does not exist"),
        ("--size 64MiB --ignore-size", "--ignore-size"),
        ("--warmup 1", "from 0 to less than 1"),
        ("--warmup -0.5", "a warm-up of -0.5"),
        ("--threads 0", "--threads"),
        ("--plot curve.pdf", ".svg or .png"),
        ("--format oracle", "unknown format"),
        ("--json --csv", "--csv"),
    ] {
        let output = trace.run(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{line}: {stderr}");
    }
    let absent = Trace(std::env::temp_dir().join("distcache-policies-absent.csv"));
    let output = absent.run("--policy lru");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("absent.csv") && stderr.lines().count() == 1, "{stderr}");
}

/// What reads twice must not begin with a pipe, of which the second time would find only the end.
#[test]
fn a_pipe_is_read_once_or_not_at_all() {
    let trace = Trace::new("pipe");
    let from_pipe = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
        command.args(line.split_whitespace()).args(["--trace", "/dev/stdin"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Who refuses does not read to the end.
        drop(child.stdin.take().unwrap().write_all(&std::fs::read(&trace.0).unwrap()));
        child.wait_with_output().unwrap()
    };
    let once = "--policy lru --size 50 --csv";
    let ratios = |text: &str| text.rsplit_once(',').unwrap().0.to_owned();
    let output = from_pipe(&format!("policies {once}"));
    assert_eq!(ratios(&String::from_utf8(output.stdout).unwrap()), ratios(&trace.text(once)));
    for line in [
        "policies --policy clairvoyant --size 50",
        "policies --policy lru --size 0.1ws",
        "policies --policy lru --size 50 --warmup 0.5",
        "flash replay --size 1MiB",
    ] {
        let output = from_pipe(line);
        let expected = "/dev/stdin: this is not a file, and cannot be read twice; save it to a file first\n";
        assert!(String::from_utf8(output.stderr).unwrap().ends_with(expected), "{line}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}");
    }
}

#[test]
fn a_trace_without_requests_is_refused_alike() {
    let trace = Trace::with("empty", "time,object,size\n");
    for line in ["policies --size 50", "policies --size 0.1ws", "flash replay --size 1MiB"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
        let output = command.args(line.split(' ')).arg("--trace").arg(&trace.0).output().unwrap();
        assert!(String::from_utf8(output.stderr).unwrap().ends_with("the trace has no requests\n"), "{line}");
        assert_eq!(output.status.code(), Some(2), "{line}");
    }
}

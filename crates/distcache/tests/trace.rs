//! `distcache trace` as a user meets it: fields, files, refusals. What the numbers mean is tested in crate `trace`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("distcache-trace-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_distcache")).arg("trace").args(arguments).output().unwrap()
}

fn good(arguments: &[&str]) -> String {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn info(path: &str) -> Value {
    serde_json::from_str(&good(&["info", path, "--json"])).unwrap()
}

#[test]
fn info_has_the_fields_that_scripts_rely_on() {
    let folder = Folder::new("fields");
    let path = folder.path("x.csv");
    std::fs::write(&path, "time,key,size\n1,a,10\n2,b,20\n5,a,10\n").unwrap();
    let text = good(&["info", &path, "--json"]);
    let head = r#"{"format":"csv","requests":3,"objects":2,"bytes":40,"working_set_bytes":30,"zipf_alpha":"#;
    assert!(text.starts_with(head), "{text}");
    let row = info(&path);
    assert!(row["zipf_alpha"].is_number() && row["one_hit_wonders"] == 1 && row["duration_s"] == 4);
    assert_eq!((&row["age_s"]["p50"], &row["reuse_distance"]["max"]), (&4.into(), &1.into()));
    let table = good(&["info", &path]);
    for piece in
        ["csv", "compression none", "zipf alpha", "50.0 % of the objects", "reuse distance", "0.04 KiB"]
    {
        assert!(table.contains(piece), "{piece} is missing in\n{table}");
    }
}

#[test]
fn traces_go_around_through_every_verb() {
    let folder = Folder::new("around");
    let [oracle, csv, back, part, first] =
        ["a.oracleGeneral.zst", "b.csv.gz", "c.bin", "d.bin", "e.csv"].map(|name| folder.path(name));
    let flags = ["--requests", "20000", "--objects", "500", "--dist", "zipf:0.9", "--sizes", "uniform:10:99"];
    let told = good(&[&["generate", &oracle][..], &flags].concat());
    assert_eq!(told, format!("20000 requests, zipf:0.9 over 500 objects, in {oracle}\n"));
    let row = info(&oracle);
    assert_eq!((&row["format"], &row["compression"]), (&"oracle-general".into(), &"zstd".into()));
    assert_eq!((&row["requests"], &row["duration_s"]), (&20_000.into(), &19.into()));
    assert_eq!(good(&["convert", &oracle, &csv]), format!("20000 requests in {csv}\n"));
    good(&["convert", &csv, &back, "--to", "oracle-general"]);
    let again = info(&csv);
    assert_eq!((&again["format"], &again["compression"]), (&"csv".into(), &"gzip".into()));
    for field in ["requests", "objects", "bytes", "working_set_bytes", "zipf_alpha", "reuse_distance"] {
        assert_eq!((&again[field], &info(&back)[field]), (&row[field], &row[field]), "{field}");
    }
    let decoded = zstd(&oracle);
    assert!(decoded == std::fs::read(&back).unwrap(), "byte for byte after the way through CSV");
    let told = good(&["sample", &back, &part, "--rate", "0.2"]);
    let objects = info(&part)["objects"].as_u64().unwrap();
    assert!(told.contains("of 20000 requests in") && objects.abs_diff(100) < 40, "{told}: {objects}");
    assert_eq!(good(&["head", &back, "-n", "3"]).lines().count(), 4);
    assert!(good(&["head", &back, "-n", "1"]).starts_with("time,object,bytes,operation,next\n0,"));
    good(&["head", &back, "-n", "7", "--out", &first]);
    assert_eq!(info(&first)["requests"], 7);
    let left = std::fs::read_dir(&folder.0).unwrap().count();
    assert_eq!(left, 5, "nothing else is left behind");
}

fn zstd(path: &str) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_distcache"))
        .args(["trace", "convert", path, &format!("{path}.plain"), "--compress", "none"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let plain = PathBuf::from(format!("{path}.plain"));
    let bytes = std::fs::read(&plain).unwrap();
    std::fs::remove_file(plain).unwrap();
    bytes
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    let folder = Folder::new("refused");
    let [absent, cut, unclear, out] =
        ["absent", "cut.bin", "unclear", "out.bin"].map(|name| folder.path(name));
    good(&["generate", &cut, "--requests", "10"]);
    let whole = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &whole[..100]).unwrap();
    std::fs::write(&unclear, "1,2\n3,4\n").unwrap();
    for (arguments, expected) in [
        (vec!["info", &absent], "absent: No such file"),
        (vec!["info", "/"], "this is a folder"),
        (vec!["info", &cut], "record 5 at byte 96: it is cut off: 4 of 24 bytes"),
        (vec!["info", &unclear], "this could be csv or text; say which with --format"),
        (vec!["info", &unclear, "--format", "bin"], "unknown format \"bin\"; use oracle-general"),
        (
            vec!["convert", &unclear, &out, "--format", "text", "--to", "lcs"],
            "written as oracle-general or csv",
        ),
        (vec!["convert", &unclear, &out, "--format", "text", "--compress", "xz"], "with none, gzip or zstd"),
        (vec!["convert", &cut, &out], "record 5 at byte 96"),
        (vec!["sample", &cut, &out, "--rate", "0"], "--rate: a rate of 0; it must be above 0"),
        (vec!["generate", &out, "--dist", "zipf:9"], "--dist: \"9\" is not an exponent"),
        (vec!["generate", &out, "--objects", "0"], "0 keys"),
        (vec!["generate", &out, "--sizes", "big"], "are no sizes"),
        (vec!["generate", &out, "--churn", "2/3"], "is not a churn"),
        (vec!["generate", &out, "--flash-crowd", "1"], "is not a flash crowd"),
        (vec!["generate", &out, "--dist", "cachebench:/no/pop.json"], "/no/pop.json: No such file"),
    ] {
        let output = run(&arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
        assert!(!Path::new(&out).exists(), "{arguments:?} leaves a file");
    }
}

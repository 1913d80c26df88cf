//! `distcache trace` as a user meets it: fields, files, refusals. What the numbers mean is tested in crate `trace`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

    fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn fifo(&self, name: &str) -> String {
        assert!(Command::new("mkfifo").arg(self.path(name)).status().unwrap().success());
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    command.arg("trace").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
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
    let untimed = folder.file("y.csv", "key,size\na,10\na,10\n");
    assert!(info(&untimed)["duration_s"].is_null() && info(&untimed)["age_s"].is_null());
    let table = good(&["info", &untimed]);
    assert!(table.contains("duration                       -\n"), "{table}");
    assert!(table.contains("age (s)                    -\n"), "{table}");
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
    let flags =
        ["--requests", "20000", "--objects", "500", "--dist", "zipf:0.9", "--sizes", "uniform:10:0.5KiB"];
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
    let whole_file = folder.file("whole.csv", SMALL);
    good(&["generate", &cut, "--requests", "10"]);
    let whole = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &whole[..100]).unwrap();
    std::fs::write(&unclear, "1,2\n3,4\n").unwrap();
    for (arguments, expected) in [
        (vec!["info", &absent], "absent: No such file"),
        (vec!["info", "/"], "this is a folder"),
        (vec!["info", &cut], "record 5 at byte 96: it is cut off: 4 of 24 bytes"),
        (vec!["info", &unclear], "the first does not say which is the object"),
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
        (vec!["generate", &out, "--write-ratio", "0.5"], "--write-ratio: oracle-general has no operations"),
        (vec!["generate", &out, "--requests", "0"], "0 is not in 1.."),
        (vec!["generate", &out, "--rate", "-1"], "a rate of -1 requests/s; it must be above 0"),
        (vec!["generate", &out, "--write-ratio", "-0.1"], "write ratio -0.1; it must be between 0 and 1"),
        (vec!["generate", &out, "--dist", "foo"], "use uniform, zipf:A, adversary:X or cachebench:FILE"),
        (vec!["generate", &out, "--sizes", "8GiB"], "a size is 1 to 4294967295 bytes"),
        (vec!["head", &whole_file, "-n", "-1"], "invalid value '-1' for '--requests <N>'"),
        (vec!["sample", &whole_file, &out, "--rate", "-1"], "--rate: a rate of -1; it must be above 0"),
        (vec!["generate", &out, "--requests", "9", "--flash-crowd", "9:1:0.5"], "starts at request 9"),
        (vec!["generate", "/no/x.bin"], "/no/x.bin: the directory /no does not exist"),
        (vec!["generate", "/"], "this is a folder; name a file in it"),
        (vec!["head", &whole_file, "-n", "0", "--out", &out], "-n 0: a trace has requests"),
    ] {
        let output = run(&arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
        assert!(!Path::new(&out).exists(), "{arguments:?} leaves a file");
    }
}

const SMALL: &str = "time,key,size,op\n1,1,10,get\n2,2,20,set\n5,1,10,delete\n";
const SMALL_AS_WRITTEN: &str =
    "time,object,bytes,operation,next\n1,1,10,read,\n2,2,20,write,\n5,1,10,delete,\n";

#[test]
fn only_files_are_replaced_and_links_lead_to_them() {
    let folder = Folder::new("replaced");
    let (small, fifo) = (folder.file("small.csv", SMALL), folder.fifo("fifo"));
    let [link, dangling] = ["link.csv", "dangling.csv"].map(|name| folder.path(name));
    folder.file("behind", "old");
    folder.file("behind.partial", "somebody's");
    symlink("behind", &link).unwrap();
    symlink("new", &dangling).unwrap();
    for out in [&link, &dangling] {
        good(&["convert", &small, out]);
        assert!(fs::symlink_metadata(out).unwrap().is_symlink(), "{out}");
        assert_eq!(fs::read_to_string(out).unwrap(), SMALL_AS_WRITTEN);
    }
    let child = command(&["convert", &small, &fifo, "--to", "csv"]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), SMALL_AS_WRITTEN);
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(good(&["convert", &small, "-"]), SMALL_AS_WRITTEN);
    for (out, name) in [(&fifo[..], &fifo[..]), ("-", "standard output")] {
        let output = run(&["convert", &small, out, "--to", "oracle-general"]);
        let expected =
            format!("distcache: {name}: oracle-general is completed backwards, which only a file allows");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with(&expected), "{out}");
        assert_eq!(output.status.code(), Some(2));
    }
    assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_to_string(folder.path("behind.partial")).unwrap(), "somebody's");
    assert_eq!(
        folder.names(),
        ["behind", "behind.partial", "dangling.csv", "fifo", "link.csv", "new", "small.csv"]
    );
    assert!(!Path::new("-").exists());
}

#[test]
fn a_signal_leaves_no_unfinished_file() {
    let folder = Folder::new("signal");
    let (fifo, out) = (folder.fifo("fifo"), folder.path("out.csv"));
    let mut child = command(&["convert", &fifo, &out, "--format", "text"]).spawn().unwrap();
    let mut input = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    // More than what is read before the output is there, and what a pipe holds.
    input.write_all(&b"key\n".repeat(1 << 19)).unwrap();
    assert!(folder.names()[1].starts_with("out.csv."), "{:?}", folder.names());
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(folder.names(), ["fifo"]);
}

#[test]
fn what_cannot_be_printed_is_an_error_unless_the_reader_has_gone() {
    let folder = Folder::new("printed");
    let small = folder.file("small.csv", SMALL);
    for arguments in
        [&["info", &small][..], &["info", &small, "--json"], &["head", &small], &["convert", &small, "-"]]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(arguments).stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            stderr, "distcache: standard output: No space left on device (os error 28)\n",
            "{arguments:?}"
        );
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn what_a_written_trace_lacks_is_told() {
    let folder = Folder::new("lacks");
    let (small, empty) = (folder.file("small.csv", SMALL), folder.file("empty.csv", "time,key\n"));
    let (bin, again) = (folder.path("x.bin"), folder.path("y.csv"));
    let told = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let lost = format!("distcache: {bin}: 2 writes and deletes became reads; CSV keeps operations\n");
    assert_eq!(told(&["convert", &small, &bin]), lost);
    assert_eq!(told(&["convert", &small, &again]), "");
    assert_eq!(told(&["convert", &empty, &bin]), format!("distcache: {bin}: no requests are in it\n"));
    assert!(told(&["sample", &small, &bin, "--rate", "1e-9"]).contains("no requests are in it"));
}

//! `distcache flash device-study` as a user meets it: fields, devices and refusals. Its numbers are tested in `study`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn device_study(line: &str) -> Output {
    let arguments = ["flash", "device-study"].into_iter().chain(line.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_distcache")).args(arguments).output().unwrap()
}

fn json(line: &str) -> Value {
    let output = device_study(&format!("{line} --json"));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no bar without a terminal");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    path
}

const SMALL: &str = "--size 64MiB --erase-block 256KiB --write-sizes 4KiB,128KiB,256KiB --utilisations 0.5,1";

#[test]
fn the_simulator_tells_write_amplification() {
    let result = json(SMALL);
    assert_eq!(result, json(SMALL), "the same seed, the same result");
    let cells = result["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 7);
    let cell = |pattern: &str, bytes: u64, share: f64| {
        let is = |cell: &&Value| {
            (&cell["pattern"], &cell["write_bytes"], &cell["utilisation"])
                == (&pattern.into(), &bytes.into(), &share.into())
        };
        cells.iter().find(is).unwrap()
    };
    let amplification =
        |pattern, bytes, share| cell(pattern, bytes, share)["write_amplification"].as_f64().unwrap();
    assert_eq!(amplification("sequential", 128 << 10, 1.0), 1.0);
    assert_eq!(amplification("random", 256 << 10, 1.0), 1.0);
    assert!(amplification("random", 4 << 10, 1.0) > amplification("random", 4 << 10, 0.5));
    assert!(cell("random", 4 << 10, 1.0)["slowdown"].as_f64().unwrap() > 3.0);
    let summary = &result["summary"];
    assert_eq!(summary["write_bytes_max_throughput"], 256 << 10);
    assert!(summary["sequential_mib_per_s"].as_f64() > summary["random_mib_per_s"].as_f64());
    assert_eq!(summary["read_mib_per_s"], Value::Null);
}

#[test]
fn a_file_is_measured_and_gone_and_says_what_it_cannot_tell() {
    let folder = folder("device-study");
    let line = format!("--device {} --size 16MiB --write-sizes 4KiB,2MiB --seconds 0.1", folder.display());
    let result = json(&line);
    assert!(result["device"].as_str().unwrap().contains("distcache-device-study-"));
    let cells = result["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert_eq!(cell["write_amplification"], Value::Null);
        assert!(cell["mib_per_s"].as_f64().unwrap() > 0.0 && cell["slowdown"].as_f64().unwrap() >= 1.0);
    }
    assert!(result["summary"]["read_mib_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let text = String::from_utf8(device_study(&line).stdout).unwrap();
    assert!(text.contains("write amplification cannot be read from here"), "{text}");
}

#[test]
fn a_file_that_is_there_is_overwritten_only_when_asked_for() {
    let path = folder("device-study-there").join("precious");
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    let line = format!("--device {} --write-sizes 4KiB,1MiB --seconds 0.01", path.display());
    let output = device_study(&line);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--overwrite lets the study destroy"));
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 8 << 20]);
    json(&format!("{line} --overwrite"));
    let written = std::fs::read(&path).unwrap();
    assert_ne!(written, vec![7; 8 << 20]);
    std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    let output = device_study(&format!("{line} --overwrite"));
    assert!(String::from_utf8(output.stderr).unwrap().contains("is write-protected"));
    assert_eq!(std::fs::read(&path).unwrap(), written);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn tables_and_figures_are_drawn() {
    let figure = folder("device-study-figure").join("figure.svg");
    let output = device_study(&format!("{SMALL} --plot {}", figure.display()));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["simulated flash: 64 MiB and 7.4 % more", "Table 4.1", "Figure 4.1a", "Figure 4.1b", "256 KiB"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(std::fs::read_to_string(figure).unwrap().contains("100 % in use"));
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    for (line, expected) in [
        ("--size 5000", "5000"),
        ("--device mem --size 5000", "must be whole sectors of 4096 bytes, such as 4096"),
        ("--size 64MiB", "at least two must fit"),
        ("--size 128MiB", "make erase blocks smaller"),
        ("--write-sizes 4KiB,12KiB,16KiB", "writes of 12288 bytes"),
        ("--write-sizes x", "--write-sizes <LIST>"),
        ("--utilisations 0", "a utilisation of 0"),
        ("--page 3000", "--page 3000B: write a power of two"),
        ("--page 0", "--page 0B: write a power of two"),
        ("--erase-block 0", "--erase-block 0B: write a multiple of --page 4KiB"),
        ("--erase-block 10000", "--erase-block 10000B: write a multiple of --page 4KiB"),
        ("--over-provisioning -1", "--over-provisioning -1: write a share of 0 or more"),
        ("--over-provisioning nan", "--over-provisioning NaN: write a share"),
        ("--device mem --seconds -1", "--seconds -1: write a number of seconds above 0"),
        ("--seconds nan", "--seconds NaN: write"),
        ("--seconds 1e300", "--seconds 1"),
        ("--device mem --seconds 0", "--seconds 0: write"),
        ("--size 18446744073709551615", "is too large: 8192TiB is the most"),
        ("--size 8000TiB", "--size 8000TiB: takes"),
        ("--device mem --size 8000TiB", "--size 8000TiB: takes 8000TiB of memory, and"),
        ("--device no/such/folder/file", "its directory is not there"),
        ("--device /proc", "its directory takes no files"),
        ("--device /dev/null --overwrite", "something else"),
        ("--device mem --plot figure.gif --seconds 0.01", "ends in .svg or .png"),
    ] {
        let output = device_study(line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{line}: {stderr}");
    }
}

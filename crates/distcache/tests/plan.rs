//! `distcache plan` as a user meets it: fields, sources, refusals, and configurations that run. Its numbers are tested in `study`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn distcache(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        command.env_remove(&name);
    }
    command.args(line.split_whitespace());
    command
}

fn succeeds(line: &str) -> String {
    let Output { status, stdout, stderr } = distcache(line).output().unwrap();
    assert_eq!(status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_plan_has_the_fields_of_its_layers_and_limits() {
    let line = "plan --servers 64 --racks 8 --server-rate 10000 --node-rate 80000 --dist zipf:0.9 --headroom 0 --json";
    let plan: Value = serde_json::from_str(&succeeds(line)).unwrap();
    let layers: Vec<_> = plan["layers"].as_array().unwrap().iter().map(|layer| &layer["name"]).collect();
    assert_eq!(layers, ["leaf", "spine"]);
    assert_eq!((&plan["layers"][0]["nodes"], &plan["layers"][1]["nodes"]), (&8.into(), &8.into()));
    assert!(plan["layers"][0]["objects_per_node"].as_u64().unwrap() >= 2131 / 8);
    assert_eq!((&plan["degree"], &plan["warnings"]), (&2.into(), &Value::Array(Vec::new())));
    assert!(plan["throughput"].as_f64().unwrap() >= 530_000.0, "{plan}");
    assert!((plan["write_ratio_max"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9);
    assert!(plan["memory_bytes"].as_u64().unwrap() > 15 << 20);
    assert!(["server", "leaf", "spine", "object"].contains(&plan["limit"].as_str().unwrap()));
}

#[test]
fn every_number_stands_with_its_source() {
    let line = "plan --servers 64 --racks 8 --server-rate 10000 --node-rate 80000";
    let text = succeeds(&format!("{line} --dist adversary:1"));
    let number = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().to_owned()
    };
    // A fifth of sixteen nodes' rate stays free.
    assert_eq!(
        (number("copies of the hottest"), number("throughput")),
        ("16".into(), "1024000".into()),
        "{text}"
    );
    assert!(
        text.contains("what limits it: leaf (study capacity --placement ring, mean of 3 seeds)"),
        "{text}"
    );
    assert!(!text.contains("warning") && !text.contains("this release"), "{text}");
    let unknown = succeeds(line);
    assert!(unknown.contains("what limits it: server (the servers' bound;"), "{unknown}");
    assert!(unknown.contains("the worst asks for"), "{unknown}");
    // One node that carries everything: what it promises is the servers' bound, and two copies there cannot be.
    let alone = succeeds("plan --servers 64 --server-rate 10000 --node-rate 640000");
    assert!(alone.contains("what limits it: server (the servers' bound;"), "{alone}");
    assert!(!alone.contains("seeds)") && !alone.contains("heat"), "{alone}");
    for text in [&text, &unknown, &alone] {
        let lines: Vec<&str> = text.lines().skip(1).filter(|line| !line.starts_with("warning: ")).collect();
        assert!(
            lines.len() > 8 && lines.iter().all(|line| line.contains('(') || line.contains(" x ")),
            "{text}"
        );
    }
}

#[test]
fn its_configuration_is_valid_and_runs() {
    let path = std::env::temp_dir().join(format!("distcache-plan-{}.toml", std::process::id()));
    let name = path.to_str().unwrap();
    for facts in [
        "--servers 4 --server-rate 1000 --node-rate 2500",
        "--servers 3 --node-rate 1e6",
        "--servers 5 --racks 2 --node-rate 1e5",
    ] {
        let plan: Value =
            serde_json::from_str(&succeeds(&format!("plan {facts} --json --emit-config {name}"))).unwrap();
        let said = succeeds(&format!("check --config {name}"));
        for layer in plan["layers"].as_array().unwrap() {
            let due = format!("{} ({})", layer["name"].as_str().unwrap(), layer["nodes"]);
            assert!(said.contains(&due), "{facts}: {said}");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(&format!("objects_max = {}\n", plan["layers"][0]["objects_per_node"])),
            "{text}"
        );
        let (text, port) = free_ports(&text);
        std::fs::write(&path, text).unwrap();
        let mut up = distcache(&format!("up --config {name}")).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let answer = std::panic::catch_unwind(|| ask(port));
        up.kill().unwrap();
        up.wait().unwrap();
        assert_eq!(line, "ready\n", "{facts}");
        assert_eq!(answer.unwrap(), "+OK\r\n$1\r\nv\r\n", "{facts}");
    }
    std::fs::remove_file(&path).unwrap();
}

/// As many ports as nobody else listens on, and the router's.
fn free_ports(text: &str) -> (String, u16) {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners: Vec<TcpListener> = text.lines().map(|_| free()).collect();
    let port = |index: usize| listeners[index].local_addr().unwrap().port();
    let lines: Vec<&str> = text.lines().collect();
    let router = lines.iter().position(|line| line.contains(":6380")).unwrap();
    let line = |(index, line): (usize, &&str)| match line.strip_prefix("listen = ") {
        Some(_) => format!("listen = \"127.0.0.1:{}\"", port(index)),
        None => (*line).to_owned(),
    };
    (lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\n"), port(router))
}

/// Answers of the router to a few commands, once it has reached the shims: it is ready before that.
fn ask(port: u16) -> String {
    let start = Instant::now();
    loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let commands = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        stream.write_all(commands).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        if answer[0] == b'+' || start.elapsed() > Duration::from_secs(120) {
            return String::from_utf8_lossy(&answer).into_owned();
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_in_a_line() {
    for (flags, expected) in [
        ("", "--servers <N>"),
        ("--servers 0", "--servers 0: there must be 1 to 65536"),
        ("--servers 4 --racks 5", "--racks 5"),
        ("--servers 4 --server-rate -1", "--server-rate -1: a rate is above 0"),
        ("--servers 4 --dist zipf:0", "not an exponent"),
        ("--servers 4 --dist file:/nonexistent", "/nonexistent: No such file"),
        ("--servers 4 --write-ratio 2", "--write-ratio 2: a share is 0 to 1"),
        ("--servers 4 --headroom 1", "--headroom 1"),
        ("--servers 4 --objects 0", "0 objects"),
    ] {
        let output = distcache(&format!("plan {flags}")).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags}: {stderr}");
        assert!(stderr.contains(expected) && output.stdout.is_empty(), "{flags}: {stderr}");
    }
    let output = distcache("plan --servers 4 --emit-config /nonexistent/x.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/x.toml: cannot be written"));
}

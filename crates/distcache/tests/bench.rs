//! `distcache bench` as its users run it: exit codes and what goes to which stream. Not how it measures.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

/// Answers every complete line group of a GET or SET with `reply`, for as many connections as come.
fn server(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    // With 4-byte values a command has five or seven lines, and only its first one has a star.
                    let commands = chunk[..count].iter().filter(|byte| **byte == b'*').count();
                    if stream.write_all(&reply.repeat(commands)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_distcache")).arg("bench").args(arguments).output().expect("it runs")
}

#[test]
fn json_goes_alone_to_stdout() {
    let url = server(b"+OK\r\n");
    let output =
        bench(&["--target", &url, "--keys", "10", "--value-bytes", "4", "--requests", "100", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&json), ["errors", "latency_us", "requests", "throughput"]);
    assert_eq!(keys(&json["latency_us"]), ["max", "p50", "p90", "p99", "p999"]);
    assert_eq!((&json["requests"], &json["errors"]), (&100.into(), &0.into()));
    assert!(json["throughput"].as_f64().expect("a number") > 0.0);
}

#[test]
fn people_get_a_table() {
    let url = server(b"$-1\r\n");
    let output = bench(&["--target", &url, "--keys", "10", "--no-load", "--requests", "100"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("requests/s") && text.contains("99.9 %"), "{text}");
}

#[test]
fn it_fails_with_one_line_if_nothing_worked() {
    let url = server(b"-ERR no\r\n");
    let http = server(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let memcached = server(b"ERROR\r\n");
    let cases: [(&[&str], &str); 5] = [
        (&["--target", &url, "--no-load", "--requests", "10", "--keys", "10"], "without an error"),
        (&["--target", &url, "--requests", "10", "--keys", "10"], "-ERR no"),
        (&["--target", "redis://127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
        (&["--target", &http, "--requests", "10", "--keys", "10"], "RESP expected, this speaks HTTP"),
        (
            &["--target", &memcached, "--requests", "10", "--keys", "10"],
            "RESP expected, this speaks memcached",
        ),
    ];
    for (arguments, part) in cases {
        let output = bench(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        let last = text.lines().next_back().unwrap_or_default();
        assert!(last.contains(part), "{arguments:?}: {text}");
    }
}

#[test]
fn a_series_counts_every_request_once() {
    let url = server(b"+OK\r\n");
    let path = std::env::temp_dir().join(format!("distcache-series-{}.csv", std::process::id()));
    let file = path.to_str().expect("a text path");
    let common = ["--target", &url, "--keys", "10", "--no-load", "--rate", "1000", "--requests", "300"];
    let output = bench(&[&common[..], &["--series", file]].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&path).expect("the series is there");
    std::fs::remove_file(&path).expect("it can be removed");
    let head: Vec<&str> = text.lines().next().expect("a head").split(',').collect();
    let sum = |name: &str| -> u64 {
        let column = head.iter().position(|column| *column == name).expect(name);
        let cells = text.lines().skip(1).map(|line| line.split(',').nth(column).expect("a cell"));
        cells.map(|cell| cell.parse::<u64>().expect("a number")).sum()
    };
    assert_eq!([sum("due"), sum("answered"), sum("replies")], [300; 3], "{text}");
    assert_eq!([sum("errors"), sum("lost"), sum("unanswered"), sum("error_replies")], [0; 4], "{text}");

    let nowhere = bench(&[&common[..], &["--series", "/nonexistent/series.csv"]].concat());
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&nowhere.stderr).contains("--series /nonexistent/series.csv"),
        "{nowhere:?}"
    );
}

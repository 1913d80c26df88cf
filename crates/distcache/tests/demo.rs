//! `distcache demo` as its users run it, as short as it may be. Not whether the cache is any good.

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    command.arg("demo").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A port that is free now; nobody else on a test machine takes ports by number.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

fn check_summary(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let (without, with) = (&json["without_cache"], &json["with_cache"]);
    assert_eq!(
        (without["hit_ratio"].as_f64(), &without["node_max_over_avg"]),
        (Some(0.0), &serde_json::Value::Null)
    );
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {json}"));
    // By how much it helps depends on what else the machine does in these seconds; benches/ has that.
    assert!(number(&without["throughput"]) > 0.0 && number(&with["throughput"]) > 0.0, "{json}");
    assert!((0.0..1.0).contains(&number(&with["hit_ratio"])) && number(&with["hit_ratio"]) > 0.0, "{json}");
    for figure in
        [&without["storage_max_over_avg"], &with["storage_max_over_avg"], &with["node_max_over_avg"]]
    {
        assert!(number(figure) >= 1.0, "{json}");
    }
}

#[test]
fn embedded_storage_shows_the_difference_and_ends_by_itself() {
    let started = Instant::now();
    let output = demo(&["--json", "--seconds", "8", "--listen", &free_address()]).output().expect("it runs");
    check_summary(&output);
    assert!(started.elapsed().as_secs() < 20);
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(progress.contains("without cache") && progress.contains("with cache"), "{progress}");
}

/// The guard and its servers, told by the folder that they work in: servers write their own command lines.
fn redis_servers_below(child: &Child) -> usize {
    let marker = format!("distcache-demo-{}", child.id());
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let folders = processes.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok());
    folders.filter(|folder| folder.to_string_lossy().contains(&marker)).count()
}

#[test]
fn redis_servers_are_started_and_stopped_however_it_ends() {
    let arguments =
        ["--storage", "redis", "--json", "--seconds", "8", "--racks", "2", "--servers-per-rack", "1"];
    let child =
        demo(&arguments).args(["--spines", "2", "--listen", &free_address()]).spawn().expect("it runs");
    let id = child.id();
    let output = child.wait_with_output().expect("it ends");
    check_summary(&output);
    let directory = std::env::temp_dir().join(format!("distcache-demo-{id}"));
    assert!(!directory.exists());

    for signal in ["-INT", "-TERM", "-KILL"] {
        let mut child = demo(&arguments).args(["--listen", &free_address()]).spawn().expect("it runs");
        while redis_servers_below(&child) < 3 {
            assert_eq!(child.try_wait().expect("it is ours"), None, "it ended too early");
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        // It was cut off, so it has no result; killed, it could not even say so.
        assert!(!child.wait().expect("it is ours").success());
        while redis_servers_below(&child) > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let output = demo(&["--listen", &address]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&address) && text.contains("--listen"), "{text}");
}

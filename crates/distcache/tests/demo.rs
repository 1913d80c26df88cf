//! `distcache demo` as its users run it, as short as it may be. Not whether the cache is any good.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One demonstration at a time: two are each other's busy machine.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    command.arg("demo").args(arguments).args(["--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The summary of a demonstration in which nothing went wrong. Its two halves.
fn check_summary(output: &Output) -> (serde_json::Value, serde_json::Value) {
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(progress.contains("without cache") && progress.contains("with cache"), "{progress}");
    // Nothing but progress: no error, no escape code.
    let is_progress = |line: &str| line.contains(" s  ") && line.contains(" answered/s  busiest server ");
    assert!(progress.lines().all(is_progress) && !progress.contains('\x1b'), "{progress}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let (without, with) = (&json["without_cache"], &json["with_cache"]);
    assert_eq!(
        (number(&without["hit_ratio"]), &without["node_max_over_avg"]),
        (0.0, &serde_json::Value::Null)
    );
    assert!(number(&without["throughput"]) > 0.0 && number(&with["throughput"]) > 0.0, "{json}");
    assert!((0.0..=1.0).contains(&number(&with["hit_ratio"])) && number(&with["hit_ratio"]) > 0.0, "{json}");
    for figure in
        [&without["storage_max_over_avg"], &with["storage_max_over_avg"], &with["node_max_over_avg"]]
    {
        assert!(number(figure) >= 1.0, "{json}");
    }
    (without.clone(), with.clone())
}

/// Which promises were missed. The keys, their order and the times of the requests are always the same.
fn missed(output: &Output) -> Vec<&'static str> {
    let (without, with) = check_summary(output);
    let (before, after) = (|key| number(&without[key]), |key| number(&with[key]));
    // Requests that were refused have no latency; if they are more than one in a hundred, p99 is theirs.
    let refused = before("errors") / (before("throughput") * SECONDS as f64 / 2.0);
    let bounds = [
        ("one server burns", before("storage_max_over_avg") >= 1.8),
        ("clients feel it", before("errors") + before("late") > 100.0),
        ("its load falls", before("busiest_storage_per_s") >= 10.0 * after("busiest_storage_per_s")),
        ("latency falls", refused > 0.01 || before("p99_us") >= 5.0 * after("p99_us")),
        ("no errors with the cache", after("errors") == 0.0),
        ("nothing late with the cache", after("late") == 0.0 || machine_is_busy(&with)),
    ];
    bounds.into_iter().filter(|(_, held)| !held).map(|(bound, _)| bound).collect()
}

const SECONDS: u64 = 20;

/// Whether more than one of the demo's threads waited for a core all the time, as Linux counts it: on two cores with
/// nothing else to do a tenth of that wait. Then nobody knows for whom a request was late.
fn machine_is_busy(phase: &serde_json::Value) -> bool {
    phase["cpu_wait"].as_f64().is_some_and(|waiting| waiting > 1.0)
}

#[test]
fn the_cache_cures_a_server_that_burns() {
    let _turn = turn();
    let run = || demo(&["--json", "--seconds", &SECONDS.to_string()]).output().expect("it runs");
    // A machine that stands still for 100 ms makes requests late, whoever serves them; not three times in a row.
    let mut attempts = Vec::new();
    while attempts.len() < 3 {
        let output = run();
        let missed = missed(&output);
        if missed.is_empty() {
            return;
        }
        attempts.push((missed, String::from_utf8(output.stdout)));
    }
    panic!("{attempts:?}");
}

#[test]
fn the_smallest_and_the_largest_cluster_work_and_say_nothing_else() {
    let _turn = turn();
    for shape in [["1", "1", "1"], ["2", "16", "1"], ["32", "1", "32"]] {
        let [racks, servers_per_rack, spines] = shape;
        let arguments =
            ["--racks", racks, "--servers-per-rack", servers_per_rack, "--spines", spines, "--seconds", "6"];
        let run = || demo(&arguments).arg("--json").output().expect("it runs");
        // On a machine that has no time for a hundred threads, links are given up and requests fail; not three times in a row.
        let mut attempts = vec![run()];
        while attempts.len() < 3
            && String::from_utf8_lossy(&attempts[attempts.len() - 1].stderr).contains(" is not reachable")
        {
            attempts.push(run());
        }
        check_summary(&attempts[attempts.len() - 1]);
    }
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
    let _turn = turn();
    let arguments =
        ["--storage", "redis", "--json", "--seconds", "8", "--racks", "2", "--servers-per-rack", "1"];
    let child = demo(&arguments).args(["--spines", "2"]).spawn().expect("it runs");
    let id = child.id();
    let output = child.wait_with_output().expect("it ends");
    check_summary(&output);
    let directory = std::env::temp_dir().join(format!("distcache-demo-{id}"));
    assert!(!directory.exists());

    for signal in ["-INT", "-TERM", "-KILL"] {
        let mut child = demo(&arguments).spawn().expect("it runs");
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
fn redis_servers_that_are_not_installed_are_one_sentence() {
    let output = demo(&["--storage", "redis"]).env("PATH", "/nonexistent").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.lines().count() == 1 && text.contains("redis-server is not installed"), "{text}");
}

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    let output = command.args(["demo", "--listen", &address]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&address) && text.contains("--listen"), "{text}");
}

/// The demonstration in a terminal of its own, made by `script` of util-linux.
struct Terminal {
    child: Child,
    shown: String,
}

impl Terminal {
    fn open() -> Terminal {
        let command = format!(
            "stty cols 80 rows 24; exec {} demo --listen 127.0.0.1:0",
            env!("CARGO_BIN_EXE_distcache")
        );
        let child = Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is part of every Debian");
        Terminal { child, shown: String::new() }
    }

    fn press(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("it reads");
    }

    /// Until it has shown this since it was asked last.
    fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let mut bytes = [0; 4096];
            let count = self.child.stdout.as_mut().expect("it is piped").read(&mut bytes).expect("it writes");
            assert!(count > 0, "it ended without {text:?}: {:?}", self.shown);
            self.shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        let end = self.shown.find(text).expect("it is there") + text.len();
        self.shown.drain(..end);
    }

    /// What else it shows until it ends, and whether it ends well.
    fn end(mut self) -> (String, bool) {
        let stdout = self.child.stdout.as_mut().expect("it is piped");
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).expect("it writes");
        let text = self.shown + &String::from_utf8_lossy(&rest);
        (text, self.child.wait().expect("it is ours").success())
    }
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn keys_switch_the_cache_kill_a_node_and_end() {
    let _turn = turn();
    let mut terminal = Terminal::open();
    terminal.wait_for(ENTER);
    terminal.wait_for("cache OFF");
    terminal.press(" ");
    terminal.wait_for("cache ON");
    terminal.wait_for("busiest/average");
    terminal.press("k");
    terminal.wait_for("killed");
    terminal.press("k");
    terminal.wait_for("kill a node");
    terminal.press("q");
    terminal.wait_for(LEAVE);
    let (rest, well) = terminal.end();
    let (_, table) = rest.split_once("without cache").expect("a table");
    assert!(well && table.contains("busiest server over average") && !table.contains('\x1b'), "{rest}");
}

#[test]
fn control_c_gives_the_terminal_back() {
    let _turn = turn();
    let mut terminal = Terminal::open();
    terminal.wait_for("cache OFF");
    terminal.press("\x03");
    terminal.wait_for(LEAVE);
    let (rest, well) = terminal.end();
    assert!(!well && rest.contains("stopped before the end"), "{rest}");
}

//! The command line as a user meets it: exit codes, and one clear line about what is wrong.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const GOOD: &str = r#"
[cluster]
name = "demo"
secret = "00112233445566778899aabbccddeeff"
[[controller]]
id = "controller"
listen = "127.0.0.1:CONTROLLER"
[[layer]]
name = "spine"
partition = "hash"
[[node]]
id = "spine-0"
layer = "spine"
listen = "127.0.0.1:0"
[[shim]]
id = "shim-0"
rack = "r0"
listen = "127.0.0.1:0"
[[router]]
id = "router-0"
listen = "127.0.0.1:0"
"#;

/// A configuration file that goes away with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("distcache-cli-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distcache"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("DISTCACHE_")) {
        command.env_remove(&name);
    }
    command.args(arguments);
    command
}

fn distcache(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    command(arguments).envs(environment.iter().copied()).output().unwrap()
}

/// A member that runs until it is dropped.
struct Member(Child);

impl Member {
    fn run(arguments: &[&str]) -> Member {
        let mut child = command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Member(child)
    }

    /// Sends SIGTERM and returns the exit code.
    fn terminate(mut self) -> Option<i32> {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.0.wait().unwrap().code()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Expects this exit code, nothing on stdout and one line on stderr.
fn fails(code: i32, arguments: &[&str], environment: &[(&str, &str)], expected: &str) {
    let output = distcache(arguments, environment);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("distcache: ") && stderr.contains(expected), "{stderr}");
}

#[test]
fn check_says_ok_or_what_is_wrong() {
    let good = File::new("good", &GOOD.replace("CONTROLLER", "0"));
    let output = distcache(&["check", "--config", good.path()], &[]);
    assert_eq!(output.status.code(), Some(0));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("ok: cluster \"demo\", layers (nodes) spine (1), 1 shims in 1 racks"),
        "{stdout}"
    );

    fails(2, &["check", "--config", "/nonexistent.toml"], &[], "/nonexistent.toml: there is no such file");
    let bad = File::new("bad", &GOOD.replace("CONTROLLER", "0").replace("rack =", "rak ="));
    let expected = format!(
        "{}:17: [[shim]]: unknown key `rak` (did you mean `rack`?); allowed here: `id`, `host`",
        bad.path()
    );
    fails(2, &["check", "--config", bad.path()], &[], &expected);
}

#[test]
fn flags_win_over_the_environment() {
    let file = File::new("flags", &GOOD.replace("CONTROLLER", "0"));
    let environment = [("DISTCACHE_CONFIG", file.path()), ("DISTCACHE_CLUSTER_LEASE_MS", "1")];
    fails(2, &["check"], &environment, "[cluster] lease_ms = 1: write 20 to 60000");
    let output = distcache(&["check", "--set", "cluster.lease_ms=500"], &environment);
    assert_eq!(output.status.code(), Some(0));
    fails(2, &["check", "--set", "lease"], &environment, "--set lease: write SECTION.KEY=VALUE");
    fails(2, &["--log", "a=b=c", "check"], &environment, "--log \"a=b=c\"");
}

#[test]
fn usage_errors_have_their_own_exit_code() {
    for arguments in [&["frobnicate"][..], &["check"], &["run", "--config", "x"], &["status"], &[]] {
        let output = distcache(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["--version"], &["up", "--help"], &["inspect", "--help"]] {
        assert_eq!(distcache(arguments, &[]).status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn a_port_in_use_and_an_unknown_member_are_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let file = File::new("taken", &GOOD.replace("CONTROLLER", &port));
    let expected = format!("controller: cannot listen on 127.0.0.1:{port}: the address is in use");
    fails(1, &["up", "--config", file.path()], &[], &expected);
    fails(1, &["run", "--config", file.path(), "--id", "controller"], &[], &expected);
    // Of a network for documents, which no machine has.
    let elsewhere =
        GOOD.replace("127.0.0.1:CONTROLLER", "192.0.2.1:7000") + "[security]\ninsecure_listen = true\n";
    let file = File::new("elsewhere", &elsewhere);
    let expected = "cannot listen on 192.0.2.1:7000: this machine does not have that address; where the file has [[host]]s";
    fails(1, &["up", "--config", file.path()], &[], expected);
    let file = File::new("members", &GOOD.replace("CONTROLLER", "0"));
    let expected = "it has: controller, shim-0, spine-0, router-0";
    fails(2, &["run", "--config", file.path(), "--id", "leaf-9"], &[], expected);
}

#[test]
fn a_controller_that_is_not_there_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    fails(1, &["status", "--controller", &url], &[], "is the controller running there?");
    fails(
        1,
        &["inspect", "key", "--json"],
        &[("DISTCACHE_CONTROLLER", &url)],
        &format!("--controller {url}: no answer"),
    );
    fails(2, &["status", "--controller", "ftp://x"], &[], "write http://HOST:PORT");
}

#[test]
fn members_in_two_processes_show_up_in_status_and_stop_on_sigterm() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let file = File::new("two", &GOOD.replace("CONTROLLER", &port));
    let controller = Member::run(&["run", "--config", file.path(), "--id", "controller"]);
    let node = Member::run(&["run", "--config", file.path(), "--id", "spine-0"]);
    let url = format!("http://127.0.0.1:{port}");
    let start = Instant::now();
    loop {
        let output = distcache(&["status", "--json", "--controller", &url], &[]);
        // 3: the shim and the router do not run.
        assert_eq!(output.status.code(), Some(3));
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        if status["nodes"][0]["id"] == "spine-0" {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{status}");
    }
    let output = distcache(&["status", "--controller", &url], &[]);
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(3), true));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("\nspine-0      up") && stdout.contains("no heartbeat from: shim-0, router-0"),
        "{stdout}"
    );
    let output = distcache(&["inspect", "some key", "--json", "--controller", &url], &[]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["shim"], &found["places"][0]["node"]), (&"shim-0".into(), &"spine-0".into()));
    assert_eq!(node.terminate(), Some(0));
    assert_eq!(controller.terminate(), Some(0));
}

#[test]
fn the_version_has_the_commit_where_there_is_one() {
    let output = distcache(&["version", "--json"], &[]);
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let output = distcache(&["--version"], &[]);
    let line = String::from_utf8(output.stdout).unwrap();
    match version["commit"].as_str() {
        Some(commit) => {
            assert!(commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
            assert!(line.contains(commit), "{line}");
        }
        None => assert_eq!(line.trim_end(), concat!("distcache ", env!("CARGO_PKG_VERSION"))),
    }
}

#[test]
fn every_shell_has_completions_and_every_command_a_man_page() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = distcache(&["completions", shell], &[]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("distcache") && script.contains("device-study"), "{shell}: {script}");
    }
    let folder = std::env::temp_dir().join(format!("distcache-man-{}", std::process::id()));
    let output = distcache(&["man", folder.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for (page, part) in [
        ("distcache.1", "hot keys"),
        ("distcache-status.1", "controller"),
        ("distcache-trace-info.1", "FILE"),
    ] {
        let text = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(text.starts_with(".") && text.contains(".TH") && text.contains(part), "{page}: {text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn flags_of_logging_come_after_those_of_the_command() {
    for command in ["bench", "status", "run", "drain", "top", "doctor", "trace"] {
        let output = distcache(&[command, "--help"], &[]);
        let help = String::from_utf8(output.stdout).unwrap();
        let (own, logging) = help.split_once("\nLogging:\n").unwrap_or_else(|| panic!("{command}: {help}"));
        assert!(!own.contains("--log ") && logging.contains("--log "), "{command}: {help}");
        assert!(!help.contains('\x1b'), "{command}");
    }
}

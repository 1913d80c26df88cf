//! Every number of the configuration at both ends of its range: the cluster starts, serves and takes the other end while
//! it serves. Not what the numbers do, and not what is beyond (`cli_mistakes`).

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::cluster::{
    Client, Directory, Process, RedisServer, distcache, free_port, installed, shared, text, until,
};

/// It names all settings, and a test holds it to the code.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/settings.md");
/// More than this many numbers are known to be there.
const NUMBERS_MIN: usize = 40;
/// Clusters beside each other.
const WORKERS: usize = 6;

/// A number, and the ends of its range as they are written in a file.
struct Number {
    section: String,
    key: String,
    ends: [String; 2],
    reload: bool,
}

fn numbers() -> Vec<Number> {
    let page = std::fs::read_to_string(PAGE).expect("the page is there");
    let mut numbers = Vec::new();
    for part in page.split("\n## `").skip(1) {
        let (section, rest) = part.split_once('`').expect("a heading ends");
        for line in rest.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let (key, takes, reload) = (cells[0].trim_matches('`'), cells[1].trim_matches('`'), cells[3]);
            let Some((least, most)) = takes.split_once(" to ") else { continue };
            // One end is another setting's.
            let ends = match key {
                "bounded_staleness_ms_max" => continue,
                "lease_guard_ms" => ["0", "50"],
                "stale_if_error_ms" => ["1000", most],
                _ => [least, most],
            };
            let [section, key] = [section, key].map(str::to_owned);
            numbers.push(Number { section, key, ends: ends.map(str::to_owned), reload: reload == "yes" });
        }
    }
    assert!(numbers.len() >= NUMBERS_MIN, "{} numbers", numbers.len());
    numbers
}

/// A cluster of one member of each role, and where its file and its router's socket are.
struct Small {
    server: RedisServer,
    directory: Directory,
    controller: u16,
}

impl Small {
    fn start() -> Small {
        Small { server: RedisServer::start(), directory: Directory::new(), controller: free_port() }
    }

    fn file(&self) -> PathBuf {
        self.directory.join("cluster.toml")
    }

    fn socket(&self, member: &str) -> PathBuf {
        self.directory.join(&format!("{member}.sock"))
    }

    /// Its file, with one number set.
    fn write(&self, number: &Number, value: &str) {
        let unix = |member: &str| format!("unix://{}", self.socket(member).display());
        // Weights count where others have laid the keys out.
        let distribution = if number.key == "weight" { "ketama" } else { "ring" };
        // Strict copies are never stale.
        let mode = if number.key == "stale_if_error_ms" { "bounded" } else { "strict" };
        let cluster = "secret = \"00112233445566778899aabbccddeeff\"\nlease_ms = 100";
        let sections = [
            ("[cluster]", format!("{cluster}\nmode = {mode:?}")),
            ("[placement]", format!("distribution = {distribution:?}")),
            ("[limits]", String::new()),
            ("[heat]", String::new()),
            ("[near]", "objects_max = 8".to_owned()),
            ("[slowlog]", String::new()),
            ("[tracing]", "otlp_endpoint = \"http://127.0.0.1:1\"".to_owned()),
            ("[[policy]]", "prefix = \"p\"".to_owned()),
            ("[[controller]]", format!("id = \"c\"\nlisten = \"127.0.0.1:{}\"", self.controller)),
            ("[[layer]]", "name = \"leaf\"\npartition = \"hash\"".to_owned()),
            ("[[node]]", format!("id = \"n\"\nlayer = \"leaf\"\nlisten = \"{}\"", unix("n"))),
            (
                "[[shim]]",
                format!("id = \"s\"\nstorage = \"{}\"\nlisten = \"{}\"", self.server.url(), unix("s")),
            ),
            ("[[router]]", format!("id = \"r\"\nlisten_unix = \"{}\"", self.socket("r").display())),
        ];
        let mut file = String::new();
        for (section, lines) in sections {
            file.push_str(&format!("{section}\n"));
            let own = section == number.section;
            let others = lines.lines().filter(|line| !own || !line.starts_with(&format!("{} =", number.key)));
            others.for_each(|line| file.push_str(&format!("{line}\n")));
            if own {
                file.push_str(&format!("{} = {value}\n", number.key));
            }
        }
        std::fs::write(self.file(), file).expect("written");
    }

    fn up(&self) -> Process {
        let mut command = distcache();
        command.args(["--log", "info", "up", "--adopt", "--config"]).arg(self.file());
        Process::start("up", command, &self.directory.join("up.log"))
    }
}

/// Reads and writes one key until both went well.
fn serves(socket: &Path, value: &str, what: &str) {
    until(what, || {
        let mut client = Client::unix(socket).ok()?;
        let mut ask = |arguments: &[&str]| client.ask(arguments).ok().map(|frame| frame.to_vec());
        (ask(&["SET", "k", value])? == b"+OK\r\n").then_some(())?;
        (ask(&["GET", "k"])? == format!("${}\r\n{value}\r\n", value.len()).as_bytes()).then_some(())
    });
}

fn reloaded(small: &Small, number: &Number) {
    let mut command = distcache();
    command.args(["reload", "--json", "--controller", &format!("127.0.0.1:{}", small.controller)]);
    command.arg("--config").arg(small.file());
    let output = command.output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {}", number.key, String::from_utf8_lossy(&output.stderr));
    let changed = told.split("restart_needed").next().unwrap_or_default();
    assert!(changed.contains(&number.key), "{}: {told}", number.key);
}

/// Starts a cluster with one end, and has it take the other one while it serves if it can.
fn check(number: &Number, [one, other]: [&str; 2]) {
    let at = |end: &str| format!("{} {} = {end}: a key is written and read", number.section, number.key);
    let small = Small::start();
    small.write(number, one);
    let mut up = small.up();
    up.wait_for_line("ready");
    // After a start writes wait for a lease.
    if (number.key.as_str(), one) == ("lease_ms", "60000") {
        let mut client = Client::unix(&small.socket("r")).expect("it listens");
        until(&at(one), || (text(&client.call(&["GET", "k"])) == "Null").then_some(()));
    } else {
        serves(&small.socket("r"), "one", &at(one));
    }
    if number.reload {
        small.write(number, other);
        reloaded(&small, number);
        serves(&small.socket("r"), "other", &at(other));
    }
    // A router that has a day to drain takes it.
    if (number.key.as_str(), one) != ("drain_ms", "86400000") {
        up.signal(Signal::TERM);
        assert_eq!(up.wait().code(), Some(0), "{}", at(one));
    }
}

#[test]
fn every_number_serves_at_both_ends_of_its_range() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let numbers = numbers();
    // Most of a start is waiting for a lease.
    std::thread::scope(|scope| {
        for part in numbers.chunks(numbers.len().div_ceil(WORKERS)) {
            scope.spawn(move || {
                for number in part {
                    let [least, most] = number.ends.each_ref().map(String::as_str);
                    check(number, [least, most]);
                    check(number, [most, least]);
                }
            });
        }
    });
}

//! Three hosts out of one file, the one that the documentation shows: each is started by itself, killed with all that is on it, and
//! comes back. Not what a member does.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value as Json;

use crate::cluster::{
    Etcd, Process, RedisServer, alone, distcache, installed, loopback_network, shared, until,
};
use crate::history::{History, ROUTER_LOST, Report};
use crate::tls::Authority;

const PAGE: &str = include_str!("../../../../docs/operating/hosts.md");
const NAMES: [&str; 3] = ["a", "b", "c"];
/// What becomes of commands that were under way at a host that is lost.
const UNDER_WAY: [&str; 3] = [ROUTER_LOST, "was lost while the command ran", "was lost before it answered"];
const CLIENTS: usize = 9;

/// Killed when dropped.
struct Hosts {
    ups: Vec<Option<Process>>,
    etcds: Vec<Etcd>,
    addresses: Vec<Ipv4Addr>,
    /// The file and all certificates are in its folder.
    authority: Authority,
    _servers: Vec<RedisServer>,
}

impl Hosts {
    /// Nothing runs yet but the storage servers and etcd.
    fn unstarted() -> Hosts {
        let (authority, network) = (Authority::new(), loopback_network());
        let addresses: Vec<Ipv4Addr> = (1..=3).map(&network).collect();
        let names: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        ["member", "router", "etcd", "etcd-client"]
            .iter()
            .for_each(|file| authority.sign_with(file, 2099, &names));
        for copy in ["clients-ca.crt", "etcd-ca.crt"] {
            std::fs::copy(authority.path("ca.crt"), authority.path(copy)).expect("copied");
        }
        let servers: Vec<RedisServer> = NAMES.iter().map(|_| RedisServer::durable()).collect();
        std::fs::write(authority.path("cluster.toml"), file(&addresses, &servers)).expect("written");
        let tls =
            [("--cert-file", "etcd.crt"), ("--key-file", "etcd.key"), ("--trusted-ca-file", "etcd-ca.crt")];
        let tls = tls
            .iter()
            .flat_map(|(option, file)| [(*option).to_owned(), authority.path(file).display().to_string()]);
        let tls: Vec<String> = tls.chain(["--client-cert-auth".to_owned()]).collect();
        let places: Vec<(SocketAddr, SocketAddr)> =
            addresses.iter().map(|ip| ((*ip, 2379).into(), (*ip, 2380).into())).collect();
        let etcds = Etcd::cluster(&places, &tls);
        Hosts { ups: NAMES.iter().map(|_| None).collect(), etcds, addresses, authority, _servers: servers }
    }

    fn start() -> Hosts {
        let mut hosts = Hosts::unstarted();
        (0..NAMES.len()).for_each(|host| hosts.up(host));
        hosts.all_up();
        hosts
    }

    fn config(&self) -> PathBuf {
        self.authority.path("cluster.toml")
    }

    fn up(&mut self, host: usize) {
        let log = self.authority.path(&format!("{}.log", NAMES[host]));
        let mut command = distcache();
        command
            .args(["up", "--host", NAMES[host], "--config"])
            .arg(self.config())
            .env("DISTCACHE_LOG", "info");
        if !log.exists() {
            command.arg("--adopt");
        }
        let process = Process::start(NAMES[host], command, &log);
        process.wait_for_line("ready");
        self.ups[host] = Some(process);
    }

    /// All that is on it, at once.
    fn lose(&mut self, host: usize) {
        self.ups[host] = None;
        self.etcds[host].kill();
    }

    fn bring_back(&mut self, host: usize) {
        self.etcds[host].launch();
        self.up(host);
    }

    /// Another machine has its name and address, and the files that were to be kept.
    fn replace(&mut self, host: usize, other: usize) {
        let [own, other] = self.etcds.get_disjoint_mut([host, other]).expect("two of them");
        own.replace(other);
        self.up(host);
    }

    fn signal(&self, host: usize, signal: Signal) {
        self.ups[host].as_ref().expect("it runs").signal(signal);
        self.etcds[host].signal(signal);
    }

    /// Until the two others have the keys of its nodes, and serve its storage server.
    fn until_replaced(&self, other: usize) {
        until("the others have its keys, and serve its storage server", || {
            let status = self.status(other)?;
            let down = states(&status).iter().filter(|(_, state)| state == "down").count();
            (down == 2 && serving(&status) == 3).then_some(())
        });
    }

    /// The ports of the plain front doors.
    fn routers(&self) -> Vec<SocketAddr> {
        self.addresses.iter().map(|ip| (*ip, 6381).into()).collect()
    }

    /// What this host's controller knows.
    fn status(&self, host: usize) -> Option<Json> {
        let url = format!("https://{}:7000", self.addresses[host]);
        let mut command = distcache();
        command
            .args(["status", "--json", "--controller", &url, "--ca-file"])
            .arg(self.authority.path("ca.crt"));
        let output = command.output().expect("status runs");
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Needs a majority of etcd: the map changes.
    fn drain(&self, node: &str) {
        let url = format!("https://{}:7000", self.addresses[1]);
        until("it is drained", || {
            let mut command = distcache();
            command.args(["drain", node, "--controller", &url, "--config"]).arg(self.config());
            command.output().expect("it runs").status.success().then_some(())
        });
    }

    /// Until every controller says of every member of every host that it is up, and all shims have a process that serves.
    fn all_up(&self) {
        for host in 0..NAMES.len() {
            until("every member is up", || {
                let status = self.status(host)?;
                (states(&status).iter().all(|(_, state)| state == "up") && serving(&status) == 3)
                    .then_some(())
            });
        }
    }
}

/// The example, before these servers and at these addresses.
fn file(addresses: &[Ipv4Addr], servers: &[RedisServer]) -> String {
    let (_, rest) = PAGE.split_once("```toml\n").expect("the page has an example");
    let mut file = rest.split("```").next().expect("it ends").to_owned();
    for (index, server) in servers.iter().enumerate() {
        let documented = format!("redis://10.0.0.1{}:6379", index + 1);
        assert!(file.contains(&documented), "{documented}");
        file = file.replace(&documented, &server.url());
    }
    for (index, ip) in addresses.iter().enumerate() {
        let documented = format!("10.0.0.{}", index + 1);
        let secured = format!("listen_tls = \"{documented}:6380\"");
        assert!(file.contains(&secured), "{secured}");
        // The clients here speak no TLS.
        file = file
            .replace(&secured, &format!("{secured}\nlisten = \"{ip}:6381\""))
            .replace(&documented, &ip.to_string());
    }
    file
}

fn states(status: &Json) -> Vec<(String, String)> {
    let members = status["members"].as_array().expect("a list").iter();
    let word = |member: &Json, key: &str| member[key].as_str().expect("a word").to_owned();
    members.map(|member| (word(member, "id"), word(member, "state"))).collect()
}

fn serving(status: &Json) -> usize {
    let shims = status["shims"].as_array().expect("a list").iter();
    shims.filter(|shim| shim["storage_up"] == true).count()
}

fn only_what_is_documented(report: &Report) {
    report.only(&UNDER_WAY);
    // Each has one command under way at a time: one is lost with the router, and one more at the shim's.
    let lost: u64 = report.errors.values().sum();
    assert!(lost <= 2 * CLIENTS as u64, "{report:?}");
}

#[test]
fn any_host_of_three_is_lost_and_comes_back_without_a_wrong_value() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let mut hosts = Hosts::start();
    let history = History::roaming(&hosts.routers(), 6, CLIENTS - 6);
    let hits = |hosts: &Hosts, host| {
        until("copies are hit", || (crate::coherence::hit_ratio(&hosts.status(host)?) > 0.3).then_some(()));
    };
    hits(&hosts, 0);
    for (host, name) in NAMES.iter().enumerate() {
        let other = (host + 1) % NAMES.len();
        hosts.lose(host);
        history.wait_for(1000, 100);
        hosts.until_replaced(other);
        only_what_is_documented(&history.report());
        history.wait_for(1000, 100);
        let report = history.report();
        assert!(report.errors.is_empty(), "with two hosts: {report:?}");
        match host {
            2 => hosts.replace(host, other),
            _ => hosts.bring_back(host),
        }
        hosts.all_up();
        history.wait_for(500, 50);
        let report = history.report();
        assert!(report.errors.is_empty(), "{name} came back: {report:?}");
    }
    // The etcd that has joined counts as any other.
    hosts.etcds[0].kill();
    hosts.drain("leaf-1");
    hits(&hosts, 0);
    let report = history.finish();
    assert!(report.errors.is_empty(), "{report:?}");
}

/// Its shims, nodes and controller wake with all that they believed.
#[test]
fn a_host_that_hangs_is_replaced_and_shows_no_wrong_value_when_it_wakes() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = alone();
    let hosts = Hosts::start();
    let history = History::roaming(&hosts.routers(), 6, CLIENTS - 6);
    until("copies are hit", || (crate::coherence::hit_ratio(&hosts.status(0)?) > 0.3).then_some(()));
    hosts.signal(0, Signal::STOP);
    hosts.until_replaced(1);
    // Who writes a register at its router keeps others from writing it.
    history.wait_for(1000, 0);
    hosts.signal(0, Signal::CONT);
    hosts.all_up();
    history.wait_for(1000, 100);
    only_what_is_documented(&history.finish());
}

#[test]
fn a_host_that_the_file_does_not_have_or_that_has_nothing_is_told() {
    if !installed(&["redis-server", "etcd"]) {
        return;
    }
    let _machine = shared();
    let hosts = Hosts::unstarted();
    let run = |arguments: &[&str]| {
        let output =
            distcache().args(arguments).arg("--config").arg(hosts.config()).output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, told) = run(&["up", "--host", "d"]);
    assert!(code == Some(2) && told.contains("has no such [[host]]; it has \"a\", \"b\", \"c\""), "{told}");
    let text = std::fs::read_to_string(hosts.config()).expect("the file");
    let spare = format!("{text}\n[[host]]\nname = \"d\"\naddress = \"127.0.0.1\"\n");
    std::fs::write(hosts.config(), spare).expect("written");
    let (code, told) = run(&["up", "--host", "d"]);
    assert!(code == Some(2) && told.contains("has no member there: write host = \"d\""), "{told}");

    let (code, told) = run(&["check"]);
    assert!(
        code == Some(0) && told.contains("controller, shim-0, shim-2-standby, leaf-0, spine-0, router-0"),
        "{told}"
    );
    assert!(!told.contains("warning: "), "{told}");
    let together = text
        .replace("[[standby]]\nof = \"shim-0\"\nhost = \"b\"", "[[standby]]\nof = \"shim-0\"\nhost = \"a\"");
    std::fs::write(hosts.config(), together).expect("written");
    let (code, told) = run(&["check"]);
    let warning = "warning: shim \"shim-0\" and who stands by for it are on host \"a\" alone";
    assert!(code == Some(0) && told.contains(warning), "{told}");
}

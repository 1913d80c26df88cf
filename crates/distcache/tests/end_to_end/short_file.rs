//! Configuration files of a few lines: their members find each other, share the secret that one of them makes, and find
//! their keys again. Where the machine allows it, in a network of their own, because their ports are assumed.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::cluster::{Client, Directory, Process, RedisServer, distcache, installed, shared, text, until};

const KEYS: usize = 100;

/// A network in which every port is free. Without the right to have one, the machine's.
struct Network {
    holder: Option<Process>,
}

impl Network {
    fn new(directory: &Directory) -> Network {
        let mut command = Command::new("unshare");
        // The one process of the network, for as long as the test lasts.
        command.args(["-rn", "sh", "-c", "ip link set lo up && echo up && exec sleep 100000"]);
        let tried = Command::new("unshare").args(["-rn", "ip", "link", "set", "lo", "up"]).output();
        if !tried.is_ok_and(|output| output.status.success()) {
            return Network { holder: None };
        }
        let holder = Process::start("network", command, &directory.join("network.log"));
        holder.wait_for_line("up");
        Network { holder: Some(holder) }
    }

    fn distcache(&self) -> Command {
        let plain = distcache();
        let Some(holder) = &self.holder else { return plain };
        let mut command = Command::new("nsenter");
        command.args(["--preserve-credentials", "-U", "-n", "-t", &holder.id().to_string()]);
        command.arg(plain.get_program());
        for (name, _) in plain.get_envs() {
            command.env_remove(name);
        }
        command
    }

    fn up(&self, file: &Path, directory: &Directory) -> Process {
        let mut command = self.distcache();
        command.arg("up").arg("--config").arg(file);
        Process::start("up", command, &directory.join("up.log"))
    }
}

fn serving(socket: &Path) -> Client {
    until("the router serves", || {
        let mut client = Client::unix(socket).ok()?;
        text(&client.call(&["DBSIZE"])).starts_with("Integer").then_some(client)
    })
}

fn fill(client: &mut Client) {
    for number in 0..KEYS {
        let key = format!("key-{number}");
        until("a write is taken", || (text(&client.call(&["SET", &key, &key])) == "OK").then_some(()));
    }
}

fn check(client: &mut Client) {
    for number in 0..KEYS {
        let key = format!("key-{number}");
        assert_eq!(text(&client.call(&["GET", &key])), key);
    }
}

#[test]
fn members_that_start_at_once_share_the_secret_and_find_their_keys_again() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let directory = Directory::new();
    let (file, socket) = (directory.join("cluster.toml"), directory.join("r.sock"));
    let lines = format!(
        "[[shim]]\nstorage = \"{}\"\n[[shim]]\nstorage = \"{}\"\n[[router]]\nlisten_unix = \"{}\"\n",
        servers[0].url(),
        servers[1].url(),
        socket.display()
    );
    assert!(lines.lines().count() <= 8);
    std::fs::write(&file, lines).expect("written");
    let network = Network::new(&directory);
    let ids = ["controller", "shim-0", "shim-1", "leaf-0", "leaf-1", "spine-0", "spine-1", "router-0"];
    let run = |id: &str| {
        let mut command = network.distcache();
        command.args(["run", "--adopt", "--id", id, "--config"]).arg(&file);
        Process::start(id, command, &directory.join(&format!("{id}.log")))
    };
    let members: Vec<Process> = ids.iter().map(|id| run(id)).collect();
    members.iter().for_each(|member| member.wait_for_line("ready"));
    let secret = directory.join("cluster.secret");
    assert_eq!(std::fs::metadata(&secret).expect("it is made").permissions().mode() & 0o777, 0o600);
    let mut client = serving(&socket);
    until("every member has the same secret", || {
        let info = text(&client.call(&["INFO", "distcache"]));
        (info.contains("nodes_linked:4\r\n") && info.contains("shims_linked:2\r\n")).then_some(())
    });
    fill(&mut client);
    drop(members);

    let mut up = network.up(&file, &directory);
    up.wait_for_line("ready");
    check(&mut serving(&socket));
    up.signal(Signal::TERM);
    assert_eq!(up.wait().code(), Some(0));

    std::fs::rename(&secret, directory.join("elsewhere")).expect("renamed");
    let mut up = network.up(&file, &directory);
    assert_eq!(up.wait().code(), Some(1));
    assert!(
        up.log().contains("the server holds keys of cluster \"distcache\" with another secret"),
        "{}",
        up.log()
    );
    std::fs::rename(directory.join("elsewhere"), &secret).expect("renamed");
    let up = network.up(&file, &directory);
    up.wait_for_line("ready");
    check(&mut serving(&socket));
}

#[test]
fn the_file_that_init_writes_is_checked_and_runs() {
    let _machine = shared();
    if !installed(&["redis-server"]) {
        return;
    }
    let servers = [RedisServer::start(), RedisServer::start()];
    let directory = Directory::new();
    let (file, socket) = (directory.join("cluster.toml"), directory.join("r.sock"));
    let storage = format!("{},{}", servers[0].url(), servers[1].url());
    let init = |more: &[&str]| {
        let mut command = distcache();
        command.arg("init").arg(&file).args(["--listen", &format!("unix://{}", socket.display())]).args(more);
        let output = command.output().expect("it ends");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = init(&[]);
    assert!(code == Some(2) && error.contains("no terminal to ask at: write --storage"), "{code:?} {error}");
    assert_eq!(init(&["--storage", &storage]), (Some(0), String::new()));
    let written = std::fs::read_to_string(&file).expect("a file");
    let (code, error) = init(&["--storage", &storage, "--nodes", "3"]);
    assert!(code == Some(2) && error.contains("overwrite it with --force"), "{code:?} {error}");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), written);

    let output = distcache().arg("check").arg("--config").arg(&file).output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        said.contains("ok: cluster \"distcache\", layers (nodes) leaf (2), spine (2), 2 shims in 2 racks"),
        "{said}"
    );
    assert!(
        said.contains("assumed: [cluster] secret_file = \"cluster.secret\" (made at the first start)"),
        "{said}"
    );
    assert!(
        said.contains("assumed: [[shim]] 2: id = \"shim-1\", rack = \"shim-1\", listen = \"127.0.0.1:7101\""),
        "{said}"
    );
    assert!(!directory.join("cluster.secret").exists(), "a check makes nothing");

    let network = Network::new(&directory);
    let up = network.up(&file, &directory);
    up.wait_for_line("ready");
    fill(&mut serving(&socket));
    drop(up);
    assert_eq!(init(&["--storage", &storage, "--nodes", "3", "--force"]), (Some(0), String::new()));
    let up = network.up(&file, &directory);
    up.wait_for_line("ready");
    // Nodes do not decide where keys are, and the secret has stayed.
    check(&mut serving(&socket));
}

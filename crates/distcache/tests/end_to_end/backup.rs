//! What has to be kept of a cluster, by the page that says so: with that it comes back, and without it it says what is missing. Not
//! what etcd knows, which nobody has to keep.

use std::path::{Path, PathBuf};

use rustix::process::Signal;
use wire::resp::Value;

use crate::cluster::{
    Client, Cluster, Directory, Layout, Process, RedisServer, UP, alone, distcache, installed,
    loopback_network, ok, shared, text, until,
};

/// Two embedded stores and the file with its secret, on one host.
struct Kept {
    root: Directory,
    router: std::net::SocketAddr,
}

impl Kept {
    fn new() -> Kept {
        let (root, address) = (Directory::new(), loopback_network()(1));
        let shims = ["store/0", "store/1"].map(|folder| {
            format!("[[shim]]\nhost = \"a\"\nstorage = \"embedded://{}\"\n", root.join(folder).display())
        });
        let file = format!(
            "[[host]]\nname = \"a\"\naddress = \"{address}\"\n[[controller]]\nhost = \"a\"\n[[router]]\nhost = \"a\"\n\
             [[node]]\nhost = \"a\"\n{}",
            shims.concat()
        );
        std::fs::create_dir(root.join("etc")).expect("made");
        std::fs::write(root.join("etc/distcache.toml"), file).expect("written");
        Kept { root, router: (address, 6380).into() }
    }

    fn config(&self) -> PathBuf {
        self.root.join("etc/distcache.toml")
    }

    fn up(&self) -> Process {
        let mut command = distcache();
        command.args(["up", "--host", "a", "--config"]).arg(self.config()).env("DISTCACHE_LOG", "info");
        Process::start("up", command, &self.root.join("up.log"))
    }

    fn copy(&self, from: &str, to: &str) {
        copy(&self.root.join(from), &self.root.join(to));
    }

    fn remove(&self, name: &str) {
        std::fs::remove_dir_all(self.root.join(name)).expect("it was there");
    }
}

/// As `cp -r`.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for file in std::fs::read_dir(from).expect("a folder").map(|file| file.expect("a file")) {
        let target = to.join(file.file_name());
        match file.file_type().expect("a type").is_dir() {
            true => copy(&file.path(), &target),
            false => drop(std::fs::copy(file.path(), &target).expect("copied")),
        }
    }
}

#[test]
fn file_secret_and_folder_are_all_that_a_host_needs() {
    let _machine = shared();
    let kept = Kept::new();
    let mut up = kept.up();
    up.wait_for_line("ready");
    let keys: Vec<String> = (0..50).map(|key| format!("key:{key}")).collect();
    let mut client = Client::tcp(kept.router);
    // A shim may not be linked yet when its process accepts clients.
    for key in &keys {
        until("it is written", || matches!(client.call(&["SET", key, key]), Value::Simple(_)).then_some(()));
    }
    up.signal(Signal::TERM);
    assert_eq!(up.wait().code(), Some(0), "{}", up.log());
    for part in ["etc", "store"] {
        kept.copy(part, &format!("kept/{part}"));
        kept.remove(part);
    }

    // Without the secret another one is made, which would look for keys in the wrong one of the two: nothing is served.
    kept.copy("kept/etc", "etc");
    kept.copy("kept/store", "store");
    std::fs::remove_file(kept.root.join("etc/distcache.secret")).expect("it was made");
    let mut up = kept.up();
    assert_eq!(up.wait().code(), Some(1));
    let told = "the store holds keys of cluster \"distcache\" with another secret";
    assert!(up.log().contains(told), "{}", up.log());

    kept.copy("kept/etc", "etc");
    let up = kept.up();
    up.wait_for_line("ready");
    let mut client = Client::tcp(kept.router);
    for key in &keys {
        until("the key is read", || (text(&client.call(&["GET", key])) == *key).then_some(()));
    }
    until("it is written", || matches!(client.call(&["SET", "key", "v"]), Value::Simple(_)).then_some(()));
}

#[test]
fn an_older_state_of_a_storage_server_is_what_is_served_after_it_was_put_back() {
    if !installed(&["redis-server"]) {
        return;
    }
    let _machine = alone();
    let mut server = RedisServer::start();
    let mut cluster = Cluster::up(Layout::before(std::slice::from_ref(&server)));
    let mut client = cluster.connect(0);
    ok(&mut client, &["SET", "k", "older"]);
    // The only snapshot that it ever makes.
    ok(&mut server.connect(), &["SAVE"]);
    ok(&mut client, &["SET", "k", "newer"]);
    until("copies are hit", || {
        assert_eq!(text(&client.call(&["GET", "k"])), "newer");
        (crate::coherence::hit_ratio(&cluster.status()) > 0.1).then_some(())
    });
    cluster.process(UP).signal(Signal::TERM);
    assert_eq!(cluster.process(UP).wait().code(), Some(0));
    server.kill();
    server.run();
    cluster.start(UP);
    let mut client = cluster.connect(0);
    let first = until("it is read", || match client.call(&["GET", "k"]) {
        Value::Error(_) => None,
        value => Some(value),
    });
    assert_eq!(text(&first), "older");
    until("it is written", || matches!(client.call(&["SET", "k", "again"]), Value::Simple(_)).then_some(()));
}

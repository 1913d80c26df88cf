//! A real etcd for one test, on loopback and with a directory of its own. Not what is kept in it.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::authority::Authority;

/// After this long nothing that a test waits for will come any more, even on a loaded machine.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < WAIT_MAX, "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Killed when dropped.
pub(crate) struct Etcd {
    process: Option<Child>,
    name: String,
    client: u16,
    peer: u16,
    /// All servers of its cluster, as etcd wants them named.
    cluster: String,
    directory: PathBuf,
    /// Where it speaks TLS.
    tls: Vec<String>,
}

/// Whether Debian's `etcd-server` is there. Where continuous integration runs it must be.
pub(crate) fn installed() -> bool {
    let there = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(there || std::env::var("CI").as_deref() != Ok("true"), "etcd is not installed (`make setup`)");
    there
}

/// A port on which nobody listens, below those that Linux gives to outgoing connections: a server that restarts must
/// find it free again.
fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let ports =
        || 20_000 + (u64::from(std::process::id()) * 31 + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..12_000).map(|_| ports() as u16).find(free).expect("a free port")
}

impl Etcd {
    pub(crate) fn start() -> Etcd {
        Etcd::start_cluster(1).pop().expect("one server")
    }

    /// Servers that elect a leader among them.
    pub(crate) fn start_cluster(servers: usize) -> Vec<Etcd> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let server = |_| {
            let name = format!("dc-etcd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let directory = std::env::temp_dir().join(&name);
            let (client, peer) = (free_port(), free_port());
            Etcd { process: None, name, client, peer, cluster: String::new(), directory, tls: Vec::new() }
        };
        let mut etcds: Vec<Etcd> = (0..servers).map(server).collect();
        let names = etcds.iter().map(|etcd| format!("{}=http://127.0.0.1:{}", etcd.name, etcd.peer));
        let cluster = names.collect::<Vec<_>>().join(",");
        for etcd in &mut etcds {
            etcd.cluster.clone_from(&cluster);
            etcd.launch();
        }
        etcds.iter().for_each(Etcd::wait);
        etcds
    }

    /// Starts it again.
    pub(crate) fn run(&mut self) {
        self.launch();
        self.wait();
    }

    fn wait(&self) {
        until("etcd answers", || self.ask("kv/range", &json!({ "key": "YQ==" })));
    }

    fn launch(&mut self) {
        std::fs::create_dir_all(&self.directory).expect("a temporary directory");
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        let (client, peer) =
            (format!("{scheme}://127.0.0.1:{}", self.client), format!("http://127.0.0.1:{}", self.peer));
        let mut command = Command::new("etcd");
        command.args(["--name", &self.name, "--logger", "zap", "--log-level", "error", "--data-dir"]);
        command.arg(self.directory.join("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.cluster]);
        command.args(&self.tls);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.process = Some(command.spawn().expect("etcd starts"));
    }

    /// Starts it again with TLS, a certificate of `authority` for itself, and one demanded of whoever connects.
    pub(crate) fn run_secured(&mut self, authority: &Authority) {
        let files =
            [("--cert-file", "etcd.crt"), ("--key-file", "etcd.key"), ("--trusted-ca-file", "ca.crt")];
        let options = files
            .iter()
            .flat_map(|(option, name)| [(*option).to_owned(), authority.path(name).display().to_string()]);
        self.tls = options.chain(["--client-cert-auth".to_owned()]).collect();
        self.launch();
    }

    /// From now on only users may do anything: root, and `distcache` with `password` below `prefix`.
    pub(crate) fn demand_users(&self, password: &str, prefix: &str, end: &str) {
        let root = "root";
        let range = json!({ "permType": "READWRITE", "key": prefix, "range_end": end });
        for (path, body) in [
            ("auth/user/add", json!({ "name": root, "password": root })),
            ("auth/role/add", json!({ "name": root })),
            ("auth/user/grant", json!({ "user": root, "role": root })),
            ("auth/user/add", json!({ "name": "distcache", "password": password })),
            ("auth/role/add", json!({ "name": "distcache" })),
            ("auth/role/grant", json!({ "name": "distcache", "perm": range })),
            ("auth/user/grant", json!({ "user": "distcache", "role": "distcache" })),
            ("auth/enable", json!({})),
        ] {
            self.ask(path, &body).unwrap_or_else(|| panic!("{path} is done"));
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    /// `STOP` or `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process.as_ref().expect("etcd runs").id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &id]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Forgets everything; it must not run.
    pub(crate) fn empty(&self) {
        std::fs::remove_dir_all(&self.directory).expect("its directory is there");
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client)
    }

    /// A request of its JSON interface.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Option<Value> {
        let url = format!("http://{}/v3/{path}", self.endpoint());
        let config = ureq::Agent::config_builder().proxy(None).timeout_global(Some(Duration::from_secs(5)));
        let reply = ureq::Agent::new_with_config(config.build()).post(url).send(body.to_string());
        serde_json::from_str(&reply.ok()?.body_mut().read_to_string().ok()?).ok()
    }

    /// Forgets the history of what it holds, after somebody else has made some.
    pub(crate) fn compact(&self) {
        let put = self.ask("kv/put", &json!({ "key": "b3RoZXI=", "value": "MQ==" })).expect("etcd answers");
        let revision = &put["header"]["revision"];
        self.ask("kv/compaction", &json!({ "revision": revision })).expect("etcd answers");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

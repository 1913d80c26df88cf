//! A real redis-server or valkey-server for one test. Not what DistCache does with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use wire::resp::Value;

use super::machine::{installed, installed_at};
use super::{Client, Directory, Process, until};

/// Who made the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Redis,
    Valkey,
}

impl Program {
    /// `cargo xtask setup` unpacks Valkey beside what it builds, so that it does not disturb an installed Redis.
    fn path(self) -> PathBuf {
        let unpacked =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/valkey/usr/bin/valkey-server");
        match self {
            Program::Redis => "redis-server".into(),
            Program::Valkey if unpacked.is_file() => unpacked,
            Program::Valkey => "valkey-server".into(),
        }
    }

    /// Whether it is there. Where continuous integration runs it must be.
    pub(crate) fn is_installed(self) -> bool {
        match self {
            Program::Redis => installed(&["redis-server"]),
            Program::Valkey => {
                installed_at(&self.path(), "`cargo xtask setup` fetches it from Debian's backports")
            }
        }
    }

    pub(crate) fn start(self) -> RedisServer {
        self.with(&["--appendonly", "no"])
    }

    pub(crate) fn with(self, arguments: &[&str]) -> RedisServer {
        let mut server = RedisServer { program: self, ..RedisServer::stopped(arguments) };
        server.run();
        server
    }
}

/// Killed when dropped.
pub(crate) struct RedisServer {
    program: Program,
    process: Option<Process>,
    arguments: Vec<String>,
    directory: Directory,
}

impl RedisServer {
    pub(crate) fn start() -> RedisServer {
        Program::Redis.start()
    }

    /// One whose data outlive it: what it has answered is with the kernel, which is never killed. Nobody waits for a disk that
    /// others keep busy.
    pub(crate) fn durable() -> RedisServer {
        RedisServer::with(&["--appendonly", "yes", "--appendfsync", "no"])
    }

    pub(crate) fn with(arguments: &[&str]) -> RedisServer {
        Program::Redis.with(arguments)
    }

    /// Not running yet.
    pub(crate) fn stopped(arguments: &[&str]) -> RedisServer {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        RedisServer { program: Program::Redis, process: None, arguments, directory: Directory::new() }
    }

    /// Starts it, or starts it again.
    pub(crate) fn run(&mut self) {
        let mut command = Command::new(self.program.path());
        command.args(["--port", "0", "--save", "", "--daemonize", "no", "--dir"]).arg(self.directory.path());
        command.arg("--unixsocket").arg(self.socket()).args(&self.arguments);
        // Redis logs to stdout; a log file is shown when a test fails.
        let log = self.directory.join("redis.log");
        command.arg("--logfile").arg(&log);
        self.process = Some(Process::start("redis-server", command, &log));
        until("redis-server answers", || {
            let mut client = Client::unix(&self.socket()).ok()?;
            let frame = client.ask(&["PING"]).ok()?;
            (frame.starts_with(b"+PONG") || frame.starts_with(b"-NOAUTH")).then_some(())
        });
    }

    /// kill -9
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the server runs")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// As `storage` names it.
    pub(crate) fn url(&self) -> String {
        self.url_with("")
    }

    /// With `USER:PASSWORD@` in it.
    pub(crate) fn url_with(&self, login: &str) -> String {
        format!("redis+unix://{login}{}", self.socket().display())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::unix(&self.socket()).expect("the server accepts")
    }

    /// The users as which shims are here. Others only say how long leases may run.
    pub(crate) fn living_users(&self) -> Vec<String> {
        self.shim_users().into_iter().filter(|user| user.matches(':').count() == 5).collect()
    }

    /// The users that shims have made here.
    pub(crate) fn shim_users(&self) -> Vec<String> {
        let Value::Array(users) = self.connect().call(&["ACL", "USERS"]) else { return Vec::new() };
        let names = users.iter().map(super::text);
        names.filter(|name| name.starts_with("distcache:")).collect()
    }
}

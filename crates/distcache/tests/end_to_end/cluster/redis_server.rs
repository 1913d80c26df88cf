//! A real redis-server for one test. Not what DistCache does with it.

use std::path::PathBuf;
use std::process::Command;

use wire::resp::Value;

use super::{Client, Directory, Process, until};

/// Killed when dropped.
pub(crate) struct RedisServer {
    process: Option<Process>,
    arguments: Vec<String>,
    directory: Directory,
}

impl RedisServer {
    pub(crate) fn start() -> RedisServer {
        RedisServer::with(&["--appendonly", "no"])
    }

    /// One whose data outlive it.
    pub(crate) fn durable() -> RedisServer {
        RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub(crate) fn with(arguments: &[&str]) -> RedisServer {
        let mut server = RedisServer::stopped(arguments);
        server.run();
        server
    }

    /// Not running yet.
    pub(crate) fn stopped(arguments: &[&str]) -> RedisServer {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        RedisServer { process: None, arguments, directory: Directory::new() }
    }

    /// Starts it, or starts it again.
    pub(crate) fn run(&mut self) {
        let mut command = Command::new("redis-server");
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

    pub(crate) fn connect(&self) -> Client {
        Client::unix(&self.socket()).expect("the server accepts")
    }

    /// The users that shims have made here.
    pub(crate) fn shim_users(&self) -> Vec<String> {
        let Value::Array(users) = self.connect().call(&["ACL", "USERS"]) else { return Vec::new() };
        let names = users.iter().map(super::text);
        names.filter(|name| name.starts_with("distcache:")).collect()
    }
}

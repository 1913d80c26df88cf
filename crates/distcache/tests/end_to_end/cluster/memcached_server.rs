//! A real memcached for one test. Not what DistCache does with it.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use super::{Directory, MemcachedClient, Process, free_port, until};

/// Killed when dropped.
pub(crate) struct MemcachedServer {
    process: Option<Process>,
    arguments: Vec<String>,
    port: u16,
    directory: Directory,
}

impl MemcachedServer {
    pub(crate) fn start() -> MemcachedServer {
        MemcachedServer::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> MemcachedServer {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let directory = Directory::new();
        let mut server = MemcachedServer { process: None, arguments, port: free_port(), directory };
        server.run();
        server
    }

    /// Starts it, or starts it again.
    pub(crate) fn run(&mut self) {
        let mut command = Command::new("memcached");
        // Root has to name a user.
        command
            .args(["-u", "nobody", "-l", "127.0.0.1", "-t", "2", "-U", "0", "-p"])
            .arg(self.port.to_string());
        command.args(&self.arguments);
        let log = self.directory.join("memcached.log");
        self.process = Some(Process::start("memcached", command, &log));
        until("memcached answers", || TcpStream::connect(self.address()).ok().map(drop));
    }

    /// kill -9
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// As `storage` names it.
    pub(crate) fn url(&self) -> String {
        format!("memcached://{}", self.address())
    }

    pub(crate) fn connect(&self) -> MemcachedClient {
        MemcachedClient::connect(self.address())
    }
}

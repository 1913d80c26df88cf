//! A redis-server of a test's own and a connection to it. Not what is compared.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use bytes::Bytes;
use wire::resp::{Command, ReplyScanner, Value};

pub(crate) struct Redis {
    process: Child,
    folder: PathBuf,
    socket: PathBuf,
}

impl Redis {
    /// A server of this test's own, or `None` where none is installed.
    #[expect(clippy::print_stderr, reason = "says which part of the tests did not run")]
    pub(crate) fn start(test: &str) -> Option<Redis> {
        let folder = std::env::temp_dir().join(format!("distcache-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the socket");
        let socket = folder.join("redis.sock");
        let spawned = std::process::Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--daemonize", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut process) = spawned else {
            eprintln!("{test}: skipped, there is no redis-server (`make test` installs it)");
            return None;
        };
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let ready =
            |line: &Result<String, _>| line.as_ref().is_ok_and(|line| line.contains("ready to accept"));
        assert!(output.lines().any(|line| ready(&line)), "redis-server ended early");
        Some(Redis { process, folder, socket })
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = UnixStream::connect(&self.socket).expect("redis-server listens");
        Connection { stream, held: Vec::new(), scanner: ReplyScanner::new() }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) struct Connection {
    stream: UnixStream,
    held: Vec<u8>,
    scanner: ReplyScanner,
}

impl Connection {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("redis-server reads");
    }

    pub(crate) fn reply(&mut self) -> Value {
        let mut chunk = [0; 16 << 10];
        loop {
            if let Some(end) = self.scanner.scan(&self.held).expect("well formed") {
                let rest = self.held.split_off(end);
                let frame = std::mem::replace(&mut self.held, rest);
                return Value::parse(&Bytes::from(frame)).expect("well formed");
            }
            let count = self.stream.read(&mut chunk).expect("redis-server answers");
            assert!(count > 0, "redis-server closed the connection");
            self.held.extend_from_slice(&chunk[..count]);
        }
    }

    pub(crate) fn ask(&mut self, args: &[&str]) -> Value {
        self.send(Command::from_args(args).frame());
        self.reply()
    }
}

//! A real redis-server of its own directory and Unix socket, for tests, and a blocking client to ask it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use wire::resp::{Command, ReplyScanner};

static NUMBER: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Server {
    directory: PathBuf,
    process: Child,
}

impl Server {
    /// `None`, with a message, where redis-server is not installed.
    #[expect(clippy::print_stderr, reason = "says which tests did not run")]
    pub(crate) fn start(options: &[&str]) -> Option<Server> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("distcache-shim-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the server");
        match launch(&directory, options) {
            Ok(process) => Some(Server { directory, process }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("skipped, there is no redis-server (`make test` installs it)");
                None
            }
            Err(error) => panic!("redis-server: {error}"),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("redis.sock")
    }

    /// Kills the process and starts another in its place, empty.
    pub(crate) fn restart(&mut self, options: &[&str]) {
        self.stop();
        self.process = launch(&self.directory, options).expect("redis-server was there before");
    }

    /// Starts another in its place, which may still be loading its data.
    pub(crate) fn restart_unready(&mut self, options: &[&str]) {
        self.stop();
        self.process = spawn(&self.directory, options).expect("redis-server was there before");
        while UnixStream::connect(self.socket()).is_err() {
            std::thread::yield_now();
        }
    }

    pub(crate) fn stop(&mut self) {
        // The process may have ended already, as a test wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(self.socket());
    }

    /// Stops it as a debugger would: its sockets stay open and fill.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.process.id());
        let status = Process::new("sh").args(["-c", &command]).status().expect("a shell");
        assert!(status.success(), "{command}");
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket())
    }
}

fn spawn(directory: &Path, options: &[&str]) -> std::io::Result<Child> {
    Process::new("redis-server")
        .args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--daemonize", "no"])
        .args(options)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

fn launch(directory: &Path, options: &[&str]) -> std::io::Result<Child> {
    let mut process = spawn(directory, options)?;
    let mut log = BufReader::new(process.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    let mut all = String::new();
    while !line.contains("eady to accept connections") {
        all.push_str(&line);
        line.clear();
        assert!(log.read_line(&mut line)? > 0, "redis-server did not start: {all}");
    }
    // Nobody reads on; the pipe holds the few lines that may follow.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Ok(process)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Client {
        let stream = UnixStream::connect(socket).expect("the server accepts");
        Client { stream, buffer: Vec::new() }
    }

    pub(crate) fn send(&mut self, args: &[&str]) {
        self.stream.write_all(Command::from_args(args).frame()).expect("the server reads");
    }

    pub(crate) fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Bytes {
        self.stream.write_all(Command::from_args(args).frame()).expect("the server reads");
        self.reply().expect("the server answers")
    }

    /// `None` when the connection has ended.
    pub(crate) fn reply(&mut self) -> Option<Bytes> {
        let mut scanner = ReplyScanner::new();
        loop {
            if let Some(len) = scanner.scan(&self.buffer).expect("well-formed replies") {
                let rest = self.buffer.split_off(len);
                return Some(std::mem::replace(&mut self.buffer, rest).into());
            }
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
            }
        }
    }
}

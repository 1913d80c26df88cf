//! Real redis-server processes for the demonstration, stopped however it ends. Not how a shim talks to them.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use runtime::stop::Stop;

use super::directory::TemporaryDirectory;

/// Starts `$2` servers in the directory `$1`, waits for the end of its input, kills them and removes the
/// directory. The input is a pipe from this process, so it ends however this process ends, be it by SIGKILL.
const GUARD: &str = "\
trap '' INT TERM HUP
cd \"$1\" || exit 1
index=0
while [ $index -lt \"$2\" ]; do
    redis-server --port 0 --unixsocket redis-$index.sock --unixsocketperm 700 --save '' --appendonly no \
        --daemonize no --dir \"$1\" --logfile redis-$index.log </dev/null >/dev/null 2>&1 &
    pids=\"$pids $!\"
    index=$((index + 1))
done
read -r _
kill -KILL $pids
wait
cd / && rm -rf \"$1\"
";

/// Empty servers on a slow disk need less than a second.
const START_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);

/// The servers, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Servers {
    guard: Child,
    pub(crate) sockets: Vec<PathBuf>,
}

impl Servers {
    /// Starts `count` servers and waits until each answers.
    pub(crate) fn start(directory: &TemporaryDirectory, count: usize, stop: &Stop) -> Result<Servers> {
        check_installed()?;
        let guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "distcache-demo"])
            .arg(directory.path())
            .arg(count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // So that Ctrl-C in the terminal does not reach the servers before the shims are done with them.
            .process_group(0)
            .spawn()
            .context("cannot run /bin/sh to start redis-server")?;
        let sockets = (0..count).map(|index| directory.join(&format!("redis-{index}.sock"))).collect();
        let servers = Servers { guard, sockets };
        let started = Instant::now();
        for socket in &servers.sockets {
            while !answers(socket) {
                if stop.wait_timeout(POLL) {
                    bail!("stopped while redis-server was starting");
                }
                if started.elapsed() > START_MAX {
                    bail!("redis-server does not answer at {}: {}", socket.display(), last_log_line(socket));
                }
            }
        }
        Ok(servers)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        // The guard ends by itself as soon as its input does.
        drop(self.guard.wait());
    }
}

fn check_installed() -> Result<()> {
    match Command::new("redis-server").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "--storage redis: redis-server is not installed; `apt-get install redis-server`, or --storage embedded"
            )
        }
        Err(error) => Err(error).context("--storage redis: cannot run redis-server"),
    }
}

fn answers(socket: &Path) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        Ok(&reply == b"+PONG")
    };
    ping().unwrap_or(false)
}

fn last_log_line(socket: &Path) -> String {
    let log = std::fs::read_to_string(socket.with_extension("log")).unwrap_or_default();
    log.lines().next_back().unwrap_or("it left no log").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_answer_and_are_gone_afterwards() {
        let directory = TemporaryDirectory::new().expect("a temporary directory");
        let servers =
            Servers::start(&directory, 2, &Stop::new()).expect("redis-server is installed for tests");
        assert_eq!(servers.sockets.len(), 2);
        assert!(servers.sockets.iter().all(|socket| answers(socket)));
        let sockets = servers.sockets.clone();
        drop(servers);
        assert!(!sockets.iter().any(|socket| answers(socket)));
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }
}

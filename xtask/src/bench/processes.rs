//! Child processes that end with the measurement, and what the kernel says they used.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Kernel clock ticks per second in /proc, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;
const START_MAX: Duration = Duration::from_secs(20);

/// A started process; killed when it goes out of scope.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Process> {
        let child =
            command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Process(child))
    }

    /// Starts it and waits for the line `ready` on its output.
    pub(super) fn start_ready(command: &mut Command) -> anyhow::Result<Process> {
        let mut process = Process::start(command.stdout(Stdio::piped()))?;
        let output = process.0.stdout.take().context("the output is piped")?;
        let mut lines = BufReader::new(output).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line == "ready");
        if !ready {
            bail!("{command:?} ended before it was ready");
        }
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(process)
    }

    /// User and system time so far.
    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let (Some(user), Some(system)) = (ticks(11), ticks(12)) else { bail!("cannot read {stat:?}") };
        Ok(Duration::from_secs_f64((user + system) / TICKS_PER_SECOND))
    }

    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder for sockets and configurations; removed at the end.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> anyhow::Result<Folder> {
        let path = std::env::temp_dir().join(format!("distcache-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn redis(port: u16, folder: &Path) -> anyhow::Result<Process> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let process = Process::start(command.arg("--dir").arg(folder).stdout(Stdio::null()))?;
    accepting(port)?;
    Ok(process)
}

pub(super) fn twemproxy(port: u16, servers: &[u16], folder: &Path) -> anyhow::Result<Process> {
    let config = folder.join(format!("nutcracker-{port}.yml"));
    let mut text = format!(
        "pool:\n  listen: 127.0.0.1:{port}\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n  servers:\n"
    );
    for server in servers {
        text.push_str(&format!("    - 127.0.0.1:{server}:1\n"));
    }
    std::fs::write(&config, text)?;
    let mut command = Command::new("nutcracker");
    command.arg("-c").arg(&config).args(["-s", &free_port()?.to_string(), "-a", "127.0.0.1", "-v", "0"]);
    command.arg("-p").arg(folder.join("nutcracker.pid")).arg("-o").arg(folder.join("nutcracker.log"));
    let process = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    accepting(port)?;
    Ok(process)
}

/// A port nobody listens on at this moment.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn accepting(port: u16) -> anyhow::Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let started = Instant::now();
    while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err() {
        if started.elapsed() > START_MAX {
            bail!("nobody listens on {address}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

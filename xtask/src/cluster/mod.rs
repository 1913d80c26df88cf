//! A DistCache cluster of real processes for measurements and trials: written, started, disturbed, asked, ended.
//! Not what is measured or tried with it.

pub(crate) mod ask;
pub(crate) mod client;
mod etcd;
mod folder;
mod layout;
mod namespace;
mod ports;
mod process;
pub(crate) mod proxy;
mod redis_cluster;

use etcd::StartedEtcd;
pub(crate) use folder::Folder;
pub(crate) use layout::{Layer, Layout, LayoutMember, LayoutRole, LayoutStorage, without_shim};
pub(crate) use namespace::Namespace;
pub(crate) use ports::free_address;
pub(crate) use process::{MemberProcess, mortal};
pub(crate) use redis_cluster::{Move, StartedRedisCluster};

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::Value;

use proxy::Proxy;

/// Nothing takes longer to come up, even on a loaded machine.
const START_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// Lines of a member's log that a report shows.
const LOG_LINES_MAX: usize = 20;
pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The id of the process that holds all members.
const UP: &str = "up";
/// Name for all that dial a server of a Redis Cluster: shims, replicas, other servers.
const ANYBODY: &str = "anybody";

/// Every process is killed when this goes out of scope.
pub(crate) struct ProcessCluster {
    pub(crate) layout: Layout,
    members: Vec<LayoutMember>,
    processes: BTreeMap<String, MemberProcess>,
    proxy: Option<Proxy>,
    /// Where the reader of a configuration finds another member, if not at its own address.
    proxied: BTreeMap<(String, String), SocketAddr>,
    redis_cluster: Option<StartedRedisCluster>,
    etcd: Option<StartedEtcd>,
    binary: PathBuf,
    /// Another release, which each member is of in every other life.
    next: Option<PathBuf>,
    /// Lives of members so far.
    lives: BTreeMap<String, usize>,
    /// Where one node runs, and which.
    namespace: Option<(Namespace, String)>,
    folder: Folder,
}

impl ProcessCluster {
    /// Starts the storage servers and every member, and waits until all of them have found each other.
    pub(crate) fn start(binary: &Path, layout: Layout, seed: u64) -> anyhow::Result<ProcessCluster> {
        ProcessCluster::start_with([binary, binary], layout, seed, None)
    }

    /// As `start`, with members of two releases, each of the other one in its next life, and with the last node in a network
    /// namespace; that takes the proxy.
    pub(crate) fn start_with(
        [binary, next]: [&Path; 2],
        layout: Layout,
        seed: u64,
        namespace: Option<Namespace>,
    ) -> anyhow::Result<ProcessCluster> {
        let mut cluster = ProcessCluster::written(binary, layout, seed, namespace)?;
        cluster.next = (binary != next).then(|| next.to_owned());
        cluster.run_storage()?;
        let apart = |member: &LayoutMember| cluster.layout.separate && member.role != LayoutRole::Redis;
        let mut ids: Vec<String> =
            cluster.members.iter().filter(|member| apart(member)).map(|member| member.id.clone()).collect();
        if !cluster.layout.separate {
            ids.push(UP.to_owned());
        }
        for id in ids {
            cluster.run(&id)?;
        }
        cluster.wait_linked()?;
        Ok(cluster)
    }

    /// Only the storage servers, for tests of what is done to them.
    #[cfg(test)]
    pub(crate) fn storage_alone(layout: Layout) -> anyhow::Result<ProcessCluster> {
        let mut cluster = ProcessCluster::written(Path::new("none"), layout, 1, None)?;
        cluster.run_storage()?;
        Ok(cluster)
    }

    /// With every configuration, and nothing that runs.
    fn written(
        binary: &Path,
        layout: Layout,
        seed: u64,
        namespace: Option<Namespace>,
    ) -> anyhow::Result<ProcessCluster> {
        let folder = Folder::new("cluster")?;
        let mut layout = Layout { folders: folder.path().to_owned(), ..layout };
        let etcd = if layout.etcd { Some(StartedEtcd::start(folder.path())?) } else { None };
        if let Some(etcd) = &etcd {
            layout.controller_lines.push_str(&format!("\nstore = \"etcd://{}\"", etcd.address));
        }
        let mut members = layout.members()?;
        let isolated = members.iter_mut().rfind(|member| member.role == LayoutRole::Node);
        let namespace = namespace.zip(isolated).map(|(namespace, node)| {
            node.listen.set_ip(namespace.inside);
            node.admin.set_ip(namespace.inside);
            (namespace, node.id.clone())
        });
        let proxy = if layout.proxied { Some(Proxy::start(seed)?) } else { None };
        let (processes, binary) = (BTreeMap::new(), binary.to_owned());
        let proxied = BTreeMap::new();
        let redis_cluster = None;
        let mut cluster = ProcessCluster {
            layout,
            members,
            processes,
            proxy,
            proxied,
            redis_cluster,
            etcd,
            binary,
            next: None,
            lives: BTreeMap::new(),
            namespace,
            folder,
        };
        cluster.write_configurations()?;
        Ok(cluster)
    }

    fn run_storage(&mut self) -> anyhow::Result<()> {
        for id in self.ids(LayoutRole::Redis) {
            self.run(&id)?;
        }
        if self.layout.storage == LayoutStorage::RedisCluster {
            let servers: Vec<&LayoutMember> =
                self.members.iter().filter(|member| member.role == LayoutRole::Redis).collect();
            self.redis_cluster =
                Some(StartedRedisCluster::form(&servers, |server| self.address(ANYBODY, server))?);
        }
        Ok(())
    }

    fn write_configurations(&mut self) -> anyhow::Result<()> {
        if !self.layout.separate {
            anyhow::ensure!(self.proxy.is_none(), "the proxy stands between processes");
            return self.write_configuration(UP);
        }
        self.announce()?;
        let storage_proxied = self.layout.storage.is_proxied_for_each();
        for reader in self.members.iter().filter(|member| member.role != LayoutRole::Redis) {
            if let Some(proxy) = &self.proxy {
                let dialled = |other: &&LayoutMember| {
                    reader.dials(other) && (other.role != LayoutRole::Redis || storage_proxied)
                };
                for other in self.members.iter().filter(dialled) {
                    let framed =
                        matches!(other.role, LayoutRole::Node | LayoutRole::Shim | LayoutRole::Standby);
                    let at = match &self.namespace {
                        Some((namespace, isolated)) if *isolated == reader.id => namespace.outside,
                        _ => LOOPBACK,
                    };
                    let address = proxy.listen(at, &reader.id, &other.id, other.listen, framed)?;
                    self.proxied.insert((reader.id.clone(), other.id.clone()), address);
                }
            }
            self.write_configuration(&reader.id)?;
        }
        Ok(())
    }

    /// The servers of a Redis Cluster tell everybody the same addresses of each other.
    fn announce(&mut self) -> anyhow::Result<()> {
        let Some(proxy) = self.proxy.as_ref().filter(|_| self.layout.storage == LayoutStorage::RedisCluster)
        else {
            return Ok(());
        };
        for server in self.members.iter().filter(|member| member.role == LayoutRole::Redis) {
            let address = proxy.listen(LOOPBACK, ANYBODY, &server.id, server.listen, false)?;
            self.proxied.insert((ANYBODY.to_owned(), server.id.clone()), address);
        }
        Ok(())
    }

    /// Where a member finds another.
    fn address(&self, reader: &str, other: &LayoutMember) -> SocketAddr {
        let at = |reader: &str| self.proxied.get(&(reader.to_owned(), other.id.clone())).copied();
        at(reader).or_else(|| at(ANYBODY)).unwrap_or(other.listen)
    }

    /// Each process has a file of its own: through the proxy, each finds the others at addresses of its own.
    fn write_configuration(&self, reader: &str) -> anyhow::Result<()> {
        let text = self.layout.toml(&self.members, |other| self.address(reader, other));
        Ok(std::fs::write(self.file(reader, "toml"), text)?)
    }

    fn file(&self, id: &str, extension: &str) -> PathBuf {
        self.folder.path().join(format!("{id}.{extension}"))
    }

    /// Changes the file of one member, which its next life reads.
    pub(crate) fn rewrite(&self, id: &str, from: &str, to: &str) -> anyhow::Result<()> {
        let text = self.file_text(id)?;
        anyhow::ensure!(text.contains(from), "the file of {id}: there is no {from:?}");
        self.change_file(id, |text| text.replace(from, to))
    }

    /// Changes the file of one member in any way.
    pub(crate) fn change_file(&self, id: &str, change: impl FnOnce(&str) -> String) -> anyhow::Result<()> {
        Ok(std::fs::write(self.file(id, "toml"), change(&self.file_text(id)?))?)
    }

    /// The configuration that the next life of a member reads.
    pub(crate) fn file_text(&self, id: &str) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.file(id, "toml"))?)
    }

    /// Starts a member or storage server, for the first time or again, and waits until it is ready.
    pub(crate) fn run(&mut self, id: &str) -> anyhow::Result<()> {
        anyhow::ensure!(!self.processes.contains_key(id), "{id} runs already");
        let process = match self.members.iter().find(|member| member.id == id) {
            Some(member) if member.role == LayoutRole::Redis => {
                let command = self.storage_command(member)?;
                let process = MemberProcess::start(command, None)?;
                accepting(member.listen)?;
                process
            }
            _ => {
                let binary = self.release(id);
                let command = self.member_command(id, &binary);
                let process = MemberProcess::start(command, Some(&self.file(id, "log")))?;
                process.ready().with_context(|| format!("{id}\n{}", self.log(id)))?;
                process
            }
        };
        self.processes.insert(id.to_owned(), process);
        Ok(())
    }

    /// The binary of a member's coming life.
    fn release(&mut self, id: &str) -> PathBuf {
        let Some(next) = &self.next else { return self.binary.clone() };
        let place = self.members.iter().position(|member| member.id == id).unwrap_or_default();
        let life = self.lives.entry(id.to_owned()).or_default();
        *life += 1;
        if (place + *life).is_multiple_of(2) { next.clone() } else { self.binary.clone() }
    }

    /// All further lives of members are of this release.
    pub(crate) fn upgrade_to(&mut self, binary: &Path) {
        (self.binary, self.next) = (binary.to_owned(), None);
    }

    fn member_command(&self, id: &str, binary: &Path) -> Command {
        let mut command = mortal(binary);
        if let Some(mib) = self.layout.member_mib_max {
            command = mortal("prlimit");
            command.arg(format!("--data={}", mib << 20)).arg(binary);
        }
        if self.layout.counted.as_deref() == Some(id) {
            command = mortal("valgrind");
            command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(binary);
        }
        match id {
            UP => command.arg("up"),
            id => command.args(["run", "--id", id]),
        };
        command.arg("--config").arg(self.file(id, "toml")).args(["--log", "info"]);
        // Storage is new, but only once.
        if !self.file(id, "log").exists() {
            command.arg("--adopt");
        }
        match &self.namespace {
            Some((namespace, isolated)) if isolated == id => namespace.within(&command),
            _ => command,
        }
    }

    fn storage_command(&self, member: &LayoutMember) -> anyhow::Result<Command> {
        if self.layout.storage == LayoutStorage::Memcached {
            return Ok(memcached_command(member.listen, &self.layout.storage_options));
        }
        let data = self.folder.path().join(&member.id);
        std::fs::create_dir_all(&data)?;
        let durable = if self.layout.storage == LayoutStorage::DurableRedis { "yes" } else { "no" };
        let mut command = redis_command(member.listen, &data, &self.file(&member.id, "log"));
        if self.layout.storage == LayoutStorage::RedisCluster {
            redis_cluster::options(&mut command, member.admin.port(), self.address(ANYBODY, member));
            return Ok(command);
        }
        command.args(["--appendonly", durable, "--appendfsync", "no"]).args(&self.layout.storage_options);
        Ok(command)
    }

    /// kill -9
    pub(crate) fn kill(&mut self, id: &str) -> anyhow::Result<()> {
        drop(self.processes.remove(id).with_context(|| format!("{id} does not run"))?);
        Ok(())
    }

    /// kill -9, and another life at once.
    pub(crate) fn restart(&mut self, id: &str) -> anyhow::Result<()> {
        self.kill(id)?;
        self.run(id)
    }

    /// SIGTERM, and waits for a graceful end.
    pub(crate) fn terminate(&mut self, id: &str) -> anyhow::Result<()> {
        let process = self.processes.remove(id).with_context(|| format!("{id} does not run"))?;
        let status = process.terminate()?;
        anyhow::ensure!(status.success(), "{id} ended with {status}\n{}", self.log(id));
        Ok(())
    }

    /// Every member begins anew, one after the other, with what its file says of the last shim from now on.
    pub(crate) fn set_last_shim_state(&mut self, state: &'static str) -> anyhow::Result<()> {
        self.layout.last_shim_state = Some(state);
        let own = self.members.iter().filter(|member| member.role != LayoutRole::Redis);
        for id in own.map(|member| member.id.clone()).collect::<Vec<_>>() {
            self.write_configuration(&id)?;
            self.terminate(&id)?;
            self.run(&id)?;
        }
        self.wait_linked()
    }

    /// Starts a member's successor at another address and sends there whoever dials it through the proxy from now
    /// on. The predecessor is given back as it is.
    pub(crate) fn replace(&mut self, id: &str) -> anyhow::Result<MemberProcess> {
        let listen = free_address()?;
        let member = self.members.iter_mut().find(|member| member.id == id);
        let member = member.with_context(|| format!("there is no {id}"))?;
        (member.listen, member.admin) = (listen, free_address()?);
        self.write_configuration(id)?;
        self.proxy()?.retarget(id, listen)?;
        let predecessor = self.processes.remove(id).with_context(|| format!("{id} does not run"))?;
        self.run(id)?;
        Ok(predecessor)
    }

    /// SIGSTOP
    pub(crate) fn pause(&self, id: &str) -> anyhow::Result<()> {
        self.process(id)?.signal(Signal::STOP)
    }

    /// SIGCONT
    pub(crate) fn resume(&self, id: &str) -> anyhow::Result<()> {
        self.process(id)?.signal(Signal::CONT)
    }

    pub(crate) fn is_running(&self, id: &str) -> bool {
        self.processes.contains_key(id)
    }

    /// Members that should run and have ended by themselves, with the end of their logs.
    pub(crate) fn fallen(&mut self) -> Vec<String> {
        let processes = self.processes.iter_mut();
        let ended: Vec<String> =
            processes.filter_map(|(id, process)| process.has_ended().then(|| id.clone())).collect();
        ended.iter().map(|id| format!("{id} has ended by itself:\n{}", self.log(id))).collect()
    }

    pub(crate) fn process(&self, id: &str) -> anyhow::Result<&MemberProcess> {
        self.processes.get(id).with_context(|| format!("{id} does not run"))
    }

    /// The running processes of DistCache itself, without the storage servers.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&str, &MemberProcess)> {
        let own = self.processes.iter().filter(|(id, _)| !id.starts_with("redis-"));
        own.map(|(id, process)| (id.as_str(), process))
    }

    pub(crate) fn ids(&self, role: LayoutRole) -> Vec<String> {
        let members = self.members.iter().filter(|member| member.role == role);
        members.map(|member| member.id.clone()).collect()
    }

    pub(crate) fn member(&self, id: &str) -> anyhow::Result<&LayoutMember> {
        self.members.iter().find(|member| member.id == id).with_context(|| format!("there is no {id}"))
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What members are processes of, and commands are given with.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The configuration of whoever reaches the cluster without a member between.
    pub(crate) fn config(&self) -> PathBuf {
        self.file("router-0", "toml")
    }

    /// Where the clients of a router connect.
    pub(crate) fn router(&self, index: usize) -> SocketAddr {
        self.members
            .iter()
            .filter(|member| member.role == LayoutRole::Router)
            .nth(index)
            .map(|member| member.listen)
            .expect("a router of the layout")
    }

    /// The network namespace and the node in it.
    pub(crate) fn namespace(&self) -> Option<&(Namespace, String)> {
        self.namespace.as_ref()
    }

    pub(crate) fn redis_cluster(&self) -> anyhow::Result<&StartedRedisCluster> {
        self.redis_cluster.as_ref().context("the storage of this cluster is no Redis Cluster")
    }

    pub(crate) fn proxy(&self) -> anyhow::Result<&Proxy> {
        self.proxy.as_ref().context("this cluster has no proxy")
    }

    /// What the controller knows of all members. They report every half second.
    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        ask::json(self.member("controller-0")?.listen, "/v1/status")
    }

    /// What a running member says of itself, newer than what the controller knows.
    pub(crate) fn member_status(&self, id: &str) -> anyhow::Result<Value> {
        let mut members = ask::json(self.member(id)?.admin, "/status")?;
        Ok(members[0].take())
    }

    pub(crate) fn metrics(&self, id: &str) -> anyhow::Result<String> {
        let member = self.member(id)?;
        let address = if member.role == LayoutRole::Controller { member.listen } else { member.admin };
        ask::text(address, "/metrics")
    }

    /// Until every router has its nodes and shims, every node its shims, and every shim its storage.
    pub(crate) fn wait_linked(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        let members = self.members.iter();
        for member in
            members.filter(|member| member.role != LayoutRole::Redis && member.role != LayoutRole::Controller)
        {
            let peers = self.members.iter().filter(|other| {
                let peer = !matches!(other.role, LayoutRole::Controller | LayoutRole::Redis);
                peer && (member.dials(other) || other.dials(member))
            });
            let wanted = peers.count() as u64;
            loop {
                let status = self.member_status(&member.id).unwrap_or_default();
                let linked = status["peers"].as_u64().is_some_and(|peers| peers >= wanted);
                if linked && (status["storage_up"] != false || status["standing_by"] == true) {
                    break;
                }
                if Instant::now() > deadline {
                    bail!("{} is not linked to all its peers:\n{}", member.id, self.log(&member.id));
                }
                std::thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// What a member has logged in all its lives.
    pub(crate) fn whole_log(&self, id: &str) -> String {
        std::fs::read_to_string(self.file(id, "log")).unwrap_or_default()
    }

    /// The end of a member's log.
    pub(crate) fn log(&self, id: &str) -> String {
        let text = self.whole_log(id);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }
}

/// A redis-server of its own that keeps nothing on disk, with its files in `folder`.
pub(crate) fn redis(folder: &Path) -> anyhow::Result<(MemberProcess, SocketAddr)> {
    let address = free_address()?;
    let process = MemberProcess::start(redis_command(address, folder, &folder.join("redis.log")), None)?;
    accepting(address)?;
    Ok((process, address))
}

fn redis_command(listen: SocketAddr, data: &Path, log: &Path) -> Command {
    let mut command = mortal("redis-server");
    command.args(["--port", &listen.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.arg("--dir").arg(data).arg("--logfile").arg(log);
    command
}

/// A memcached of its own, with further options; what it says of itself goes to `folder`.
pub(crate) fn memcached(folder: &Path, options: &[String]) -> anyhow::Result<(MemberProcess, SocketAddr)> {
    let address = free_address()?;
    let process =
        MemberProcess::start(memcached_command(address, options), Some(&folder.join("memcached.log")))?;
    accepting(address)?;
    Ok((process, address))
}

fn memcached_command(listen: SocketAddr, options: &[String]) -> Command {
    let mut command = mortal("memcached");
    // Root has to name a user.
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p", &listen.port().to_string()]);
    command.args(options);
    command
}

/// Until somebody listens on `address`.
pub(crate) fn accepting(address: SocketAddr) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_MAX;
    while TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_err() {
        if Instant::now() > deadline {
            bail!("nobody listens on {address}");
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

//! What a proxy runs, as the configuration file that does the same. Not the running.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use config::Address;
use config::{Config, FrontProtocol};
use protocol::placement::{Functions, Secret};
use toml::Value;

use super::servers::ProxyServers;
use super::state::ProxyState;

/// Where keys of the cluster go follows from these; the rest follows from the number of members.
#[derive(Clone, Debug)]
pub(crate) struct ProxyPlan {
    pub(crate) servers: ProxyServers,
    pub(crate) listen: Address,
    pub(crate) protocol: FrontProtocol,
    pub(crate) nodes: usize,
    /// Threads of the router; `None`: as many as it takes by itself.
    pub(crate) threads: Option<usize>,
    pub(crate) near: usize,
    pub(crate) controller: SocketAddr,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) insecure_listen: bool,
}

/// Users of shims are named after the cluster, so a secret of its own gives each proxy users of its own: two of them
/// before one server never take its users from each other.
pub(crate) fn cluster_name(secret: config::Secret) -> String {
    let digest = Functions::new(Secret(secret.0), 0).digest(0, b"name of the cluster");
    format!("proxy-{:08x}", (digest.0 >> 96) as u32)
}

/// As TOML writes a text.
pub(crate) fn quoted(text: impl ToString) -> String {
    Value::String(text.to_string()).to_string()
}

impl ProxyPlan {
    /// Nodes of the first layer and of the second.
    pub(crate) fn layers(&self) -> [usize; 2] {
        [self.nodes.div_ceil(2), self.nodes / 2]
    }

    /// The configuration file.
    pub(crate) fn text(&self, state: &ProxyState, cluster: &str) -> anyhow::Result<String> {
        let mut text = String::new();
        self.write(&mut text, state, cluster)?;
        Ok(text)
    }

    fn write(&self, out: &mut String, state: &ProxyState, cluster: &str) -> anyhow::Result<()> {
        writeln!(out, "# What `distcache proxy` runs before {}.", self.servers.names())?;
        writeln!(
            out,
            "# `distcache up --config FILE` does the same; its members can be spread over processes."
        )?;
        writeln!(out, "\n[cluster]\nname = {}", quoted(cluster))?;
        writeln!(
            out,
            "# Places every key: keep it.\nsecret_file = {}",
            quoted(state.secret_path().display())
        )?;
        if self.insecure_listen {
            writeln!(out, "\n[security]\ninsecure_listen = true")?;
        }
        if let Some(file) = &self.ca_file {
            writeln!(out, "\n[tls.storage]\nca_file = {}", quoted(std::path::absolute(file)?.display()))?;
        }
        if self.near > 0 {
            writeln!(out, "\n[near]\nobjects_max = {}", self.near)?;
        }
        writeln!(out, "\n[[controller]]\nid = \"controller\"\nlisten = \"{}\"", self.controller)?;
        for (name, count) in ["leaf", "spine"].into_iter().zip(self.layers()) {
            if count > 0 {
                writeln!(out, "\n[[layer]]\nname = \"{name}\"\npartition = \"hash\"")?;
            }
            for index in 0..count {
                let id = format!("{name}-{index}");
                writeln!(out, "\n[[node]]\nid = \"{id}\"\nlayer = \"{name}\"")?;
                self.member(out, state, &id)?;
            }
        }
        writeln!(out, "\n# Their order places keys, too.")?;
        for (index, server) in self.servers.0.iter().enumerate() {
            let id = format!("shim-{index}");
            writeln!(out, "\n[[shim]]\nid = \"{id}\"\nrack = \"r0\"\nstorage = {}", quoted(&server.url))?;
            self.member(out, state, &id)?;
        }
        writeln!(out, "\n[[router]]\nid = \"router-0\"\nlisten = {}", quoted(&self.listen))?;
        if self.protocol == FrontProtocol::Memcached {
            writeln!(out, "protocol = \"memcached\"")?;
        }
        if let Some(threads) = self.threads {
            writeln!(out, "threads = {threads}")?;
        }
        self.admin(out)
    }

    fn member(&self, out: &mut String, state: &ProxyState, id: &str) -> anyhow::Result<()> {
        writeln!(out, "listen = {}", quoted(Address::Unix(state.socket(id)?)))?;
        self.admin(out)
    }

    fn admin(&self, out: &mut String) -> anyhow::Result<()> {
        if let Some(admin) = self.admin {
            writeln!(out, "admin = \"{admin}\"")?;
        }
        Ok(())
    }

    /// A few lines for people: what they have not said themselves.
    pub(crate) fn assumptions(&self, state: &ProxyState, config: &Config) -> Vec<String> {
        let [leaf, spine] = self.layers();
        let (count, names) = (self.servers.0.len(), self.servers.names());
        let division = match (self.servers.is_memcached(), self.servers.is_divided()) {
            (true, _) => "keys placed as libmemcached's ketama does",
            (_, true) => "keys placed by DistCache's own hash ring",
            (_, false) => "keys stay where they are",
        };
        let servers = match (self.servers.are_folders(), count) {
            (true, 1) => "folder",
            (true, _) => "folders",
            (false, 1) => "server",
            (false, _) => "servers",
        };
        let speaks = match self.protocol {
            FrontProtocol::Redis => "Redis",
            FrontProtocol::Memcached => "memcached",
        };
        let node = &config.nodes[0];
        vec![
            format!("storage  {names} ({count} {servers}; {division}; nobody else may write there)"),
            format!("clients  {} ({speaks} protocol, no password asked)", self.listen),
            format!(
                "cache    {leaf} leaf and {spine} spine nodes, each at most {} objects and {}",
                node.objects_max, node.bytes_max
            ),
            format!(
                "status   http://{} (`distcache status --controller` asks it; metrics are at /metrics)",
                self.controller
            ),
            format!("state    {} (its secret places every key: keep it)", state.path().display()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(storage: &str, nodes: usize) -> ProxyPlan {
        ProxyPlan {
            servers: ProxyServers::parse("--storage", &[storage.to_owned()]).expect("URLs"),
            listen: "127.0.0.1:6380".parse().expect("an address"),
            protocol: FrontProtocol::Redis,
            nodes,
            threads: (nodes > 1).then_some(nodes / 2),
            near: nodes - 1,
            controller: "127.0.0.1:7000".parse().expect("an address"),
            admin: None,
            ca_file: None,
            insecure_listen: false,
        }
    }

    #[test]
    fn the_file_is_valid_and_says_the_same_each_time() {
        let parent = std::env::temp_dir().join(format!("distcache-plan-{}", std::process::id()));
        for (storage, nodes, layers) in [
            ("redis://:hunt\"er2\\@127.0.0.1:2,redis://127.0.0.1:1", 3, 2),
            ("redis-cluster://127.0.0.1:7001,127.0.0.1:7002", 1, 1),
            ("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main", 64, 2),
        ] {
            let plan = plan(storage, nodes);
            let state = ProxyState::open(Some(&parent), &plan.servers).expect("a folder");
            let secret = state.secret().expect("a secret");
            let text = plan.text(&state, &cluster_name(secret)).expect("a file");
            let config = Config::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert!(config.assumed().is_empty(), "{:?}", config.assumed());
            assert_eq!((config.nodes.len(), config.layers.len()), (nodes, layers));
            assert_eq!(config.routers[0].threads.map(usize::from), plan.threads);
            assert_eq!(config.near.objects_max, nodes - 1);
            assert_eq!(*config.secret(), secret);
            let storages: Vec<_> = config.shims.iter().map(|shim| shim.storage.clone()).collect();
            assert_eq!(
                storages,
                plan.servers.0.iter().map(|server| server.storage.clone()).collect::<Vec<_>>()
            );
            assert_eq!(text, plan.text(&state, &cluster_name(secret)).expect("a file"));
            let said = plan.assumptions(&state, &config).join("\n");
            assert!(!said.contains("er2"), "{said}");
        }
        std::fs::remove_dir_all(&parent).expect("removed");
    }

    #[test]
    fn clusters_of_other_secrets_have_other_names() {
        let name = |byte| cluster_name(config::Secret([byte; 16]));
        assert_ne!(name(1), name(2));
        assert_eq!(name(1), name(1));
        assert_eq!(name(1).len(), "proxy-00000000".len());
    }
}

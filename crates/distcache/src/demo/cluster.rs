//! The demonstration's cluster: its configuration, and its members as threads of this process. Not the load on it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use runtime::address::Address;
use runtime::config::{Config, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig};
use runtime::instance::{Instance, StartError};
use runtime::status::MemberStatus;
use runtime::stop::Stop;
use wire::Partition;

use super::arguments::Arguments;
use super::directory::Directory;
use super::picture::Cast;
use super::sample::Sample;

/// Requests per second that one storage server may do. Low enough that two cores carry what eight servers and
/// their caches may do together, because then it is these limits that show and not the machine's.
const SERVER_RATE_MAX: u64 = 1_000;
/// The paper's cache switches do as much as a whole rack of servers; these do as much as four servers.
const NODE_RATE_MAX: u64 = 4_000;
/// One in a hundred of the keys per node: the cache stays small beside the data.
const OBJECTS_MAX: usize = 1_000;
/// Placement follows from it. Fixed, so that the first phase is equally unbalanced every time; the members'
/// sockets lie in a private directory.
const SECRET: Secret = Secret(*b"distcache demo!!");

pub(crate) struct Cluster {
    config: Arc<Config>,
    stop: Stop,
    shims: Vec<Instance>,
    nodes: Vec<Instance>,
    router: Instance,
}

/// Describes the whole cluster. Members reach each other over Unix sockets in `directory`.
pub(crate) fn config(arguments: &Arguments, directory: &Directory, redis: &[PathBuf]) -> Config {
    let mut config = Config::new("demo", SECRET);
    let socket = |id: &str| Address::Unix(directory.join(&format!("{id}.sock")));
    let layer = |name: &str, partition| LayerConfig { name: name.to_owned(), partition };
    config.layers = vec![layer("leaf", Partition::Rack), layer("spine", Partition::Hash)];
    for rack in 0..arguments.racks {
        let rack_name = format!("r{rack}");
        for _ in 0..arguments.servers_per_rack {
            let index = config.shims.len();
            let storage = match redis.get(index) {
                Some(path) => StorageConfig::Redis {
                    address: Address::Unix(path.clone()),
                    user: None,
                    password: None,
                    tls: None,
                },
                None => StorageConfig::Embedded,
            };
            let id = format!("shim-{index}");
            let mut shim = ShimConfig::new(&id, &rack_name, socket(&id), storage);
            shim.rate_max = SERVER_RATE_MAX;
            config.shims.push(shim);
        }
        let id = format!("leaf-{rack}");
        config.nodes.push(NodeConfig::new(&id, "leaf", Some(&rack_name), socket(&id)));
    }
    for spine in 0..arguments.spines {
        let id = format!("spine-{spine}");
        config.nodes.push(NodeConfig::new(&id, "spine", None, socket(&id)));
    }
    for node in &mut config.nodes {
        node.rate_max = NODE_RATE_MAX;
        node.objects_max = OBJECTS_MAX;
    }
    config.routers = vec![RouterConfig::new("router-0", Address::Tcp(arguments.listen))];
    config
}

impl Cluster {
    /// Starts shims and router. The router sends a read to a cache node only after a reply has told it that the
    /// key is cached there, so that without nodes this is a plain sharding proxy.
    pub(crate) fn start(config: Config) -> Result<Cluster> {
        config.validate()?;
        let config = Arc::new(config);
        let stop = Stop::new();
        let started = || -> Result<(Vec<Instance>, Instance), StartError> {
            let shims = config.shims.iter().map(|member| shim::spawn(&config, &member.id, &stop));
            let shims = shims.collect::<Result<_, _>>()?;
            Ok((shims, router::spawn(&config, &config.routers[0].id, &stop)?))
        };
        match started() {
            Ok((shims, router)) => Ok(Cluster { config, stop, shims, nodes: Vec::new(), router }),
            Err(error) => {
                stop.stop();
                Err(explain(error))
            }
        }
    }

    pub(crate) fn start_nodes(&mut self) -> Result<()> {
        for member in &self.config.nodes {
            self.nodes.push(node::spawn(&self.config, &member.id, &self.stop).map_err(explain)?);
        }
        Ok(())
    }

    pub(crate) fn has_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Where clients reach the router.
    pub(crate) fn address(&self) -> &Address {
        &self.router.addresses[0]
    }

    pub(crate) fn cast(&self) -> Cast {
        Cast {
            servers: self.config.shims.iter().map(|shim| format!("{} {}", shim.rack, shim.id)).collect(),
            nodes: self.config.nodes.iter().map(|node| node.id.clone()).collect(),
            server_rate_max: SERVER_RATE_MAX as f64,
            node_rate_max: NODE_RATE_MAX as f64,
            listen: self.address().to_string(),
        }
    }

    /// Everybody's counters as last put down, at most some 100 ms ago.
    pub(crate) fn sample(&self, at_us: u64, answered: u64) -> Sample {
        let mut sample =
            Sample { at_us, answered, nodes: vec![0; self.config.nodes.len()], ..Sample::default() };
        for instance in &self.shims {
            let MemberStatus::Shim(status) = instance.status.get() else { continue };
            sample.servers.push(status.storage_reads_total + status.storage_writes_total);
        }
        for (total, instance) in sample.nodes.iter_mut().zip(&self.nodes) {
            let MemberStatus::Node(status) = instance.status.get() else { continue };
            *total = status.requests_total;
        }
        if let MemberStatus::Router(status) = self.router.status.get() {
            sample.router_requests = status.requests_total;
            sample.router_hits = status.hits_total;
        }
        sample
    }

    /// Stops every member and waits for it.
    pub(crate) fn stop(self) -> Result<()> {
        self.stop.stop();
        for instance in std::iter::once(self.router).chain(self.nodes).chain(self.shims) {
            let id = instance.id.clone();
            if !instance.join() {
                bail!("{id} crashed; this is a bug, see the messages above");
            }
        }
        Ok(())
    }
}

fn explain(error: StartError) -> anyhow::Error {
    match error {
        StartError::Listen { address: Address::Tcp(address), error, .. } => {
            anyhow!(
                "cannot listen on {address} ({error}); choose another address with --listen 127.0.0.1:PORT"
            )
        }
        other => other.into(),
    }
}

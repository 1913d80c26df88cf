//! The demonstration's cluster: its configuration, and its members as threads of this process. Not the load on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use config::Address;
use config::{
    Caching, Config, LayerConfig, NodeConfig, PolicyConfig, RedisStorage, RouterConfig, Secret, ShimConfig,
    StorageConfig,
};
use protocol::time::Time;
use runtime::instance::{Instance, StartError};
use runtime::status::MemberStatus;
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::Partition;

use super::arguments::DemoArguments;
use super::directory::TemporaryDirectory;
use super::load::KEYS;
use super::picture::DemoCast;
use super::sample::Sample;

/// Requests per second that all storage servers together may do. So low that two cores that have other things to do
/// carry it easily: then it is these limits that show and not the machine's.
const SERVERS_RATE_MAX: u64 = 2_000;
/// Limits are kept at ticks of 10 ms: a server of less than one request per tick would not even do that.
const SERVER_RATE_MIN: u64 = 100;
/// The paper's cache switches do as much as a whole rack of servers; these do as much as four servers.
const SERVERS_PER_NODE: u64 = 4;
/// A node's share of twice the load, at least: where many servers share few nodes, these are not the next to burn.
const NODES_RATE_MIN: u64 = SERVERS_RATE_MAX;
/// The nodes of one layer together hold so many: half of the keys.
const LAYER_OBJECTS_MAX: usize = KEYS as usize / 2;
/// Placement follows from it. Fixed, so that the first phase is equally unbalanced every time; the members'
/// sockets lie in a private directory.
const SECRET: Secret = Secret(*b"distcache demo!!");

/// Links take milliseconds; a machine that does ten other things may need a hundred times as long.
const LINK_MAX: Duration = Duration::from_secs(60);
const LINK_POLL: Duration = Duration::from_millis(20);

pub(crate) struct DemoCluster {
    config: Arc<Config>,
    stop: Stop,
    shims: Vec<Instance>,
    nodes: Vec<DemoNode>,
    router: Instance,
}

/// A cache node, which may be taken away and come back.
struct DemoNode {
    /// Until it has ended, also while it is stopping.
    instance: Option<Instance>,
    stop: Stop,
    wanted: bool,
}

/// Requests per second that one storage server may do.
fn server_rate_max(servers: usize) -> u64 {
    (SERVERS_RATE_MAX / servers as u64).max(SERVER_RATE_MIN)
}

/// Describes the whole cluster, with nothing cached. Members reach each other over Unix sockets in `directory`.
pub(crate) fn config(arguments: &DemoArguments, directory: &TemporaryDirectory, redis: &[PathBuf]) -> Config {
    let mut config = Config::new("demo", SECRET);
    // Its servers are new.
    config.first_life = true;
    let socket = |id: &str| Address::Unix(directory.join(&format!("{id}.sock")));
    let layer = |name: &str, partition| LayerConfig { name: name.to_owned(), partition };
    config.layers = vec![layer("leaf", Partition::Rack), layer("spine", Partition::Hash)];
    let server_rate_max = server_rate_max(arguments.servers());
    for rack in 0..arguments.racks {
        let rack_name = format!("r{rack}");
        for _ in 0..arguments.servers_per_rack {
            let index = config.shims.len();
            let storage = match redis.get(index) {
                Some(path) => StorageConfig::Redis(Box::new(RedisStorage::open(Address::Unix(path.clone())))),
                None => StorageConfig::Embedded,
            };
            let id = format!("shim-{index}");
            let mut shim = ShimConfig::new(&id, &rack_name, socket(&id), storage);
            shim.rate_max = server_rate_max;
            config.shims.push(shim);
        }
        let id = format!("leaf-{rack}");
        let mut leaf = NodeConfig::new(&id, "leaf", Some(&rack_name), socket(&id));
        leaf.objects_max = LAYER_OBJECTS_MAX.div_ceil(arguments.racks);
        config.nodes.push(leaf);
    }
    for spine in 0..arguments.spines {
        let id = format!("spine-{spine}");
        let mut spine = NodeConfig::new(&id, "spine", None, socket(&id));
        spine.objects_max = LAYER_OBJECTS_MAX.div_ceil(arguments.spines);
        config.nodes.push(spine);
    }
    let node_rate_max = (server_rate_max * SERVERS_PER_NODE).max(NODES_RATE_MIN / config.nodes.len() as u64);
    config.nodes.iter_mut().for_each(|node| node.rate_max = node_rate_max);
    config.routers = vec![RouterConfig::new("router-0", Address::Tcp(arguments.listen))];
    config.policies = vec![policy(false)];
    config
}

/// For all keys.
fn policy(cached: bool) -> PolicyConfig {
    let cache = if cached { Caching::Always } else { Caching::Never };
    PolicyConfig {
        prefix: String::new(),
        cache,
        ttl_ms_max: None,
        value_bytes_max: None,
        stale_if_error_ms: None,
    }
}

impl DemoCluster {
    /// Starts every member; nothing is cached until `set_cache`.
    pub(crate) fn start(config: Config) -> Result<DemoCluster> {
        config.validate()?;
        let config = Arc::new(config);
        let stop = Stop::new();
        let plain = Certificates::default();
        let mut nodes: Vec<DemoNode> = Vec::new();
        let mut started = || -> Result<(Vec<Instance>, Instance), StartError> {
            let shims = config.shims.iter().map(|member| shim::spawn(&config, &plain, &member.id, &stop));
            let shims = shims.collect::<Result<_, _>>()?;
            for member in &config.nodes {
                nodes.push(DemoNode::start(&config, &member.id)?);
            }
            Ok((shims, router::spawn(&config, &plain, &config.routers[0].id, &stop)?))
        };
        match started() {
            Ok((shims, router)) => Ok(DemoCluster { config, stop, shims, nodes, router }),
            Err(error) => {
                stop.stop();
                nodes.iter().for_each(|node| node.stop.stop());
                Err(explain(error))
            }
        }
    }

    /// Returns once every member has all its links: some thousands in a large cluster, which are not part of the show.
    pub(crate) fn wait_until_linked(&self, stop: &Stop) -> Result<()> {
        let started = Instant::now();
        loop {
            if self.is_linked() {
                return Ok(());
            }
            if stop.wait_timeout(LINK_POLL) {
                bail!("stopped before the load began");
            }
            if started.elapsed() > LINK_MAX {
                bail!(
                    "the members have not found each other within {} s; is this machine overloaded?",
                    LINK_MAX.as_secs()
                );
            }
        }
    }

    fn is_linked(&self) -> bool {
        let (nodes, shims, routers) = (self.nodes.len(), self.shims.len(), 1);
        let instances = self.nodes.iter().filter_map(|node| node.instance.as_ref());
        instances.chain(&self.shims).chain([&self.router]).all(|instance| {
            let (links, peers) = match instance.status.get() {
                MemberStatus::Node(status) => (status.links.peers, shims + routers),
                MemberStatus::Shim(status) => (status.links.peers, nodes + routers),
                MemberStatus::Router(status) => (status.links.peers, nodes + shims),
                MemberStatus::Controller(_) => return true,
            };
            links >= peers as u64
        })
    }

    /// Lets the nodes cache, or has them drop what they have, as a reload of the configuration does: requests go on
    /// meanwhile.
    pub(crate) fn set_cache(&mut self, cached: bool) {
        let mut config = (*self.config).clone();
        config.policies = vec![policy(cached)];
        self.config = Arc::new(config);
        let nodes = self.nodes.iter().filter_map(|node| node.instance.as_ref());
        self.shims.iter().chain(nodes).for_each(|instance| instance.orders.set(&self.config));
    }

    /// Takes a cache node away.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].wanted = false;
        self.nodes[node].stop.stop();
    }

    /// Brings a node back as soon as it has ended; `tend` sees to it.
    pub(crate) fn revive(&mut self, node: usize) {
        self.nodes[node].wanted = true;
    }

    /// Whether each node serves, in their order.
    pub(crate) fn nodes_up(&self) -> Vec<bool> {
        self.nodes.iter().map(|node| node.wanted && !node.stop.is_set()).collect()
    }

    /// Takes note of nodes that have ended, and starts those that are wanted again. To be called often.
    pub(crate) fn tend(&mut self) -> Result<()> {
        for (node, member) in self.nodes.iter_mut().zip(&self.config.nodes) {
            if node.stop.is_set()
                && let Some(ended) = node.instance.take_if(|instance| instance.has_ended())
            {
                join(ended)?;
            }
            if node.wanted && node.instance.is_none() {
                *node = DemoNode::start(&self.config, &member.id).map_err(explain)?;
            }
        }
        Ok(())
    }

    /// Requests per second that make the servers half busy, were they all as busy.
    pub(crate) fn demand(&self) -> u64 {
        self.config.shims.iter().map(|shim| shim.rate_max).sum::<u64>() / 2
    }

    /// Where clients reach the router.
    pub(crate) fn address(&self) -> &Address {
        &self.router.addresses[0]
    }

    /// The storage server of each key, by number.
    pub(crate) fn server_of_each_key(&self) -> Result<Vec<usize>> {
        let placement = self.config.placement(self.config.map())?;
        let key = |number: u64| placement.key(0, trace::key_name(number).to_vec().into());
        Ok((0..KEYS).map(|number| usize::from(placement.shim(&key(number)).0)).collect())
    }

    fn hint(&self) -> String {
        match self.address() {
            Address::Tcp(address) if address.ip() == std::net::Ipv4Addr::LOCALHOST => {
                format!("redis-cli -p {}", address.port())
            }
            Address::Tcp(address) => format!("redis-cli -h {} -p {}", address.ip(), address.port()),
            Address::Unix(path) => format!("redis-cli -s {}", path.display()),
        }
    }

    pub(crate) fn cast(&self) -> DemoCast {
        let shims = self.config.shims.iter().enumerate();
        DemoCast {
            servers: shims.map(|(index, shim)| format!("{} server {index}", shim.rack)).collect(),
            nodes: self.config.nodes.iter().map(|node| node.id.clone()).collect(),
            server_rate_max: self.config.shims[0].rate_max as f64,
            node_rate_max: self.config.nodes[0].rate_max as f64,
            hint: self.hint(),
        }
    }

    /// Everybody's counters as last put down, at most some 100 ms ago.
    pub(crate) fn sample(&self, at: Time, answered: u64) -> Sample {
        let mut sample = Sample {
            at,
            answered,
            waited: super::cores::waited(),
            nodes: vec![0; self.nodes.len()],
            ..Sample::default()
        };
        for instance in &self.shims {
            let MemberStatus::Shim(status) = instance.status.get() else { continue };
            sample.servers.push(status.statistics.storage_reads + status.statistics.storage_writes);
        }
        for (total, node) in sample.nodes.iter_mut().zip(&self.nodes) {
            let status = node.instance.as_ref().map(|instance| instance.status.get());
            let Some(MemberStatus::Node(status)) = status else { continue };
            *total = status.statistics.requests;
        }
        if let MemberStatus::Router(status) = self.router.status.get() {
            // Replies and not requests: those that waited for long are among the hits of the second that answers them.
            sample.router_replies = status.latency.count;
            sample.router_hits = status.statistics.hits;
        }
        sample
    }

    /// Stops every member and waits for it.
    pub(crate) fn stop(self) -> Result<()> {
        self.stop.stop();
        self.nodes.iter().for_each(|node| node.stop.stop());
        let nodes = self.nodes.into_iter().filter_map(|node| node.instance);
        std::iter::once(self.router).chain(nodes).chain(self.shims).try_for_each(join)
    }
}

impl DemoNode {
    fn start(config: &Arc<Config>, id: &str) -> Result<DemoNode, StartError> {
        let stop = Stop::new();
        Ok(DemoNode {
            instance: Some(node::spawn(config, &Certificates::default(), id, &stop)?),
            stop,
            wanted: true,
        })
    }
}

fn join(instance: Instance) -> Result<()> {
    let id = instance.id.clone();
    if !instance.join() {
        bail!("{id} crashed; this is a bug, see the messages above");
    }
    Ok(())
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

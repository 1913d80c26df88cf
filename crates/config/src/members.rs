//! The members of a cluster as the configuration lists them: controllers, layers, nodes, shims, routers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use protocol::node::NodeSettings;
use serde::{Deserialize, Deserializer, de};
use wire::Partition;

use super::pool::SlotRanges;
use super::scalar::{ByteSize, ReadyShims};
use super::storage::{Durability, Password, StorageConfig};
use crate::Address;

/// `[[controller]]`, one per replica.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    #[serde(default)]
    pub id: String,
    /// The name of the `[[host]]` that it is on, where the file has several.
    #[serde(default)]
    pub host: Option<String>,
    /// HTTP API and metrics.
    #[serde(default = "unset_socket")]
    pub listen: SocketAddr,
    /// `memory`, or `etcd://USER@HOST:PORT,...`; `etcds://` with TLS.
    #[serde(default = "default_store")]
    pub store: String,
    /// Holds the password of the user in `store`. Relative to the directory of the configuration file.
    #[serde(default)]
    pub store_password_file: Option<PathBuf>,
    #[serde(skip)]
    pub store_password: Option<Password>,
    /// A member that has sent no heartbeat for this long is suspected.
    #[serde(default = "default_member_lease_ms")]
    pub member_lease_ms: u64,
    /// A suspected node loses its partition after this long.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    /// A node that returns takes a quarter of its partition at once and another one each time that this passes.
    #[serde(default = "default_return_step_ms")]
    pub return_step_ms: u64,
}

/// Stands for an address until the one that is assumed takes its place.
fn unset_socket() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn unset_address() -> Address {
    Address::Tcp(unset_socket())
}

fn default_store() -> String {
    "memory".to_owned()
}

fn default_member_lease_ms() -> u64 {
    2000
}

fn default_grace_ms() -> u64 {
    300
}

fn default_return_step_ms() -> u64 {
    1000
}

impl ControllerConfig {
    pub fn new(id: &str, listen: SocketAddr) -> ControllerConfig {
        ControllerConfig {
            id: id.to_owned(),
            host: None,
            listen,
            store: default_store(),
            store_password_file: None,
            store_password: None,
            member_lease_ms: default_member_lease_ms(),
            grace_ms: default_grace_ms(),
            return_step_ms: default_return_step_ms(),
        }
    }

    /// The servers of etcd that `store` names; none if the store is the memory of this controller.
    pub fn etcd(&self) -> Option<EtcdUrl<'_>> {
        let (scheme, rest) = self.store.split_once("://")?;
        let tls = match scheme {
            "etcd" => false,
            "etcds" => true,
            _ => return None,
        };
        let (user, places) = match rest.rsplit_once('@') {
            Some((user, places)) => (Some(user), places),
            None => (None, rest),
        };
        let endpoints = places.split(',').map(|endpoint| endpoint.trim_end_matches('/')).collect();
        Some(EtcdUrl { tls, user, endpoints })
    }

    pub fn member_lease(&self) -> Duration {
        Duration::from_millis(self.member_lease_ms)
    }

    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    pub fn return_step(&self) -> Duration {
        Duration::from_millis(self.return_step_ms)
    }
}

/// What an `etcd://` URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl<'a> {
    pub tls: bool,
    pub user: Option<&'a str>,
    /// `HOST:PORT` of each server.
    pub endpoints: Vec<&'a str>,
}

/// `[[layer]]`, the one nearest to storage first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerConfig {
    pub name: String,
    #[serde(deserialize_with = "partition")]
    pub partition: Partition,
}

fn partition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Partition, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "rack" => Ok(Partition::Rack),
        "hash" => Ok(Partition::Hash),
        other => Err(de::Error::unknown_variant(other, &["rack", "hash"])),
    }
}

/// `[[node]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub host: Option<String>,
    #[serde(default)]
    pub layer: String,
    /// Exactly where the layer is partitioned by rack.
    #[serde(default)]
    pub rack: Option<String>,
    #[serde(default = "unset_address")]
    pub listen: Address,
    /// 0: the node caches nothing and only reports what is hot.
    #[serde(default = "default_objects_max")]
    pub objects_max: usize,
    #[serde(default = "default_bytes_max")]
    pub bytes_max: ByteSize,
    /// Relative, for unequal nodes.
    #[serde(default = "default_capacity")]
    pub capacity: f64,
    /// Requests per second, 0 for no limit (emulation, overload tests).
    #[serde(default)]
    pub rate_max: u64,
    #[serde(default)]
    pub admin: Option<SocketAddr>,
}

fn default_objects_max() -> usize {
    NodeSettings::default().objects_max
}

fn default_bytes_max() -> ByteSize {
    ByteSize(NodeSettings::default().bytes_max)
}

fn default_capacity() -> f64 {
    1.0
}

impl NodeConfig {
    pub fn new(id: &str, layer: &str, rack: Option<&str>, listen: Address) -> NodeConfig {
        NodeConfig {
            id: id.to_owned(),
            host: None,
            layer: layer.to_owned(),
            rack: rack.map(str::to_owned),
            listen,
            objects_max: default_objects_max(),
            bytes_max: default_bytes_max(),
            capacity: default_capacity(),
            rate_max: 0,
            admin: None,
        }
    }

    /// As the cluster map carries it.
    pub fn capacity_thousandths(&self) -> u32 {
        (self.capacity * 1000.0).round() as u32
    }
}

/// `[[shim]]`, one per storage server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShimConfig {
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub host: Option<String>,
    #[serde(default)]
    pub rack: String,
    #[serde(default = "unset_address")]
    pub listen: Address,
    #[serde(default)]
    pub storage: StorageConfig,
    /// Holds the password for `storage` instead of the URL. Relative to the directory of the configuration file.
    #[serde(default)]
    pub storage_password_file: Option<PathBuf>,
    /// What an acknowledged write to `embedded:///PATH` survives.
    #[serde(default)]
    pub durability: Option<Durability>,
    /// What its server is called by who has laid out the keys, where that places them (`[placement]`).
    #[serde(default)]
    pub server_name: Option<String>,
    /// How many keys its server has, beside others, where that is not the same for all.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// The slots of its server, where slots are dealt to servers.
    #[serde(default)]
    pub slots: Option<SlotRanges>,
    /// Its keys come or go while the cluster serves, or have done so.
    #[serde(default)]
    pub state: Option<ShimChange>,
    /// Requests per second, 0 for no limit (emulation, overload tests).
    #[serde(default)]
    pub rate_max: u64,
    #[serde(default)]
    pub admin: Option<SocketAddr>,
}

/// What the operator wants of a shim whose keys change their server, or has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShimChange {
    /// It has no keys until `distcache storage add`.
    Joining,
    /// It has got its keys.
    Joined,
    /// It has keys until `distcache storage remove`.
    Leaving,
    /// Its keys are at others. The entry keeps its number.
    Left,
}

impl ShimChange {
    pub fn word(self) -> &'static str {
        match self {
            ShimChange::Joining => "joining",
            ShimChange::Joined => "joined",
            ShimChange::Leaving => "leaving",
            ShimChange::Left => "left",
        }
    }

    pub(super) fn is_under_way(self) -> bool {
        matches!(self, ShimChange::Joining | ShimChange::Leaving)
    }
}

fn default_weight() -> u32 {
    1
}

/// `[[standby]]`: another process that may be the shim of a storage server, on another host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandbyConfig {
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub host: Option<String>,
    /// The shim in whose place it serves when that one does not; the only one, if it is not given.
    #[serde(default)]
    pub of: String,
    #[serde(default = "unset_address")]
    pub listen: Address,
    #[serde(default)]
    pub admin: Option<SocketAddr>,
}

impl StandbyConfig {
    pub fn new(id: &str, of: &str, listen: Address) -> StandbyConfig {
        StandbyConfig { id: id.to_owned(), host: None, of: of.to_owned(), listen, admin: None }
    }
}

impl ShimConfig {
    pub fn new(id: &str, rack: &str, listen: Address, storage: StorageConfig) -> ShimConfig {
        ShimConfig {
            id: id.to_owned(),
            host: None,
            rack: rack.to_owned(),
            listen,
            storage,
            storage_password_file: None,
            durability: None,
            server_name: None,
            weight: default_weight(),
            slots: None,
            state: None,
            rate_max: 0,
            admin: None,
        }
    }

    /// Whether keys are its own as the file has it.
    pub fn has_keys(&self) -> bool {
        !matches!(self.state, Some(ShimChange::Joining | ShimChange::Left))
    }

    pub fn durability(&self) -> Durability {
        self.durability.unwrap_or_default()
    }
}

/// Threads of a router whose file does not say how many: each has links to all nodes and shims.
const THREADS_ASSUMED_MAX: usize = 8;

/// `[[router]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterConfig {
    #[serde(default)]
    pub id: String,
    #[serde(default)]
    pub host: Option<String>,
    /// Plain; may be left away where `listen_tls` is given.
    #[serde(default)]
    pub listen: Option<Address>,
    /// For TLS, with the certificate of `[tls.clients]`.
    #[serde(default)]
    pub listen_tls: Option<SocketAddr>,
    /// A Unix socket besides.
    #[serde(default)]
    pub listen_unix: Option<PathBuf>,
    #[serde(default)]
    pub protocol: FrontProtocol,
    /// Each has some of its clients. Where it is not given, see [`RouterConfig::threads`].
    #[serde(default)]
    pub threads: Option<u16>,
    /// How long it still takes clients after SIGTERM, when it says already that it is not ready.
    #[serde(default)]
    pub drain_ms: u64,
    /// How long it still serves the clients that it has once another process has taken its place.
    #[serde(default = "default_retire_ms")]
    pub retire_ms_max: u64,
    /// It says that it is ready while it reaches so many shims.
    #[serde(default)]
    pub ready_shims: ReadyShims,
    #[serde(default)]
    pub admin: Option<SocketAddr>,
}

fn default_retire_ms() -> u64 {
    600_000
}

/// What clients of a router speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontProtocol {
    #[default]
    Redis,
    Memcached,
}

/// One address at which a router takes clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontListen {
    /// In the file.
    pub key: &'static str,
    pub address: Address,
    pub tls: bool,
}

impl RouterConfig {
    pub fn new(id: &str, listen: Address) -> RouterConfig {
        RouterConfig {
            id: id.to_owned(),
            host: None,
            listen: Some(listen),
            listen_tls: None,
            listen_unix: None,
            protocol: FrontProtocol::default(),
            threads: None,
            drain_ms: 0,
            retire_ms_max: default_retire_ms(),
            ready_shims: ReadyShims::default(),
            admin: None,
        }
    }

    /// How many threads it has: where the file does not say, one for every two cores that this process may use, up to eight.
    pub fn threads(&self) -> u16 {
        // The others are for nodes, shims and whatever else is there: threads without a core only cost.
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(|| (cores() / 2).clamp(1, THREADS_ASSUMED_MAX) as u16)
    }

    /// Everything it listens on for clients.
    pub fn listens(&self) -> impl Iterator<Item = FrontListen> {
        let plain = |address: &Address| FrontListen { key: "listen", address: address.clone(), tls: false };
        let tls = |address| FrontListen { key: "listen_tls", address: Address::Tcp(address), tls: true };
        let unix = |path: &PathBuf| FrontListen {
            key: "listen_unix",
            address: Address::Unix(path.clone()),
            tls: false,
        };
        let secured = self.listen_tls.map(tls);
        self.listen.as_ref().map(plain).into_iter().chain(secured).chain(self.listen_unix.as_ref().map(unix))
    }
}

//! The configuration of a cluster: plain structs, read from TOML, validated once. Not where keys go, and nothing that lives:
//! no socket, certificate or thread.

mod address;
mod assumed;
mod changes;
#[cfg(test)]
mod described;
#[cfg(test)]
mod every_setting;
mod hosts;
mod key_text;
mod limits;
mod load;
mod machines;
mod members;
pub mod memory;
mod place;
mod policy;
mod pool;
mod ranges;
mod resharding;
mod roster;
mod scalar;
pub mod secret_file;
mod sections;
mod storage;
mod tls;
mod tracing;
mod users;
mod validate;
mod words;

pub use address::{Address, AddressError};
pub use changes::Reloaded;
pub use hosts::{HostConfig, HostRisk};
pub use key_text::{key_bytes, key_text};
pub use limits::{Limits, Overload};
pub use load::{ConfigError, Override};
pub use members::{
    ControllerConfig, EtcdUrl, FrontListen, FrontProtocol, LayerConfig, NodeConfig, RouterConfig, ShimChange,
    ShimConfig, StandbyConfig,
};
pub use policy::{Caching, PolicyConfig};
pub use pool::{DistributionName, HashName, PlacementConfig, SlotRanges};
pub use roster::{Roster, RosterSize};
pub use scalar::{ByteSize, ReadyShims, Secret};
pub use sections::{
    ClusterConfig, ForeignWriters, HeatConfig, LogConfig, Mode, NearConfig, Routing, SecurityConfig,
    SlowLogConfig,
};
pub use storage::{Durability, Login, Password, RedisServers, RedisStorage, SentinelGroup, StorageConfig};
pub use tls::{ClientCertificates, ClientsTls, HttpTls, PeersTls, StorageTls, StoreTls, TlsConfig};
pub use tracing::TracingConfig;
pub use users::{UserConfig, UsersFrom};
pub use words::unreadable;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::placement;
use protocol::placement::agreement::{AgreedMode, Agreement};
use protocol::placement::slot;
use protocol::storage::MarkedPart;
use protocol::storage::redis::{FenceName, FenceShare};
use serde::Deserialize;
use wire::{
    ClusterMap, LEVELS, LayerMap, NodeId, NodeMember, Partition, Peer, RackId, RouterId, SHARE_WHOLE,
    Sharding, ShimId, ShimMember, ShimState,
};

/// Epoch of the map that a configuration itself describes: every node owns its whole partition.
pub const EPOCH_FIRST: u32 = 1;

/// One cluster. Code may build it too; [`Config::validate`] then checks what `load` checks.
///
/// Ids of members become dense numbers: [`NodeId`], [`ShimId`] and [`RouterId`] are indexes into the vectors here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default = "ClusterConfig::unnamed")]
    pub cluster: ClusterConfig,
    #[serde(default)]
    pub placement: PlacementConfig,
    #[serde(default)]
    pub security: SecurityConfig,
    #[serde(default)]
    pub tls: TlsConfig,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub heat: HeatConfig,
    #[serde(default)]
    pub near: NearConfig,
    #[serde(default)]
    pub slowlog: SlowLogConfig,
    #[serde(default)]
    pub log: LogConfig,
    #[serde(default)]
    pub tracing: TracingConfig,
    #[serde(default, rename = "policy")]
    pub policies: Vec<PolicyConfig>,
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostConfig>,
    #[serde(default, rename = "controller")]
    pub controllers: Vec<ControllerConfig>,
    #[serde(default, rename = "layer")]
    pub layers: Vec<LayerConfig>,
    #[serde(default, rename = "node")]
    pub nodes: Vec<NodeConfig>,
    #[serde(default, rename = "shim")]
    pub shims: Vec<ShimConfig>,
    #[serde(default, rename = "standby")]
    pub standbys: Vec<StandbyConfig>,
    #[serde(default, rename = "router")]
    pub routers: Vec<RouterConfig>,
    #[serde(default, rename = "user")]
    pub users: Vec<UserConfig>,
    /// Nobody has served this storage before, or a person says that nothing of it runs any more: where no record of leases is
    /// found there, none is waited for.
    #[serde(skip)]
    pub first_life: bool,
    /// A person says that servers are to be taken over that hold something else, or whose keys lie elsewhere.
    #[serde(skip)]
    pub adopts: bool,
    /// The file and the flags that it comes from, so that it can be read again.
    #[serde(skip)]
    source: Option<(PathBuf, Vec<Override>)>,
    /// What was read, as it stands there, and what the process started with.
    #[serde(skip)]
    table: Arc<toml::Table>,
    #[serde(skip)]
    started: Arc<toml::Table>,
    /// What the file left out.
    #[serde(skip)]
    assumed: Arc<[String]>,
}

/// Routers of a cluster.
pub const ROUTERS_MAX: u16 = 1 << 9;
/// Threads of a router. With [`ROUTERS_MAX`] they take the lower half of all numbers of routers, two for each; the upper half belongs
/// to client libraries.
pub const THREADS_MAX: u16 = 1 << 5;

/// What this thread of a router, from 0, is called by other members: it is a router of its own to them. The numbers of one
/// router's threads do not depend on how many others have. While a process takes the place of another, both have theirs: `other`
/// says which.
pub fn router_thread(router: RouterId, thread: u16, other: bool) -> RouterId {
    let place = thread + if other { THREADS_MAX } else { 0 };
    RouterId(router.0 + place * ROUTERS_MAX)
}

/// Processes that may be one shim, itself included.
pub const SHIM_PLACES_MAX: usize = 8;
/// Shims of a cluster. With [`SHIM_PLACES_MAX`] every process that may be one has a number of its own, for who counts processes.
pub const SHIMS_MAX: u16 = 1 << 13;

/// One of the processes that may be a shim: 0 for its own entry, then its standbys as the file lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShimPlace {
    pub shim: ShimId,
    pub place: u8,
}

/// A member of the configuration, by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    Controller(usize),
    Node(NodeId),
    Shim(ShimPlace),
    Router(RouterId),
}

impl Config {
    /// Whether storage is memcached, which is all of it or none.
    pub fn has_memcached_storage(&self) -> bool {
        self.shims.iter().any(|shim| shim.storage.is_memcached())
    }

    /// A cluster without members yet.
    pub fn new(name: &str, secret: Secret) -> Config {
        Config {
            cluster: ClusterConfig::new(name, secret),
            placement: PlacementConfig::default(),
            security: SecurityConfig::default(),
            tls: TlsConfig::default(),
            limits: Limits::default(),
            heat: HeatConfig::default(),
            near: NearConfig::default(),
            slowlog: SlowLogConfig::default(),
            log: LogConfig::default(),
            tracing: TracingConfig::default(),
            policies: Vec::new(),
            hosts: Vec::new(),
            controllers: Vec::new(),
            layers: Vec::new(),
            nodes: Vec::new(),
            shims: Vec::new(),
            standbys: Vec::new(),
            routers: Vec::new(),
            users: Vec::new(),
            first_life: false,
            adopts: false,
            source: None,
            table: Arc::default(),
            started: Arc::default(),
            assumed: Arc::default(),
        }
    }

    /// What the file left out and has become, one line for a member.
    pub fn assumed(&self) -> &[String] {
        &self.assumed
    }

    /// The cluster's secret, which a validated configuration has.
    pub fn secret(&self) -> &Secret {
        self.cluster.secret.as_ref().expect("a validated configuration has a secret")
    }

    /// How long a command may wait before it is begun; `None` if it is refused instead.
    pub fn queue_max(&self) -> Option<Duration> {
        let limits = &self.limits;
        let default_ms = limits.storage_ms_max.max(self.cluster.lease_ms.saturating_mul(2));
        let queue_ms_max = limits.queue_ms_max.unwrap_or(default_ms);
        (limits.overload == Overload::Wait).then(|| Duration::from_millis(queue_ms_max))
    }

    /// The member with this id.
    pub fn member(&self, id: &str) -> Option<Member> {
        let controller = self.controllers.iter().position(|c| c.id == id).map(Member::Controller);
        controller
            .or_else(|| self.node_id(id).map(Member::Node))
            .or_else(|| self.shim_place(id).map(Member::Shim))
            .or_else(|| self.router_id(id).map(Member::Router))
    }

    pub fn node_id(&self, id: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.id == id).map(|index| NodeId(index as u16))
    }

    pub fn shim_id(&self, id: &str) -> Option<ShimId> {
        self.shims.iter().position(|shim| shim.id == id).map(|index| ShimId(index as u16))
    }

    /// The process with this id, which is a shim's own or one that stands by for it.
    pub fn shim_place(&self, id: &str) -> Option<ShimPlace> {
        if let Some(shim) = self.shim_id(id) {
            return Some(ShimPlace { shim, place: 0 });
        }
        let standby = self.standbys.iter().find(|standby| standby.id == id)?;
        let shim = self.shim_id(&standby.of)?;
        let place = self.standbys_of(shim).position(|standby| standby.id == id)?;
        Some(ShimPlace { shim, place: place as u8 + 1 })
    }

    /// Who stands by for this shim, in the order of the file.
    pub fn standbys_of(&self, shim: ShimId) -> impl Iterator<Item = &StandbyConfig> {
        let id = self.shim(shim).id.as_str();
        self.standbys.iter().filter(move |standby| standby.of == id)
    }

    /// Where each of the processes listens that may be this shim, by their places.
    pub fn shim_addresses(&self, shim: ShimId) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.shim(shim).listen).chain(self.standbys_of(shim).map(|standby| &standby.listen))
    }

    /// The id and the admin address of a process that may be a shim.
    pub fn shim_process(&self, place: ShimPlace) -> (&str, Option<SocketAddr>) {
        let standby = (place.place as usize).checked_sub(1);
        match standby.and_then(|index| self.standbys_of(place.shim).nth(index)) {
            Some(standby) => (&standby.id, standby.admin),
            None => (&self.shim(place.shim).id, self.shim(place.shim).admin),
        }
    }

    pub fn router_id(&self, id: &str) -> Option<RouterId> {
        self.routers.iter().position(|router| router.id == id).map(|index| RouterId(index as u16))
    }

    /// The router of this number, which may be that of any of its threads; `None` of a client library.
    fn router_of(&self, id: RouterId) -> Option<&RouterConfig> {
        let is_thread = id.0 < 2 * ROUTERS_MAX * THREADS_MAX;
        self.routers.get(usize::from(id.0 % ROUTERS_MAX)).filter(|_| is_thread)
    }

    pub fn node(&self, id: NodeId) -> &NodeConfig {
        &self.nodes[usize::from(id.0)]
    }

    pub fn shim(&self, id: ShimId) -> &ShimConfig {
        &self.shims[usize::from(id.0)]
    }

    pub fn router(&self, id: RouterId) -> &RouterConfig {
        &self.routers[usize::from(id.0)]
    }

    /// The configured id of a peer; its number where it is none of ours (a client library).
    pub fn peer_name(&self, peer: Peer) -> String {
        let (role, number, id) = match peer {
            Peer::Node(id) => ("node", id.0, self.nodes.get(usize::from(id.0)).map(|node| &node.id)),
            Peer::Shim(id) => ("shim", id.0, self.shim_process_id(id)),
            Peer::Router(id) => ("router", id.0, self.router_of(id).map(|router| &router.id)),
        };
        id.cloned().unwrap_or_else(|| format!("{role}#{number}"))
    }

    fn shim_process_id(&self, process: ShimId) -> Option<&String> {
        let (shim, place) = (process.0 % SHIMS_MAX, process.0 / SHIMS_MAX);
        let own = self.shims.get(usize::from(shim))?;
        match place.checked_sub(1) {
            None => Some(&own.id),
            Some(standby) => self.standbys_of(ShimId(shim)).nth(standby.into()).map(|standby| &standby.id),
        }
    }

    /// The process with this id, as who counts processes calls it: a shim and its standbys are several, though one peer; a
    /// controller is none.
    pub fn process(&self, id: &str) -> Option<Peer> {
        match self.member(id)? {
            Member::Shim(ShimPlace { shim, place }) => {
                Some(Peer::Shim(ShimId(shim.0 + u16::from(place) * SHIMS_MAX)))
            }
            _ => self.peer(id),
        }
    }

    /// The peer with this id; a controller is none.
    pub fn peer(&self, id: &str) -> Option<Peer> {
        match self.member(id)? {
            Member::Controller(_) => None,
            Member::Node(id) => Some(Peer::Node(id)),
            Member::Shim(place) => Some(Peer::Shim(place.shim)),
            Member::Router(id) => Some(Peer::Router(id)),
        }
    }

    /// Ids of all members, in the order in which they start: what others dial comes first.
    pub fn member_ids(&self) -> impl Iterator<Item = &str> {
        let controllers = self.controllers.iter().map(|c| c.id.as_str());
        let shims = self.shims.iter().map(|shim| shim.id.as_str());
        let standbys = self.standbys.iter().map(|standby| standby.id.as_str());
        let nodes = self.nodes.iter().map(|node| node.id.as_str());
        let routers = self.routers.iter().map(|router| router.id.as_str());
        controllers.chain(shims).chain(standbys).chain(nodes).chain(routers)
    }

    /// The URL at which something is asked of a controller or of an admin endpoint.
    pub fn http_url(&self, listen: SocketAddr, path: &str) -> String {
        let scheme = if self.tls.http.is_some() { "https" } else { "http" };
        format!("{scheme}://{listen}{path}")
    }

    /// The member's address for metrics and health, if it has one.
    pub fn admin(&self, id: &str) -> Option<SocketAddr> {
        match self.member(id)? {
            Member::Controller(_) => None,
            Member::Node(id) => self.node(id).admin,
            Member::Shim(place) => self.shim_process(place).1,
            Member::Router(id) => self.router(id).admin,
        }
    }

    /// How many shims the router with this id must reach to be ready.
    pub fn shims_needed(&self, id: &str) -> usize {
        let router = self.router_id(id).map(|id| self.router(id).ready_shims).unwrap_or_default();
        match router {
            ReadyShims::AtLeast(count) => count as usize,
            ReadyShims::All => self.shims.iter().filter(|shim| shim.has_keys()).count(),
        }
    }

    /// Names of the racks; `RackId` is the index.
    pub fn racks(&self) -> Vec<&str> {
        let mut racks = Vec::new();
        for shim in &self.shims {
            if !racks.contains(&shim.rack.as_str()) {
                racks.push(shim.rack.as_str());
            }
        }
        racks
    }

    /// Validation has seen to it that all shims are alike.
    fn sharding(&self) -> Sharding {
        match self.pool() {
            _ if self.shims.first().is_some_and(|shim| shim.storage.is_redis_cluster()) => Sharding::Slots,
            Some(pool) => Sharding::Pool(pool),
            None => Sharding::Ring,
        }
    }

    /// Shims have their numbers by their ids, so that the order in which a file lists them moves no key. Where other software has
    /// laid out the keys the order is its own and stays.
    fn number_shims(&mut self) {
        if !matches!(self.sharding(), Sharding::Pool(_)) {
            self.shims.sort_by(|a, b| by_number(&a.id).cmp(&by_number(&b.id)));
        }
    }

    /// What decides where a key's data are, for members to compare.
    pub fn agreement(&self) -> Agreement {
        let mode = match self.cluster.mode {
            Mode::Strict => AgreedMode::Strict,
            Mode::Bounded => AgreedMode::Bounded,
        };
        let agreement = |counts: &dyn Fn(&&ShimConfig) -> bool| {
            let names = self.shims.iter().filter(counts).map(|shim| shim.id.as_str());
            Agreement::new(&placement::Secret(self.secret().0), mode, &self.sharding(), names)
        };
        let own = agreement(&|shim| shim.has_keys());
        match self.shims_that_changed() {
            changed if changed.is_empty() => own,
            changed => own.or(&agreement(&|shim| shim.has_keys() != changed.contains(&&*shim.id))),
        }
    }

    /// Ids of the shims that members whose file is of before, or of after, count otherwise: those that come or go now, or else those
    /// that have.
    fn shims_that_changed(&self) -> Vec<&str> {
        let of = |under_way: bool| {
            let changes =
                move |shim: &&ShimConfig| shim.state.is_some_and(|state| state.is_under_way() == under_way);
            self.shims.iter().filter(changes).map(|shim| shim.id.as_str()).collect::<Vec<_>>()
        };
        Some(of(true)).filter(|ids| !ids.is_empty()).unwrap_or_else(|| of(false))
    }

    /// Whose the users are that fence this shim's incarnations from others.
    pub fn fence(&self, shim: ShimId) -> FenceName {
        let share = match self.sharding() {
            Sharding::Slots => {
                let (first, end) = slot::range(shim, self.shims.len());
                FenceShare::Slots(first, end - 1)
            }
            Sharding::Ring | Sharding::Pool(_) => FenceShare::Whole,
        };
        FenceName { cluster: self.secret_id(), shim: self.shim(shim).id.clone(), share }
    }

    /// What tells this cluster from those with other secrets, whatever people call them.
    pub fn secret_id(&self) -> String {
        format!("{:016x}", placement::Secret(self.secret().0).id())
    }

    /// What the server of a shim holds; nothing that lasts where keys move between servers.
    pub fn marked_part(&self, shim: ShimId) -> Option<MarkedPart> {
        (self.sharding() != Sharding::Slots).then(|| self.part(shim))
    }

    /// Which part of all keys a shim has. Where other software has laid them out, its rule and the names of its servers decide, and no
    /// secret.
    pub fn part(&self, shim: ShimId) -> MarkedPart {
        let cluster = self.cluster.name.clone();
        if let Sharding::Pool(pool) = self.sharding() {
            let (mut shims, unordered) = self.pool_names(&pool);
            let own = shims[usize::from(shim.0)].clone();
            if unordered {
                shims.sort();
            }
            return MarkedPart { id: self.placement_word(), cluster, shims, shim: own, next: Vec::new() };
        }
        let list = |counts: &dyn Fn(&ShimConfig) -> bool| {
            self.shims.iter().filter(|shim| counts(shim)).map(|shim| shim.id.clone()).collect::<Vec<_>>()
        };
        let under_way = |shim: &ShimConfig| shim.state.is_some_and(ShimChange::is_under_way);
        let before = list(&ShimConfig::has_keys);
        let after = list(&|shim| shim.has_keys() != under_way(shim));
        let own = self.shim(shim);
        // One that joins has never had another list at its server.
        let (shims, next) = match own.state {
            Some(ShimChange::Joining) => (after, Vec::new()),
            _ if before == after => (before, Vec::new()),
            _ => (before, after),
        };
        MarkedPart { id: self.secret_id(), cluster, shims, shim: own.id.clone(), next }
    }

    /// The map in which every node owns its whole partition.
    pub fn map(&self) -> ClusterMap {
        self.map_with(EPOCH_FIRST, LEVELS.min, |_| SHARE_WHOLE)
    }

    /// The same as while keys go to shims that join and from those that leave.
    pub fn map_in_change(&self) -> ClusterMap {
        let mut map = self.map();
        for (shim, member) in self.shims.iter().zip(&mut map.shims) {
            match shim.state {
                Some(ShimChange::Joining) => member.state = ShimState::Joining,
                Some(ShimChange::Leaving) => member.state = ShimState::Leaving,
                Some(ShimChange::Joined | ShimChange::Left) | None => {}
            }
        }
        map
    }

    /// The map of `epoch` and `level`, in which nodes own what `share` says.
    pub fn map_with(&self, epoch: u32, level: u8, share: impl Fn(NodeId) -> u16) -> ClusterMap {
        let racks = self.racks();
        let rack_id =
            |name: &str| racks.iter().position(|rack| *rack == name).map(|index| RackId(index as u16));
        let layers = self.layers.iter().map(|layer| {
            let members = self.nodes.iter().enumerate().filter(|(_, node)| node.layer == layer.name);
            let nodes = members.map(|(index, node)| {
                let id = NodeId(index as u16);
                let rack = match layer.partition {
                    Partition::Rack => node.rack.as_deref().and_then(rack_id),
                    Partition::Hash => None,
                };
                NodeMember { id, rack, capacity: node.capacity_thousandths(), share: share(id) }
            });
            LayerMap { name: layer.name.clone(), partition: layer.partition, nodes: nodes.collect() }
        });
        let shims = self.shims.iter().enumerate().map(|(index, shim)| {
            let rack = rack_id(&shim.rack).expect("racks() lists the rack of every shim");
            let state = if shim.has_keys() { ShimState::Normal } else { ShimState::Absent };
            ShimMember { state, ..ShimMember::new(ShimId(index as u16), rack) }
        });
        ClusterMap {
            epoch,
            level,
            sharding: self.sharding(),
            layers: layers.collect(),
            shims: shims.collect(),
        }
    }
}

/// Orders ids as people count: `shim-10` behind `shim-9`.
fn by_number(id: &str) -> (&str, usize, &str) {
    let text = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &id[text.len()..];
    (text, number.len(), number)
}

#[cfg(test)]
mod tests;

//! What must hold between the fields of a configuration, each rule with the sentence for who broke it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use protocol::coherence::lease::LeaseTerms;
use wire::Partition;
use wire::message::LAYERS_MAX;

use super::hosts;
use super::load::ConfigError;
use super::policy;
use super::pool;
use super::ranges;
use super::resharding;
use super::users;
use super::words;
use super::{
    ClusterConfig, Config, ControllerConfig, EtcdUrl, FrontProtocol, Mode, ROUTERS_MAX, ReadyShims,
    SHIM_PLACES_MAX, SHIMS_MAX, ShimConfig, StorageConfig,
};
use crate::Address;

type Check = Result<(), ConfigError>;

const ID_BYTES_MAX: usize = 64;
/// Longer leases let one dead node hold a write for longer than any client waits, and shims that find no record of earlier
/// ones rely on that there are none.
const LEASE_MS_MAX: u64 = LeaseTerms::DURATION_MAX.as_millis() as u64;
/// Shorter ones cost more renewals than reads.
const LEASE_MS_MIN: u64 = 20;
/// A copy lives no longer than this whatever is configured.
const BOUND_MS_MAX: u64 = 60_000;

fn wrong<T>(what: String) -> Result<T, ConfigError> {
    Err(ConfigError::new(what))
}

impl Config {
    /// Checks everything that a single field's type does not.
    pub fn validate(&self) -> Check {
        check_cluster(self)?;
        ranges::check(self)?;
        check_heat(self)?;
        policy::check(self)?;
        check_ids(self)?;
        hosts::check(self)?;
        check_layers(self)?;
        check_nodes(self)?;
        check_racks(self)?;
        check_standbys(self)?;
        check_controllers(self)?;
        check_routers(self)?;
        check_memcached(self)?;
        pool::check(self)?;
        resharding::check(self)?;
        self.tls.check().map_err(ConfigError::new)?;
        self.tracing.check().map_err(ConfigError::new)?;
        check_addresses(self)?;
        users::check(self)
    }
}

fn check_cluster(config: &Config) -> Check {
    let cluster = &config.cluster;
    if cluster.secret.is_none() {
        return wrong(
            "[cluster] secret is missing: write secret = \"<32 hexadecimal digits>\" (`openssl rand -hex 16`) or \
             secret_file"
                .to_owned(),
        );
    }
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&cluster.lease_ms) {
        let lease_ms = cluster.lease_ms;
        return wrong(format!("[cluster] lease_ms = {lease_ms}: write {LEASE_MS_MIN} to {LEASE_MS_MAX}"));
    }
    if cluster.lease_guard_ms * 2 > cluster.lease_ms {
        let guard = cluster.lease_guard_ms;
        let most = cluster.lease_ms / 2;
        return wrong(format!("[cluster] lease_guard_ms = {guard}: write at most {most}, half of lease_ms"));
    }
    check_bounded(cluster)?;
    let unfollowed = |shim: &&ShimConfig| shim.storage.is_memcached();
    match config.shims.iter().find(unfollowed).filter(|_| cluster.mode == Mode::Bounded) {
        Some(shim) => wrong(format!(
            "[cluster] mode = \"bounded\" follows what Redis servers report as changed; [[shim]] {:?} has \
             memcached: write mode = \"strict\" and let all writes pass DistCache",
            shim.id
        )),
        None => Ok(()),
    }
}

fn check_bounded(cluster: &ClusterConfig) -> Check {
    let (lease_ms, staleness_ms) = (cluster.lease_ms, cluster.bounded_staleness_ms_max);
    if cluster.mode == Mode::Strict {
        return Ok(());
    }
    if !(lease_ms..=BOUND_MS_MAX).contains(&staleness_ms) {
        return wrong(format!(
            "[cluster] bounded_staleness_ms_max = {staleness_ms}: write lease_ms ({lease_ms}) to {BOUND_MS_MAX}, or \
             lower lease_ms: a copy is trusted for a lease at a time"
        ));
    }
    if !(1..=BOUND_MS_MAX).contains(&cluster.bounded_age_ms_max) {
        let age_ms = cluster.bounded_age_ms_max;
        return wrong(format!("[cluster] bounded_age_ms_max = {age_ms}: write 1 to {BOUND_MS_MAX}"));
    }
    Ok(())
}

fn check_heat(config: &Config) -> Check {
    let heat = &config.heat;
    for (key, value) in [("counters", heat.counters), ("filter_bits", heat.filter_bits)] {
        if !value.is_power_of_two() {
            return wrong(format!("[heat] {key} = {value}: write a power of two"));
        }
    }
    if !(1.0..=100.0).contains(&heat.hysteresis) {
        return wrong(format!("[heat] hysteresis = {}: write 1.0 to 100.0", heat.hysteresis));
    }
    Ok(())
}

/// Every member as the file names it, for messages.
fn members(config: &Config) -> impl Iterator<Item = (&'static str, &str)> {
    let controllers = config.controllers.iter().map(|member| ("controller", member.id.as_str()));
    let nodes = config.nodes.iter().map(|member| ("node", member.id.as_str()));
    let shims = config.shims.iter().map(|member| ("shim", member.id.as_str()));
    let standbys = config.standbys.iter().map(|member| ("standby", member.id.as_str()));
    let routers = config.routers.iter().map(|member| ("router", member.id.as_str()));
    controllers.chain(nodes).chain(shims).chain(standbys).chain(routers)
}

fn check_ids(config: &Config) -> Check {
    let mut seen = BTreeMap::new();
    for (section, id) in members(config) {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(legal) {
            return wrong(format!(
                "[[{section}]] id = {id:?}: write 1 to {ID_BYTES_MAX} letters, digits, '-', '_' or '.'"
            ));
        }
        if let Some(other) = seen.insert(id, section) {
            return wrong(format!(
                "[[{section}]] id = {id:?}: a {other} has this id; ids are unique over all members"
            ));
        }
    }
    let counts = [
        ("node", config.nodes.len(), u16::MAX / 2),
        ("shim", config.shims.len(), SHIMS_MAX),
        ("router", config.routers.len(), ROUTERS_MAX),
    ];
    for (section, count, max) in counts {
        if count > usize::from(max) {
            return wrong(format!("[[{section}]]: {count} are more than {max}"));
        }
    }
    Ok(())
}

fn check_layers(config: &Config) -> Check {
    if config.shims.is_empty() {
        return wrong("[[shim]]: there is none; add one per storage server".to_owned());
    }
    let count = config.layers.len();
    if !(1..=LAYERS_MAX).contains(&count) {
        return wrong(format!("[[layer]]: {count} layers; a cluster has 1 to {LAYERS_MAX}"));
    }
    for (index, layer) in config.layers.iter().enumerate() {
        let name = &layer.name;
        if config.layers[..index].iter().any(|other| other.name == *name) {
            return wrong(format!("[[layer]] name = {name:?}: two layers have this name; give each its own"));
        }
    }
    // Before layers without nodes: a mistyped layer takes its node from another one.
    for node in &config.nodes {
        let names = || config.layers.iter().map(|layer| layer.name.as_str());
        if !names().any(|name| name == node.layer) {
            let hint = words::hint(&node.layer, names());
            let names = quoted(names());
            return wrong(format!(
                "[[node]] {:?}: layer = {:?}: no [[layer]] has this name{hint}; there are: {names}",
                node.id, node.layer
            ));
        }
    }
    for layer in &config.layers {
        let name = &layer.name;
        if name.is_empty() {
            return wrong("[[layer]] name = \"\": must not be empty".to_owned());
        }
        if !config.nodes.iter().any(|node| node.layer == *name) {
            return wrong(format!("[[layer]] {name:?} has no node: add a [[node]] with layer = {name:?}"));
        }
    }
    Ok(())
}

fn check_nodes(config: &Config) -> Check {
    let racks = config.racks();
    for node in &config.nodes {
        let at = format!("[[node]] {:?}", node.id);
        let Some(layer) = config.layers.iter().find(|layer| layer.name == node.layer) else { continue };
        match (layer.partition, &node.rack) {
            (Partition::Rack, None) => {
                return wrong(format!(
                    "{at}: rack is missing: layer {:?} is partitioned by rack; racks of the shims: {}",
                    layer.name,
                    quoted(racks.iter().copied())
                ));
            }
            (Partition::Rack, Some(rack)) if !racks.contains(&rack.as_str()) => {
                return wrong(format!(
                    "{at}: rack = {rack:?}: no shim is in this rack; racks of the shims: {}",
                    quoted(racks.iter().copied())
                ));
            }
            (Partition::Hash, Some(rack)) => {
                return wrong(format!(
                    "{at}: rack = {rack:?}: layer {:?} is partitioned by hash; remove rack",
                    layer.name
                ));
            }
            _ => {}
        }
        if !(0.001..=1000.0).contains(&node.capacity) {
            return wrong(format!("{at}: capacity = {}: write 0.001 to 1000.0", node.capacity));
        }
    }
    Ok(())
}

fn check_racks(config: &Config) -> Check {
    match (config.shims.iter().find(|shim| shim.storage.wants_tls()), &config.tls.storage) {
        (Some(shim), None) => {
            return wrong(format!(
                "[[shim]] {:?}: storage with TLS: there is no [tls.storage]; add it with ca_file, the CA that \
                 signs the servers' certificates",
                shim.id
            ));
        }
        (None, Some(_)) => {
            return wrong(
                "[tls.storage]: no shim has storage with TLS; write rediss:// instead of redis:// in its storage URL, \
                 rediss-cluster:// or rediss+sentinel://"
                    .to_owned(),
            );
        }
        _ => {}
    }
    check_stores(config)?;
    let clustered = |shim: &&ShimConfig| shim.storage.is_redis_cluster();
    if let (Some(shim), Some(other)) =
        (config.shims.iter().find(clustered), config.shims.iter().find(|shim| !clustered(shim)))
    {
        return wrong(format!(
            "[[shim]] {:?}: storage = \"redis-cluster://...\": shim {:?} has another kind of storage; the shims divide \
             the slots of one cluster among them, so give all of them the same URL",
            shim.id, other.id
        ));
    }
    if let Some(shim) = config.shims.iter().find(|shim| shim.storage.lacks_password()) {
        return wrong(format!(
            "[[shim]] {:?}: storage: a user without a password: write USER:PASSWORD@, :PASSWORD@ for the default user, or \
             storage_password_file",
            shim.id
        ));
    }
    if let Some(shim) = config.shims.iter().find(|shim| shim.rack.is_empty()) {
        return wrong(format!("[[shim]] {:?}: rack = \"\": must not be empty", shim.id));
    }
    for layer in config.layers.iter().filter(|layer| layer.partition == Partition::Rack) {
        for rack in config.racks() {
            let covered =
                |node: &super::NodeConfig| node.layer == layer.name && node.rack.as_deref() == Some(rack);
            if !config.nodes.iter().any(covered) {
                return wrong(format!(
                    "[[layer]] {:?} has no node for rack {rack:?}: add a [[node]] with layer = {:?} and rack = {rack:?}",
                    layer.name, layer.name
                ));
            }
        }
    }
    Ok(())
}

/// Processes that may be shims, besides those of the shims' own entries.
fn check_standbys(config: &Config) -> Check {
    for standby in &config.standbys {
        let at = format!("[[standby]] {:?}: of = {:?}", standby.id, standby.of);
        let Some(shim) = config.shim_id(&standby.of) else {
            let names = config.shims.iter().map(|shim| shim.id.as_str());
            let hint = words::hint(&standby.of, names.clone());
            return wrong(format!("{at}: no [[shim]] has this id{hint}; there are {}", quoted(names)));
        };
        let storage = &config.shim(shim).storage;
        if matches!(storage, StorageConfig::Embedded | StorageConfig::Durable(_)) {
            return wrong(format!(
                "{at}: its storage is embedded, and so in one process only: nobody else can serve it; remove the standby, or give                  the shim a Redis, Valkey or memcached server"
            ));
        }
        if storage.is_redis_cluster() {
            return wrong(format!(
                "{at}: its storage is a Redis Cluster, which standbys do not serve yet; remove the standby"
            ));
        }
        let count = config.shim_addresses(shim).count();
        if count > SHIM_PLACES_MAX {
            return wrong(format!("{at}: it has {}; write up to {}", count - 1, SHIM_PLACES_MAX - 1));
        }
    }
    Ok(())
}

/// Embedded stores on disk.
fn check_stores(config: &Config) -> Check {
    let mut folders: Vec<(&Path, &str)> = Vec::new();
    for shim in &config.shims {
        let id = &shim.id;
        match (shim.storage.folder(), shim.durability) {
            (None, Some(_)) => {
                return wrong(format!(
                    "[[shim]] {id:?}: durability is for storage in a folder: write storage = \"embedded:///PATH\", or remove it"
                ));
            }
            (None, None) => continue,
            (Some(folder), _) => {
                // One inside the other would be moved, backed up and deleted with it.
                let clash =
                    folders.iter().find(|(other, _)| folder.starts_with(other) || other.starts_with(folder));
                if let Some((other, other_id)) = clash {
                    return wrong(format!(
                        "[[shim]] {id:?}: storage = \"embedded://{}\": shim {other_id:?} has {}; give each a folder of its own",
                        folder.display(),
                        other.display()
                    ));
                }
                folders.push((folder, id));
            }
        }
    }
    Ok(())
}

fn check_controllers(config: &Config) -> Check {
    for controller in &config.controllers {
        let (id, store) = (&controller.id, &controller.store);
        match controller.etcd() {
            Some(etcd) => check_etcd(config, controller, &etcd)?,
            None if controller.store_password_file.is_some() => {
                return wrong(format!(
                    "[[controller]] {id:?}: store_password_file is for etcd: write store = \"etcd://USER@HOST:PORT\""
                ));
            }
            None if store == "memory" => {}
            None => {
                return wrong(format!(
                    "[[controller]] {id:?}: store = {store:?}: unknown store; write \"memory\", or \
                     \"etcd://HOST:PORT\" with further servers after commas"
                ));
            }
        }
    }
    let secured = |controller: &&ControllerConfig| controller.etcd().is_some_and(|etcd| etcd.tls);
    match (config.controllers.iter().find(secured), &config.tls.store) {
        (Some(controller), None) => {
            return wrong(format!(
                "[[controller]] {:?}: store: there is no [tls.store]; add it with ca_file, the CA that signs the \
                 certificates of etcd's servers",
                controller.id
            ));
        }
        (None, Some(_)) => {
            return wrong(
                "[tls.store]: no controller has a store with TLS; write etcds:// instead of etcd:// in `store`"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let memory = config.controllers.iter().find(|controller| controller.etcd().is_none());
    match memory.filter(|_| config.controllers.len() > 1) {
        Some(memory) => wrong(format!(
            "[[controller]] {:?}: replicas need a shared store, and \"memory\" is not shared; keep one controller, or \
             write store = \"etcd://HOST:PORT\" for all",
            memory.id
        )),
        None => Ok(()),
    }
}

fn check_etcd(config: &Config, controller: &ControllerConfig, etcd: &EtcdUrl<'_>) -> Check {
    let id = &controller.id;
    match (etcd.user, &controller.store_password_file) {
        // The URL is in logs and in `ps`; it is not repeated either.
        (Some(user), _) if user.contains(':') => {
            return wrong(format!(
                "[[controller]] {id:?}: store: a password does not belong there: write USER@ and store_password_file"
            ));
        }
        (Some(""), _) | (Some(_), None) | (None, Some(_)) => {
            return wrong(format!(
                "[[controller]] {id:?}: store: a user of etcd has a name and a password: write etcd://USER@HOST:PORT and \
                 store_password_file, or neither"
            ));
        }
        _ => {}
    }
    let at = format!("[[controller]] {id:?}: store = {:?}", controller.store);
    for endpoint in &etcd.endpoints {
        let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, ""));
        if host.is_empty() || host.contains(['/', '@', ' ']) || port.parse::<u16>().is_err() {
            return wrong(format!(
                "{at}: {endpoint:?} is not HOST:PORT; write for example etcd://127.0.0.1:2379"
            ));
        }
        let local = host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if !local && !etcd.tls && !config.security.insecure_listen {
            return wrong(format!(
                "{at}: {host} is another machine and nothing is encrypted; write etcds:// and [tls.store], a loopback address, \
                 or insecure_listen = true under [security] in a network that you trust"
            ));
        }
    }
    match controller.member_lease_ms < 2000 {
        true => wrong(format!("{at}: member_lease_ms must be at least 2000: etcd has no shorter leases")),
        false => Ok(()),
    }
}

/// memcached's values have flags and uniques, Redis' have types: clients of one kind of storage see one kind of value.
fn check_memcached(config: &Config) -> Check {
    let is_memcached = |shim: &&ShimConfig| shim.storage.is_memcached();
    if !config.has_memcached_storage() {
        return Ok(());
    }
    if let Some(other) = config.shims.iter().find(|shim| !is_memcached(shim)) {
        return wrong(format!(
            "[[shim]] {:?}: storage: other shims have memcached:// storage; give all of them memcached://, or none",
            other.id
        ));
    }
    if config.cluster.mode == Mode::Bounded {
        return wrong(
            "[cluster] mode = \"bounded\": memcached:// storage cannot tell of other writers; write \"strict\""
                .to_owned(),
        );
    }
    match config.routers.iter().find(|router| router.protocol == FrontProtocol::Redis) {
        Some(router) => wrong(format!(
            "[[router]] {:?}: protocol = \"redis\": memcached:// storage knows no Redis commands; write protocol = \
             \"memcached\"",
            router.id
        )),
        None => Ok(()),
    }
}

fn check_routers(config: &Config) -> Check {
    for router in &config.routers {
        if router.listens().next().is_none() {
            return wrong(format!(
                "[[router]] {:?}: listen is missing: write listen = \"IP:PORT\", or listen_tls for TLS",
                router.id
            ));
        }
        if router.listen_tls.is_some() && config.tls.clients.is_none() {
            return wrong(format!(
                "[[router]] {:?}: listen_tls: there is no [tls.clients]; add it with certificate_file and key_file",
                router.id
            ));
        }
        if let ReadyShims::AtLeast(count) = router.ready_shims
            && count > config.shims.len() as u64
        {
            return wrong(format!(
                "[[router]] {:?}: ready_shims = {count}: there are {}; write 1 to {}, \"any\" or \"all\"",
                router.id,
                config.shims.len(),
                config.shims.len()
            ));
        }
        if router.listen_unix.as_ref().is_some_and(|path| !path.is_absolute()) {
            return wrong(format!(
                "[[router]] {:?}: listen_unix: write an absolute path, such as /run/distcache/router.sock",
                router.id
            ));
        }
    }
    Ok(())
}

/// An address that a member listens on.
struct Use {
    at: String,
    key: &'static str,
    address: Address,
    /// What there is besides a loopback address; `None` if whoever connects there is encrypted already.
    remedy: Option<&'static str>,
}

const HTTP: &str = "[tls.http], ";
const PEERS: &str = "[tls.peers], ";
const CLIENTS: &str = "listen_tls with [tls.clients], ";

fn uses(config: &Config) -> Vec<Use> {
    let tcp = Address::Tcp;
    let mut uses = Vec::new();
    let peers = config.tls.peers.is_none().then_some(PEERS);
    let http = config.tls.http.is_none().then_some(HTTP);
    let mut add = |at: String, key, address, remedy| uses.push(Use { at, key, address, remedy });
    for controller in &config.controllers {
        add(format!("[[controller]] {:?}", controller.id), "listen", tcp(controller.listen), http);
    }
    for node in &config.nodes {
        add(format!("[[node]] {:?}", node.id), "listen", node.listen.clone(), peers);
    }
    for shim in &config.shims {
        add(format!("[[shim]] {:?}", shim.id), "listen", shim.listen.clone(), peers);
    }
    for standby in &config.standbys {
        add(format!("[[standby]] {:?}", standby.id), "listen", standby.listen.clone(), peers);
    }
    for router in &config.routers {
        for listen in router.listens() {
            let remedy = (!listen.tls).then_some(CLIENTS);
            add(format!("[[router]] {:?}", router.id), listen.key, listen.address, remedy);
        }
    }
    // Members of one process may share an admin server, so these need not be unique among themselves.
    for (section, id) in members(config) {
        if let Some(admin) = config.admin(id) {
            add(format!("[[{section}]] {id:?}"), "admin", tcp(admin), http);
        }
    }
    uses
}

fn check_addresses(config: &Config) -> Check {
    let uses = uses(config);
    let mut seen: BTreeMap<&Address, &Use> = BTreeMap::new();
    for taken in &uses {
        let Use { at, key, address, remedy } = taken;
        if let Some(remedy) = remedy.filter(|_| !address.is_local() && !config.security.insecure_listen) {
            return wrong(format!(
                "{at}: {key} = \"{address}\": reachable from other machines and not encrypted; write {remedy}a \
                 loopback address, or insecure_listen = true under [security] in a network that you trust"
            ));
        }
        if matches!(address, Address::Tcp(tcp) if tcp.port() == 0) {
            continue;
        }
        match seen.get(address) {
            Some(other) if other.key == "admin" && *key == "admin" => {}
            Some(Use { at: other, key: other_key, .. }) => {
                return wrong(format!(
                    "{at}: {key} = \"{address}\": {other} has it as {other_key}; give each its own address"
                ));
            }
            None => {
                seen.insert(address, taken);
            }
        }
    }
    Ok(())
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

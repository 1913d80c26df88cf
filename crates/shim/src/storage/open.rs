//! The backend that the configuration of a shim names: every kind of storage has one arm here. Not what it does.

use std::time::Duration;

use config::{Config, Password, StorageConfig};
use protocol::shards::ShardsConfig;
use protocol::shim::TRANSFERS_MAX;
use protocol::storage::memcached::{Memcached, MemcachedSettings};
use protocol::storage::network::Endpoint;
use protocol::storage::redis::{Redis, RedisSettings};
use protocol::storage::redis_cluster::{RedisCluster, RedisClusterSettings};
use protocol::storage::redis_sentinel::{RedisSentinel, RedisSentinelSettings};
use runtime::tls::Certificates;
use wire::ShimId;

use super::Storage;
use super::memory::Memory;

pub(crate) fn open(config: &Config, certificates: &Certificates, shim: ShimId) -> Storage {
    let timeout = Duration::from_millis(config.limits.storage_ms_max);
    let server =
        |address: String, user: &Option<String>, password: &Option<Password>, tls: bool| RedisSettings {
            endpoint: Endpoint::Configured,
            address,
            tls,
            user: user.clone(),
            password: password.as_ref().map(|password| password.0.clone()),
            cluster: config.cluster.name.clone(),
            shim: config.shim(shim).id.clone(),
            cluster_mode: false,
            timeout,
            pinned_max: config.limits.blocking_max + TRANSFERS_MAX,
            seed: rand::random(),
        };
    // Validation has seen to it that there are certificates where the URL wants them. Servers that others name are known
    // by their addresses.
    let dialer = |wanted: bool| certificates.storage().filter(|_| wanted).cloned();
    match &config.shim(shim).storage {
        StorageConfig::Embedded => Storage::new(Box::new(Memory::new(rand::random())), None, None),
        StorageConfig::Memcached { address, .. } => {
            let settings = MemcachedSettings {
                endpoint: Endpoint::Configured,
                address: address.to_string(),
                timeout,
                seed: rand::random(),
            };
            Storage::new(Box::new(Memcached::new(settings)), Some(address.clone()), None)
        }
        StorageConfig::Redis { address, user, password, tls } => {
            let tls = tls.as_ref().and_then(|host| Some(dialer(true)?.or_named(host)));
            let redis = Redis::new(server(address.to_string(), user, password, tls.is_some()));
            Storage::new(Box::new(redis), Some(address.clone()), tls)
        }
        StorageConfig::RedisSentinel(sentinel) => {
            let settings = RedisSentinelSettings {
                sentinels: sentinel.sentinels.clone(),
                name: sentinel.name.clone(),
                sentinel_user: sentinel.sentinel_user.clone(),
                sentinel_password: sentinel.sentinel_password.as_ref().map(|password| password.0.clone()),
                server: server(String::new(), &sentinel.user, &sentinel.password, sentinel.tls),
            };
            Storage::new(Box::new(RedisSentinel::new(settings)), None, dialer(sentinel.tls))
        }
        StorageConfig::RedisCluster { seeds, user, password, tls } => {
            let shards = ShardsConfig {
                shim,
                shims_count: config.shims.len(),
                seeds: seeds.clone(),
                patience: timeout,
                seed: rand::random(),
            };
            let server = RedisSettings { cluster_mode: true, ..server(String::new(), user, password, *tls) };
            let cluster = RedisCluster::new(RedisClusterSettings { shards, server });
            Storage::new(Box::new(cluster), None, dialer(*tls))
        }
    }
}

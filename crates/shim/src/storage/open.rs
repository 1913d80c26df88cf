//! The backend that the configuration of a shim names: every kind of storage has one arm here. Not what it does.

use std::time::Duration;

use config::{Config, Mode, RedisServers, RedisStorage, SentinelGroup, ShimPlace, StorageConfig};
use protocol::coherence::lease::LeaseLimits;
use protocol::shards::ShardsConfig;
use protocol::storage::durable::StoreLife;
use protocol::storage::memcached::{Memcached, MemcachedSettings};
use protocol::storage::network::Endpoint;
use protocol::storage::redis::{FenceDemand, LeaseRecord, Redis, RedisSettings};
use protocol::storage::redis_cluster::{RedisCluster, RedisClusterSettings};
use protocol::storage::redis_sentinel::{RedisSentinel, RedisSentinelSettings};
use runtime::clock;
use runtime::reactor::Waker;
use runtime::tls::Certificates;

use super::Storage;
use super::durable::{Durable, DurableSettings};
use super::guests::{guest_addresses, with_guests};
use super::memory::Memory;

/// `waker` is for storage with threads of its own.
pub(crate) fn open(config: &Config, certificates: &Certificates, place: ShimPlace, waker: Waker) -> Storage {
    let shim = place.shim;
    let timeout = Duration::from_millis(config.limits.storage_ms_max);
    match &config.shim(shim).storage {
        StorageConfig::Embedded => {
            Storage::new(Box::new(Memory::new(rand::random(), config.first_life)), None, None)
        }
        StorageConfig::Durable(path) => {
            let settings = DurableSettings {
                path: path.clone(),
                durability: config.shim(shim).durability(),
                life: StoreLife {
                    boot: clock::boot(),
                    part: config.marked_part(shim),
                    lease_record: lease_record(config),
                    adopts: config.adopts,
                },
                seed: rand::random(),
            };
            Storage::new(Box::new(Durable::new(settings, waker)), None, None)
        }
        StorageConfig::Memcached { address, .. } => {
            let settings = MemcachedSettings {
                endpoint: Endpoint::Configured,
                address: address.to_string(),
                timeout,
                is_first: config.first_life,
                part: config.part(shim),
                adopts: config.adopts,
                seed: rand::random(),
            };
            Storage::new(Box::new(Memcached::new(settings)), Some(address.clone()), None)
        }
        StorageConfig::Redis(redis) => open_redis(config, certificates, place, redis),
    }
}

fn lease_record(config: &Config) -> LeaseRecord {
    LeaseRecord {
        wait: config.cluster.lease_terms().restart_wait(),
        limits: LeaseLimits::default(),
        is_first: config.first_life,
    }
}

/// Validation has seen to it that there are certificates where the URL wants them.
fn open_redis(
    config: &Config,
    certificates: &Certificates,
    place: ShimPlace,
    redis: &RedisStorage,
) -> Storage {
    let shim = place.shim;
    // Servers that others name are known by their addresses.
    let tls = certificates.storage().filter(|_| redis.tls);
    let server = |address: String| RedisSettings { address, ..server_settings(config, place, redis) };
    match &redis.servers {
        RedisServers::One { address, host } => {
            let tls = tls.map(|tls| tls.or_named(host));
            let home = Box::new(Redis::new(server(address.to_string())));
            Storage::new(with_guests(config, place, home), Some(address.clone()), tls)
                .with_others(guest_addresses(config, certificates, shim))
        }
        RedisServers::Sentinels(group) => {
            let home = Box::new(RedisSentinel::new(sentinel_settings(group, server(String::new()))));
            Storage::new(with_guests(config, place, home), None, tls.cloned()).with_others(guest_addresses(
                config,
                certificates,
                shim,
            ))
        }
        RedisServers::Cluster(seeds) => {
            let shards = ShardsConfig {
                shim,
                shims_count: config.shims.len(),
                seeds: seeds.clone(),
                patience: Duration::from_millis(config.limits.storage_ms_max),
                seed: rand::random(),
            };
            let server = RedisSettings { cluster_mode: true, ..server(String::new()) };
            let cluster = RedisCluster::new(RedisClusterSettings { shards, server });
            Storage::new(Box::new(cluster), None, tls.cloned())
        }
    }
}

/// For a server of this storage, but for its address.
pub(super) fn server_settings(config: &Config, place: ShimPlace, redis: &RedisStorage) -> RedisSettings {
    let shim = place.shim;
    RedisSettings {
        endpoint: Endpoint::Configured,
        address: String::new(),
        tls: redis.tls,
        user: redis.login.user.clone(),
        password: redis.login.password.as_ref().map(|password| password.0.clone()),
        fence: config.fence(shim),
        fence_demand: match config.cluster.mode {
            Mode::Strict => FenceDemand::Always,
            Mode::Bounded => FenceDemand::WherePossible,
        },
        mark: config.marked_part(shim),
        adopts: config.adopts,
        lease_record: lease_record(config),
        standby: config.standbys_of(shim).next().map(|_| place.place),
        cluster_mode: false,
        timeout: Duration::from_millis(config.limits.storage_ms_max),
        pinned_max: config.limits.blocking_max + config.limits.large_replies_max,
        seed: rand::random(),
    }
}

pub(super) fn sentinel_settings(group: &SentinelGroup, server: RedisSettings) -> RedisSentinelSettings {
    RedisSentinelSettings {
        sentinels: group.sentinels.clone(),
        name: group.name.clone(),
        sentinel_user: group.login.user.clone(),
        sentinel_password: group.login.password.as_ref().map(|password| password.0.clone()),
        server,
    }
}

//! The connections by which a shim brings keys to the storage of others. Not when it does.

use std::collections::BTreeMap;
use std::time::Duration;

use config::{Address, Config, RedisServers, RedisStorage, ShimPlace, StorageConfig};
use protocol::migration::MigrationConfig;
use protocol::storage::network::{Backend, Endpoint};
use protocol::storage::redis::{FenceName, FenceShare, LeaseRecord, Redis, RedisSettings};
use protocol::storage::redis_migration::RedisMigration;
use protocol::storage::redis_sentinel::RedisSentinel;
use runtime::tls::{Certificates, Dialer};
use wire::ShimId;

use super::open::{sentinel_settings, server_settings};

/// Keys on their way at the same time for whom nobody waits. More would not be faster.
const TRANSFERS_MAX: usize = 64;
/// While commands are asked for: each is a few microseconds of a server in whose way it is.
const TRANSFERS_BESIDE_MAX: usize = 8;

/// The storage of a shim, whose keys may leave for that of others.
pub(super) fn with_guests(config: &Config, place: ShimPlace, home: Box<dyn Backend>) -> Box<dyn Backend> {
    let migration = MigrationConfig {
        patience: Duration::from_millis(config.limits.storage_ms_max),
        transfers_max: TRANSFERS_MAX,
        transfers_beside_max: TRANSFERS_BESIDE_MAX,
        keys_per_second_max: config.limits.moved_keys_rate_max as u32,
    };
    let guests = others(config, place.shim)
        .map(|(other, redis)| (other, (redis.servers.clone(), guest_settings(config, place, other, redis))));
    let guests: BTreeMap<ShimId, (RedisServers, RedisSettings)> = guests.collect();
    let open = move |other: ShimId| -> Box<dyn Backend> {
        let (servers, settings) = guests.get(&other).expect("keys leave only for storage of the same kind");
        let server = RedisSettings { seed: rand::random(), ..settings.clone() };
        match servers {
            RedisServers::Sentinels(group) => Box::new(RedisSentinel::new(sentinel_settings(group, server))),
            RedisServers::One { .. } | RedisServers::Cluster(_) => Box::new(Redis::new(server)),
        }
    };
    Box::new(RedisMigration::new(migration, home, Box::new(open)))
}

/// Where plain servers of other shims are. What sentinels name is reached as this shim's own.
pub(super) fn guest_addresses(
    config: &Config,
    certificates: &Certificates,
    shim: ShimId,
) -> BTreeMap<ShimId, (Address, Option<Dialer>)> {
    let plain = others(config, shim).filter_map(|(other, redis)| {
        let RedisServers::One { address, host } = &redis.servers else { return None };
        let tls = certificates.storage().filter(|_| redis.tls).map(|tls| tls.or_named(host));
        Some((other, (address.clone(), tls)))
    });
    plain.collect()
}

fn others(config: &Config, shim: ShimId) -> impl Iterator<Item = (ShimId, &RedisStorage)> {
    let all = (0..config.shims.len()).map(|index| ShimId(index as u16));
    all.filter(move |other| *other != shim).filter_map(|other| match &config.shim(other).storage {
        StorageConfig::Redis(redis) => Some((other, &**redis)),
        _ => None,
    })
}

/// In this shim's name, and as what the other one's mark says of its server.
fn guest_settings(config: &Config, place: ShimPlace, other: ShimId, redis: &RedisStorage) -> RedisSettings {
    let own = server_settings(config, place, redis);
    let address = match &redis.servers {
        RedisServers::One { address, .. } => address.to_string(),
        RedisServers::Sentinels(_) | RedisServers::Cluster(_) => String::new(),
    };
    RedisSettings {
        endpoint: Endpoint::Of(other),
        address,
        fence: FenceName { share: FenceShare::Arriving, ..own.fence.clone() },
        mark: config.marked_part(other),
        // Nothing is granted in its name.
        lease_record: LeaseRecord { is_first: true, ..own.lease_record },
        adopts: false,
        standby: None,
        ..own
    }
}

//! What keeps the data behind a shim: memory, a Redis server or Cluster, a memcached. Not when it may be asked what.

pub mod embedded;
pub mod memcached;
mod memory;
pub mod redis;
pub mod redis_cluster;
pub mod redis_sentinel;
mod scout;
mod standing;
mod topics;

use protocol::storage::{StorageEvent, Store, Wish};
use runtime::reactor::{Event, Io};

use memcached::Memcached;
use memory::Memory;
use redis::Redis;
use redis_cluster::RedisCluster;
use redis_sentinel::RedisSentinel;

/// The storage of one shim. Every call appends what became known to `events`.
pub(crate) enum Storage {
    Memory(Box<Memory>),
    Redis(Box<Redis>),
    Memcached(Box<Memcached>),
    RedisCluster(Box<RedisCluster>),
    RedisSentinel(Box<RedisSentinel>),
}

impl Storage {
    pub(crate) fn memory(seed: u64) -> Storage {
        Storage::Memory(Box::new(Memory::new(seed)))
    }

    pub(crate) fn redis(redis: Redis) -> Storage {
        Storage::Redis(Box::new(redis))
    }

    pub(crate) fn memcached(memcached: Memcached) -> Storage {
        Storage::Memcached(Box::new(memcached))
    }

    pub(crate) fn redis_cluster(cluster: RedisCluster) -> Storage {
        Storage::RedisCluster(Box::new(cluster))
    }

    pub(crate) fn redis_sentinel(sentinel: RedisSentinel) -> Storage {
        Storage::RedisSentinel(Box::new(sentinel))
    }

    pub(crate) fn store(&mut self, io: &mut Io, now_us: u64, store: Store, events: &mut Vec<StorageEvent>) {
        match self {
            Storage::Memory(memory) => memory.store(now_us, store, events),
            Storage::Redis(redis) => redis.store(io, now_us, store, events),
            Storage::Memcached(memcached) => memcached.store(io, now_us, &store, events),
            Storage::RedisCluster(cluster) => cluster.store(io, now_us, store, events),
            Storage::RedisSentinel(sentinel) => sentinel.store(io, now_us, store, events),
        }
    }

    pub(crate) fn wish(
        &mut self,
        io: &mut Io,
        now_us: u64,
        (ticket, wish): (u64, Wish),
        events: &mut Vec<StorageEvent>,
    ) {
        match self {
            // Nothing is ever under way there, and nothing blocks; they tell of no large reply.
            Storage::Memory(_) | Storage::Memcached(_) => {}
            Storage::Redis(redis) => redis.wish(io, now_us, (ticket, wish), events),
            Storage::RedisCluster(cluster) => cluster.wish(io, now_us, (ticket, wish), events),
            Storage::RedisSentinel(sentinel) => sentinel.wish(io, now_us, (ticket, wish), events),
        }
    }

    /// A watching connection serves nobody any more; `clean`: it watches nothing.
    pub(crate) fn release(
        &mut self,
        io: &mut Io,
        now_us: u64,
        (number, clean): (u64, bool),
        events: &mut Vec<StorageEvent>,
    ) {
        match self {
            // They refuse WATCH.
            Storage::Memory(_) | Storage::Memcached(_) => {}
            Storage::Redis(redis) => redis.release(io, now_us, (number, clean), events),
            Storage::RedisCluster(cluster) => cluster.release(io, now_us, (number, clean), events),
            Storage::RedisSentinel(sentinel) => sentinel.release(io, now_us, (number, clean), events),
        }
    }

    /// Gives back what is not its own. `Tick` is taken and given back.
    pub(crate) fn event(
        &mut self,
        io: &mut Io,
        event: Event,
        events: &mut Vec<StorageEvent>,
    ) -> Option<Event> {
        match self {
            Storage::Memory(memory) => {
                if matches!(event, Event::Tick) {
                    memory.tick(io.now_us(), events);
                }
                Some(event)
            }
            Storage::Redis(redis) => redis.event(io, event, events),
            Storage::Memcached(memcached) => memcached.event(io, event, events),
            Storage::RedisCluster(cluster) => cluster.event(io, event, events),
            Storage::RedisSentinel(sentinel) => sentinel.event(io, event, events),
        }
    }

    /// Why only a person can make it usable, if so.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match self {
            Storage::Memory(_) => None,
            Storage::Redis(redis) => redis.refusal(),
            Storage::Memcached(memcached) => memcached.refusal(),
            Storage::RedisCluster(cluster) => cluster.refusal(),
            Storage::RedisSentinel(sentinel) => sentinel.refusal(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        match self {
            Storage::Memory(_) => true,
            Storage::Redis(redis) => redis.is_up(),
            Storage::Memcached(memcached) => memcached.is_up(),
            Storage::RedisCluster(cluster) => cluster.is_up(),
            Storage::RedisSentinel(sentinel) => sentinel.is_up(),
        }
    }

    /// Whether another process of this shim has taken the server over.
    pub(crate) fn is_replaced(&self) -> bool {
        match self {
            Storage::Memory(_) | Storage::Memcached(_) => false,
            Storage::Redis(redis) => redis.is_replaced(),
            Storage::RedisCluster(cluster) => cluster.is_replaced(),
            Storage::RedisSentinel(sentinel) => sentinel.is_replaced(),
        }
    }

    pub(crate) fn reconnects(&self) -> u64 {
        match self {
            Storage::Memory(_) => 0,
            Storage::Redis(redis) => redis.reconnects(),
            Storage::Memcached(memcached) => memcached.reconnects(),
            Storage::RedisCluster(cluster) => cluster.reconnects(),
            Storage::RedisSentinel(sentinel) => sentinel.reconnects(),
        }
    }

    /// Commands without a reply.
    pub(crate) fn pending_count(&self) -> usize {
        match self {
            Storage::Memory(_) => 0,
            Storage::Redis(redis) => redis.pending_count(),
            Storage::Memcached(memcached) => memcached.pending_count(),
            Storage::RedisCluster(cluster) => cluster.pending_count(),
            Storage::RedisSentinel(sentinel) => sentinel.pending_count(),
        }
    }

    /// Leaves the server as it was found, and closes.
    pub(crate) fn stop(&mut self, io: &mut Io, events: &mut Vec<StorageEvent>) {
        match self {
            Storage::Memory(_) => {}
            Storage::Redis(redis) => redis.stop(io, events),
            Storage::Memcached(memcached) => memcached.stop(io, events),
            Storage::RedisCluster(cluster) => cluster.stop(io, events),
            Storage::RedisSentinel(sentinel) => sentinel.stop(io, events),
        }
    }
}

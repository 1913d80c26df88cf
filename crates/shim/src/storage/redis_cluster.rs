//! Storage on the servers of a Redis Cluster: carries out what `protocol::shards` wants. Not which server has what.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use protocol::shards::{Effect, Input, Shards, ShardsConfig};
use protocol::storage::{StorageEvent, Store, Wish};
use protocol::time::Time;
use runtime::address::Address;
use runtime::reactor::{Event, Io};
use wire::resp::Command;

use super::redis::{Redis, RedisSettings};
use super::scout::Scout;

/// How the servers are reached, and in whose name. `server` is for each of them but for its address.
#[derive(Clone, Debug)]
pub struct RedisClusterSettings {
    pub shards: ShardsConfig,
    pub server: RedisSettings,
}

pub struct RedisCluster {
    settings: RedisSettings,
    shards: Shards,
    servers: BTreeMap<SocketAddr, Redis>,
    scout: Scout,
    /// What `shards` has not been told yet.
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
    heard: Vec<StorageEvent>,
    seeds: u64,
    ups: u64,
}

impl RedisCluster {
    pub fn new(settings: RedisClusterSettings) -> RedisCluster {
        let RedisClusterSettings { shards, server } = settings;
        RedisCluster {
            scout: Scout::new(
                (server.user.clone(), server.password.clone()),
                server.tls.clone(),
                Command::from_args(&["CLUSTER", "NODES"]),
                remedy,
                server.timeout_us,
            ),
            settings: server,
            shards: Shards::new(shards),
            servers: BTreeMap::new(),
            inputs: VecDeque::new(),
            effects: Vec::new(),
            heard: Vec::new(),
            seeds: 0,
            ups: 0,
        }
    }

    /// Why only a person can make this storage usable, if so.
    pub fn refusal(&self) -> Option<&str> {
        if self.shards.is_up() {
            return None;
        }
        self.scout.refusal().or_else(|| self.servers.values().find_map(Redis::refusal))
    }

    pub fn is_up(&self) -> bool {
        self.shards.is_up()
    }

    /// Whether another process of this shim has taken a server over, and this one stands by.
    pub fn is_replaced(&self) -> bool {
        self.servers.values().any(Redis::is_replaced)
    }

    /// How often storage came back.
    pub fn reconnects(&self) -> u64 {
        self.ups.saturating_sub(1)
    }

    /// Commands without a reply.
    pub fn pending_count(&self) -> usize {
        self.servers.values().map(Redis::pending_count).sum::<usize>() + self.shards.waiting_count()
    }

    pub fn store(&mut self, io: &mut Io, now_us: u64, store: Store, events: &mut Vec<StorageEvent>) {
        self.step(io, now_us, Input::Store(store), events);
    }

    pub fn wish(
        &mut self,
        io: &mut Io,
        now_us: u64,
        (ticket, wish): (u64, Wish),
        events: &mut Vec<StorageEvent>,
    ) {
        self.step(io, now_us, Input::Wish { ticket, wish }, events);
    }

    pub fn release(
        &mut self,
        io: &mut Io,
        now_us: u64,
        (number, clean): (u64, bool),
        events: &mut Vec<StorageEvent>,
    ) {
        self.step(io, now_us, Input::Release { number, clean }, events);
    }

    /// Gives back what is not its own.
    pub fn event(&mut self, io: &mut Io, event: Event, events: &mut Vec<StorageEvent>) -> Option<Event> {
        let now_us = match &event {
            Event::Data { now_us, .. } => *now_us,
            _ => io.now_us(),
        };
        let mut rest = Some(event);
        for (server, redis) in &mut self.servers {
            rest = redis.event(io, rest?, &mut self.heard);
            let server = *server;
            self.inputs.extend(self.heard.drain(..).map(|event| Input::Server { server, event }));
            if rest.is_none() {
                self.carry_on(io, now_us, events);
                return None;
            }
        }
        let rest = self.scout.event(io, rest?);
        if let Some((server, found)) = self.scout.take_found() {
            let text = found.bytes().cloned().unwrap_or_default();
            self.inputs.push_back(Input::Seen { server, text });
        }
        if matches!(rest, Some(Event::Tick)) {
            self.inputs.push_back(Input::Tick);
        }
        self.carry_on(io, now_us, events);
        rest
    }

    /// Takes this incarnation's users away and closes everything.
    pub fn stop(&mut self, io: &mut Io, events: &mut Vec<StorageEvent>) {
        for (server, redis) in &mut self.servers {
            redis.stop(io, &mut self.heard);
            let server = *server;
            self.inputs.extend(self.heard.drain(..).map(|event| Input::Server { server, event }));
        }
        let now_us = io.now_us();
        self.carry_on(io, now_us, events);
    }

    fn step(&mut self, io: &mut Io, now_us: u64, input: Input, events: &mut Vec<StorageEvent>) {
        self.inputs.push_back(input);
        self.carry_on(io, now_us, events);
    }

    /// Until nothing more follows from anything.
    fn carry_on(&mut self, io: &mut Io, now_us: u64, events: &mut Vec<StorageEvent>) {
        while let Some(input) = self.inputs.pop_front() {
            self.shards.step(Time(now_us), input, &mut self.effects);
            for effect in std::mem::take(&mut self.effects) {
                self.carry_out(io, now_us, effect, events);
            }
        }
    }

    fn carry_out(&mut self, io: &mut Io, now_us: u64, effect: Effect, events: &mut Vec<StorageEvent>) {
        let server = match effect {
            Effect::Report(event) => {
                self.log(&event);
                return events.push(event);
            }
            Effect::Warn(text) => return tracing::warn!(shim = self.settings.shim, "{text}"),
            Effect::Ask { server } => return self.scout.ask(io, now_us, server),
            Effect::Connect { server } => return self.connect(server),
            Effect::Leave { server } => {
                if let Some(mut redis) = self.servers.remove(&server) {
                    redis.stop(io, &mut self.heard);
                }
                server
            }
            Effect::Store { server, store } => {
                if let Some(redis) = self.servers.get_mut(&server) {
                    redis.store(io, now_us, store, &mut self.heard);
                }
                server
            }
            Effect::Wish { server, ticket, wish } => {
                if let Some(redis) = self.servers.get_mut(&server) {
                    redis.wish(io, now_us, (ticket, wish), &mut self.heard);
                }
                server
            }
            Effect::Release { server, number, clean } => {
                if let Some(redis) = self.servers.get_mut(&server) {
                    redis.release(io, now_us, (number, clean), &mut self.heard);
                }
                server
            }
        };
        self.inputs.extend(self.heard.drain(..).map(|event| Input::Server { server, event }));
    }

    fn connect(&mut self, server: SocketAddr) {
        self.seeds += 1;
        let settings = RedisSettings {
            address: Address::Tcp(server),
            seed: self.settings.seed.wrapping_add(self.seeds),
            ..self.settings.clone()
        };
        self.servers.insert(server, Redis::new(settings));
    }

    fn log(&mut self, event: &StorageEvent) {
        let shim = &self.settings.shim;
        match event {
            StorageEvent::Up { incarnation, .. } => {
                self.ups += 1;
                tracing::info!(shim, incarnation, "the shim's part of the Redis Cluster is up");
            }
            StorageEvent::Down { reason } => tracing::warn!(shim, reason, "the Redis Cluster is down"),
            _ => {}
        }
    }
}

/// What a person has to do about an error; none if it may pass.
fn remedy(error: &str, logging_in: bool) -> Option<&'static str> {
    Some(match error.split(' ').next().unwrap_or_default() {
        "LOADING" | "BUSY" => return None,
        "NOAUTH" => {
            "the URL in `storage` has to hold a password: redis-cluster://USER:PASSWORD@HOST:PORT,..."
        }
        "NOPERM" => "give the storage user +cluster|nodes",
        _ if logging_in => {
            "check user and password in `storage` (redis-cluster://USER:PASSWORD@HOST:PORT,...)"
        }
        _ if error.contains("cluster support disabled") => {
            "redis-cluster:// is for servers in cluster mode; for a plain server write redis://HOST:PORT, one per shim"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::remedy;

    #[test]
    fn an_error_says_what_to_do() {
        let check = |logging_in, error, expected: &str| {
            let found = remedy(error, logging_in);
            assert!(found.is_some_and(|text| text.contains(expected)), "{found:?}");
        };
        check(false, "ERR This instance has cluster support disabled", "write redis://");
        check(true, "WRONGPASS invalid", "check user and password");
        check(false, "NOAUTH Authentication required.", "has to hold a password");
        check(false, "NOPERM this user", "+cluster|nodes");
        assert_eq!(remedy("LOADING dataset", false), None);
    }
}

//! Storage on the servers of a Redis Cluster: carries out what `crate::shards` wants. Not which server has what.

use core::net::SocketAddr;
use std::collections::{BTreeMap, VecDeque};

use wire::resp::Command;

use super::discovery::{Discovery, Found};
use super::network::{Backend, ConnectionId, Endpoint, Network, StorageInput};
use super::redis::{Redis, RedisSettings};
use super::step::StorageStep;
use super::{NoteLevel, StorageEvent};
use crate::shards::{Effect, Input, Shards, ShardsConfig};
use crate::time::Time;

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
    discovery: Discovery,
    /// What `shards` has not been told yet.
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
    heard: Vec<StorageEvent>,
    seeds: u64,
    ups: u64,
}

impl Backend for RedisCluster {
    fn step(
        &mut self,
        now: Time,
        input: StorageInput,
        network: &mut dyn Network,
        events: &mut Vec<StorageEvent>,
    ) {
        let step = &mut StorageStep { now, network, events };
        match input {
            StorageInput::Store(store) => self.inputs.push_back(Input::Store(store)),
            StorageInput::Control { ticket, control } => {
                self.inputs.push_back(Input::Control { ticket, control })
            }
            StorageInput::Release { number, clean } => {
                self.inputs.push_back(Input::Release { number, clean })
            }
            StorageInput::Connected(connection)
            | StorageInput::Data { connection, .. }
            | StorageInput::Closed { connection, .. } => {
                self.step_owner(step, connection, input);
            }
            StorageInput::Tick => {
                self.step_servers(step, &input);
                self.inputs.push_back(Input::Tick);
            }
            StorageInput::Vacant { .. }
            | StorageInput::Record { .. }
            | StorageInput::Migrate { .. }
            | StorageInput::Prepare { .. }
            | StorageInput::EndMigration => {}
            StorageInput::HandOver => step.events.push(StorageEvent::Left),
            StorageInput::Leave => {
                self.step_servers(step, &input);
                // They are told nothing more.
                self.servers.clear();
            }
        }
        self.carry_on(step);
    }

    fn owns(&self, id: ConnectionId) -> bool {
        self.discovery.owns(id) || self.servers.values().any(|redis| redis.owns(id))
    }

    fn is_up(&self) -> bool {
        self.shards.is_up()
    }

    fn refusal(&self) -> Option<&str> {
        if self.shards.is_up() {
            return None;
        }
        self.discovery.refusal().or_else(|| self.servers.values().find_map(Redis::refusal))
    }

    fn is_replaced(&self) -> bool {
        self.servers.values().any(Redis::is_replaced)
    }

    fn reconnects(&self) -> u64 {
        self.ups.saturating_sub(1)
    }

    fn pending_count(&self) -> usize {
        self.servers.values().map(Redis::pending_count).sum::<usize>() + self.shards.waiting_count()
    }
}

impl RedisCluster {
    pub fn new(settings: RedisClusterSettings) -> RedisCluster {
        let RedisClusterSettings { shards, server } = settings;
        RedisCluster {
            discovery: Discovery::new(
                server.login(),
                Command::from_args(&["CLUSTER", "NODES"]),
                remedy,
                server.timeout,
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

    fn step_servers(&mut self, step: &mut StorageStep<'_>, input: &StorageInput) {
        let servers: Vec<SocketAddr> = self.servers.keys().copied().collect();
        for server in servers {
            self.step_server(step, server, input.clone());
        }
    }

    fn step_server(&mut self, step: &mut StorageStep<'_>, server: SocketAddr, input: StorageInput) {
        if let Some(redis) = self.servers.get_mut(&server) {
            redis.step(step.now, input, step.network, &mut self.heard);
        }
        let heard = self.heard.drain(..);
        self.inputs.extend(heard.map(|event| Input::Server { server, event }));
    }

    /// What is about a connection goes to whose it is.
    fn step_owner(&mut self, step: &mut StorageStep<'_>, connection: ConnectionId, input: StorageInput) {
        if self.discovery.owns(connection) {
            self.discovery.step(input, step.network, step.events);
            if let Some(Found { server, value, .. }) = self.discovery.take_found() {
                let text = value.bytes().cloned().unwrap_or_default();
                self.inputs.push_back(Input::Seen { server, text });
            }
            return;
        }
        let owner = self.servers.iter().find(|(_, redis)| redis.owns(connection)).map(|(server, _)| *server);
        if let Some(server) = owner {
            self.step_server(step, server, input);
        }
    }

    /// Until nothing more follows from anything.
    fn carry_on(&mut self, step: &mut StorageStep<'_>) {
        while let Some(input) = self.inputs.pop_front() {
            self.shards.step(step.now, input, &mut self.effects);
            for effect in std::mem::take(&mut self.effects) {
                self.carry_out(step, effect);
            }
        }
    }

    fn carry_out(&mut self, step: &mut StorageStep<'_>, effect: Effect) {
        let (server, input) = match effect {
            Effect::Report(event) => {
                self.note(step, &event);
                return step.events.push(event);
            }
            Effect::Warn(text) => {
                return step.events.push(StorageEvent::Note { level: NoteLevel::Warning, text });
            }
            Effect::Ask { server } => return self.discovery.ask(step.network, step.now, server),
            Effect::Connect { server } => return self.connect(server),
            Effect::Leave { server } => {
                self.step_server(step, server, StorageInput::Leave);
                self.servers.remove(&server);
                return;
            }
            Effect::Store { server, store } => (server, StorageInput::Store(store)),
            Effect::Control { server, ticket, control } => {
                (server, StorageInput::Control { ticket, control })
            }
            Effect::Release { server, number, clean } => (server, StorageInput::Release { number, clean }),
        };
        self.step_server(step, server, input);
    }

    fn connect(&mut self, server: SocketAddr) {
        self.seeds += 1;
        let settings = self.settings.clone();
        let settings = if self.ups == 0 { settings } else { settings.after_another() };
        let settings = RedisSettings {
            endpoint: Endpoint::Discovered(server),
            address: server.to_string(),
            seed: self.settings.seed.wrapping_add(self.seeds),
            ..settings
        };
        self.servers.insert(server, Redis::new(settings));
    }

    fn note(&mut self, step: &mut StorageStep<'_>, event: &StorageEvent) {
        let (level, text) = match event {
            StorageEvent::Up { incarnation, .. } => {
                self.ups += 1;
                let text = format!("the shim's part of the Redis Cluster is up (incarnation {incarnation})");
                (NoteLevel::Info, text)
            }
            StorageEvent::Down { reason, .. } => {
                (NoteLevel::Warning, format!("the Redis Cluster is down: {reason}"))
            }
            _ => return,
        };
        step.events.push(StorageEvent::Note { level, text });
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

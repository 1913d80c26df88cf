//! The heartbeat of a process: posts its members' statuses to a controller and hands new maps to them. Nothing here
//! stands between a client and its data: without a controller everything goes on with the last map.

mod mac;
mod message;

pub use mac::{HeartbeatKey, MAC_HEADER};
pub use message::{Heartbeat, HeartbeatReply, PATH};

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use wire::SHARE_WHOLE;

use crate::config::Config;
use crate::instance::{Instance, MapCell};
use crate::status::StatusCell;
use crate::stop::Stop;

/// Time between two heartbeats: four of them fit into a member's default lease.
pub const PERIOD: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(1);
/// A reply lists the nodes that do not own their whole partition, each with at most 64 bytes of id.
const REPLY_BYTES_MAX: u64 = 8 << 20;

/// What the agent keeps of one member.
#[derive(Clone, Debug)]
pub struct Pulse {
    pub status: StatusCell,
    pub maps: MapCell,
}

impl From<&Instance> for Pulse {
    fn from(instance: &Instance) -> Pulse {
        Pulse { status: instance.status.clone(), maps: instance.maps.clone() }
    }
}

/// Starts the agent's thread; it ends with `stop`.
pub fn start(config: &Arc<Config>, members: Vec<Pulse>, stop: &Stop) -> io::Result<JoinHandle<()>> {
    let mut agent = Agent::new(Arc::clone(config), members);
    let stop = stop.clone();
    std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
        loop {
            agent.beat();
            if stop.wait_timeout(PERIOD) {
                return;
            }
        }
    })
}

struct Agent {
    config: Arc<Config>,
    members: Vec<Pulse>,
    key: HeartbeatKey,
    http: ureq::Agent,
    /// Names this process' life, so that the controller can tell a replay from a restart.
    agent: u64,
    sequence: u64,
    /// The controller that answered last.
    controller: usize,
    reachable: bool,
    /// Of the newest map handed to the members.
    epoch: u32,
}

impl Agent {
    fn new(config: Arc<Config>, members: Vec<Pulse>) -> Agent {
        let http = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .build();
        Agent {
            key: HeartbeatKey::derive(config.secret()),
            http: ureq::Agent::new_with_config(http),
            agent: rand::random(),
            sequence: 0,
            controller: 0,
            reachable: true,
            epoch: crate::config::EPOCH_FIRST,
            config,
            members,
        }
    }

    /// One heartbeat to the controller that answered last, or else to the others in turn.
    fn beat(&mut self) {
        // A member that hangs must look lost, whatever this thread can say.
        let fresh = self.members.iter().filter(|member| member.status.is_fresh());
        let members: Vec<_> = fresh.map(|member| member.status.get()).collect();
        let mut problem = String::new();
        let count = self.config.controllers.len();
        for attempt in 0..count {
            let controller = (self.controller + attempt) % count;
            self.sequence += 1;
            let heartbeat =
                Heartbeat { agent: self.agent, sequence: self.sequence, members: members.clone() };
            match self.post(controller, &heartbeat) {
                Ok(reply) => {
                    if !self.reachable {
                        tracing::info!(
                            controller = self.config.controllers[controller].id,
                            "controller is back"
                        );
                    }
                    (self.controller, self.reachable) = (controller, true);
                    self.hand_over(&reply);
                    return;
                }
                Err(error) => problem = error,
            }
        }
        if std::mem::replace(&mut self.reachable, false) {
            tracing::warn!(problem, "no controller answers; going on with map {}", self.epoch);
        }
    }

    fn post(&self, controller: usize, heartbeat: &Heartbeat) -> Result<HeartbeatReply, String> {
        let address = self.config.controllers[controller].listen;
        let body = serde_json::to_vec(heartbeat).map_err(|error| error.to_string())?;
        let mac = self.key.of_request(&body);
        let request = self.http.post(format!("http://{address}{PATH}")).header(MAC_HEADER, &mac);
        let mut reply = request.send(&body[..]).map_err(|error| format!("{address}: {error}"))?;
        let reply_mac =
            reply.headers().get(MAC_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let status = reply.status();
        let limited = reply.body_mut().with_config().limit(REPLY_BYTES_MAX);
        let body = limited.read_to_vec().map_err(|error| format!("{address}: {error}"))?;
        if !status.is_success() {
            return Err(format!("{address}: {status}: {}", String::from_utf8_lossy(&body).trim()));
        }
        if !reply_mac.is_some_and(|reply_mac| self.key.is_reply(&mac, &body, &reply_mac)) {
            return Err(format!("{address}: the reply is not authenticated with this cluster's secret"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("{address}: {error}"))
    }

    fn hand_over(&mut self, reply: &HeartbeatReply) {
        if reply.epoch <= self.epoch {
            return;
        }
        let share = |node| reply.shares.get(&self.config.node(node).id).copied().unwrap_or(SHARE_WHOLE);
        let map = Arc::new(self.config.map_with(reply.epoch, share));
        tracing::info!(epoch = map.epoch, shares = ?reply.shares, "new cluster map");
        self.epoch = map.epoch;
        for member in &self.members {
            member.maps.publish(&map);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Agent, HeartbeatReply, Pulse};
    use crate::config::{Config, LayerConfig, NodeConfig, RouterConfig, Secret, ShimConfig, StorageConfig};
    use crate::instance::MapCell;
    use crate::status::{MemberStatus, RouterStatus, StatusCell};
    use std::sync::Arc;
    use wire::Partition;

    #[test]
    fn only_a_newer_epoch_reaches_the_members() {
        let address = || "127.0.0.1:0".parse().unwrap();
        let mut config = Config::new("t", Secret([1; 16]));
        config.layers.push(LayerConfig { name: "spine".to_owned(), partition: Partition::Hash });
        config.nodes.push(NodeConfig::new("n0", "spine", None, address()));
        config.nodes.push(NodeConfig::new("n1", "spine", None, address()));
        config.shims.push(ShimConfig::new("s", "r", address(), StorageConfig::Embedded));
        config.routers.push(RouterConfig::new("x", address()));
        let maps = MapCell::default();
        let status = StatusCell::new(MemberStatus::Router(RouterStatus::default()));
        let mut agent = Agent::new(Arc::new(config), vec![Pulse { status, maps: maps.clone() }]);

        agent.hand_over(&HeartbeatReply { epoch: 1, ..HeartbeatReply::default() });
        assert_eq!(maps.newer_than(0), None);
        let shares = [("n1".to_owned(), 250), ("stranger".to_owned(), 0)].into();
        agent.hand_over(&HeartbeatReply { epoch: 4, shares });
        agent.hand_over(&HeartbeatReply { epoch: 3, ..HeartbeatReply::default() });
        let map = maps.newer_than(1).unwrap();
        let shares: Vec<_> = map.layers[0].nodes.iter().map(|node| node.share).collect();
        assert_eq!((map.epoch, shares), (4, vec![1000, 250]));
    }
}

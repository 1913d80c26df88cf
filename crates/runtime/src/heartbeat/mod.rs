//! The heartbeat of a process: posts its members' statuses to every controller and hands new maps to them. Nothing here
//! stands between a client and its data: without a controller everything goes on with the last map.

mod agreement_json;
mod follower;
mod json;
mod mac;
mod message;
mod order;
mod runner;
mod shim_part;

pub use follower::Pulse;
pub use json::to_json;
pub use mac::{HeartbeatKey, LENGTH_MAC_HEADER, MAC_HEADER};
pub(crate) use mac::{digits, hexadecimal};
pub use message::{Heartbeat, HeartbeatReply, PATH};
pub use order::{MemberOrder, OrderKind, OrderOutcome, OrderReport};
pub use shim_part::ShimPartText;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::reload::Reloader;
use crate::stop::Stop;
use crate::threads;
use crate::tls::{Certificates, HttpClient};
use crate::upgrade;
use config::Config;
use follower::MapFollower;
use runner::Runner;

/// Time between two heartbeats: four of them fit into a member's default lease.
pub const PERIOD: Duration = Duration::from_millis(500);
/// While somebody waits for the outcome of an order, or requests for the next map.
const HURRIED_PERIOD: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(1);
/// A reply lists members, each with at most a few hundred bytes.
const REPLY_BYTES_MAX: u64 = 32 << 20;

/// Starts an agent for each controller, so that one that hangs holds up no other; they end with `stop`, after telling
/// the controllers that the members leave.
///
/// # Errors
/// The system refuses a thread.
pub fn start(
    config: &Arc<Config>,
    certificates: &Certificates,
    members: Vec<Pulse>,
    reloader: Option<&Arc<Reloader>>,
    stop: &Stop,
) -> io::Result<Vec<JoinHandle<()>>> {
    let runner = |members: &Vec<Pulse>| Runner::new(members.clone(), reloader.cloned());
    let runners: Vec<Runner> = config.controllers.iter().map(|_| runner(&members)).collect();
    let follower = Arc::new(Mutex::new(MapFollower::new(Arc::clone(config), members)));
    let agents = runners.into_iter().enumerate();
    agents
        .map(|(controller, runner)| {
            let mut agent = HeartbeatAgent {
                follower: Arc::clone(&follower),
                controller,
                url: config.http_url(config.controllers[controller].listen, PATH),
                key: HeartbeatKey::derive(config.secret()),
                http: HttpClient::new(TIMEOUT, certificates.http_asker()),
                agent: rand::random(),
                sequence: 0,
                runner,
            };
            let stop = stop.clone();
            let name = format!("heartbeat-{controller}");
            threads::spawn(&name, move || {
                loop {
                    agent.beat();
                    let hurries = agent.runner.hurries() || agent.follower().hurries();
                    let pause = if hurries { HURRIED_PERIOD } else { PERIOD };
                    if stop.wait_timeout(pause) {
                        return agent.leave();
                    }
                }
            })
        })
        .collect()
}

/// Talks to one controller.
struct HeartbeatAgent {
    follower: Arc<Mutex<MapFollower>>,
    controller: usize,
    url: String,
    key: HeartbeatKey,
    http: HttpClient,
    /// Names this agent's life, so that the controller can tell a replay from a restart.
    agent: u64,
    sequence: u64,
    runner: Runner,
}

impl HeartbeatAgent {
    fn follower(&self) -> MutexGuard<'_, MapFollower> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&mut self) {
        self.sequence += 1;
        let heartbeat = self.follower().heartbeat(self.agent, self.sequence);
        let heartbeat = Heartbeat { reports: self.runner.reports(), ..heartbeat };
        let mut answer = self.post(&heartbeat);
        if let Ok(reply) = &mut answer {
            self.runner.delivered(&heartbeat.reports);
            self.runner.take(std::mem::take(&mut reply.orders));
        }
        self.follower().heard(self.controller, answer);
    }

    /// A controller that does not hear of it notices by itself, a lease later. Members with which another process goes on stay.
    fn leave(&mut self) {
        if upgrade::is_succeeded() {
            return;
        }
        self.sequence += 1;
        let farewell = self.follower().farewell(self.agent, self.sequence);
        if !farewell.leaving.is_empty() && self.follower().answers(self.controller) {
            drop(self.post(&farewell));
        }
    }

    fn post(&self, heartbeat: &Heartbeat) -> Result<HeartbeatReply, String> {
        let url = &self.url;
        let body = to_json(heartbeat);
        let mac = self.key.of_request(&body);
        let length_mac = self.key.of_length(body.len());
        let request = self.http.agent().post(url);
        let request = request.header(MAC_HEADER, &mac).header(LENGTH_MAC_HEADER, &length_mac);
        let mut reply = request.send(&body[..]).map_err(|error| format!("{url}: {error}"))?;
        let reply_mac =
            reply.headers().get(MAC_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let status = reply.status();
        let limited = reply.body_mut().with_config().limit(REPLY_BYTES_MAX);
        let body = limited.read_to_vec().map_err(|error| format!("{url}: {error}"))?;
        if !status.is_success() {
            return Err(format!("{url}: {status}: {}", String::from_utf8_lossy(&body).trim()));
        }
        if !reply_mac.is_some_and(|reply_mac| self.key.is_reply(&mac, &body, &reply_mac)) {
            return Err(format!("{url}: the reply is not authenticated with this cluster's secret"));
        }
        serde_json::from_slice(&body).map_err(|error| format!("{url}: {error}"))
    }
}

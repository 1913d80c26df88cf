//! Runs the node machine over the network. Never a rule that the simulator cannot reach.

mod driver;
mod status;

use std::sync::Arc;
use std::time::Duration;

use protocol::coherence::lease::LeaseTerms;
use protocol::heat::HeatConfig;
use protocol::node::{Admission, Node, NodeConfig};
use protocol::placement::{Placement, Secret};
use runtime::config::Config;
use runtime::instance::{Instance, MapCell, StartError};
use runtime::peers::{Identity, Peers};
use runtime::reactor::{self, Io};
use runtime::status::{MemberStatus, NodeStatus, StatusCell};
use runtime::stop::Stop;
use wire::{NodeId, Peer, ShimId};

use driver::Driver;

/// Replies larger than this pass by uncached, whatever the node could hold.
const VALUE_BYTES_MAX: u64 = 1 << 20;

/// Starts the node `id` of the configuration on a thread of its own; it accepts when this returns.
///
/// # Errors
/// An unknown id, an address that cannot be listened on, or a thread that cannot be had.
pub fn spawn(config: &Arc<Config>, id: &str, stop: &Stop) -> Result<Instance, StartError> {
    let unknown = || StartError::UnknownId { role: "node", id: id.to_owned() };
    let node = config.node_id(id).ok_or_else(unknown)?;
    let system = |what| move |error| StartError::System { id: id.to_owned(), what, error };
    let member = config.node(node).clone();
    let mut io = Io::new().map_err(system("cannot wait for sockets"))?;
    let listener = io
        .listen_tls(&member.listen, config.certificates().peers_acceptor())
        .map_err(|error| StartError::Listen { id: id.to_owned(), address: member.listen.clone(), error })?;
    let secret = *config.secret();
    let refused = |reason: String| StartError::Refused { id: id.to_owned(), reason };
    let placement =
        Placement::new(Secret(secret.0), config.map()).map_err(|error| refused(error.to_string()))?;
    let placement = Arc::new(placement);
    let mut peers = Peers::new(Identity { peer: Peer::Node(node), secret });
    peers.accept_on(listener);
    peers.secure(config.certificates().peers_dialer());
    for (index, shim) in config.shims.iter().enumerate() {
        peers.dial(&mut io, Peer::Shim(ShimId(index as u16)), shim.listen.clone());
    }
    let status =
        StatusCell::new(MemberStatus::Node(NodeStatus { id: id.to_owned(), ..NodeStatus::default() }));
    let maps = MapCell::default();
    let waker = io.waker();
    maps.register(move || waker.wake());
    let addresses = vec![io.local_address(listener)];
    let machine = Node::new(machine_config(config, node, &placement), Arc::clone(&placement));
    let mut driver =
        Driver::new(Arc::clone(config), node, machine, peers, placement, status.clone(), maps.clone());
    let (name, stop) = (id.to_owned(), stop.clone());
    let run = move || {
        if let Err(error) = reactor::run(io, &mut driver, &stop) {
            tracing::error!(node = name, %error, "the node has ended");
        }
    };
    let thread = std::thread::Builder::new()
        .name(id.to_owned())
        .spawn(run)
        .map_err(system("cannot start a thread"))?;
    Ok(Instance { id: id.to_owned(), addresses, status, maps, thread })
}

fn machine_config(config: &Config, node: NodeId, placement: &Placement) -> NodeConfig {
    let member = config.node(node);
    let heat = &config.heat;
    NodeConfig {
        id: node,
        layer: placement.layer_of(node),
        objects_max: member.objects_max,
        bytes_max: member.bytes_max.0,
        value_bytes_max: VALUE_BYTES_MAX.min(member.bytes_max.0 / 4) as usize,
        capacity: member.capacity_thousandths().max(1),
        lease: LeaseTerms { duration: config.cluster.lease(), guard: config.cluster.lease_guard() },
        heat: HeatConfig {
            rows: heat.rows,
            counters: heat.counters,
            filter_rows: heat.filter_rows,
            filter_bits: heat.filter_bits,
            window: heat.window(),
        },
        admission: Admission {
            heat_min: heat.threshold,
            hysteresis: ((heat.hysteresis - 1.0).max(0.0) * 1000.0) as u32,
            hold_off: heat.hold_off().max(Duration::from_millis(1)),
        },
        views_max: config.limits.views_max,
        forwarded_max: config.limits.node_queue_max,
        seed: rand::random(),
    }
}

//! Runs the node machine over the network. Never a rule that the simulator cannot reach.

mod driver;
mod status;

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use protocol::node::{Node, NodeConfig};
use protocol::placement::{Placement, Secret};
use runtime::instance::{Instance, MapCell, StartError};
use runtime::orders::Orders;
use runtime::peers::{MemberIdentity, Peers};
use runtime::reactor::{self, Io};
use runtime::spans::SpanQueue;
use runtime::status::{MemberStatus, NodeStatus, StatusCell};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::{NodeId, Peer, ShimId};

use driver::NodeDriver;

/// Starts the node `id` of the configuration on a thread of its own; it accepts when this returns.
///
/// # Errors
/// An unknown id, an address that cannot be listened on, or a thread that cannot be had.
pub fn spawn(
    config: &Arc<Config>,
    certificates: &Certificates,
    id: &str,
    stop: &Stop,
) -> Result<Instance, StartError> {
    let unknown = || StartError::UnknownId { role: "node", id: id.to_owned() };
    let node = config.node_id(id).ok_or_else(unknown)?;
    let system = |what| move |error| StartError::System { id: id.to_owned(), what, error };
    let member = config.node(node).clone();
    let mut io = Io::new().map_err(system("cannot wait for sockets"))?;
    let listener = io
        .listen_tls(&member.listen, certificates.peers_acceptor())
        .map_err(|error| StartError::Listen { id: id.to_owned(), address: member.listen.clone(), error })?;
    let secret = *config.secret();
    let refused = |reason: String| StartError::Refused { id: id.to_owned(), reason };
    let placement =
        Placement::new(Secret(secret.0), config.map()).map_err(|error| refused(error.to_string()))?;
    let placement = Arc::new(placement);
    let mut peers = Peers::new(
        MemberIdentity { peer: Peer::Node(node), secret },
        Duration::from_millis(config.limits.handshake_ms_max),
    );
    peers.accept_on(listener);
    peers.secure(certificates.peers_dialer());
    for (index, shim) in config.shims.iter().enumerate() {
        peers.dial(&mut io, Peer::Shim(ShimId(index as u16)), shim.listen.clone());
    }
    let status =
        StatusCell::new(MemberStatus::Node(NodeStatus { id: id.to_owned(), ..NodeStatus::default() }));
    let maps = MapCell::default();
    let waker = io.waker();
    maps.register(move || waker.wake());
    let orders = Orders::default();
    let waker = io.waker();
    orders.register(move || waker.wake());
    let addresses = vec![io.local_address(listener)];
    let machine = Node::new(machine_config(config, node, &placement), Arc::clone(&placement));
    let cells = (status.clone(), maps.clone(), orders.clone());
    let mut driver = NodeDriver::new(Arc::clone(config), node, machine, peers, placement, cells);
    let (name, stop) = (id.to_owned(), stop.clone());
    let run = move || {
        let _member = tracing::error_span!("member", id = name, role = "node").entered();
        if let Err(error) = reactor::run(io, &mut driver, &stop) {
            tracing::error!(%error, "the node has ended");
        }
    };
    let thread = std::thread::Builder::new()
        .name(id.to_owned())
        .spawn(run)
        .map_err(system("cannot start a thread"))?;
    Ok(Instance { id: id.to_owned(), addresses, status, maps, orders, spans: SpanQueue::default(), thread })
}

fn machine_config(config: &Config, node: NodeId, placement: &Placement) -> NodeConfig {
    NodeConfig {
        id: node,
        layer: placement.layer_of(node),
        capacity: config.node(node).capacity_thousandths().max(1),
        lease: config.cluster.lease_terms(),
        seed: rand::random(),
        settings: config.node_settings(node),
    }
}

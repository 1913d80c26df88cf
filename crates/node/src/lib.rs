//! Runs the node machine over the network. Never a rule that the simulator cannot reach.

mod driver;
mod status;

use std::sync::Arc;

use config::Config;
use runtime::instance::{Instance, StartError};
use runtime::member::{NewMember, Role};
use runtime::status::{MemberStatus, NodeStatus};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::{Peer, ShimId};

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
    let node = config.node_id(id).ok_or_else(|| StartError::unknown(NodeDriver::NAME, id))?;
    let mut member = NewMember::new(config, certificates, id)?;
    let listener = member.listen(&config.node(node).listen, certificates.peers_acceptor())?;
    let placement = member.placement()?;
    let mut peers = member.peers(Peer::Node(node), listener);
    for shim in (0..config.shims.len()).map(|index| ShimId(index as u16)) {
        peers.dial_shim(&mut member.io, shim, config.shim_addresses(shim));
    }
    let driver = NodeDriver::new(Arc::clone(config), node, peers, placement);
    let span = tracing::error_span!(parent: None, "member", id, role = NodeDriver::NAME);
    let status = NodeStatus { id: id.to_owned(), ..NodeStatus::default() };
    member.run(span, MemberStatus::Node(status), driver, stop)
}

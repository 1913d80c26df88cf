//! Starts a router of the configuration on its own thread. Not the thread's work.

use std::sync::Arc;

use config::{Config, FrontProtocol};
use runtime::instance::{Instance, StartError};
use runtime::member::{NewMember, Role};
use runtime::status::{MemberStatus, RouterStatus};
use runtime::stop::Stop;
use runtime::tls::Certificates;

use crate::driver::RouterDriver;
use crate::engine::Engine;
use crate::users::users;

/// Binds the member's listeners, then runs it on its own thread until `stop` is set.
///
/// # Errors
/// An id that is no router's, an address that cannot be bound, or a system without threads or sockets.
pub fn spawn(
    config: &Arc<Config>,
    certificates: &Certificates,
    id: &str,
    stop: &Stop,
) -> Result<Instance, StartError> {
    let router = config.router_id(id).ok_or_else(|| StartError::unknown(RouterDriver::NAME, id))?;
    let mut member = NewMember::new(config, certificates, id)?;
    member.io.set_handshakes_max(config.limits.handshakes_max);
    let mut listeners = Vec::new();
    for listen in config.router(router).listens() {
        let acceptor = certificates.clients().filter(|_| listen.tls);
        listeners.push(member.listen(&listen.address, acceptor)?);
    }
    let protocol = config.router(router).protocol;
    let refused = |reason| StartError::refused(id, reason);
    let users = users(config).map_err(refused)?;
    let streams = protocol == FrontProtocol::Redis;
    let mut engine = Engine::new(config, router, users, streams).map_err(refused)?;
    engine.secure(certificates);
    engine.dial(&mut member.io, config);
    let driver = RouterDriver::new(&member, protocol, engine, listeners);
    let span = tracing::error_span!(parent: None, "member", id, role = RouterDriver::NAME);
    let status = RouterStatus { id: id.to_owned(), ..RouterStatus::default() };
    member.run(span, MemberStatus::Router(status), driver, stop)
}

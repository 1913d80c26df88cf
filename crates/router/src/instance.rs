//! Starts a router of the configuration on its threads. Not their work.

use std::sync::Arc;

use config::{Config, FrontProtocol};
use runtime::instance::{Instance, StartError};
use runtime::member::{NewMember, Role, run_threads};
use runtime::reactor::Dealer;
use runtime::status::{MemberStatus, RouterStatus};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use runtime::upgrade;

use crate::driver::RouterDriver;
use crate::engine::Engine;
use crate::siblings::Siblings;
use crate::users::users;

/// Binds the member's listeners, then runs it on threads of its own until `stop` is set. Each thread is a router to the other
/// members; clients see one.
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
    let mut first = NewMember::new(config, certificates, id)?;
    let mut listeners = Vec::new();
    for listen in config.router(router).listens() {
        let acceptor = certificates.clients().filter(|_| listen.tls);
        listeners.push(first.listen(&listen.address, acceptor)?);
    }
    let mut members = vec![first];
    for _ in 1..config.router(router).threads() {
        members.push(members[0].another()?);
    }
    Dealer::join(members.iter_mut().map(|member| &mut member.io));
    let siblings = Siblings::new(members.iter().map(NewMember::waker));
    let users = users(config).map_err(|reason| StartError::refused(id, reason))?;
    let mut threads = Vec::with_capacity(members.len());
    for (thread, (mut member, siblings)) in members.into_iter().zip(siblings).enumerate() {
        member.io.set_handshakes_max(config.limits.handshakes_max);
        let own = config::router_thread(router, thread as u16, upgrade::has_other_numbers());
        let protocol = config.router(router).protocol;
        let streams = protocol == FrontProtocol::Redis;
        let engine = Engine::new(config, own, users.clone(), siblings, streams);
        let mut engine = engine.map_err(|reason| StartError::refused(id, reason))?;
        engine.secure(certificates);
        engine.dial(&mut member.io, config);
        let driver = RouterDriver::new(&member, protocol, engine, listeners.clone());
        threads.push((member, driver));
    }
    let span = tracing::error_span!(parent: None, "member", id, role = RouterDriver::NAME);
    let status = RouterStatus { id: id.to_owned(), ..RouterStatus::default() };
    run_threads(threads, &span, &MemberStatus::Router(status), stop)
}

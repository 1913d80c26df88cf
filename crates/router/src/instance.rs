//! Starts a router of the configuration on its own thread. Not the thread's work.

use std::io;
use std::sync::Arc;

use config::{Config, FrontProtocol};
use runtime::instance::{Instance, MapCell, StartError};
use runtime::orders::Orders;
use runtime::reactor::{self, Io};
use runtime::spans::SpanQueue;
use runtime::status::{MemberStatus, RouterStatus, StatusCell};
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
    let unknown = || StartError::UnknownId { role: "router", id: id.to_owned() };
    let router_id = config.router_id(id).ok_or_else(unknown)?;
    let system = |what: &'static str| {
        let id = id.to_owned();
        move |error: io::Error| StartError::System { id, what, error }
    };
    let mut io = Io::new().map_err(system("cannot wait for sockets"))?;
    let mut listeners = Vec::new();
    io.set_handshakes_max(config.limits.handshakes_max);
    let protocol = config.router(router_id).protocol;
    for listen in config.router(router_id).listens() {
        let address = listen.address;
        let listener = io.listen_tls(&address, certificates.clients().filter(|_| listen.tls));
        listeners.push(listener.map_err(|error| StartError::Listen { id: id.to_owned(), address, error })?);
    }
    let addresses = listeners.iter().map(|listener| io.local_address(*listener)).collect();
    let refused = |reason| StartError::Refused { id: id.to_owned(), reason };
    let users = users(config).map_err(refused)?;
    let streams = protocol == FrontProtocol::Redis;
    let mut engine = Engine::new(config, router_id, users, streams).map_err(refused)?;
    engine.secure(certificates);
    engine.dial(&mut io, config);
    let status =
        StatusCell::new(MemberStatus::Router(RouterStatus { id: id.to_owned(), ..RouterStatus::default() }));
    let maps = MapCell::default();
    let waker = io.waker();
    maps.register(move || waker.wake());
    let orders = Orders::default();
    let waker = io.waker();
    orders.register(move || waker.wake());
    let spans = SpanQueue::default();
    let mut driver = RouterDriver::new(
        (id, protocol),
        config,
        engine,
        listeners,
        (status.clone(), maps.clone(), orders.clone(), spans.clone()),
    );
    let stop = stop.clone();
    let name = id.to_owned();
    let thread = std::thread::Builder::new().name(id.to_owned()).spawn(move || {
        let _member = tracing::error_span!("member", id = name, role = "router").entered();
        if let Err(error) = reactor::run(io, &mut driver, &stop) {
            tracing::error!(%error, "the router has ended");
        }
    });
    let thread = thread.map_err(system("cannot start its thread"))?;
    Ok(Instance { id: id.to_owned(), addresses, status, maps, orders, spans, thread })
}

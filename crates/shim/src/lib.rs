//! The shim role: runs `protocol::shim` over peers and storage. Never a general storage engine.

mod driver;
mod status;
pub mod storage;
pub mod survey;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use config::Config;
use protocol::placement::{Placement, Secret};
use protocol::shim::{Bounded, Shim, ShimConfig};
use runtime::instance::{Instance, MapCell, StartError};
use runtime::orders::Orders;
use runtime::peers::{MemberIdentity, Peers};
use runtime::reactor::{self, Io};
use runtime::spans::SpanQueue;
use runtime::status::{MemberStatus, ShimStatus, StatusCell};
use runtime::stop::Stop;
use runtime::tls::Certificates;
use wire::{Peer, ShimId};

use driver::{Parts, ShimDriver};

/// How long a start waits for a word from storage. It goes on without one; storage may be slow to answer.
const FIRST_WORD_MAX: Duration = Duration::from_secs(3);

/// Starts the shim `id` of the configuration on a thread of its own; it accepts when this returns. Storage that
/// cannot be reached is no error: the shim goes on trying, and its clients are told.
///
/// # Errors
/// An unknown id, an address that cannot be listened on, a thread that cannot be had, or storage that refuses
/// the credentials or a permission without which nothing can be fenced (design, section 7).
pub fn spawn(
    config: &Arc<Config>,
    certificates: &Certificates,
    id: &str,
    stop: &Stop,
) -> Result<Instance, StartError> {
    let unknown = || StartError::UnknownId { role: "shim", id: id.to_owned() };
    let shim = config.shim_id(id).ok_or_else(unknown)?;
    let system = |what| move |error| StartError::System { id: id.to_owned(), what, error };
    let refused = |reason: String| StartError::Refused { id: id.to_owned(), reason };
    let address = config.shim(shim).listen.clone();
    let mut io = Io::new().map_err(system("cannot wait for sockets"))?;
    let listener = io.listen_tls(&address, certificates.peers_acceptor());
    let listener = listener.map_err(|error| StartError::Listen { id: id.to_owned(), address, error })?;
    let secret = *config.secret();
    let placement =
        Placement::new(Secret(secret.0), config.map()).map_err(|error| refused(error.to_string()))?;
    let placement = Arc::new(placement);
    let mut peers = Peers::new(
        MemberIdentity { peer: Peer::Shim(shim), secret },
        Duration::from_millis(config.limits.handshake_ms_max),
    );
    peers.accept_on(listener);
    let status =
        StatusCell::new(MemberStatus::Shim(ShimStatus { id: id.to_owned(), ..ShimStatus::default() }));
    let maps = MapCell::default();
    let waker = io.waker();
    maps.register(move || waker.wake());
    let orders = Orders::default();
    let waker = io.waker();
    orders.register(move || waker.wake());
    let addresses = vec![io.local_address(listener)];
    let own_stop = follower(stop);
    let (first_word, heard) = mpsc::sync_channel(1);
    let mut driver = ShimDriver::new(Parts {
        config: Arc::clone(config),
        id: shim,
        shim: Shim::new(machine_config(config, shim), Arc::clone(&placement)),
        storage: storage::open(config, certificates, shim),
        peers,
        placement,
        listener,
        status: status.clone(),
        maps: maps.clone(),
        orders: orders.clone(),
        stop: own_stop.clone(),
        first_word,
    });
    let name = id.to_owned();
    let run = move || {
        let _member = tracing::error_span!("member", id = name, role = "shim").entered();
        if let Err(error) = reactor::run(io, &mut driver, &own_stop) {
            tracing::error!(%error, "the shim has ended");
        }
    };
    let thread = std::thread::Builder::new()
        .name(id.to_owned())
        .spawn(run)
        .map_err(system("cannot start a thread"))?;
    let instance =
        Instance { id: id.to_owned(), addresses, status, maps, orders, spans: SpanQueue::default(), thread };
    match heard.recv_timeout(FIRST_WORD_MAX) {
        Ok(Err(reason)) => {
            instance.join();
            Err(refused(reason))
        }
        _ => Ok(instance),
    }
}

/// Stops with `stop`, and may stop alone.
fn follower(stop: &Stop) -> Stop {
    let own = Stop::new();
    let follower = own.clone();
    stop.register(move || follower.stop());
    own
}

fn machine_config(config: &Config, shim: ShimId) -> ShimConfig {
    ShimConfig {
        id: shim,
        lease: config.cluster.lease_terms(),
        blocking_max: config.limits.blocking_max,
        cache_expiring_hashes: config.cluster.cache_expiring_hashes,
        tracked_max: config.limits.tracking_keys_max,
        bounded: config.cluster.bounded().map(|(staleness, age)| Bounded { staleness, age }),
        seed: rand::random(),
        settings: config.shim_settings(shim),
        ..ShimConfig::default()
    }
}

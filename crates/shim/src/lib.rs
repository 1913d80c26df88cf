//! The shim role: runs `protocol::shim` over peers and storage. Never a general storage engine.

mod driver;
mod status;
pub mod storage;
pub mod survey;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use config::Config;
use protocol::shim::{Bounded, Shim, ShimConfig};
use runtime::instance::{Instance, StartError};
use runtime::member::{NewMember, Role};
use runtime::status::{MemberStatus, ShimStatus};
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
    let place = config.shim_place(id).ok_or_else(|| StartError::unknown(ShimDriver::NAME, id))?;
    let shim = place.shim;
    let listen = config.shim_addresses(shim).nth(place.place.into());
    let listen = listen.ok_or_else(|| StartError::unknown(ShimDriver::NAME, id))?;
    let mut member = NewMember::new(config, certificates, id)?;
    let listener = member.listen(listen, certificates.peers_acceptor())?;
    let placement = member.placement()?;
    let mut peers = member.peers(Peer::Shim(shim), listener);
    peers.dial_siblings(&mut member.io, place.place, config.shim_addresses(shim));
    let own_stop = follower(stop);
    let (first_word, heard) = mpsc::sync_channel(1);
    let driver = ShimDriver::new(Parts {
        config: Arc::clone(config),
        id: place,
        shim: Shim::new(machine_config(config, shim), Arc::clone(&placement)),
        storage: storage::open(config, certificates, place, member.waker()),
        peers,
        placement,
        listener,
        stop: own_stop.clone(),
        first_word,
    });
    let span = tracing::error_span!(parent: None, "member", id, role = ShimDriver::NAME);
    let status = ShimStatus { id: id.to_owned(), ..ShimStatus::default() };
    let instance = member.run(span, MemberStatus::Shim(status), driver, &own_stop)?;
    match heard.recv_timeout(FIRST_WORD_MAX) {
        Ok(Err(reason)) => {
            instance.join();
            Err(StartError::refused(id, reason))
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
        large_replies_max: config.limits.large_replies_max,
        cache_expiring_hashes: config.cluster.cache_expiring_hashes,
        tracked_max: config.limits.tracking_keys_max,
        bounded: config.cluster.bounded().map(|(staleness, age)| Bounded { staleness, age }),
        seed: rand::random(),
        settings: config.shim_settings(shim),
        ..ShimConfig::default()
    }
}

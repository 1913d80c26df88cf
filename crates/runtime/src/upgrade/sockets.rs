//! The listening sockets of this process: those that it got from the process before it, and those that the next one gets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use config::Address;

/// A socket by the address that the configuration calls it.
pub(super) type NamedSocket = (Address, OwnedFd);

/// Like signals, sockets are the process's.
static SOCKETS: Mutex<Sockets> = Mutex::new(Sockets { inherited: Vec::new(), listening: Vec::new() });
static NUMBERS: AtomicU64 = AtomicU64::new(0);
static ARE_GIVEN: AtomicBool = AtomicBool::new(false);
static ARE_HELD: AtomicBool = AtomicBool::new(false);

struct Sockets {
    inherited: Vec<NamedSocket>,
    /// Each once more, so that it can be given away whoever has it, by the number of its `SharedSocket`.
    listening: Vec<(u64, NamedSocket)>,
}

fn sockets() -> MutexGuard<'static, Sockets> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket at `address` that the process before has given, which listens already.
pub(crate) fn inherited(address: &Address) -> Option<OwnedFd> {
    let inherited = &mut sockets().inherited;
    let at = inherited.iter().position(|(known, _)| known == address)?;
    Some(inherited.swap_remove(at).1)
}

/// As [`inherited`], for a socket of TCP.
pub(crate) fn inherited_tcp(address: SocketAddr) -> Option<std::net::TcpListener> {
    inherited(&Address::Tcp(address)).map(Into::into)
}

/// A socket that listens, as the next process can have it: for as long as this is kept.
#[derive(Debug)]
pub(crate) struct SharedSocket(u64);

impl SharedSocket {
    /// A socket that cannot be duplicated is the next process' to bind anew.
    pub(crate) fn new(address: &Address, socket: impl AsFd) -> SharedSocket {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        match socket.as_fd().try_clone_to_owned() {
            Ok(socket) => sockets().listening.push((number, (address.clone(), socket))),
            Err(error) => tracing::warn!(%address, %error, "a next process would have to listen there anew"),
        }
        SharedSocket(number)
    }
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        sockets().listening.retain(|(number, _)| *number != self.0);
    }
}

/// Whether another process has the sockets of this one and goes on with its members.
pub(crate) fn are_given() -> bool {
    ARE_GIVEN.load(Ordering::Acquire)
}

pub(super) fn set_given(given: bool) {
    ARE_GIVEN.store(given, Ordering::Release);
}

/// Nothing is given away any more: sockets close with those who listen there.
pub(super) fn release() {
    sockets().listening.clear();
}

/// Whether sockets that listen now accept nothing before they are told to.
pub(crate) fn are_held() -> bool {
    ARE_HELD.load(Ordering::Acquire)
}

pub(super) fn hold(held: bool) {
    ARE_HELD.store(held, Ordering::Release);
}

pub(super) fn inherit(given: Vec<NamedSocket>) {
    sockets().inherited = given;
    hold(true);
}

/// Closes what was given and is not listened at any more, by this process' configuration.
pub(super) fn close_inherited() {
    for (address, _) in std::mem::take(&mut sockets().inherited) {
        tracing::info!(%address, "nothing listens there any more");
    }
}

/// All that listen, once more each.
pub(super) fn all() -> std::io::Result<Vec<NamedSocket>> {
    let sockets = sockets();
    let each = sockets.listening.iter();
    each.map(|(_, (address, socket))| Ok((address.clone(), socket.try_clone()?))).collect()
}

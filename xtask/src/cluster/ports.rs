//! Free loopback ports for processes that must find each other again after a restart. Not who listens there.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which Linux takes the ports of outgoing connections. A port of that range could be taken
/// by any connection while its owner restarts.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// An address on which nobody listens, and which no other call in this process returns.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() as u16 % 97 * 223;
    for _ in PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + start.wrapping_add(step) % (PORTS.end - PORTS.start);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    anyhow::bail!("no free port from {} to {}", PORTS.start, PORTS.end)
}

//! Free loopback ports for members that must find each other again after a restart. Not who listens there.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which Linux takes the ports of outgoing connections. A port of that range could be taken
/// by any connection while its owner restarts, and a peer that dials it then may even connect to itself.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A port on which nobody listens, and which no other call in this process returns.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() as u16 % 97 * 211;
    for _ in PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + start.wrapping_add(step) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {} to {}", PORTS.start, PORTS.end);
}

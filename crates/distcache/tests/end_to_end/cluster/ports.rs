//! Free loopback ports for members that must find each other again after a restart. Not who listens there.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Below the range from which Linux takes the ports of outgoing connections. A port of that range could be taken
/// by any connection while its owner restarts, and a peer that dials it then may even connect to itself.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Ports that a process takes at once. Fewer blocks than processes that test at the same time would not be enough.
const BLOCK: u16 = 200;

/// What this process may use.
struct Taken {
    /// A block is taken by whoever holds its first port for UDP, which nothing here uses, until the process ends.
    claims: Vec<UdpSocket>,
    next: u16,
    left: u16,
}

static TAKEN: Mutex<Taken> = Mutex::new(Taken { claims: Vec::new(), next: 0, left: 0 });

/// A port on which nobody listens, and which no other call returns, in this process or another that tests.
pub(crate) fn free_port() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if taken.left == 0 {
            let (first, claim) = PORTS
                .step_by(usize::from(BLOCK))
                .find_map(|first| Some((first, UdpSocket::bind(("127.0.0.1", first)).ok()?)))
                .unwrap_or_else(|| {
                    panic!("other tests have all ports from {} to {}", PORTS.start, PORTS.end)
                });
            taken.claims.push(claim);
            (taken.next, taken.left) = (first, BLOCK);
        }
        let port = taken.next;
        taken.next += 1;
        taken.left -= 1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A loopback network that no other call returns, by the last part of its addresses: the hosts there may have the same ports.
pub(crate) fn loopback_network() -> impl Fn(u8) -> Ipv4Addr {
    let [high, low] = free_port().to_be_bytes();
    move |last| Ipv4Addr::new(127, high, low, last)
}

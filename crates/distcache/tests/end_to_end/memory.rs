//! Clients that make a router hold as much as they can, in a control group that kills whoever takes too much.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::{Client, Cluster, ControlGroup, Layout, ok, shared, text, until};

const CLIENTS: usize = 12;
const CLIENT_BYTES: usize = 60_000_000;

/// Sends as much of one command as it is let, and never its end.
fn hoard(cluster: &Cluster) -> std::thread::JoinHandle<()> {
    let address = cluster.router(0);
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${CLIENT_BYTES}\r\n");
        let mut rest = CLIENT_BYTES - 1;
        let piece = vec![b'x'; 1 << 20];
        let mut well = stream.write_all(head.as_bytes()).is_ok();
        while well && rest > 0 {
            let bytes = piece.len().min(rest);
            well = stream.write_all(&piece[..bytes]).is_ok();
            rest -= bytes;
        }
        if well {
            // Holds what it has until it is closed.
            drop(stream.set_read_timeout(Some(Duration::from_secs(2))));
            drop(stream.read(&mut [0]));
        }
    })
}

/// Asks for the same large value again and again, and reads nothing.
fn ask_and_not_read(cluster: &Cluster) -> TcpStream {
    let mut stream = TcpStream::connect(cluster.router(0)).expect("a connection");
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    drop(stream.write_all(&b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n".repeat(2_000)));
    stream
}

#[test]
fn a_router_in_a_small_control_group_outlives_clients_that_hoard() {
    let _machine = shared();
    let Some(group) = ControlGroup::with_memory(256 << 20) else { return };
    let mut cluster = Cluster::apart(Layout::embedded(1));
    cluster.kill("router-0");
    cluster.start_within(&group, "router-0");
    cluster.wait_linked();
    let large = "v".repeat(500_000);
    let mut honest = cluster.connect(0);
    ok(&mut honest, &["SET", "large", &large]);
    let hoarders: Vec<_> = (0..CLIENTS).map(|_| hoard(&cluster)).collect();
    let silent: Vec<_> = (0..CLIENTS).map(|_| ask_and_not_read(&cluster)).collect();
    hoarders.into_iter().for_each(|hoarder| hoarder.join().expect("it has done its worst"));
    drop(silent);
    let mut honest = Client::tcp(cluster.router(0));
    until("an honest client is served", || {
        honest = Client::tcp(cluster.router(0));
        let asked = honest.ask(&["GET", "large"]).ok()?;
        (asked.len() > large.len()).then_some(())
    });
    ok(&mut honest, &["SET", "k", "v"]);
    assert_eq!(text(&honest.call(&["GET", "k"])), "v");
    cluster.fresh_status(|status| status["routers"][0]["sheds_total"]["client_memory"].as_u64() > Some(0));
    assert_eq!(group.killed(), 0, "{}", cluster.process("router-0").log());
    assert!(cluster.process("router-0").try_wait().is_none(), "it still runs");
    cluster.kill("router-0");
}

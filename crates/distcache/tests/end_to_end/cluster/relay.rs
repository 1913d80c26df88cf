//! A line to an address that can be cut, and mended again.

use std::io::copy;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

/// A client of `address` speaks with `target`, unless it is cut.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// Both ends of all connections; none while it is cut.
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Relay {
    pub(crate) fn start(target: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let shared = Arc::clone(&streams);
        spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let mut streams = shared.lock().expect("nobody panics with it");
                // Who comes while it is cut, or while nobody is there, is closed.
                let Some(streams) = streams.as_mut() else { continue };
                let Ok(far) = TcpStream::connect(target) else { continue };
                for stream in [&near, &far] {
                    stream.set_nodelay(true).expect("a socket");
                    streams.push(stream.try_clone().expect("a descriptor is free"));
                }
                pump(&near, &far);
                pump(&far, &near);
            }
        });
        Relay { address, streams }
    }

    pub(crate) fn cut(&self) {
        let streams = self.streams.lock().expect("nobody panics with it").take();
        for stream in streams.expect("it is not cut") {
            // One that was closed is no longer connected.
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    pub(crate) fn mend(&self) {
        *self.streams.lock().expect("nobody panics with it") = Some(Vec::new());
    }
}

/// Passes on what comes from one end to the other, and that nothing comes any more.
fn pump(from: &TcpStream, to: &TcpStream) {
    let ends = [from, to].map(|stream| stream.try_clone().expect("a descriptor is free"));
    spawn(move || {
        let [mut from, mut to] = ends;
        drop(copy(&mut from, &mut to));
        drop(to.shutdown(Shutdown::Write));
    });
}

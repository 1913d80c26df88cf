//! A relay before a redis-server that can keep back what its connections carry to the server: a slow network.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

#[derive(Default)]
struct State {
    /// Connections accepted so far.
    accepted: usize,
    /// What the first so many of them carry to the server is kept back.
    held: usize,
    threads: Vec<JoinHandle<()>>,
    /// Where connections go from now on, and those that go elsewhere.
    server: PathBuf,
    open: Vec<UnixStream>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

pub(crate) struct Relay {
    pub(crate) socket: PathBuf,
    shared: Arc<Shared>,
}

impl Relay {
    pub(crate) fn start(server: &Path) -> Relay {
        let socket = server.with_file_name("relay.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let shared = Arc::new(Shared::default());
        shared.state.lock().expect("no thread has panicked").server = server.to_owned();
        let acceptor = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                accept(near.expect("a connection"), &acceptor);
            }
        });
        Relay { socket, shared }
    }

    /// The address moves to another server, as a virtual one does after a failover: connections are cut.
    pub(crate) fn move_to(&self, server: &Path) {
        let mut state = self.shared.state.lock().expect("no thread has panicked");
        state.server = server.to_owned();
        for open in state.open.drain(..) {
            // It may have ended already.
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing gets from the present connections to the server.
    pub(crate) fn hold(&self) {
        let mut state = self.shared.state.lock().expect("no thread has panicked");
        state.held = state.accepted;
    }

    /// Delivers what was kept back and waits until the server has closed those connections.
    pub(crate) fn release(&self) {
        let mut state = self.shared.state.lock().expect("no thread has panicked");
        let held = state.held;
        state.held = 0;
        let threads: Vec<_> = state.threads.drain(..2 * held).collect();
        drop(state);
        self.shared.changed.notify_all();
        threads.into_iter().for_each(|thread| thread.join().expect("it only copies"));
    }
}

fn accept(near: UnixStream, shared: &Arc<Shared>) {
    let server = shared.state.lock().expect("no thread has panicked").server.clone();
    let far = UnixStream::connect(server).expect("the server accepts");
    let (from, to) = (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
    let mut state = shared.state.lock().expect("no thread has panicked");
    state.open.extend([near.try_clone().expect("a handle"), far.try_clone().expect("a handle")]);
    let number = state.accepted;
    state.accepted += 1;
    let gate = Arc::clone(shared);
    state.threads.push(std::thread::spawn(move || {
        copy(from, to, || {
            let state = gate.state.lock().expect("no thread has panicked");
            drop(gate.changed.wait_while(state, |state| number < state.held));
        });
    }));
    state.threads.push(std::thread::spawn(move || copy(far, near, || {})));
}

/// Ends with the source; what the target does not take any more is dropped.
fn copy(mut from: UnixStream, mut to: UnixStream, before_each: impl Fn()) {
    let mut chunk = [0; 4096];
    loop {
        let read = from.read(&mut chunk);
        before_each();
        match read {
            Ok(0) | Err(_) => break,
            Ok(len) => drop(to.write_all(&chunk[..len])),
        }
    }
    // The other end may be gone.
    let _ = to.shutdown(Shutdown::Write);
}

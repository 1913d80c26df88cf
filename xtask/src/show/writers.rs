//! Clients that write one key each, over and over, and remember how long every write took. Not what disturbs them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::cluster::client::connect;

/// Between two writes of a key: much longer than a write, so that readers find a copy in between.
const PAUSE: Duration = Duration::from_millis(40);
const WAIT_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
struct Write {
    key: usize,
    begun: Instant,
    took: Duration,
}

#[derive(Default)]
struct WritersShared {
    stop: AtomicBool,
    errors: AtomicU64,
    writes: Mutex<Vec<Write>>,
}

/// Writers that stop when this goes out of scope.
pub(super) struct Writers {
    keys: usize,
    shared: Arc<WritersShared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Keys are named as `distcache bench` names them.
    pub(super) fn start(router: SocketAddr, keys: usize) -> anyhow::Result<Writers> {
        let mut writers = Writers { keys, shared: Arc::default(), threads: Vec::new() };
        for key in 0..keys {
            let (connection, shared) = (connect(router)?, Arc::clone(&writers.shared));
            writers.threads.push(std::thread::spawn(move || write(key, connection, &shared)));
        }
        Ok(writers)
    }

    /// The longest of the writes that were under way at some time between the two. It forgets them.
    pub(super) fn longest_ms(&self, from: Instant, to: Instant) -> anyhow::Result<f64> {
        let mut writes = self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let between = writes.iter().filter(|write| write.begun <= to && write.begun + write.took >= from);
        let longest = between.map(|write| write.took).max();
        writes.retain(|write| write.begun > to);
        let longest = longest.ok_or_else(|| anyhow::anyhow!("nothing was written"))?;
        Ok(longest.as_secs_f64() * 1e3)
    }

    /// Until every key has been written by a write that began after `after`.
    pub(super) fn wait_for_each_after(&self, after: Instant) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let mut written = vec![false; self.keys];
            let writes = self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
            writes.iter().filter(|write| write.begun > after).for_each(|write| written[write.key] = true);
            drop(writes);
            if written.iter().all(|written| *written) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "a write hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn errors(&self) -> u64 {
        self.shared.errors.load(Ordering::Relaxed)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn write(key: usize, mut connection: Connection, shared: &WritersShared) {
    let name = format!("key:{key:012}");
    let mut number = 0u64;
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        number += 1;
        let begun = Instant::now();
        let done: redis::RedisResult<()> = redis::cmd("SET").arg(&name).arg(number).query(&mut connection);
        let took = begun.elapsed();
        if done.is_err() {
            shared.errors.fetch_add(1, Ordering::Relaxed);
        }
        let mut writes = shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(Write { key, begun, took });
    }
}

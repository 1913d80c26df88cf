//! Wakes a reactor at the rate of an open loop. The reactor's own wait counts in whole milliseconds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use runtime::reactor::Waker;

/// More wakes per second cost more than they gain: several requests then leave together, at most this late.
const INTERVAL_MIN: Duration = Duration::from_micros(50);
/// The reactor ticks by itself this often.
const INTERVAL_MAX: Duration = Duration::from_millis(10);
/// The kernel may wake a thread this much late to save power; its default would be 50 us.
const TIMER_SLACK_NS: &str = "1000";

pub(crate) struct Pacer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// `rate` in wakes per second.
    pub(crate) fn start(rate: f64, waker: Waker) -> io::Result<Pacer> {
        let interval = Duration::from_secs_f64((1.0 / rate).min(1.0)).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("pacer".to_owned()).spawn(move || {
            sharpen();
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                waker.wake();
                next += interval;
                match next.checked_duration_since(Instant::now()) {
                    Some(wait) => std::thread::sleep(wait),
                    // Catching up would only wake the reactor several times at once.
                    None => next = Instant::now(),
                }
            }
        })?;
        Ok(Pacer { stop, thread: Some(thread) })
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Lowers this thread's timer slack where the system allows it; without it the load is a little less even.
fn sharpen() {
    if let Ok(thread) = std::fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        drop(std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), TIMER_SLACK_NS));
    }
}

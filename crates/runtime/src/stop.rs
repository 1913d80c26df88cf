//! What signals mean to a process: the one stop flag, set by SIGTERM, SIGINT or code; SIGHUP and SIGUSR2. It does not drain.

use crate::threads;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use signal_hook::iterator::Signals;

type Wake = Box<dyn Fn() + Send>;

/// A flag that is set once; clones share it.
#[derive(Clone, Default)]
pub struct Stop(Arc<StopShared>);

#[derive(Default)]
struct StopShared {
    set: AtomicBool,
    wakes: Mutex<Vec<Wake>>,
    changed: Condvar,
}

impl Stop {
    /// A flag that only code sets.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// A flag that SIGTERM and SIGINT set too; a second signal ends the process at once.
    ///
    /// Fails only if the system refuses the signal handlers or the thread that waits for them.
    pub fn on_signals() -> std::io::Result<Stop> {
        let stop = Stop::new();
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let flag = stop.clone();
        threads::spawn("signals", move || {
            for signal in signals.forever() {
                if flag.is_set() {
                    std::process::exit(128 + signal);
                }
                tracing::info!(signal, "stopping");
                flag.stop();
            }
        })?;
        Ok(stop)
    }

    pub fn stop(&self) {
        let wakes = self.wakes();
        self.0.set.store(true, Ordering::Release);
        wakes.iter().for_each(|wake| wake());
        drop(wakes);
        self.0.changed.notify_all();
    }

    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire)
    }

    /// Calls `wake` when the flag is set; at once if it is set already. It must not block.
    pub fn register(&self, wake: impl Fn() + Send + 'static) {
        let mut wakes = self.wakes();
        if self.is_set() {
            wake();
        }
        wakes.push(Box::new(wake));
    }

    /// Blocks until the flag is set.
    pub fn wait(&self) {
        let mut wakes = self.wakes();
        while !self.is_set() {
            wakes = self.0.changed.wait(wakes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until the flag is set or `timeout` has passed; whether it is set.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let wakes = self.wakes();
        let unset = |_: &mut Vec<Wake>| !self.is_set();
        drop(self.0.changed.wait_timeout_while(wakes, timeout, unset));
        self.is_set()
    }

    fn wakes(&self) -> std::sync::MutexGuard<'_, Vec<Wake>> {
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls `act` at every SIGHUP from now on, on a thread of its own.
///
/// Fails only if the system refuses the signal handler or the thread.
pub fn on_hangup(act: impl Fn() + Send + 'static) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let wait = move || signals.forever().for_each(|_| act());
    threads::spawn("hangups", wait).map(drop)
}

/// A flag that SIGUSR2 sets from now on: another process is to take the place of this one.
///
/// Fails only if the system refuses the signal handler.
pub fn on_upgrade() -> std::io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR2, Arc::clone(&flag))?;
    Ok(flag)
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.is_set()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn stopping_wakes_waiters_and_early_and_late_registrations() {
        let stop = Stop::new();
        let (sender, receiver) = mpsc::channel();
        let early = sender.clone();
        stop.register(move || early.send("early").unwrap());
        assert!(!stop.wait_timeout(Duration::ZERO));
        let waiter = std::thread::spawn({
            let stop = stop.clone();
            move || stop.wait()
        });
        stop.stop();
        waiter.join().unwrap();
        stop.register(move || sender.send("late").unwrap());
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), ["early", "late"]);
        assert!(stop.wait_timeout(Duration::from_secs(60)));
    }
}

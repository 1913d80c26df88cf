//! How long this process' threads have waited for a core, as Linux counts it. Not what they did.

use std::fs;
use std::time::Duration;

/// The sum over the threads that live now, from their start, of the time in which each was ready and did not run.
/// Nothing where the kernel does not count it.
pub(crate) fn waited() -> Option<Duration> {
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    // A thread that has just ended has none.
    let waits = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    waits.map(|text| waited_ns(&text).map(Duration::from_nanos)).sum()
}

/// `schedstat` has three numbers: nanoseconds on a core, nanoseconds ready and not on one, and how often it ran.
fn waited_ns(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_the_second_number() {
        assert_eq!(waited_ns("5000 170000 3\n"), Some(170_000));
        assert_eq!(waited_ns("0 none 0\n"), None);
        assert_eq!(waited_ns(""), None);
    }

    #[test]
    fn waits_only_rise() {
        let Some(before) = waited() else { return };
        // More threads than cores, so that some have to wait.
        let threads = std::thread::available_parallelism().expect("Linux").get() * 2;
        std::thread::scope(|scope| {
            let busy = || (0..50_000_000_u64).map(std::hint::black_box).sum::<u64>();
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(busy)).collect();
            while !all.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                std::thread::yield_now();
            }
        });
        assert!(waited().expect("it was counted before") >= before);
    }
}

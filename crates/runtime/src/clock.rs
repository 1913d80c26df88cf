//! The clock of leases: microseconds that also count while the machine sleeps. Not wall-clock time.

use rustix::time::{ClockId, clock_gettime};

/// A fresh sample of CLOCK_BOOTTIME in microseconds.
pub fn now_us() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// Unix time, in microseconds, when [`now_us`] was zero; as the system's clock has it now.
pub fn epoch_us() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (unix.as_micros() as u64).saturating_sub(now_us())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clock_never_goes_back() {
        let first = super::now_us();
        assert!(first > 0);
        assert!(super::now_us() >= first);
    }
}

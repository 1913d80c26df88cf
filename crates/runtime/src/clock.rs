//! The clock of leases: microseconds that also count while the machine sleeps. Not wall-clock time.

use std::time::Duration;

use protocol::time::Time;
use rustix::time::{ClockId, clock_gettime};

/// A fresh sample of CLOCK_BOOTTIME.
pub fn now() -> Time {
    let time = clock_gettime(ClockId::Boottime);
    Time(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// From the Unix epoch to when [`now`] was zero; as the system's clock has it now.
pub fn epoch() -> Duration {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    unix.saturating_sub(now().since(Time(0)))
}

/// A name of the operating system's run since it was started. Where it has none, every process is a run of its own.
pub fn boot() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => format!("{:016x}", rand::random::<u64>()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::time::Time;

    #[test]
    fn the_clock_never_goes_back() {
        let first = super::now();
        assert!(first > Time(0));
        assert!(super::now() >= first);
    }
}

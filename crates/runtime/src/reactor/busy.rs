//! How much of its time a member has something to do: what its reactor does not wait.

use std::time::Duration;

use protocol::time::Time;

use crate::reactor::Io;

/// A figure of less time would say more of chance than of load.
const PERIOD: Duration = Duration::from_secs(1);

/// Measures one reactor.
#[derive(Debug, Default)]
pub struct BusyMeter {
    since: Option<(Time, Duration)>,
}

impl BusyMeter {
    /// Once a period: the share of the last one in which the reactor had something to do, in thousandths.
    pub fn measure(&mut self, now: Time, io: &Io) -> Option<u32> {
        self.share(now, io.idle)
    }

    fn share(&mut self, now: Time, idle: Duration) -> Option<u32> {
        let (since, idle_then) = *self.since.get_or_insert((now, idle));
        let passed = now.since(since);
        if passed < PERIOD {
            return None;
        }
        self.since = Some((now, idle));
        let idle = (idle - idle_then).min(passed);
        Some(((passed - idle).as_micros() * 1000 / passed.as_micros()) as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::time::Time;

    use super::BusyMeter;

    #[test]
    fn what_is_not_waited_is_work() {
        let mut meter = BusyMeter::default();
        let ms = Duration::from_millis;
        let mut share = |now_ms: u64, idle_ms| meter.share(Time(now_ms * 1000), ms(idle_ms));
        assert_eq!([share(5000, 70), share(5900, 500), share(6000, 820)], [None, None, Some(250)]);
        assert_eq!(share(7500, 820), Some(1000));
        assert_eq!(share(8500, 1820), Some(0));
        assert_eq!(share(9600, 3500), Some(0), "a wait that was rounded up");
    }
}

//! How long a reply may be served, and for how much longer if storage is gone. Small, because a node keeps millions.

use std::time::Duration;

use crate::time::Time;

/// A copy lives no longer than this without being asked for again.
const LIFE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lifetime {
    pub(super) end: Time,
    pub(super) spare: Spare,
}

/// Milliseconds in one byte, rounded down by less than an eighth: the first four bits, and how far they are shifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spare(u8);

impl Lifetime {
    pub(super) const OVER: Lifetime = Lifetime { end: Time(0), spare: Spare(0) };

    /// The life of a copy that was read from storage after `since`. Its time to live is shortened by 1 % for the clocks' rates and by a
    /// millisecond because storage counts whole ones: a key may go that much before its time.
    pub(super) fn new(since: Time, ttl_ms: Option<u64>, stale_ms: u64) -> Lifetime {
        let life = |ttl: u64| Duration::from_micros(ttl.saturating_sub(1).saturating_mul(990));
        let end = since.after(ttl_ms.map_or(LIFE_MAX, |ttl| life(ttl).min(LIFE_MAX)));
        let key_end = since.after(life(ttl_ms.unwrap_or(u64::MAX).saturating_add(stale_ms)));
        let spare = match stale_ms {
            0 => Spare::default(),
            _ => Spare::at_most(key_end.since(end).as_millis() as u64),
        };
        Lifetime { end, spare }
    }

    /// When it ends if storage is gone.
    pub(super) fn stale_end(&self) -> Time {
        self.end.after(self.spare.duration())
    }
}

impl Spare {
    fn at_most(milliseconds: u64) -> Spare {
        let milliseconds = milliseconds.min(15 << 30);
        let shift = (64 - milliseconds.leading_zeros()).saturating_sub(4);
        match shift {
            0 if milliseconds < 8 => Spare(milliseconds as u8),
            _ => Spare((shift as u8 + 1) << 3 | (milliseconds >> shift) as u8 & 7),
        }
    }

    fn duration(self) -> Duration {
        let (shift, bits) = (self.0 >> 3, u64::from(self.0 & 7));
        Duration::from_millis(if shift == 0 { bits } else { (8 | bits) << (shift - 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::{Lifetime, Spare};
    use crate::time::Time;

    #[test]
    fn a_byte_says_a_little_less() {
        let told = |ms| Spare::at_most(ms).duration().as_millis() as u64;
        for ms in (0..10_000).chain((10..33).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let said = told(ms);
            assert!(said <= ms && ms - said <= ms / 8, "{ms}: {said}");
        }
        assert_eq!(told(u64::MAX), 15 << 30);
    }

    #[test]
    fn spare_time_ends_before_the_key_does() {
        let end = |ttl, stale| Lifetime::new(Time(1000), ttl, stale).stale_end();
        assert_eq!(end(Some(20), 0), Lifetime::new(Time(1000), Some(20), 0).end);
        for (ttl, stale) in [(20, 1), (20, 30_000), (60_000, 30_000), (1, 1), (70_000, 5_000)] {
            let (end, key_end) = (end(Some(ttl), stale), Time(1000 + (ttl + stale) * 1000));
            assert!(
                end < key_end && end.0 + (ttl + stale) * 135 >= key_end.0 - 2000,
                "{ttl}, {stale}: {end:?}"
            );
        }
        assert_eq!(end(None, 0), Time(60_001_000));
    }
}

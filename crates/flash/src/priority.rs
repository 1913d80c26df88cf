//! Eviction policies as priorities: the dissertation's Table 4.2 on the two calls insert and update. Not the queue.

use std::fmt;
use std::str::FromStr;

/// As many as crate `policies` simulates, so that what is simulated can be run.
pub const SEGMENTS_MAX: u32 = 15;

/// Where in the queue an object belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueuePriority {
    /// Its rank: 0 is the next to go, 1 the last (section 4.3.2).
    Relative(f64),
    /// A value that a queue compares with those of the other objects (section 4.3.5).
    Absolute(f64),
}

/// What a policy may look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectAccess {
    pub bytes: u64,
    /// Requests since the object was inserted, this one included.
    pub frequency: u8,
    /// Rank of the object before this request; of no meaning on a miss.
    pub rank: f64,
    /// Where an exact queue of as many bytes would end.
    pub lowest: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashPolicy {
    /// In at the head; hits change nothing.
    Fifo,
    /// Segmented-L LRU: L queues of equal size; a miss enters the lowest, a hit moves to the next. One segment is LRU.
    SegmentedLru { segments: u8 },
    /// Greedy-Dual-Size-Frequency with the cap on the frequency of section 4.3.3; 255 is what the index can count.
    Gdsf { frequency_max: u8 },
}

impl FlashPolicy {
    /// `insert(x, p)` of Table 4.2.
    pub fn on_miss(self, access: &ObjectAccess) -> QueuePriority {
        match self {
            FlashPolicy::Fifo => QueuePriority::Relative(1.0),
            FlashPolicy::SegmentedLru { segments } => QueuePriority::Relative(1.0 / f64::from(segments)),
            FlashPolicy::Gdsf { .. } => {
                QueuePriority::Absolute(access.lowest + self.worth(access.frequency, access.bytes))
            }
        }
    }

    /// `update(x, p)` of Table 4.2, or none where a hit is no update.
    pub fn on_hit(self, access: &ObjectAccess) -> Option<QueuePriority> {
        match self {
            FlashPolicy::Fifo => None,
            FlashPolicy::SegmentedLru { segments } => {
                let segments = f64::from(segments);
                Some(QueuePriority::Relative(f64::min(
                    1.0,
                    (1.0 + (access.rank * segments).ceil()) / segments,
                )))
            }
            FlashPolicy::Gdsf { .. } => {
                Some(QueuePriority::Absolute(access.lowest + self.worth(access.frequency, access.bytes)))
            }
        }
    }

    /// min(L, n(x)) c(x) / s(x), where a miss costs the same for every object; 0 where priorities are relative.
    pub fn worth(self, frequency: u8, bytes: u64) -> f64 {
        match self {
            FlashPolicy::Gdsf { frequency_max } => {
                f64::from(frequency.min(frequency_max)) / bytes.max(1) as f64
            }
            FlashPolicy::Fifo | FlashPolicy::SegmentedLru { .. } => 0.0,
        }
    }

    /// Segments of the queue: 1 where it has none.
    pub fn segments(self) -> u8 {
        match self {
            FlashPolicy::SegmentedLru { segments } => segments,
            FlashPolicy::Fifo | FlashPolicy::Gdsf { .. } => 1,
        }
    }

    pub fn is_absolute(self) -> bool {
        matches!(self, FlashPolicy::Gdsf { .. })
    }
}

impl fmt::Display for FlashPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashPolicy::Fifo => write!(f, "fifo"),
            FlashPolicy::SegmentedLru { segments } => write!(f, "slru:{segments}"),
            FlashPolicy::Gdsf { frequency_max: u8::MAX } => write!(f, "gdsf"),
            FlashPolicy::Gdsf { frequency_max } => write!(f, "gdsf:{frequency_max}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no policy of a flash cache: give `slru:L` with L from 1 to {SEGMENTS_MAX}, `lru`, `gdsf:L` with L from 1 to \
     254, `gdsf`, which counts requests to 255, or `fifo`"
)]
pub struct UnknownPolicy(String);

impl FromStr for FlashPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<FlashPolicy, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_owned());
        // As `s4lru`, the name in the literature.
        if let Some(digits) = text
            .strip_prefix('s')
            .and_then(|rest| rest.strip_suffix("lru"))
            .filter(|digits| !digits.is_empty())
        {
            return format!("slru:{digits}").parse().map_err(|_| unknown());
        }
        let (name, parameter) = match text.split_once(':') {
            Some((name, number)) => {
                let number = number.parse().ok().filter(|number| (1..u8::MAX).contains(number));
                (name, Some(number.ok_or_else(unknown)?))
            }
            None => (text, None),
        };
        match (name, parameter) {
            ("fifo", None) => Ok(FlashPolicy::Fifo),
            ("lru", None) => Ok(FlashPolicy::SegmentedLru { segments: 1 }),
            ("slru", Some(segments)) if u32::from(segments) <= SEGMENTS_MAX => {
                Ok(FlashPolicy::SegmentedLru { segments })
            }
            ("gdsf", None) => Ok(FlashPolicy::Gdsf { frequency_max: u8::MAX }),
            ("gdsf", Some(frequency_max)) => Ok(FlashPolicy::Gdsf { frequency_max }),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(bytes: u64, frequency: u8, rank: f64, lowest: f64) -> ObjectAccess {
        ObjectAccess { bytes, frequency, rank, lowest }
    }

    /// Table 4.2, first row.
    #[test]
    fn segmented_lru_is_that_of_table_4_2() {
        let policy = FlashPolicy::SegmentedLru { segments: 3 };
        assert_eq!(policy.on_miss(&access(1, 1, 0.0, 0.0)), QueuePriority::Relative(1.0 / 3.0));
        for (rank, next) in [(0.1, 2.0 / 3.0), (1.0 / 3.0, 2.0 / 3.0), (0.4, 1.0), (0.7, 1.0), (1.0, 1.0)] {
            assert_eq!(
                policy.on_hit(&access(1, 2, rank, 0.0)),
                Some(QueuePriority::Relative(next)),
                "from {rank}"
            );
        }
        let lru = FlashPolicy::SegmentedLru { segments: 1 };
        assert_eq!(lru.on_miss(&access(1, 1, 0.0, 0.0)), QueuePriority::Relative(1.0));
        assert_eq!(lru.on_hit(&access(1, 9, 0.01, 0.0)), Some(QueuePriority::Relative(1.0)));
    }

    /// Table 4.2, second row.
    #[test]
    fn gdsf_is_that_of_table_4_2() {
        let policy = FlashPolicy::Gdsf { frequency_max: 3 };
        assert_eq!(policy.on_miss(&access(500, 1, 0.0, 2.0)), QueuePriority::Absolute(2.0 + 1.0 / 500.0));
        for (frequency, counted) in [(2, 2.0), (3, 3.0), (4, 3.0), (255, 3.0)] {
            let priority = policy.on_hit(&access(500, frequency, 0.5, 2.0));
            assert_eq!(priority, Some(QueuePriority::Absolute(2.0 + counted / 500.0)));
        }
    }

    #[test]
    fn names_are_read_back() {
        for name in ["fifo", "slru:1", "slru:15", "gdsf", "gdsf:2"] {
            assert_eq!(name.parse::<FlashPolicy>().map(|policy| policy.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("lru".parse(), Ok(FlashPolicy::SegmentedLru { segments: 1 }));
        assert_eq!("s4lru".parse(), Ok(FlashPolicy::SegmentedLru { segments: 4 }));
        for name in [
            "slru", "s0lru", "s16lru", "sslru", "gdsf:255", "slru:0", "slru:16", "slru:x", "gdsf:", "fifo:1",
            "arc", "",
        ] {
            let error = name.parse::<FlashPolicy>().expect_err("no policy").to_string();
            assert!(error.starts_with(&format!("`{name}` is no policy")), "{error}");
        }
    }
}

//! When each phase of the demonstration begins and which part of it counts. Not what happens then.

/// Microseconds on one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    /// From here to `cache_us` counts as "without cache".
    pub(crate) without_from_us: u64,
    /// The cache nodes start.
    pub(crate) cache_us: u64,
    /// From here to `end_us` counts as "with cache".
    pub(crate) with_from_us: u64,
    pub(crate) end_us: u64,
}

/// If writing the keys took all the time, this much is left for the phases.
const SHORTEST_US: u64 = 2_000_000;

impl Timeline {
    /// Divides what is left once the keys are written. Without the cache the load is steady soon; with it, the
    /// caches have to find the hot keys first.
    pub(crate) fn new(ready_us: u64, end_us: u64) -> Timeline {
        let end_us = end_us.max(ready_us + SHORTEST_US);
        let phase_us = (end_us - ready_us) / 2;
        let cache_us = ready_us + phase_us;
        Timeline {
            without_from_us: ready_us + phase_us / 5,
            cache_us,
            with_from_us: cache_us + phase_us * 2 / 5,
            end_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_equally_long_and_begin_with_a_part_that_does_not_count() {
        assert_eq!(
            Timeline::new(2_000_000, 22_000_000),
            Timeline {
                without_from_us: 4_000_000,
                cache_us: 12_000_000,
                with_from_us: 16_000_000,
                end_us: 22_000_000
            }
        );
    }

    #[test]
    fn slow_writing_of_the_keys_leaves_time_to_measure() {
        let timeline = Timeline::new(9_000_000, 4_000_000);
        assert_eq!((timeline.cache_us, timeline.end_us), (10_000_000, 11_000_000));
    }
}

//! When each request of an open loop is due, and on which connection. Not whether it can be sent then.

use std::time::Duration;

use protocol::time::Time;

/// Request `n` is due `n / rate` seconds after the start, on connection `n mod connections`.
///
/// The times do not depend on the server, so a latency counted from them holds the wait that a slow server
/// causes (no coordinated omission).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    start: Time,
    rate: f64,
    connections: u64,
}

impl Schedule {
    pub(crate) fn new(start: Time, rate: f64, connections: usize) -> Schedule {
        assert!(rate > 0.0 && connections > 0);
        Schedule { start, rate, connections: connections as u64 }
    }

    /// When request `number` is due, by the clock that `start` came from.
    pub(crate) fn due(&self, number: u64) -> Time {
        self.start.after(Duration::from_micros((number as f64 * 1e6 / self.rate) as u64))
    }

    pub(crate) fn connection(&self, number: u64) -> usize {
        (number % self.connections) as usize
    }

    /// When the request number `turn` of one connection is due.
    pub(crate) fn due_on(&self, connection: usize, turn: u64) -> Time {
        self.due(turn * self.connections + connection as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_even_and_dealt_round() {
        let schedule = Schedule::new(Time(1_000), 1_000.0, 3);
        assert_eq!(
            (0..5).map(|n| schedule.due(n)).collect::<Vec<_>>(),
            [1_000, 2_000, 3_000, 4_000, 5_000].map(Time)
        );
        assert_eq!((0..5).map(|n| schedule.connection(n)).collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
        for number in 0..100 {
            let turn = number / 3;
            let connection = schedule.connection(number);
            assert_eq!(schedule.due_on(connection, turn), schedule.due(number));
        }
    }

    #[test]
    fn no_drift_over_a_long_run() {
        let schedule = Schedule::new(Time(0), 30_000.0, 50);
        assert_eq!(schedule.due(30_000 * 3_600), Time(3_600_000_000));
    }
}

//! A run in slices of time: what was due in each and what became of it, as CSV. Not the totals.

use std::fmt::Write;
use std::time::Duration;

use protocol::time::Time;

/// Who waits longer for a reply has mostly given up.
const PATIENCE_US: u32 = 1_000_000;

const HEAD: &str = "start_ms,unix_ms,due,answered,within_1s,errors,lost,unanswered,p50_us,p90_us,p99_us,max_us,replies,error_replies\n";

/// Counts by slice. It keeps each latency, four bytes per request, so that percentiles are exact.
pub(crate) struct Series {
    slice: Duration,
    start: Time,
    /// The same instant by the wall clock, which other processes share.
    start_unix: Duration,
    slices: Vec<SeriesSlice>,
}

#[derive(Clone, Default)]
struct SeriesSlice {
    /// Latencies of the requests due in this slice that were answered with something else than an error.
    latencies_us: Vec<u32>,
    errors: u64,
    lost: u64,
    unanswered: u64,
    /// Replies that came in this slice, whenever they were due.
    replies: u64,
    error_replies: u64,
}

impl Series {
    pub(crate) fn new(slice: Duration, start: Time, start_unix: Duration) -> Series {
        Series { slice, start, start_unix, slices: Vec::new() }
    }

    pub(crate) fn answered(&mut self, since: Time, now: Time, is_error: bool) {
        let slice = self.slice(since);
        if is_error {
            slice.errors += 1;
        } else {
            let latency_us = now.since(since).as_micros();
            slice.latencies_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
        }
        let slice = self.slice(now);
        slice.replies += 1;
        slice.error_replies += u64::from(is_error);
    }

    pub(crate) fn lost(&mut self, since: Time) {
        self.slice(since).lost += 1;
    }

    pub(crate) fn unanswered(&mut self, since: Time) {
        self.slice(since).unanswered += 1;
    }

    fn slice(&mut self, at: Time) -> &mut SeriesSlice {
        let index = (at.since(self.start).as_micros() / self.slice.as_micros()) as usize;
        if self.slices.len() <= index {
            self.slices.resize(index + 1, SeriesSlice::default());
        }
        &mut self.slices[index]
    }

    /// One line per slice. Up to `unanswered` and the percentiles, a line is about the requests that were due in
    /// its slice; the last two columns are about the replies that came in it.
    pub(crate) fn csv(&self) -> String {
        let mut text = HEAD.to_owned();
        for (index, slice) in self.slices.iter().enumerate() {
            let start = self.slice * index as u32;
            let (start_ms, unix_ms) = (start.as_millis(), (self.start_unix + start).as_millis());
            let mut latencies_us = slice.latencies_us.clone();
            latencies_us.sort_unstable();
            let answered = latencies_us.len() as u64;
            let due = answered + slice.errors + slice.lost + slice.unanswered;
            let within = latencies_us.partition_point(|latency_us| *latency_us <= PATIENCE_US);
            let _ = write!(text, "{start_ms},{unix_ms},{due},{answered},{within}");
            let _ = write!(text, ",{},{},{}", slice.errors, slice.lost, slice.unanswered);
            for permille in [500, 900, 990, 1000] {
                let _ = write!(text, ",{}", rank(&latencies_us, permille));
            }
            let _ = writeln!(text, ",{},{}", slice.replies, slice.error_replies);
        }
        text
    }
}

/// The smallest value that at least so many thousandths do not exceed; zero of nothing.
fn rank(sorted: &[u32], permille: usize) -> u32 {
    let place = (sorted.len() * permille).div_ceil(1000).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_count_where_they_were_due_and_replies_where_they_came() {
        let mut series = Series::new(Duration::from_millis(100), Time(1_000_000), Duration::from_secs(5));
        for request in 0..100 {
            let due = Time(1_000_000 + request);
            series.answered(due, due.after(Duration::from_micros((request + 1) * 10)), false);
        }
        series.answered(Time(1_050_000), Time(1_250_000), true);
        series.lost(Time(1_150_000));
        series.unanswered(Time(1_150_000));
        let lines: Vec<String> = series.csv().lines().map(str::to_owned).collect();
        assert_eq!(lines[0], HEAD.trim_end());
        assert_eq!(
            lines[1..],
            [
                "0,5000,101,100,100,1,0,0,500,900,990,1000,100,0",
                "100,5100,2,0,0,0,1,1,0,0,0,0,0,0",
                "200,5200,0,0,0,0,0,0,0,0,0,0,1,1",
            ]
        );
    }

    #[test]
    fn a_reply_in_time_came_within_a_second() {
        let mut series = Series::new(Duration::from_secs(10), Time(0), Duration::ZERO);
        for latency_us in [1, 1_000_000, 1_000_001, 9_000_000] {
            series.answered(Time(0), Time(latency_us), false);
        }
        series.answered(Time(0), Time(1), true);
        let line = series.csv().lines().nth(1).map(str::to_owned).unwrap_or_default();
        assert!(line.starts_with("0,0,5,4,2,1,0,0,"), "{line}");
    }
}

//! What a run counted: requests, errors, losses and latencies, and the result made of them. Not how it ran.

use std::time::Duration;

use hdrhistogram::Histogram;
use protocol::time::Time;
use serde::Serialize;

use super::series::Series;

/// Three digits are what anyone reads; a fourth would cost ten times the memory.
const DIGITS: u8 = 3;
/// Latencies above an hour count as an hour.
const LATENCY_US_MAX: u64 = 3_600_000_000;
/// The first few error texts say what is wrong; the rest repeat them.
const ERROR_TEXTS_MAX: usize = 3;
/// Longer error texts are cut.
const ERROR_TEXT_BYTES_MAX: usize = 200;

/// Everything counted between the end of the warm-up and the last reply.
pub(crate) struct BenchTally {
    /// Replies, errors among them.
    pub(crate) requests: u64,
    /// Replies that start with `-`.
    pub(crate) errors: u64,
    /// Requests whose connection broke before the reply.
    pub(crate) lost: u64,
    /// Requests that were due or sent but had no reply when the run ended.
    pub(crate) unanswered: u64,
    /// From the end of the warm-up to the end of the run or the last reply, whichever was later.
    pub(crate) elapsed: Duration,
    /// The first few texts of errors and broken connections, each once.
    pub(crate) texts: Vec<String>,
    /// The same by slices of time, if it was asked for.
    pub(crate) series: Option<Series>,
    latency_us: Histogram<u64>,
}

/// The result as `--json` prints it. Throughput is in requests per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BenchSummary {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) throughput: f64,
    pub(crate) latency_us: Latency,
}

/// Percentiles in microseconds; zero if nothing was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
}

impl BenchTally {
    pub(crate) fn new() -> BenchTally {
        let latency_us =
            Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS).expect("the bounds are constants that fit");
        BenchTally {
            requests: 0,
            errors: 0,
            lost: 0,
            unanswered: 0,
            elapsed: Duration::ZERO,
            texts: Vec::new(),
            series: None,
            latency_us,
        }
    }

    pub(crate) fn answered(&mut self, since: Time, now: Time, is_error: bool) {
        self.requests += 1;
        self.errors += u64::from(is_error);
        self.latency_us.saturating_record(now.since(since).as_micros() as u64);
        if let Some(series) = &mut self.series {
            series.answered(since, now, is_error);
        }
    }

    pub(crate) fn lost(&mut self, since: Time) {
        self.lost += 1;
        if let Some(series) = &mut self.series {
            series.lost(since);
        }
    }

    /// A request that never got its reply counts with the time it has waited so far: leaving it out would
    /// make the slowest requests vanish.
    pub(crate) fn unanswered(&mut self, since: Time, now: Time) {
        self.unanswered += 1;
        self.latency_us.saturating_record(now.since(since).as_micros() as u64);
        if let Some(series) = &mut self.series {
            series.unanswered(since);
        }
    }

    pub(crate) fn note(&mut self, text: &[u8]) {
        if self.texts.len() >= ERROR_TEXTS_MAX {
            return;
        }
        let end = text.iter().position(|byte| *byte == b'\r').unwrap_or(text.len()).min(ERROR_TEXT_BYTES_MAX);
        let text = String::from_utf8_lossy(&text[..end]).into_owned();
        if !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    pub(crate) fn summary(&self) -> BenchSummary {
        let at = |quantile: f64| self.latency_us.value_at_quantile(quantile).min(self.latency_us.max());
        let seconds = self.elapsed.as_secs_f64();
        let throughput = if seconds > 0.0 { self.requests as f64 / seconds } else { 0.0 };
        BenchSummary {
            requests: self.requests,
            errors: self.errors,
            throughput,
            latency_us: Latency {
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: self.latency_us.max(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_exactly_the_promised_fields() {
        let mut tally = BenchTally::new();
        (1..=1_000).for_each(|latency| tally.answered(Time(7), Time(7 + latency), false));
        tally.elapsed = Duration::from_millis(500);
        let json = serde_json::to_value(tally.summary()).expect("plain data");
        let expected = serde_json::json!({
            "requests": 1_000, "errors": 0, "throughput": 2_000.0,
            "latency_us": {"p50": 500, "p90": 900, "p99": 990, "p999": 999, "max": 1_000},
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn nothing_measured_is_zeros() {
        let json = serde_json::to_value(BenchTally::new().summary()).expect("plain data");
        assert_eq!(json["throughput"], 0.0);
        assert_eq!(json["latency_us"]["max"], 0);
    }

    #[test]
    fn waits_without_reply_are_in_the_percentiles_but_not_in_the_requests() {
        let mut tally = BenchTally::new();
        tally.answered(Time(0), Time(10), false);
        tally.unanswered(Time(0), Time(5_000));
        assert_eq!(tally.summary().requests, 1);
        assert!(tally.summary().latency_us.max >= 5_000);
    }

    #[test]
    fn error_texts_are_kept_once_each_and_cut_at_the_line() {
        let mut tally = BenchTally::new();
        for text in ["-ERR a\r\n", "-ERR a\r\n", "-ERR b\r\n", "-ERR c\r\n", "-ERR d\r\n"] {
            tally.note(text.as_bytes());
        }
        assert_eq!(tally.texts, ["-ERR a", "-ERR b", "-ERR c"]);
    }
}

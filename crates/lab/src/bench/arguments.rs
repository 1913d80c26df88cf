//! The flags of `distcache bench`, checked. Not what is done with them.

use std::path::Path;

use anyhow::{Result, ensure};

/// Put load on a Redis, a DistCache router, or any other server that speaks RESP, and measure it.
///
/// Without --rate the loop is closed: every connection keeps --pipeline requests in flight and sends the next
/// one when a reply arrives. With --rate it is open: requests are due at fixed times, and the latency of each
/// counts from when it was due, so a server that stalls cannot hide it.
#[derive(Clone, Debug, clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct BenchArguments {
    /// Server to load: `redis://[USER:PASSWORD@]HOST:PORT`, rediss:// with TLS, or redis+unix:///PATH
    #[arg(long, value_name = "URL", env = "DISTCACHE_TARGET", hide_env_values = true)]
    pub(crate) target: String,

    /// PEM certificates of those who sign the server's, for rediss://
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<std::path::PathBuf>,

    /// Number of distinct keys, named key:000000000000 and so on
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) keys: u64,

    /// Popularity of keys: uniform, zipf:A (exponent A), adversary:X (X keys at equal rate), or trace:FILE, which is
    /// replayed in its order, over and over, with keys named after its objects
    #[arg(long, value_name = "DIST", default_value = "zipf:0.99")]
    pub(crate) dist: String,

    /// Keys that each read asks for: MGET of so many; 1 for GET
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) mget: usize,

    /// Share of requests that are SET, 0 to 1; the others are GET, or MGET
    #[arg(long, value_name = "W", default_value_t = 0.0)]
    pub(crate) write_ratio: f64,

    /// Bytes of each value
    #[arg(long, value_name = "B", default_value_t = 64)]
    pub(crate) value_bytes: usize,

    /// Connections in total
    #[arg(long, value_name = "C", default_value_t = 50)]
    pub(crate) connections: usize,

    /// Most requests in flight per connection
    #[arg(long, value_name = "P", default_value_t = 1)]
    pub(crate) pipeline: usize,

    /// Requests per second in total: open loop. Without it the loop is closed
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<f64>,

    /// Seconds to measure for [default: 10]
    #[arg(long, value_name = "S", conflicts_with = "requests")]
    pub(crate) seconds: Option<f64>,

    /// Requests to measure, instead of a time
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,

    /// Seconds of load before the measurement; they are not part of the result
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    pub(crate) warmup: f64,

    /// Do not write the keys first
    #[arg(long)]
    pub(crate) no_load: bool,

    /// Seed of everything random: the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Write a CSV with a line per slice of time: requests due in it and their fate, percentiles, replies
    #[arg(long, value_name = "FILE")]
    pub(crate) series: Option<std::path::PathBuf>,

    /// Milliseconds of each slice of --series
    #[arg(long, value_name = "MS", default_value_t = 100, requires = "series")]
    pub(crate) slice_ms: u64,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Long enough for stable percentiles, short enough to wait for.
pub(crate) const SECONDS_DEFAULT: f64 = 10.0;
/// A run of a year is a typing error, and longer ones overflow microseconds somewhere.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;
/// More connections than one address has ports cannot be opened.
const CONNECTIONS_MAX: usize = 60_000;
/// Redis' own limit on a string.
const VALUE_BYTES_MAX: usize = 512 << 20;
/// Deeper pipelines measure nothing but queues.
const PIPELINE_MAX: usize = 100_000;
/// A command may have a million arguments at Redis; a read of more keys than this is none that anybody sends.
const MGET_MAX: usize = 10_000;
/// Longer slices are whole runs.
const SLICE_MS_MAX: u64 = 3_600_000;
/// Key names have twelve digits.
const KEYS_MAX: u64 = 1_000_000_000_000;

impl BenchArguments {
    /// Names the first flag that makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!((1..=KEYS_MAX).contains(&self.keys), "--keys {}: write 1 to {KEYS_MAX}", self.keys);
        ensure!((0.0..=1.0).contains(&self.write_ratio), "--write-ratio {}: write 0 to 1", self.write_ratio);
        ensure!(
            self.value_bytes <= VALUE_BYTES_MAX,
            "--value-bytes {}: write at most {VALUE_BYTES_MAX}",
            self.value_bytes
        );
        ensure!(
            (1..=CONNECTIONS_MAX).contains(&self.connections),
            "--connections {}: write 1 to {CONNECTIONS_MAX}",
            self.connections
        );
        ensure!(
            (1..=PIPELINE_MAX).contains(&self.pipeline),
            "--pipeline {}: write 1 to {PIPELINE_MAX}",
            self.pipeline
        );
        ensure!((1..=MGET_MAX).contains(&self.mget), "--mget {}: write 1 to {MGET_MAX}", self.mget);
        ensure!(
            self.trace().is_none() || self.mget == 1,
            "--mget {}: a trace says itself which keys are asked for; leave it away",
            self.mget
        );
        if let Some(rate) = self.rate {
            ensure!(
                rate > 0.0 && rate <= 1e9,
                "--rate {rate}: write requests per second, above 0 and at most 1000000000"
            );
        }
        if let Some(seconds) = self.seconds {
            ensure!(
                seconds > 0.0 && seconds <= SECONDS_MAX,
                "--seconds {seconds}: write more than 0 and at most a year"
            );
        }
        ensure!(
            (0.0..=SECONDS_MAX).contains(&self.warmup),
            "--warmup {}: write 0 to a year, in seconds",
            self.warmup
        );
        ensure!(self.requests != Some(0), "--requests 0: write at least 1");
        ensure!(
            (1..=SLICE_MS_MAX).contains(&self.slice_ms),
            "--slice-ms {}: write 1 to {SLICE_MS_MAX}",
            self.slice_ms
        );
        ensure!(
            self.trace().is_none() || self.write_ratio == 0.0,
            "--write-ratio {}: a trace says itself which requests write; leave it away",
            self.write_ratio
        );
        Ok(())
    }

    /// The file of --dist trace:FILE.
    pub(crate) fn trace(&self) -> Option<&Path> {
        self.dist.strip_prefix("trace:").map(Path::new)
    }
}

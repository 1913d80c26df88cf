//! The tables that hold for the whole cluster: cluster, security, heat, slow log. Not its members, nor the limits.

use std::path::PathBuf;
use std::time::Duration;

use protocol::coherence::lease::LeaseTerms;
use protocol::node::{Admission, NodeSettings};
use protocol::router::NearSettings;
use protocol::shim::ShimSettings;
use serde::Deserialize;

use super::ranges::{A_DAY_MS, NO_PAUSE, section};
use super::scalar::Secret;
use super::users::UsersFrom;

/// `[cluster]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    #[serde(default = "default_name")]
    pub name: String,
    /// Loading fills it from `secret_file` where that is given instead.
    #[serde(default)]
    pub secret: Option<Secret>,
    /// Relative to the directory of the configuration file.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    #[serde(default)]
    pub mode: Mode,
    #[serde(default)]
    pub routing: Routing,
    /// Longest time that a write can wait for a node that is gone.
    #[serde(default = "default_lease_ms")]
    pub lease_ms: u64,
    /// Pauses of a guest that its own clock does not see, allowed for on top of 1 % clock drift.
    #[serde(default = "default_lease_guard_ms")]
    pub lease_guard_ms: u64,
    /// Cache the replies of hash commands even where fields may expire on their own (Redis 7.4 and later): right only
    /// if nobody sets such expiries.
    #[serde(default)]
    pub cache_expiring_hashes: bool,
    /// Nothing is cached: what would be is counted.
    #[serde(default)]
    pub observe_only: bool,
    /// Mode `bounded`: how long a copy may be served after somebody else has changed its key.
    #[serde(default = "default_bounded_staleness_ms_max")]
    pub bounded_staleness_ms_max: u64,
    /// Mode `bounded`: how long a copy may be served after it was read from storage.
    #[serde(default = "default_bounded_age_ms_max")]
    pub bounded_age_ms_max: u64,
}

/// How coherent the cache is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nobody else writes to storage; every operation on one key is linearizable.
    #[default]
    Strict,
    /// Others write, too: copies follow them, and are stale for no longer than is configured.
    Bounded,
}

/// Which reads go to nodes (design: routing reads).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// Only those of keys that a reply said to be cached.
    #[default]
    Learned,
    /// All, as in the paper.
    OnPath,
}

fn default_name() -> String {
    "distcache".to_owned()
}

fn default_lease_ms() -> u64 {
    millis(LeaseTerms::default().duration)
}

fn default_lease_guard_ms() -> u64 {
    millis(LeaseTerms::default().guard)
}

fn default_bounded_staleness_ms_max() -> u64 {
    1000
}

fn default_bounded_age_ms_max() -> u64 {
    60_000
}

impl ClusterConfig {
    /// The cluster of a file that says nothing of it.
    pub(super) fn unnamed() -> ClusterConfig {
        ClusterConfig { secret: None, ..ClusterConfig::new(&default_name(), Secret([0; 16])) }
    }

    pub fn new(name: &str, secret: Secret) -> ClusterConfig {
        ClusterConfig {
            name: name.to_owned(),
            secret: Some(secret),
            secret_file: None,
            mode: Mode::default(),
            routing: Routing::default(),
            lease_ms: default_lease_ms(),
            lease_guard_ms: default_lease_guard_ms(),
            cache_expiring_hashes: false,
            observe_only: false,
            bounded_staleness_ms_max: default_bounded_staleness_ms_max(),
            bounded_age_ms_max: default_bounded_age_ms_max(),
        }
    }

    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// The longest staleness and the longest age of a copy, where others write to storage.
    pub fn bounded(&self) -> Option<(Duration, Duration)> {
        let ms = Duration::from_millis;
        (self.mode == Mode::Bounded).then(|| (ms(self.bounded_staleness_ms_max), ms(self.bounded_age_ms_max)))
    }

    pub fn lease_terms(&self) -> LeaseTerms {
        LeaseTerms { duration: self.lease(), guard: Duration::from_millis(self.lease_guard_ms) }
    }
}

/// `[security]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityConfig {
    /// Allows addresses beyond loopback although nothing is encrypted or nobody asked who he is.
    pub insecure_listen: bool,
    /// Names by which the HTTP of controllers and `admin` is asked for, besides addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// No member tells which keys are hot, and the slow log shows no arguments.
    pub hide_keys: bool,
    /// Whom routers let in.
    pub users: UsersFrom,
    /// What follows if others write to storage in mode `strict`.
    pub foreign_writers: ForeignWriters,
}

/// What follows if others than DistCache write to storage, which mode `strict` rules out. The copies of what they have changed
/// are dropped in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignWriters {
    /// It is logged and counted.
    #[default]
    Warn,
    /// Nothing of that storage server is cached as long as they are there, nor for a minute after a foreign write.
    Refuse,
}

/// `[log]`: what a process writes to stderr, unless its command line says so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// As `--log` takes it.
    pub filter: Option<String>,
}

section! {
/// `[slowlog]`: which commands a router remembers because clients waited long for them.
pub struct SlowLogConfig {
    /// In microseconds; below zero for none at all, 0 for all. The default is Redis'.
    slower_than_us: i64 = 10_000, -1 => A_DAY_MS * 1000, "-1 is for none, and nobody waits for longer than a day";
    entries_max: usize = 128, 0 => 16_384, "SLOWLOG GET tells all at once";
}
}

section! {
/// `[near]`: which objects routers and linked clients hold themselves, so that reads of them cost no hop.
pub struct NearConfig {
    /// In each of them.
    objects_max: usize = NearSettings::default().objects_max, 0 => 1 << 16, "what is no hotter than that, nodes hold; 0 is for none";
    /// Reads of a key in a second, at one router, from which it holds the key.
    heat_min: u32 = NearSettings::default().heat_min, 1 => u32::MAX, "a key without requests is not hot";
    /// Hits for each invalidation below which a copy is given up.
    hits_min: u32 = NearSettings::default().hits_min, 1 => 1 << 20, "a copy that brings nothing costs every write";
}
}

const HASHES: &str = "more hashes cost more than they tell";
const RESERVED: &str = "each row is reserved at once";

section! {
/// `[heat]`: when a key counts as hot (paper, section 4.3), and for how long a write-hot one is held off.
pub struct HeatConfig {
    /// Requests in one window from which a key is reported; nodes that are full raise the bar themselves.
    threshold: u32 = ShimSettings::default().heat_min, 1 => u32::MAX, "a key without requests is not hot";
    window_ms: u64 = millis(sketch().window), 10 => 60_000, "less counts noise, more finds hot keys late";
    /// Count-Min sketch.
    rows: usize = sketch().rows, 1 => 8, HASHES;
    counters: usize = sketch().counters, 64 => 1 << 24, RESERVED;
    /// Bloom filter that reports a key once per window.
    filter_rows: usize = sketch().filter_rows, 1 => 8, HASHES;
    filter_bits: usize = sketch().filter_bits, 64 => 1 << 28, RESERVED;
    /// A newcomer must be this many times as hot as the coldest object.
    hysteresis: f64 = 1.0 + f64::from(NodeSettings::default().admission.hysteresis) / 1000.0;
    /// How long a key that is invalidated more often than hit stays out of the cache.
    hold_off_ms: u64 = millis(NodeSettings::default().admission.hold_off), 0 => A_DAY_MS, NO_PAUSE;
}
}

fn sketch() -> protocol::heat::HeatConfig {
    protocol::heat::HeatConfig::default()
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

impl HeatConfig {
    /// How machines count.
    pub(super) fn sketch(&self) -> protocol::heat::HeatConfig {
        protocol::heat::HeatConfig {
            rows: self.rows,
            counters: self.counters,
            filter_rows: self.filter_rows,
            filter_bits: self.filter_bits,
            window: Duration::from_millis(self.window_ms),
        }
    }

    /// What nodes ask of a key.
    pub(super) fn admission(&self) -> Admission {
        Admission {
            heat_min: self.threshold,
            hysteresis: ((self.hysteresis - 1.0).max(0.0) * 1000.0) as u32,
            hold_off: Duration::from_millis(self.hold_off_ms.max(1)),
            hits_min: 1,
        }
    }
}

//! The tables that hold for the whole cluster: cluster, security, limits, heat. Not its members.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::scalar::{ByteSize, Secret};
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
    /// Where keys go on memcached storage.
    #[serde(default)]
    pub memcached_placement: MemcachedPlacement,
}

/// How a pool of memcached servers divides the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemcachedPlacement {
    /// As libmemcached's `MEMCACHED_BEHAVIOR_KETAMA`.
    #[default]
    Ketama,
    /// As libmemcached's `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`.
    KetamaWeighted,
    /// DistCache's own, as before Redis servers.
    Ring,
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
    1000
}

fn default_lease_guard_ms() -> u64 {
    10
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
            memcached_placement: MemcachedPlacement::default(),
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

    pub fn lease_guard(&self) -> Duration {
        Duration::from_millis(self.lease_guard_ms)
    }
}

/// `[security]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityConfig {
    /// Allows addresses beyond loopback although nothing is encrypted or nobody asked who he is.
    pub insecure_listen: bool,
    /// No member tells which keys are hot, and the slow log shows no arguments.
    pub hide_keys: bool,
    /// Whom routers let in.
    pub users: UsersFrom,
}

/// `[limits]`: what one instance accepts. Each is a bound of some queue, buffer or table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Client connections of one router; more are answered with an error and closed, as Redis does.
    pub clients_max: usize,
    /// One command with all its arguments.
    pub command_bytes_max: ByteSize,
    pub key_bytes_max: ByteSize,
    /// Arguments of one command (Redis: 1024 * 1024).
    pub arguments_max: usize,
    /// Unanswered commands of one client, above which the next ones wait.
    pub pipeline_max: usize,
    /// Bytes of those and of replies that wait for their turn, above which the next ones wait.
    pub pipeline_bytes_max: ByteSize,
    /// Unwritten replies of one client, above which no more of its commands are carried out while few wait.
    pub output_bytes_max: ByteSize,
    /// Commands of one client that wait for those before them, or for it to read its replies; above it no more is read
    /// from it. Many clients read nothing before they have sent everything.
    pub client_input_bytes_max: ByteSize,
    /// What all clients of one router hold together: commands that are unfinished, wait or are unanswered, and unwritten
    /// replies. Above it the clients that hold the most are closed.
    pub client_buffers_bytes_max: ByteSize,
    /// A client that is silent for longer is closed; 0 for never.
    pub client_idle_ms_max: u64,
    /// A client that has to show who it is and does not is closed after this; 0 for never.
    pub authentication_ms_max: u64,
    /// Keys that clients of one router track, and those of one shim that routers do; the oldest are forgotten.
    pub tracking_keys_max: usize,
    /// Authentication of a connection between members takes no longer than this.
    pub handshake_ms_max: u64,
    /// Clients of one router that may be in their TLS handshake; one more, and the oldest gives way.
    pub handshakes_max: usize,
    /// Commands that wait at one shim.
    pub shim_queue_max: usize,
    /// Commands that wait for one key at a shim.
    pub key_queue_max: usize,
    /// Blocking commands that run at one shim, each on a storage connection of its own.
    pub blocking_max: usize,
    /// Reads that wait for fills at one node.
    pub node_queue_max: usize,
    /// Views cached of one key.
    pub views_max: usize,
    /// Keys that one router believes to be cached (learned mode).
    pub learned_max: usize,
    /// A storage server that answers nothing for this long is taken for lost.
    pub storage_ms_max: u64,
    /// What becomes of commands that are more than a storage server or node can do now.
    pub overload: Overload,
    /// How long a command may wait before it is begun; beyond that it is answered `-BUSY`. Without it the larger of two leases
    /// and `storage_ms_max`.
    pub queue_ms_max: Option<u64>,
}

/// What becomes of commands that cannot be begun at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overload {
    /// Requests wait for as long as `queue_ms_max`, dealt fairly over clients.
    #[default]
    Wait,
    /// Requests are answered `-BUSY` at once if they would be late.
    Refuse,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients_max: 10_000,
            command_bytes_max: ByteSize(64 << 20),
            key_bytes_max: ByteSize(64 << 10),
            arguments_max: 1 << 20,
            pipeline_max: 1024,
            pipeline_bytes_max: ByteSize(4 << 20),
            output_bytes_max: ByteSize(1 << 20),
            client_input_bytes_max: ByteSize(256 << 20),
            client_buffers_bytes_max: ByteSize(1 << 30),
            client_idle_ms_max: 0,
            authentication_ms_max: 60_000,
            tracking_keys_max: 1_000_000,
            handshake_ms_max: 5_000,
            handshakes_max: 1024,
            shim_queue_max: 65_536,
            key_queue_max: 4_096,
            blocking_max: 1_000,
            node_queue_max: 65_536,
            views_max: 64,
            learned_max: 65_536,
            storage_ms_max: 5_000,
            overload: Overload::Wait,
            queue_ms_max: None,
        }
    }
}

/// `[log]`: what a process writes to stderr, unless its command line says so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// As `--log` takes it.
    pub filter: Option<String>,
}

/// `[slowlog]`: which commands a router remembers because clients waited long for them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlowLogConfig {
    /// In microseconds; below zero for none at all, 0 for all.
    pub slower_than_us: i64,
    pub entries_max: usize,
}

impl Default for SlowLogConfig {
    fn default() -> SlowLogConfig {
        // As in Redis.
        SlowLogConfig { slower_than_us: 10_000, entries_max: 128 }
    }
}

/// `[heat]`: when a key counts as hot (paper, section 4.3), and for how long a write-hot one is held off.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeatConfig {
    /// Requests in one window from which a key is reported; nodes that are full raise the bar themselves.
    pub threshold: u32,
    pub window_ms: u64,
    /// Count-Min sketch.
    pub rows: usize,
    pub counters: usize,
    /// Bloom filter that reports a key once per window.
    pub filter_rows: usize,
    pub filter_bits: usize,
    /// A newcomer must be this many times as hot as the coldest object.
    pub hysteresis: f64,
    /// How long a key that is invalidated more often than hit stays out of the cache.
    pub hold_off_ms: u64,
}

impl Default for HeatConfig {
    fn default() -> HeatConfig {
        HeatConfig {
            threshold: 2,
            window_ms: 1000,
            rows: 4,
            counters: 64 << 10,
            filter_rows: 3,
            filter_bits: 256 << 10,
            hysteresis: 1.25,
            hold_off_ms: 5_000,
        }
    }
}

impl HeatConfig {
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    pub fn hold_off(&self) -> Duration {
        Duration::from_millis(self.hold_off_ms)
    }
}

//! What may change in a router while it serves. Not where settings come from.

use std::time::Duration;

use crate::policy::Policies;
use crate::router::config::ClientLimits;

/// A router's settings that can change while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    /// Commands of one client that may be unanswered. More makes deep pipelines faster and one client heavier.
    pub pipeline_max: usize,
    /// Bytes of them and of replies that wait for their turn, above which no more is taken from the client: one that writes
    /// large values must not fill the links that all share.
    pub pipeline_bytes_max: usize,
    /// Bytes of the commands that a client may queue between MULTI and EXEC.
    pub transaction_bytes_max: usize,
    /// Longer keys are refused. No more than `wire::codec::KEY_BYTES_MAX`, which peers refuse.
    pub key_bytes_max: usize,
    /// Views that the learned table remembers; fewer than the nodes cache would send hot reads to storage. Another number than
    /// before forgets what was learned; replies tell it again.
    pub learned_max: usize,
    /// Longest that a command waits for room at a node or shim, before it is answered `-BUSY`.
    pub queue_max: Duration,
    pub client_limits: ClientLimits,
    pub slow_log: SlowLogSettings,
    /// About one of so many commands is traced; 0 for none.
    pub spans_one_in: u64,
    pub near: NearSettings,
}

impl Default for RouterSettings {
    fn default() -> RouterSettings {
        RouterSettings {
            pipeline_max: 1024,
            pipeline_bytes_max: 4 << 20,
            transaction_bytes_max: 64 << 20,
            key_bytes_max: wire::codec::KEY_BYTES_MAX,
            learned_max: 1 << 16,
            queue_max: Duration::from_secs(5),
            client_limits: ClientLimits::default(),
            slow_log: SlowLogSettings::default(),
            spans_one_in: 0,
            near: NearSettings::default(),
        }
    }
}

/// Which objects a router may hold itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearSettings {
    /// How many; none with 0.
    pub objects_max: usize,
    /// Reads of a key in a second below which a hop to its node costs less than a copy here.
    pub heat_min: u32,
    /// Hits that each invalidation must have brought, or the copy costs more than the hops that it saves.
    pub hits_min: u32,
    /// How long what is written too often stays out: it takes seconds to show, each time.
    pub hold_off: Duration,
    pub policies: Policies,
    /// Nothing is cached.
    pub observes: bool,
}

impl Default for NearSettings {
    fn default() -> NearSettings {
        NearSettings {
            objects_max: 0,
            heat_min: 128,
            hits_min: 16,
            hold_off: Duration::from_secs(30),
            policies: Policies::default(),
            observes: false,
        }
    }
}

/// What the slow log takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogSettings {
    /// In microseconds; below zero nothing is logged.
    pub slower_than_us: i64,
    pub entries_max: usize,
    /// Arguments are not shown.
    pub hides_arguments: bool,
    /// From the Unix epoch to when this router's clock was zero.
    pub epoch: Duration,
}

/// Nothing is logged.
impl Default for SlowLogSettings {
    fn default() -> SlowLogSettings {
        SlowLogSettings { slower_than_us: -1, entries_max: 0, hides_arguments: false, epoch: Duration::ZERO }
    }
}

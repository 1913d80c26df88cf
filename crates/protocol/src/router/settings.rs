//! What may change in a router while it serves. Not where settings come from.

use std::time::Duration;

use crate::router::config::ClientLimits;

/// A router's settings that can change while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub pipeline_max: usize,
    pub pipeline_bytes_max: usize,
    pub key_bytes_max: usize,
    /// Another number than before forgets what was learned; replies tell it again.
    pub learned_max: usize,
    pub queue_max: Duration,
    pub client_limits: ClientLimits,
    pub slow_log: SlowLogSettings,
    /// About one of so many commands is traced; 0 for none.
    pub spans_one_in: u64,
}

/// What the slow log takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogSettings {
    /// In microseconds; below zero nothing is logged.
    pub slower_than_us: i64,
    pub entries_max: usize,
    /// Arguments are not shown.
    pub hides_arguments: bool,
    /// Unix time, in microseconds, when this router's clock was zero.
    pub epoch_us: u64,
}

//! What may change in a router while it serves. Not where settings come from.

use std::time::Duration;

use crate::router::flow::learned::Learned;
use crate::router::{ClientLimits, Router, SlowLogSettings};

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
    /// Of so many commands about one is traced; 0 for none.
    pub spans_one_in: u64,
}

impl Router {
    pub(crate) fn set(&mut self, settings: Settings) {
        let Settings { pipeline_max, pipeline_bytes_max, key_bytes_max, .. } = settings;
        let Settings { learned_max, queue_max, client_limits, slow_log, spans_one_in, .. } = settings;
        if learned_max != self.config.learned_max {
            self.config.learned_max = learned_max;
            self.learned = Learned::new(learned_max);
        }
        self.config.pipeline_max = pipeline_max;
        self.config.pipeline_bytes_max = pipeline_bytes_max;
        self.config.key_bytes_max = key_bytes_max;
        self.config.queue_max = queue_max;
        self.config.client_limits = client_limits;
        self.slow_log.set(slow_log);
        self.sampler.set(spans_one_in);
    }
}

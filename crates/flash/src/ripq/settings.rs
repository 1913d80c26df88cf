//! What a cache is told when it is created or opened. Not what it finds on the device.

use crate::{FlashError, FlashPolicy};

/// A block whose objects are all written again makes no room; so few others would make hardly any.
const THETA_MAX: f64 = 0.95;

#[derive(Clone, Debug, PartialEq)]
pub struct RipqSettings {
    pub policy: FlashPolicy,
    /// Bytes of each write; the unit of eviction. Larger blocks are kinder to flash and need more memory.
    pub block_bytes: u64,
    /// Average share of a section (Table 4.3): 2 / alpha sections at most, each with a buffer of a block.
    pub alpha: f64,
    /// Objects in the last part of the queue, as a share, that are not written again though they were requested
    /// (section 4.3.4): less is written, and more is missed.
    pub skip: f64,
    /// SIPQ (section 4.4) in place of RIPQ: one insertion point, and a logical queue of so large a share of the cache that
    /// decides what is written again. Neither `alpha` nor `skip` counts then.
    pub theta: Option<f64>,
    /// Data on the device and in buffers; what the device has room for if this is none or more.
    pub capacity_bytes: Option<u64>,
    /// Bounds the memory of the index at 22 bytes for each.
    pub objects_max: usize,
    /// Whether removing or replacing an object waits until the device can no longer bring the old one back.
    pub durable_changes: bool,
    /// How many blocks recovery reads at once.
    pub recovery_threads: usize,
    /// Any number, best a random one, that no cache on this device had before; only for creating one.
    pub identity: u64,
}

impl Default for RipqSettings {
    /// The parameters of Table 4.3, but for the block: 16 MiB is enough for devices of today.
    fn default() -> RipqSettings {
        RipqSettings {
            policy: FlashPolicy::SegmentedLru { segments: 3 },
            block_bytes: 16 << 20,
            alpha: 0.05,
            skip: 0.0,
            theta: None,
            capacity_bytes: None,
            objects_max: 1 << 32,
            durable_changes: true,
            recovery_threads: 8,
            identity: 0,
        }
    }
}

impl RipqSettings {
    /// Whether each is within its range; whoever creates or opens a cache is told as well.
    pub fn check(&self) -> Result<(), FlashError> {
        let refuse = |why: String| Err(FlashError::Settings(why));
        if !(0.001..=0.5).contains(&self.alpha) {
            return refuse(format!("alpha = {}: must be from 0.001 to 0.5", self.alpha));
        }
        if !(0.0..1.0).contains(&self.skip) {
            return refuse(format!("skip = {}: must be at least 0 and less than 1", self.skip));
        }
        if let Some(theta) = self.theta.filter(|theta| !(0.0..=THETA_MAX).contains(theta)) {
            return refuse(format!(
                "theta = {theta}: must be from 0 to {THETA_MAX}, so that blocks hold something that may go"
            ));
        }
        if let Some(bytes) = self.capacity_bytes.filter(|bytes| *bytes < self.block_bytes) {
            return refuse(format!(
                "capacity_bytes = {bytes}: must be at least a block, which has {}",
                self.block_bytes
            ));
        }
        if self.objects_max == 0 {
            return refuse("objects_max = 0: a cache needs at least one object".into());
        }
        if !(1..=256).contains(&self.recovery_threads) {
            return refuse(format!("recovery_threads = {}: must be from 1 to 256", self.recovery_threads));
        }
        Ok(())
    }
}

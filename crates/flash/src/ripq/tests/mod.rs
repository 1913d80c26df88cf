//! Tests of RIPQ: invariants after every step, the dissertation's sentences, and crashes. Not its speed.

mod faults;
mod invariants;
mod paper;
mod reclaim;
mod recovery;
mod single;

use std::sync::Arc;

use super::{Ripq, RipqSettings};
use crate::FlashPolicy;
use crate::device::{Device, MemoryDevice, SECTOR};

/// Small enough that random steps reach every operation soon.
fn settings(policy: &str) -> RipqSettings {
    RipqSettings {
        policy: policy.parse::<FlashPolicy>().expect("a policy"),
        block_bytes: 2 * SECTOR as u64,
        alpha: 0.1,
        identity: 1,
        recovery_threads: 2,
        ..RipqSettings::default()
    }
}

/// A device with room for so many blocks of these settings.
fn device(blocks: u64, settings: &RipqSettings) -> MemoryDevice {
    let bytes = (1 << 17) + blocks * (settings.block_bytes + 200) * 101 / 100;
    MemoryDevice::new(bytes.next_multiple_of(SECTOR as u64)).expect("whole sectors")
}

fn cache(blocks: u64, settings: RipqSettings) -> Ripq {
    let device: Arc<dyn Device> = Arc::new(device(blocks, &settings));
    Ripq::create(device, settings).expect("an empty device")
}

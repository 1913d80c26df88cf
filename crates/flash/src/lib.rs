//! Caches on flash: `ripq` and `sipq` over what they share, which is bytes of blocks and records, index, journal, pins and
//! priorities, and over devices (files past the page cache, memory, simulated flash, faults). Never peers or messages.

pub mod block;
pub mod device;
pub mod index;
pub mod journal;
pub mod layout;
pub mod pins;
pub mod priority;
pub mod record;
pub mod ripq;
pub mod sipq;

use std::io;

pub use priority::FlashPolicy;

#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    #[error("{0}")]
    Settings(String),
    #[error("there is no cache on this device: create one")]
    Empty,
    #[error(
        "this device is in use: it holds a cache or something else; clear its first sectors to create one here"
    )]
    InUse,
    #[error("what is on this device is not a cache of DistCache; it is left as it is")]
    Foreign,
    #[error("the cache on this device has format {found}, this program knows {known}; create it again")]
    Version { found: u64, known: u64 },
    #[error("the cache on this device cannot be opened: {0}")]
    Damaged(String),
    #[error("an object of {bytes} bytes does not fit a block, which takes {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
    #[error("{action}: {error}")]
    Device { action: &'static str, error: io::Error },
    #[error("nothing is written any more: {0}")]
    Failed(String),
}

impl FlashError {
    pub(crate) fn device(action: &'static str, error: io::Error) -> FlashError {
        FlashError::Device { action, error }
    }
}

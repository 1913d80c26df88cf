//! Request traces and workloads: reading, making and describing what is asked for. Never eviction policies.

mod access;
mod distribution;
mod error;
mod format;
mod generate;
mod key;
mod permutation;
mod read;
mod sample;
mod statistics;
mod unit;
mod workload;
mod write;
mod zipf;

pub use access::{Access, Next, Operation};
pub use distribution::{Distribution, DistributionError};
pub use error::TraceError;
pub use format::{Format, FormatError};
pub use generate::{
    Accesses, CacheBenchError, Churn, ChurnError, FlashCrowd, FlashCrowdError, Popularity, PopularityError,
    Sizes, SizesError, Synthetic, SyntheticError,
};
pub use key::object_id;
pub use read::{Compression, Reader, open, open_file};
pub use sample::{RateError, Sample};
pub use statistics::{Quantiles, Statistics, Summary};
pub use unit::bytes_with_unit;
pub use workload::{KEYS_MAX, Request, Requests, Workload, WorkloadError, key_name};
pub use write::{Csv, Writer, create};

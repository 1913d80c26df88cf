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

pub use access::{Access, AccessOperation, NextAccess};
pub use distribution::{Distribution, DistributionError};
pub use error::TraceError;
pub use format::{FormatError, TraceFormat};
pub use generate::{
    CacheBenchError, Churn, ChurnError, FlashCrowd, FlashCrowdError, SizeDistribution, SizesError, Synthetic,
    SyntheticAccesses, SyntheticError, TracePopularity, TracePopularityError,
};
pub use key::object_id;
pub use read::{Compression, TraceReader, open, open_file};
pub use sample::{ObjectSample, RateError};
pub use statistics::{Quantiles, TraceStatistics, TraceSummary};
pub use unit::bytes_with_unit;
pub use workload::{KEYS_MAX, Workload, WorkloadError, WorkloadRequest, WorkloadRequests, key_name};
pub use write::{CsvWriter, TraceWriter, create};

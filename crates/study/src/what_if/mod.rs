//! What a trace would have missed in caches of other policies and sizes (the dissertation's section 3.7). No policy of its
//! own, and no format of traces.

mod decode;
mod grid;
mod size;
mod survey;

pub use grid::{GridOutcome, GridSetting};
use policies::NEVER;
pub use size::{Size, SizeError};
pub use survey::Survey;

/// Why a trace cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    #[error(transparent)]
    Trace(#[from] trace::TraceError),
    #[error(transparent)]
    Objects(#[from] policies::TooManyObjects),
    #[error("request {request}: an object of {bytes} bytes; at most 4294967295 can be simulated")]
    Bytes { request: u64, bytes: u64 },
    #[error("request {request} is for object {object}, whose last one announced {}; {RIGHT}", when(*announced))]
    Unannounced { request: u64, object: u64, announced: u64 },
    #[error("request {request} is not for object {object}, as the trace announced; {RIGHT}")]
    Absent { request: u64, object: u64 },
    #[error("the trace has no requests")]
    Empty,
    #[error("a warm-up of {0}: write a share of the trace from 0 to less than 1")]
    Warmup(f64),
    #[error("the trace changed while it was read: it had {before} requests and then {after}")]
    Changed { before: u64, after: u64 },
}

const RIGHT: &str = "`distcache trace convert` to oracle-general writes the right next requests";

fn when(announced: u64) -> String {
    if announced == NEVER { "no other".to_owned() } else { format!("request {announced}") }
}

//! What the engines of others are given alike: a path, and the memory that RIPQ would have. Not one of them.

use std::path::Path;

use super::Arguments;
use crate::flash::target::Target;
use crate::terminal::BadInput;

pub(super) fn path<'a>(arguments: &'a Arguments, what: &str) -> Result<&'a Path, BadInput> {
    match &arguments.device {
        Target::Path(path) => Ok(path),
        Target::Memory | Target::Ftl => {
            let engine = arguments.engine_name();
            Err(BadInput(format!(
                "--engine {engine}: give --device the path of {what}; it runs on nothing else"
            )))
        }
    }
}

/// A block for each of RIPQ's insertion points.
pub(super) fn buffer_bytes(arguments: &Arguments) -> u64 {
    (arguments.block_size.0 as f64 / arguments.alpha) as u64
}

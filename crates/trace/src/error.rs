//! Why a trace cannot be read or written: always one line that names the file and the place in it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::{TraceFormat, names};

/// What went wrong with a trace. Boxed, because readers return one `Result` per access.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TraceError(Box<TraceErrorKind>);

#[derive(Debug, thiserror::Error)]
enum TraceErrorKind {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
    #[error("{}: {place}: {problem}", path.display())]
    Place { path: PathBuf, place: TracePlace, problem: String },
    #[error(
        "{}: this could be {}; say which with --format", path.display(), names(candidates)
    )]
    Ambiguous { path: PathBuf, candidates: Vec<TraceFormat> },
}

/// Where in a trace: the record or line, counted from 1, and its first byte in the decompressed data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracePlace {
    pub(crate) unit: &'static str,
    pub(crate) number: u64,
    pub(crate) offset: u64,
}

impl fmt::Display for TracePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at byte {}", self.unit, self.number, self.offset)
    }
}

impl TraceError {
    /// What the system said, if it was the system that failed.
    pub fn io(&self) -> Option<io::ErrorKind> {
        match &*self.0 {
            TraceErrorKind::File { error, .. } => Some(error.kind()),
            _ => None,
        }
    }

    pub(crate) fn file(path: &Path, error: io::Error) -> TraceError {
        TraceError(Box::new(TraceErrorKind::File { path: path.to_owned(), error }))
    }

    pub(crate) fn content(path: &Path, problem: impl Into<String>) -> TraceError {
        TraceError(Box::new(TraceErrorKind::Content { path: path.to_owned(), problem: problem.into() }))
    }

    pub(crate) fn place(path: &Path, place: TracePlace, problem: impl Into<String>) -> TraceError {
        TraceError(Box::new(TraceErrorKind::Place { path: path.to_owned(), place, problem: problem.into() }))
    }

    pub(crate) fn ambiguous(path: &Path, candidates: &[TraceFormat]) -> TraceError {
        TraceError(Box::new(TraceErrorKind::Ambiguous {
            path: path.to_owned(),
            candidates: candidates.to_vec(),
        }))
    }
}

//! The trace that a simulation is about, which may be read several times. The verbs of `distcache trace` name theirs without
//! a flag.

use std::path::PathBuf;

use trace::{Access, Format, Reader, TraceError};

use super::Progress;

#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// Trace to read; compression is found out by looking
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// Its format, if the beginning does not tell: oracle-general, vscsi, csv, text, keys-be32, keys-be64, twitter, meta
    /// or lcs
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
}

impl Source {
    pub(crate) fn open(&self) -> Result<Reader, TraceError> {
        trace::open(&self.trace, self.format)
    }

    /// From the beginning, with a bar that shows how far it is read.
    pub(crate) fn shown(
        &self,
    ) -> Result<impl Iterator<Item = Result<Access, TraceError>> + Send + use<>, TraceError> {
        let mut reader = self.open()?;
        let mut progress = Progress::bytes(reader.progress().1);
        Ok(std::iter::from_fn(move || {
            progress.step(|| reader.progress().0);
            reader.next()
        }))
    }
}

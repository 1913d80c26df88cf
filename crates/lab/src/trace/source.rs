//! The trace that a simulation is about, which may have to be read several times. The verbs of `distcache trace` name theirs without
//! a flag.

use std::path::PathBuf;

use trace::{Access, TraceError, TraceFormat, TraceReader};

use super::StepProgress;

#[derive(Debug, clap::Args)]
pub(crate) struct SourceArguments {
    /// Trace to read; compression is found out by looking
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: PathBuf,

    /// Its format, if the beginning does not tell: oracle-general, vscsi, csv, text, keys-be32, keys-be64, twitter, meta
    /// or lcs
    #[arg(long, value_name = "FORMAT")]
    format: Option<TraceFormat>,
}

impl SourceArguments {
    /// From the beginning, as often as needed; so it must be a file.
    pub(crate) fn open(&self) -> Result<TraceReader, TraceError> {
        trace::open_file(&self.trace, self.format)
    }

    /// The same, with a bar that shows how far it is read.
    pub(crate) fn shown(&self) -> Result<Shown, TraceError> {
        self.open().map(Shown::new)
    }

    /// The same, for whoever reads it only once; so it may be a pipe.
    pub(crate) fn shown_once(&self) -> Result<Shown, TraceError> {
        trace::open(&self.trace, self.format).map(Shown::new)
    }
}

/// The accesses of a trace, and a bar on stderr.
pub(crate) struct Shown {
    reader: TraceReader,
    progress: StepProgress,
}

impl Shown {
    fn new(reader: TraceReader) -> Shown {
        let progress = StepProgress::bytes(reader.progress().1);
        Shown { reader, progress }
    }
}

impl Iterator for Shown {
    type Item = Result<Access, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.progress.step(|| self.reader.progress().0);
        self.reader.next()
    }
}

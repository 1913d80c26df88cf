//! Where a rewritten trace goes and in which format, as flags. Not which accesses are in it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use runtime::stop::Stop;
use trace::{Access, Compression, TraceError, TraceFormat};

use super::{BadInput, StepProgress};
use crate::terminal::{ReaderGone, print, say};

#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Trace to write; - for CSV on standard output
    #[arg(value_name = "OUT")]
    out: PathBuf,

    /// Its format: oracle-general or csv [default: csv for - and where the name says so, else oracle-general]
    #[arg(long, value_name = "FORMAT", value_parser = writable)]
    to: Option<TraceFormat>,

    /// Its compression: none, gzip or zstd [default: by the ending, .gz or .zst]
    #[arg(long, value_name = "NAME", value_parser = compression)]
    compress: Option<Compression>,
}

impl Output {
    pub(super) fn format(&self) -> TraceFormat {
        self.to.unwrap_or_else(|| by_name(&self.out))
    }

    pub(super) fn create(&self) -> Result<CleanedWriter> {
        CleanedWriter::create(&self.out, self.format(), self.compress)
    }
}

/// A trace that is being written, of which a signal leaves nothing behind.
pub(super) struct CleanedWriter {
    out: PathBuf,
    writer: trace::TraceWriter,
}

impl CleanedWriter {
    pub(super) fn create(
        out: &Path,
        format: TraceFormat,
        compression: Option<Compression>,
    ) -> Result<CleanedWriter> {
        let writer = trace::create(out, format, compression).map_err(BadInput::of)?;
        if let Some(unfinished) = writer.unfinished().map(Path::to_owned) {
            Stop::on_signals()?.register(move || {
                drop(std::fs::remove_file(&unfinished));
                std::process::exit(INTERRUPTED);
            });
        }
        Ok(CleanedWriter { out: out.to_owned(), writer })
    }

    pub(super) fn write(&mut self, access: &Access) -> Result<()> {
        self.writer.write(access).map_err(failed)
    }

    /// Completes the file and says how many requests it has, and what it lacks.
    pub(super) fn finish(self, tell: impl FnOnce(u64, &str) -> String) -> Result<()> {
        let CleanedWriter { out, writer } = self;
        let progress = StepProgress::requests(writer.accesses());
        let lost = writer.operations_lost();
        let requests = writer.finish(&mut |done| progress.set(done)).map_err(failed)?;
        drop(progress);
        let file = out.display().to_string();
        if requests == 0 {
            say(&format!("distcache: {file}: no requests are in it"));
        }
        if lost > 0 {
            say(&format!("distcache: {file}: {lost} writes and deletes became reads; CSV keeps operations"));
        }
        if !is_stdout(&out) {
            print(&tell(requests, &file));
        }
        Ok(())
    }
}

/// As shells report what SIGINT has ended.
const INTERRUPTED: i32 = 130;

fn failed(error: TraceError) -> anyhow::Error {
    match error.io() {
        Some(std::io::ErrorKind::BrokenPipe) => ReaderGone.into(),
        // What the format cannot hold is not the system's failure.
        Some(std::io::ErrorKind::InvalidData) | None => BadInput::of(error),
        Some(_) => error.into(),
    }
}

fn is_stdout(out: &Path) -> bool {
    out == Path::new("-")
}

pub(super) fn by_name(file: &Path) -> TraceFormat {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let csv = is_stdout(file) || name.split('.').any(|part| part == "csv");
    if csv { TraceFormat::Csv } else { TraceFormat::OracleGeneral }
}

fn writable(text: &str) -> Result<TraceFormat, String> {
    match text.parse() {
        Ok(format @ (TraceFormat::OracleGeneral | TraceFormat::Csv)) => Ok(format),
        _ => Err("traces are written as oracle-general or csv".to_owned()),
    }
}

fn compression(text: &str) -> Result<Compression, String> {
    match text {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "zstd" => Ok(Compression::Zstd),
        _ => Err("traces are written with none, gzip or zstd".to_owned()),
    }
}

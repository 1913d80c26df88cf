//! Where a rewritten trace goes and in which format, as flags. Not which accesses are in it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use trace::{Compression, Format, Writer};

use super::{BadInput, Progress};

#[derive(Debug, clap::Args)]
pub(super) struct Output {
    /// Trace to write
    #[arg(value_name = "OUT")]
    out: PathBuf,

    /// Its format: oracle-general or csv [default: csv if the name says so, else oracle-general]
    #[arg(long, value_name = "FORMAT", value_parser = writable)]
    to: Option<Format>,

    /// Its compression: none, gzip or zstd [default: by the ending, .gz or .zst]
    #[arg(long, value_name = "NAME", value_parser = compression)]
    compress: Option<Compression>,
}

impl Output {
    pub(super) fn create(&self) -> Result<Writer> {
        create(&self.out, self.to, self.compress)
    }

    pub(super) fn file(&self) -> &Path {
        &self.out
    }
}

/// Format and compression follow from the name where they are not given.
pub(super) fn create(
    file: &Path,
    format: Option<Format>,
    compression: Option<Compression>,
) -> Result<Writer> {
    trace::create(file, format.unwrap_or_else(|| by_name(file)), compression).map_err(BadInput::of)
}

/// Completes the file and says how many requests it has.
pub(super) fn finish(writer: Writer) -> Result<u64> {
    let progress = Progress::requests(writer.accesses());
    writer.finish(&mut |done| progress.set(done)).map_err(BadInput::of)
}

fn by_name(file: &Path) -> Format {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    if name.split('.').any(|part| part == "csv") { Format::Csv } else { Format::OracleGeneral }
}

fn writable(text: &str) -> Result<Format, String> {
    match text.parse() {
        Ok(format @ (Format::OracleGeneral | Format::Csv)) => Ok(format),
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

//! Where a trace is written to: a file that has another name until it is complete, or a stream; compressed on the way.
//! No formats.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::read::Compression;

const BUFFER_BYTES: usize = 1 << 20;
/// zstd's own default, and gzip's.
const ZSTD_LEVEL: i32 = 3;

/// What a name stands for.
pub(super) enum OutputTarget {
    /// A file, which need not be there yet.
    File(PathBuf),
    /// A pipe or a device: bytes go there in one order only, and it is never replaced.
    Stream(PathBuf),
    Stdout,
}

impl OutputTarget {
    pub(super) fn of(path: &Path) -> io::Result<OutputTarget> {
        if path == Path::new("-") {
            return Ok(OutputTarget::Stdout);
        }
        let path = resolve(path)?;
        match fs::metadata(&path) {
            Ok(there) if there.is_dir() => {
                Err(io::Error::new(ErrorKind::IsADirectory, "this is a folder; name a file in it"))
            }
            Ok(there) if !there.is_file() => Ok(OutputTarget::Stream(path)),
            _ => Ok(OutputTarget::File(path)),
        }
    }

    /// Opened to be written, and read again if it is a file.
    pub(super) fn create(self) -> io::Result<(Partial, File)> {
        let stream = |file| (Partial { whole: None }, file);
        match self {
            OutputTarget::File(place) => {
                let (file, partial) = named(&place)?.into_parts();
                Ok((Partial { whole: Some((partial, place)) }, file))
            }
            OutputTarget::Stream(path) => OpenOptions::new().write(true).open(path).map(stream),
            OutputTarget::Stdout => io::stdout().as_fd().try_clone_to_owned().map(|fd| stream(fd.into())),
        }
    }
}

/// Follows symbolic links, also one to a file that is not there yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => resolve(&directory(path).join(target)),
            Err(_) => Ok(path.to_owned()),
        },
        resolved => resolved,
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file beside its place, under a name that nobody has.
fn named(place: &Path) -> io::Result<tempfile::NamedTempFile> {
    let directory = directory(place);
    if !directory.is_dir() {
        let problem = format!("the directory {} does not exist", directory.display());
        return Err(io::Error::new(ErrorKind::NotFound, problem));
    }
    let mut prefix = place.file_name().unwrap_or_default().to_owned();
    prefix.push(".");
    let usual = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(&prefix).suffix(".partial").permissions(usual).tempfile_in(directory)
}

/// A file that is removed unless it is kept, so that what was interrupted leaves nothing that looks complete.
pub(super) struct Partial {
    /// Its name until it is complete, and after; None for a stream.
    whole: Option<(TempPath, PathBuf)>,
}

impl Partial {
    pub(super) fn path(&self) -> Option<&Path> {
        self.whole.as_ref().map(|(partial, _)| &**partial)
    }

    /// A file without a name, beside this one.
    pub(super) fn scratch(&self) -> io::Result<File> {
        self.path().map_or_else(tempfile::tempfile, |path| tempfile::tempfile_in(directory(path)))
    }

    /// Puts the file in its place.
    pub(super) fn keep(self, file: &File) -> io::Result<()> {
        let Some((partial, place)) = self.whole else { return Ok(()) };
        file.sync_data()?;
        partial.persist(place).map_err(|error| error.error)
    }
}

pub(super) enum Encoder {
    Plain(BufWriter<File>),
    Gzip(flate2::write::GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl Encoder {
    pub(super) fn new(file: File, compression: Compression) -> io::Result<Encoder> {
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(match compression {
            Compression::Gzip => {
                Encoder::Gzip(flate2::write::GzEncoder::new(file, flate2::Compression::default()))
            }
            Compression::Zstd => Encoder::Zstd(zstd::stream::write::Encoder::new(file, ZSTD_LEVEL)?),
            Compression::None | Compression::Xz => Encoder::Plain(file),
        })
    }

    pub(super) fn finish(self) -> io::Result<File> {
        let file = match self {
            Encoder::Plain(file) => file,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Plain(file) => file.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Plain(file) => file.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}

//! Finds, makes, measures and locks the file or block device that a `FileDevice` is to use. It reads and writes nothing else.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{
    FallocateFlags, FlockOperation, OFlags, fallocate, fcntl_getfl, fcntl_setfl, flock, fstatvfs,
};
use rustix::io::Errno;

use super::super::{AlignedBuffer, SECTOR, check_size};
use super::FileOptions;

pub(super) struct OpenedFile {
    pub(super) file: File,
    pub(super) kind: FileKind,
    pub(super) bytes: u64,
    /// Whether the page cache is passed by, or why not.
    pub(super) direct: Result<(), String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    Block,
}

pub(super) fn open(path: &Path, options: &FileOptions) -> io::Result<OpenedFile> {
    let explain = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let (kind, is_new) = look(path, options).map_err(explain)?;
    open_found(path, options, kind, is_new)
        .inspect_err(|error| {
            // Made in vain, unless somebody else made it.
            if is_new && error.kind() != ErrorKind::AlreadyExists {
                drop(std::fs::remove_file(path));
            }
        })
        .map_err(explain)
}

/// What is there, and whether it has yet to be made.
fn look(path: &Path, options: &FileOptions) -> io::Result<(FileKind, bool)> {
    if let Some(bytes) = options.bytes {
        check_size(bytes)?;
    }
    match std::fs::metadata(path) {
        Ok(metadata) => Ok((kind(&metadata)?, false)),
        Err(error) if error.kind() == ErrorKind::NotFound => match options.bytes {
            Some(_) => Ok((FileKind::File, true)),
            None => Err(refused(ErrorKind::NotFound, "not there; give a size to make it")),
        },
        Err(error) => Err(error),
    }
}

fn kind(metadata: &Metadata) -> io::Result<FileKind> {
    let found = metadata.file_type();
    if found.is_block_device() {
        Ok(FileKind::Block)
    } else if found.is_file() {
        Ok(FileKind::File)
    } else {
        let what = if found.is_dir() { "a directory" } else { "something else" };
        Err(refused(ErrorKind::InvalidInput, &format!("{what}, where a file or block device is needed")))
    }
}

fn open_found(path: &Path, options: &FileOptions, kind: FileKind, is_new: bool) -> io::Result<OpenedFile> {
    let (file, direct) = open_either(path, options.direct, kind, is_new)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => {
            refused(ErrorKind::ResourceBusy, "in use by another process, or twice in this one")
        }
        error => error.into(),
    })?;
    let bytes = match kind {
        FileKind::File => size_file(&file, options.bytes, is_new)?,
        FileKind::Block => size_block(&file, options.bytes)?,
    };
    let direct = direct.and_then(|()| probe(&file).map_err(|error| error.to_string()));
    if direct.is_err() {
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::DIRECT)?;
    }
    Ok(OpenedFile { file, kind, bytes, direct })
}

/// Opens with O_DIRECT if that is wanted and possible.
fn open_either(
    path: &Path,
    direct: bool,
    kind: FileKind,
    is_new: bool,
) -> io::Result<(File, Result<(), String>)> {
    // A block device that is mounted, or part of something that is, is refused by the kernel then.
    let exclusive = if kind == FileKind::Block { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(is_new)
            .mode(0o600)
            .custom_flags((flags | exclusive).bits().cast_signed())
            .open(path)
            .map_err(|error| match error.kind() {
                ErrorKind::ResourceBusy => refused(error.kind(), "mounted, or otherwise in use"),
                ErrorKind::PermissionDenied => refused(error.kind(), "no permission to read and write it"),
                ErrorKind::NotFound if path.parent().is_some_and(Path::is_dir) => {
                    refused(error.kind(), "its directory takes no files")
                }
                ErrorKind::NotFound => refused(error.kind(), "its directory is not there"),
                _ => error,
            })
    };
    if !direct {
        return Ok((open(OFlags::empty())?, Err("not asked for".to_owned())));
    }
    match open(OFlags::DIRECT) {
        Ok(file) => Ok((file, Ok(()))),
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            if is_new {
                // The kernel makes the file before its file system refuses the flag.
                drop(std::fs::remove_file(path));
            }
            Ok((open(OFlags::empty())?, Err("the file system refuses it".to_owned())))
        }
        Err(error) => Err(error),
    }
}

/// A file's size, after all of its room is reserved: a cache that runs out of it later would lose what it holds.
fn size_file(file: &File, asked: Option<u64>, is_new: bool) -> io::Result<u64> {
    let found = file.metadata()?.len();
    let bytes = match asked {
        Some(asked) if !is_new && found != asked => {
            let why =
                format!("has {found} bytes, not {asked}: ask for {found}, or remove it to have it made anew");
            return Err(refused(ErrorKind::InvalidInput, &why));
        }
        Some(asked) => asked,
        None => check_size(found)?,
    };
    // Asked for more than there is, a file system may first use up all that others need.
    let reserved = file.metadata()?.blocks() * 512;
    let free = fstatvfs(file).map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
    if bytes.saturating_sub(reserved) > free {
        let why = format!("no space for {bytes} bytes; its file system has {free} left");
        return Err(refused(ErrorKind::StorageFull, &why));
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(bytes),
        // Such a file system cannot reserve.
        Err(Errno::OPNOTSUPP) => file.set_len(bytes).map(|()| bytes),
        Err(error) => Err(error.into()),
    }
}

fn size_block(file: &File, asked: Option<u64>) -> io::Result<u64> {
    let mut file = file;
    let found = file.seek(SeekFrom::End(0))?;
    match asked {
        Some(asked) if asked > found => {
            let why = format!("has {found} bytes, fewer than the {asked} asked for");
            Err(refused(ErrorKind::InvalidInput, &why))
        }
        Some(asked) => Ok(asked),
        None => check_size(found - found % SECTOR as u64),
    }
}

/// Some file systems take the flag and refuse the reads.
fn probe(file: &File) -> io::Result<()> {
    file.read_exact_at(&mut AlignedBuffer::new(SECTOR), 0)
}

fn refused(kind: ErrorKind, why: &str) -> io::Error {
    io::Error::new(kind, why.to_owned())
}

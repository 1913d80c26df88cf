//! What only files have: how they are opened, made and refused, and which calls reach the kernel.
#![expect(clippy::print_stdout, reason = "a test that was skipped says so")]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flash::device::{AlignedBuffer, Device, FileDevice, FileOptions, SECTOR, TransferCalls};

use super::scratch::Scratch;

const BYTES: u64 = 8 << 20;

pub(crate) fn every_way(bytes: u64) -> impl Iterator<Item = FileOptions> {
    [true, false].into_iter().flat_map(move |direct| {
        [TransferCalls::IoUring, TransferCalls::PreadPwrite].into_iter().map(move |calls| FileOptions {
            bytes: Some(bytes),
            direct,
            calls,
        })
    })
}

fn options(bytes: u64) -> FileOptions {
    FileOptions { bytes: Some(bytes), ..FileOptions::default() }
}

fn refused(path: &Path, options: &FileOptions, kind: ErrorKind, part: &str) {
    let error = FileDevice::open(path, options).unwrap_err();
    let text = error.to_string();
    assert!(error.kind() == kind && text.contains(part), "{:?}: {text}", error.kind());
    assert!(text.starts_with(&path.display().to_string()) || kind == ErrorKind::InvalidInput, "{text}");
}

#[test]
fn the_ring_is_used_where_the_kernel_allows_it() {
    for options in every_way(BYTES) {
        let scratch = Scratch::new();
        let device = FileDevice::open(scratch.path(), &options).unwrap();
        let text = device.description();
        match options.calls {
            TransferCalls::PreadPwrite => {
                assert!(text.contains("pread and pwrite (io_uring: not asked for)"), "{text}")
            }
            TransferCalls::IoUring if text.contains("pread and pwrite") => {
                println!("skipped, without io_uring: {text}")
            }
            TransferCalls::IoUring => {
                let pool = device.buffers(4 << 20, 2);
                let registered = device.description();
                assert!(registered.contains("io_uring (32 x 1024 KiB in flight"), "{registered}");
                let mut buffer = pool.take();
                buffer.fill(9);
                device.write(SECTOR as u64, &buffer).unwrap();
                buffer.fill(0);
                device.read(SECTOR as u64, &mut buffer).unwrap();
                assert!(buffer.iter().all(|byte| *byte == 9));
                assert!(device.description().contains("io_uring ("), "the ring is still whole");
            }
        }
        if !options.direct {
            assert!(text.contains("page cache (O_DIRECT: not asked for)"), "{text}");
        } else if !text.contains(", O_DIRECT, ") {
            println!("skipped, without O_DIRECT: {text}");
        }
    }
}

/// On tmpfs, which refused O_DIRECT before Linux 6.6.
#[test]
fn a_file_system_in_memory_serves_too() {
    let folder = Path::new("/dev/shm");
    if !folder.is_dir() {
        println!("skipped: no {}", folder.display());
        return;
    }
    let scratch = Scratch::within(folder);
    let device = FileDevice::open(scratch.path(), &options(BYTES)).unwrap();
    let mut buffer = AlignedBuffer::new(3 << 20);
    buffer.fill(5);
    device.write(0, &buffer).unwrap();
    device.discard(0, SECTOR as u64).unwrap();
    device.write(0, &buffer[..SECTOR]).unwrap();
    buffer.fill(0);
    device.read(0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 5), "{}", device.description());
}

#[test]
fn what_was_written_is_there_when_it_is_opened_again() {
    let scratch = Scratch::new();
    let mut buffer = AlignedBuffer::new(SECTOR);
    buffer.fill(3);
    {
        let device = FileDevice::open(scratch.path(), &options(BYTES)).unwrap();
        assert_eq!(fs::metadata(scratch.path()).unwrap().len(), BYTES);
        device.write(BYTES - SECTOR as u64, &buffer).unwrap();
        device.sync().unwrap();
        refused(scratch.path(), &options(BYTES), ErrorKind::ResourceBusy, "in use");
    }
    let device = FileDevice::open(scratch.path(), &FileOptions::default()).unwrap();
    assert_eq!(device.bytes(), BYTES);
    buffer.fill(0);
    device.read(BYTES - SECTOR as u64, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 3));
}

#[test]
fn discarding_keeps_the_room_of_a_file() {
    use std::os::unix::fs::MetadataExt;
    let scratch = Scratch::new();
    let device = FileDevice::open(scratch.path(), &options(BYTES)).unwrap();
    let room = || fs::metadata(scratch.path()).unwrap().blocks() * 512;
    assert!(room() >= BYTES);
    device.discard(0, BYTES / 2).unwrap();
    assert!(room() >= BYTES);
}

#[test]
fn what_cannot_be_a_device_is_refused_in_words() {
    let scratch = Scratch::new();
    let path = scratch.path();
    refused(path, &FileOptions::default(), ErrorKind::NotFound, "not there; give a size");
    refused(
        path,
        &options(5000),
        ErrorKind::InvalidInput,
        "must be whole sectors of 4096 bytes, such as 4096",
    );
    refused(path, &options(0), ErrorKind::InvalidInput, "must be whole sectors");
    refused(path, &options(1 << 45), ErrorKind::StorageFull, "no space for 35184372088832 bytes");
    assert!(!path.exists(), "what was made in vain is gone");
    refused(&path.join("below"), &options(BYTES), ErrorKind::NotFound, "its directory is not there");
    refused(path.parent().unwrap(), &options(BYTES), ErrorKind::InvalidInput, "a directory");
    refused(Path::new("/dev/null"), &options(BYTES), ErrorKind::InvalidInput, "something else");
    fs::write(path, vec![1; 2 * SECTOR]).unwrap();
    refused(path, &options(BYTES), ErrorKind::InvalidInput, "has 8192 bytes, not 8388608");
    assert_eq!(fs::read(path).unwrap(), vec![1; 2 * SECTOR], "nobody touched it");
    fs::write(path, vec![1; 100]).unwrap();
    refused(path, &FileOptions::default(), ErrorKind::InvalidInput, "100 bytes");
}

#[test]
fn a_file_without_permission_is_refused_in_words() {
    let scratch = Scratch::new();
    fs::write(scratch.path(), vec![1; SECTOR]).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(scratch.path()).is_ok() {
        println!("skipped: this user may write everything");
        return;
    }
    refused(scratch.path(), &FileOptions::default(), ErrorKind::PermissionDenied, "no permission");
}

/// A file that shrinks under the device, as a careless operator may let it.
#[test]
fn a_read_beyond_the_end_of_the_file_is_an_error() {
    for options in every_way(BYTES) {
        let scratch = Scratch::new();
        let device = FileDevice::open(scratch.path(), &options).unwrap();
        fs::OpenOptions::new().write(true).open(scratch.path()).unwrap().set_len(2 * SECTOR as u64).unwrap();
        let mut buffer = AlignedBuffer::new(4 << 20);
        for bytes in [4 * SECTOR, 4 << 20] {
            let error = device.read(0, &mut buffer[..bytes]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            assert!(error.to_string().contains(&format!("read of {bytes} bytes at 0")), "{error}");
        }
        device.read(0, &mut buffer[..2 * SECTOR]).unwrap();
    }
}

//! A device on a file or a block device, past the page cache and with many submissions in flight. Not how it is opened.

mod open;
mod ring;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate};

use super::counts::DeviceCounters;
use super::{BufferPool, Device, DeviceCounts, SECTOR, check};
use open::{FileKind, OpenedFile};
use ring::{IoRing, Transfer};

/// What one submission carries at most. Larger ones gain nothing, and smaller ones leave less to do in parallel.
const SUBMISSION: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub struct FileOptions {
    /// The size to make or to expect; none: that of what is there. A block device may be larger.
    pub bytes: Option<u64>,
    /// Past the page cache (O_DIRECT), where the file system can.
    pub direct: bool,
    pub calls: TransferCalls,
}

/// How large transfers reach the kernel. Those of one submission are one `pread` or `pwrite` in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferCalls {
    /// Or `PreadPwrite` where the kernel refuses.
    IoUring,
    PreadPwrite,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { bytes: None, direct: true, calls: TransferCalls::IoUring }
    }
}

pub struct FileDevice {
    file: File,
    path: PathBuf,
    kind: FileKind,
    bytes: u64,
    /// Or why not.
    direct: Result<(), String>,
    /// Apart, so that a long write holds up no reader. Without one after it broke.
    reading: Mutex<Option<IoRing>>,
    writing: Mutex<Option<IoRing>>,
    /// Why there are none from the beginning.
    without_ring: Option<String>,
    /// For memory that O_DIRECT does not take.
    bounce: Arc<BufferPool>,
    counters: DeviceCounters,
}

impl FileDevice {
    /// Opens `path`, and makes a file of `options.bytes` if nothing is there. One process at a time has it open.
    pub fn open(path: &Path, options: &FileOptions) -> io::Result<FileDevice> {
        let OpenedFile { file, kind, bytes, direct } = open::open(path, options)?;
        let rings = match options.calls {
            TransferCalls::IoUring => IoRing::new().and_then(|reading| Ok((reading, IoRing::new()?))),
            TransferCalls::PreadPwrite => Err(io::Error::other("not asked for")),
        };
        let (reading, writing, without_ring) = match rings {
            Ok((reading, writing)) => (Some(reading), Some(writing), None),
            Err(error) => (None, None, Some(error.to_string())),
        };
        Ok(FileDevice {
            file,
            path: path.to_owned(),
            kind,
            bytes,
            direct,
            reading: Mutex::new(reading),
            writing: Mutex::new(writing),
            without_ring,
            bounce: BufferPool::new(SUBMISSION, 4),
            counters: DeviceCounters::default(),
        })
    }

    fn transfer(&self, offset: u64, mut transfer: Transfer<'_>) -> io::Result<()> {
        if self.must_bounce(&transfer) {
            return self.bounced(offset, transfer);
        }
        if transfer.bytes() > SUBMISSION {
            let ring = if transfer.is_write() { &self.writing } else { &self.reading };
            let mut one = [(offset, transfer)];
            if let Some(result) = self.by_ring(ring, &mut one) {
                return result;
            }
            [(_, transfer)] = one;
        }
        match transfer {
            Transfer::Read(buffer) => self.file.read_exact_at(buffer, offset),
            Transfer::Write(buffer) => self.file.write_all_at(buffer, offset),
        }
    }

    /// Transfers by the kernel's ring; `None` if there is no ring.
    fn by_ring(
        &self,
        ring: &Mutex<Option<IoRing>>,
        transfers: &mut [(u64, Transfer<'_>)],
    ) -> Option<io::Result<()>> {
        let mut ring = lock(ring);
        let used = ring.as_mut()?;
        let result = used.transfer(self.file.as_fd(), transfers);
        if used.is_broken() {
            *ring = None;
        }
        Some(result)
    }

    fn must_bounce(&self, transfer: &Transfer<'_>) -> bool {
        self.direct.is_ok() && !transfer.address().is_multiple_of(SECTOR)
    }

    fn bounced(&self, offset: u64, transfer: Transfer<'_>) -> io::Result<()> {
        let mut bounce = self.bounce.take();
        let places = (offset..).step_by(SUBMISSION);
        match transfer {
            Transfer::Read(buffer) => {
                places.zip(buffer.chunks_mut(SUBMISSION)).try_for_each(|(place, part)| {
                    let bounce = &mut bounce[..part.len()];
                    self.file.read_exact_at(bounce, place)?;
                    part.copy_from_slice(bounce);
                    Ok(())
                })
            }
            Transfer::Write(buffer) => places.zip(buffer.chunks(SUBMISSION)).try_for_each(|(place, part)| {
                let bounce = &mut bounce[..part.len()];
                bounce.copy_from_slice(part);
                self.file.write_all_at(bounce, place)
            }),
        }
    }

    /// The same error, with what was tried.
    fn explain(&self, what: &str, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {what}: {error}", self.path.display()))
    }
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.description())
    }
}

impl Device for FileDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let bytes = buffer.len();
        check(self.bytes, offset, bytes as u64)?;
        self.transfer(offset, Transfer::Read(buffer))
            .map_err(|error| self.explain(&format!("read of {bytes} bytes at {offset}"), &error))?;
        self.counters.read(bytes);
        Ok(())
    }

    /// All in flight at once, as far as their memory is aligned.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> io::Result<()> {
        for (offset, buffer) in reads.iter() {
            check(self.bytes, *offset, buffer.len() as u64)?;
        }
        let count = reads.len();
        let (bounced, mut direct): (Vec<_>, Vec<_>) = reads
            .iter_mut()
            .map(|(offset, buffer)| (*offset, Transfer::Read(buffer)))
            .partition(|(_, transfer)| self.must_bounce(transfer));
        let result = match self.by_ring(&self.reading, &mut direct) {
            Some(result) => result,
            None => direct.into_iter().try_for_each(|(offset, transfer)| self.transfer(offset, transfer)),
        };
        result
            .and_then(|()| {
                bounced.into_iter().try_for_each(|(offset, transfer)| self.transfer(offset, transfer))
            })
            .map_err(|error| self.explain(&format!("one of {count} reads"), &error))?;
        reads.iter().for_each(|(_, buffer)| self.counters.read(buffer.len()));
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> io::Result<()> {
        let bytes = buffer.len();
        check(self.bytes, offset, bytes as u64)?;
        self.transfer(offset, Transfer::Write(buffer))
            .map_err(|error| self.explain(&format!("write of {bytes} bytes at {offset}"), &error))?;
        self.counters.write(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|error| self.explain("sync", &error))
    }

    /// Punches a hole in a block device. A file keeps its room.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        check(self.bytes, offset, bytes)?;
        // A hole in a file is room that somebody else may take, and filling it again costs more than flash gains.
        if bytes == 0 || self.kind == FileKind::File {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, offset, bytes) {
            Ok(()) => self.counters.discard(bytes),
            Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => {
                return Err(self.explain(&format!("discard of {bytes} bytes at {offset}"), &error.into()));
            }
        }
        Ok(())
    }

    fn counts(&self) -> DeviceCounts {
        self.counters.counts()
    }

    fn description(&self) -> String {
        let kind = match self.kind {
            FileKind::File => "file",
            FileKind::Block => "block device",
        };
        let cache = match &self.direct {
            Ok(()) => "O_DIRECT".to_owned(),
            Err(why) => format!("page cache (O_DIRECT: {why})"),
        };
        let calls = match (&*lock(&self.writing), &self.without_ring) {
            (Some(ring), _) => ring.description(),
            (None, Some(why)) => format!("pread and pwrite (io_uring: {why})"),
            (None, None) => "pread and pwrite (io_uring: it broke)".to_owned(),
        };
        format!("{kind} {}, {} MiB, {cache}, {calls}", self.path.display(), self.bytes >> 20)
    }

    /// With io_uring the kernel maps them once, here, and not at every transfer.
    fn buffers(&self, bytes: usize, count: usize) -> Arc<BufferPool> {
        let pool = BufferPool::new(bytes, count);
        for ring in [&self.reading, &self.writing] {
            if let Some(ring) = lock(ring).as_mut() {
                ring.register(&pool);
            }
        }
        pool
    }
}

fn lock(ring: &Mutex<Option<IoRing>>) -> MutexGuard<'_, Option<IoRing>> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

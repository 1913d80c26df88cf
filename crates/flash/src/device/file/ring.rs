//! One io_uring: cuts a transfer into submissions, keeps many in flight, waits for all. It knows no files but by descriptor.
#![expect(unsafe_code, reason = "the kernel reads and writes memory while a submission is in flight")]

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::super::{BufferPool, SECTOR};
use super::SUBMISSION;

/// Submissions in flight at once: enough to keep every channel of an NVMe device at work with small reads, too.
const DEPTH: usize = 32;

/// The kernel registers no piece of memory larger than this.
const REGISTERED_PIECE: usize = 1 << 30;

pub(super) enum Transfer<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
}

impl Transfer<'_> {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Transfer::Read(buffer) => buffer.len(),
            Transfer::Write(buffer) => buffer.len(),
        }
    }

    pub(super) fn address(&self) -> usize {
        match self {
            Transfer::Read(buffer) => buffer.as_ptr() as usize,
            Transfer::Write(buffer) => buffer.as_ptr() as usize,
        }
    }

    pub(super) fn is_write(&self) -> bool {
        matches!(self, Transfer::Write(_))
    }

    fn pieces(&mut self, offset: u64) -> impl Iterator<Item = RingTransfer> + use<> {
        let (bytes, is_write) = (self.bytes(), self.is_write());
        let memory = match self {
            Transfer::Read(buffer) => buffer.as_mut_ptr(),
            // Only read from, as `is_write` says.
            Transfer::Write(buffer) => buffer.as_ptr().cast_mut(),
        };
        let whole = RingTransfer { offset, memory, bytes, is_write };
        (0..whole.bytes).step_by(SUBMISSION).map(move |skipped| {
            let piece = whole.skip(skipped);
            RingTransfer { bytes: piece.bytes.min(SUBMISSION), ..piece }
        })
    }
}

/// What one submission is to move, or the rest of it.
#[derive(Clone, Copy)]
struct RingTransfer {
    offset: u64,
    memory: *mut u8,
    bytes: usize,
    is_write: bool,
}

impl RingTransfer {
    fn skip(self, bytes: usize) -> RingTransfer {
        let memory = self.memory.wrapping_add(bytes);
        RingTransfer { offset: self.offset + bytes as u64, memory, bytes: self.bytes - bytes, ..self }
    }
}

pub(super) struct IoRing {
    // Before the pools, so that the kernel lets go of their memory first.
    uring: IoUring,
    pools: Vec<Arc<BufferPool>>,
    is_broken: bool,
}

impl IoRing {
    pub(super) fn new() -> io::Result<IoRing> {
        let uring = IoUring::new(DEPTH as u32)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        let needed =
            [opcode::Read::CODE, opcode::Write::CODE, opcode::ReadFixed::CODE, opcode::WriteFixed::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::Error::new(ErrorKind::Unsupported, "the kernel is too old"));
        }
        Ok(IoRing { uring, pools: Vec::new(), is_broken: false })
    }

    /// Whether the kernel refused to go on. Then its transfer failed, and it must not be used again.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub(super) fn description(&self) -> String {
        let pools = if self.pools.is_empty() { "" } else { ", registered buffers" };
        format!("io_uring ({DEPTH} x {} KiB in flight{pools})", SUBMISSION >> 10)
    }

    /// From now on transfers from and to this memory spare the kernel mapping it. Kept from it, they work as well.
    pub(super) fn register(&mut self, pool: &Arc<BufferPool>) {
        self.pools.push(Arc::clone(pool));
        if self.register_all().is_err() {
            // More memory than this user may lock.
            self.pools.pop();
            if self.register_all().is_err() {
                self.pools.clear();
            }
        }
    }

    fn register_all(&mut self) -> io::Result<()> {
        let submitter = self.uring.submitter();
        // Fails when nothing was registered, which is as good.
        drop(submitter.unregister_buffers());
        let pieces: Vec<libc::iovec> = self.pools.iter().flat_map(|pool| registrations(pool)).collect();
        if pieces.is_empty() {
            return Ok(());
        }
        // SAFETY: the memory is that of pools which `self.pools` keeps until after the ring is gone.
        unsafe { submitter.register_buffers(&pieces) }
    }

    /// Under which index the kernel knows this memory.
    fn registered(&self, start: usize, bytes: usize) -> Option<u16> {
        let mut index = 0;
        for pool in &self.pools {
            let addresses = pool.addresses();
            if addresses.contains(&start) {
                let piece = (start - addresses.start) / REGISTERED_PIECE;
                let end = (addresses.start + (piece + 1) * REGISTERED_PIECE).min(addresses.end);
                return u16::try_from(index + piece).ok().filter(|_| start + bytes <= end);
            }
            index += addresses.len().div_ceil(REGISTERED_PIECE);
        }
        None
    }

    /// Moves all of them, or fails; either way the kernel has let go of the memory at the end.
    pub(super) fn transfer(
        &mut self,
        fd: BorrowedFd<'_>,
        transfers: &mut [(u64, Transfer<'_>)],
    ) -> io::Result<()> {
        let mut pieces = transfers.iter_mut().flat_map(|(offset, transfer)| transfer.pieces(*offset));
        let mut slots: [Option<RingTransfer>; DEPTH] = [None; DEPTH];
        let (mut idle, mut again): (Vec<usize>, Vec<RingTransfer>) = ((0..DEPTH).collect(), Vec::new());
        let mut in_flight = 0;
        let mut result = Ok(());
        loop {
            while result.is_ok() && in_flight < DEPTH {
                let Some(piece) = again.pop().or_else(|| pieces.next()) else { break };
                let slot = idle.pop().expect("as many slots as may be in flight");
                slots[slot] = Some(piece);
                let entry = self.entry(fd, piece).user_data(slot as u64);
                // SAFETY: the memory is borrowed by `transfers`, and this function returns only when nothing is in
                // flight any more; the kernel writes to it only where a transfer borrows it mutably.
                unsafe { self.uring.submission().push(&entry) }.expect("as many entries as slots");
                in_flight += 1;
            }
            if in_flight == 0 {
                return result;
            }
            if let Err(error) = self.submit() {
                // The kernel has not seen these, and will not.
                in_flight -= self.uring.submission().len();
                result = result.and(Err(error));
            }
            for entry in self.uring.completion() {
                let slot = entry.user_data() as usize;
                in_flight -= 1;
                idle.push(slot);
                match slots[slot].take().map(|piece| outcome(entry.result(), piece)) {
                    Some(Ok(rest)) if rest.bytes > 0 => again.push(rest),
                    Some(Err(error)) => result = result.and(Err(error)),
                    _ => {}
                }
            }
        }
    }

    /// Submits what is queued and waits for a completion. After an error it only looks for completions.
    fn submit(&mut self) -> io::Result<()> {
        if self.is_broken {
            std::thread::yield_now();
            return Ok(());
        }
        match self.uring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            // A signal, or the kernel is short of memory or wants completions to be taken first.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                Ok(())
            }
            Err(error) => {
                self.is_broken = true;
                Err(error)
            }
        }
    }

    fn entry(&self, fd: BorrowedFd<'_>, piece: RingTransfer) -> squeue::Entry {
        let RingTransfer { offset, memory, bytes, is_write } = piece;
        let (fd, length) = (types::Fd(fd.as_raw_fd()), bytes as u32);
        match (is_write, self.registered(memory as usize, bytes)) {
            (false, None) => opcode::Read::new(fd, memory, length).offset(offset).build(),
            (false, Some(index)) => opcode::ReadFixed::new(fd, memory, length, index).offset(offset).build(),
            (true, None) => opcode::Write::new(fd, memory, length).offset(offset).build(),
            (true, Some(index)) => opcode::WriteFixed::new(fd, memory, length, index).offset(offset).build(),
        }
    }
}

/// What is left of a piece for which the kernel answered `moved` bytes or a negative error.
fn outcome(moved: i32, piece: RingTransfer) -> io::Result<RingTransfer> {
    match usize::try_from(moved) {
        Ok(moved) if moved >= SECTOR => Ok(piece.skip(moved.min(piece.bytes) / SECTOR * SECTOR)),
        Ok(_) if piece.is_write => Err(ErrorKind::WriteZero.into()),
        Ok(_) => Err(ErrorKind::UnexpectedEof.into()),
        Err(_) if matches!(-moved, libc::EINTR | libc::EAGAIN) => Ok(piece),
        Err(_) => Err(io::Error::from_raw_os_error(-moved)),
    }
}

fn registrations(pool: &BufferPool) -> impl Iterator<Item = libc::iovec> {
    let addresses = pool.addresses();
    let end = addresses.end;
    addresses.step_by(REGISTERED_PIECE).map(move |start| libc::iovec {
        iov_base: start as *mut libc::c_void,
        iov_len: (end - start).min(REGISTERED_PIECE),
    })
}

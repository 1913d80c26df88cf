//! Every device against the same suite: random calls beside a vector, readers beside a writer, refused calls.

mod faults;
mod file;
mod ftl;
mod scratch;

use std::sync::atomic::{AtomicU64, Ordering};

use flash::device::{
    AlignedBuffer, Device, FaultyDevice, FileDevice, FtlDevice, FtlOptions, MemoryDevice, SECTOR,
};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use scratch::Scratch;

const SECTORS: usize = 1100;
const BYTES: u64 = (SECTORS * SECTOR) as u64;

/// Small enough that garbage is collected in a small device.
const FTL: FtlOptions = FtlOptions { page_bytes: 4096, block_pages: 16, over_provisioning: 0.2 };

/// Calls `test` with each kind of device.
fn each(test: impl Fn(&dyn Device)) {
    let memory = || MemoryDevice::new(BYTES).unwrap();
    test(&memory());
    test(&FtlDevice::new(memory(), &FTL).unwrap());
    test(&FaultyDevice::new(memory(), 1));
    for options in file::every_way(BYTES) {
        let scratch = Scratch::new();
        test(&FileDevice::open(scratch.path(), &options).unwrap());
    }
}

/// What a sector holds that was written by write number `version`.
fn content(sector: usize, version: u64) -> [u8; SECTOR] {
    let word = (sector as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version;
    let mut bytes = [0; SECTOR];
    for (index, part) in bytes.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&(word ^ index as u64).to_le_bytes());
    }
    bytes
}

fn fill(buffer: &mut [u8], first: usize, version: u64) {
    for (index, sector) in buffer.chunks_exact_mut(SECTOR).enumerate() {
        sector.copy_from_slice(&content(first + index, version));
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    /// First sector, sectors, whether the memory is aligned.
    Read(usize, usize, bool),
    Write(usize, usize, bool),
    Discard(usize, usize),
    Sync,
}

fn call() -> impl Strategy<Value = Call> {
    // One in eight is longer than a submission.
    let length = prop_oneof![7 => 0..40usize, 1 => 250..700usize];
    let range = (0..SECTORS, length).prop_map(|(first, length)| (first, length.min(SECTORS - first)));
    let range = || range.clone();
    prop_oneof![
        4 => (range(), any::<bool>()).prop_map(|((first, length), aligned)| Call::Read(first, length, aligned)),
        4 => (range(), any::<bool>()).prop_map(|((first, length), aligned)| Call::Write(first, length, aligned)),
        1 => range().prop_map(|(first, length)| Call::Discard(first, length)),
        1 => Just(Call::Sync),
    ]
}

/// Memory for the sectors, and where in it they begin.
fn memory(sectors: usize, aligned: bool) -> (AlignedBuffer, usize) {
    (AlignedBuffer::new((sectors + 1) * SECTOR), if aligned { 0 } else { 8 })
}

fn carry_out(device: &dyn Device, calls: &[Call]) {
    // What was written last, if anything, since the last discard.
    let mut twin: Vec<Option<u64>> = vec![None; SECTORS];
    let before = device.counts();
    let (mut reads, mut writes) = ((0, 0), (0, 0));
    for (version, call) in (1..).zip(calls) {
        let place = |first: usize| (first * SECTOR) as u64;
        match *call {
            Call::Write(first, length, aligned) => {
                let (mut memory, start) = memory(length, aligned);
                let buffer = &mut memory[start..start + length * SECTOR];
                fill(buffer, first, version);
                device.write(place(first), buffer).unwrap();
                twin[first..first + length].fill(Some(version));
                writes = (writes.0 + 1, writes.1 + buffer.len() as u64);
            }
            Call::Read(first, length, aligned) => {
                let (mut memory, start) = memory(length, aligned);
                let buffer = &mut memory[start..start + length * SECTOR];
                device.read(place(first), buffer).unwrap();
                for (sector, bytes) in (first..).zip(buffer.chunks_exact(SECTOR)) {
                    let expected = twin[sector].map(|version| content(sector, version));
                    assert!(expected.is_none_or(|expected| expected == bytes), "sector {sector}");
                }
                reads = (reads.0 + 1, reads.1 + buffer.len() as u64);
            }
            Call::Discard(first, length) => {
                device.discard(place(first), (length * SECTOR) as u64).unwrap();
                twin[first..first + length].fill(None);
            }
            Call::Sync => device.sync().unwrap(),
        }
    }
    let counts = device.counts().since(&before);
    assert_eq!((counts.reads, counts.read_bytes), reads);
    assert_eq!((counts.writes, counts.written_bytes), writes);
    if let (Some(flash), true) = (counts.flash, writes.1 > 0) {
        assert!(flash.programmed_bytes >= writes.1);
        assert!(counts.write_amplification().unwrap() >= 1.0);
    }
}

proptest! {
    #![proptest_config(cases::proptest(16))]

    #[test]
    fn a_device_holds_what_was_written(calls in prop::collection::vec(call(), 1..16)) {
        each(|device| carry_out(device, &calls));
    }
}

#[test]
fn what_is_not_whole_sectors_within_the_device_is_refused() {
    each(|device| {
        let mut buffer = AlignedBuffer::new(2 * SECTOR);
        let sector = SECTOR as u64;
        for (offset, bytes) in
            [(1, SECTOR), (0, 100), (sector, SECTOR + 8), (BYTES, SECTOR), (BYTES - sector, 2 * SECTOR)]
        {
            let errors = [
                device.read(offset, &mut buffer[..bytes]).unwrap_err(),
                device.write(offset, &buffer[..bytes]).unwrap_err(),
                device.discard(offset, bytes as u64).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{}", device.description());
                assert!(error.to_string().contains(&format!("{bytes} bytes at offset {offset}")), "{error}");
            }
        }
        assert!(device.read(u64::MAX - 4095, &mut buffer[..SECTOR]).is_err(), "an offset that overflows");
        assert_eq!(device.counts().writes, 0, "what is refused is not counted");
        assert_eq!(device.bytes(), BYTES);
    });
}

#[test]
fn many_reads_are_as_good_as_each_of_them() {
    each(|device| {
        let mut whole = AlignedBuffer::new(BYTES as usize);
        fill(&mut whole, 0, 1);
        device.write(0, &whole).unwrap();
        let before = device.counts();
        let mut buffers: Vec<(usize, AlignedBuffer, usize)> = (0..SECTORS - 300)
            .step_by(7)
            .enumerate()
            .map(|(index, first)| (first, memory(300, true).0, if index % 5 == 0 { 8 } else { 0 }))
            .collect();
        let mut reads: Vec<(u64, &mut [u8])> = buffers
            .iter_mut()
            .enumerate()
            .map(|(index, (first, memory, start))| {
                let sectors = if index % 9 == 0 { 299 } else { index % 3 };
                ((*first * SECTOR) as u64, &mut memory[*start..*start + sectors * SECTOR])
            })
            .collect();
        device.read_many(&mut reads).unwrap();
        for (offset, bytes) in &reads {
            let first = *offset as usize / SECTOR;
            assert!(**bytes == whole[first * SECTOR..first * SECTOR + bytes.len()], "{first}");
        }
        let counts = device.counts().since(&before);
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        assert_eq!((counts.reads, counts.read_bytes), (reads.len() as u64, bytes as u64));
        reads.push((BYTES, &mut []));
        device.read_many(&mut reads).unwrap();
        let mut beyond = AlignedBuffer::new(SECTOR);
        assert!(device.read_many(&mut [(BYTES, &mut beyond)]).is_err());
    });
}

#[test]
fn many_read_while_one_writes() {
    const READERS: u64 = 8;
    const BLOCK: usize = 300;
    each(|device| {
        // Blocks up to here are written.
        let (written, case) = (AtomicU64::new(0), cases::one());
        let blocks = (SECTORS / BLOCK) as u64;
        std::thread::scope(|scope| {
            for number in 0..READERS {
                let (written, seed) = (&written, case.seed.rotate_left(8) ^ number);
                scope.spawn(move || {
                    let mut random = SmallRng::seed_from_u64(seed);
                    let mut buffer = AlignedBuffer::new(BLOCK * SECTOR);
                    let mut read = 0;
                    while read < 30 || written.load(Ordering::Acquire) < blocks {
                        let known = written.load(Ordering::Acquire);
                        if known == 0 {
                            std::thread::yield_now();
                            continue;
                        }
                        let first = random.random_range(0..known) as usize * BLOCK
                            + random.random_range(0..BLOCK - 8);
                        let part = &mut buffer[..8 * SECTOR];
                        device.read((first * SECTOR) as u64, part).unwrap();
                        for (sector, bytes) in (first..).zip(part.chunks_exact(SECTOR)) {
                            assert!(
                                bytes == content(sector, 7),
                                "sector {sector} of {}",
                                device.description()
                            );
                        }
                        read += 1;
                    }
                });
            }
            let pool = device.buffers(BLOCK * SECTOR, 1);
            let mut buffer = pool.take();
            for block in 0..blocks as usize {
                fill(&mut buffer, block * BLOCK, 7);
                device.write((block * BLOCK * SECTOR) as u64, &buffer).unwrap();
                written.store(block as u64 + 1, Ordering::Release);
            }
        });
    });
}

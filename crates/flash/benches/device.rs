//! What a file costs through io_uring and through pread and pwrite: throughput and CPU per call. It asserts nothing.
#![expect(clippy::print_stdout, reason = "a table is what this is for")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use flash::device::{AlignedBuffer, Device, FileDevice, FileOptions, TransferCalls};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

const BYTES: u64 = 2 << 30;
const MIB: usize = 1 << 20;
/// Rounds in turn, of which the median counts.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(500);

/// One way to move bytes; does it once and tells how many.
type Work<'a> = Box<dyn Fn(&FileDevice, &mut SmallRng, &mut AlignedBuffer) -> usize + Sync + 'a>;

struct Case<'a> {
    name: String,
    threads: usize,
    /// Whether the device knows the memory beforehand.
    registered: bool,
    work: Work<'a>,
}

#[derive(Clone, Copy)]
struct Sample {
    mib_per_s: f64,
    calls_per_s: f64,
    cpu_us_per_call: f64,
}

fn main() {
    let path = std::env::var_os("DISTCACHE_BENCH_FILE")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("device-bench"), PathBuf::from);
    let cases = cases();
    println!("{:42} {:>10} {:>10} {:>12}   (median of {ROUNDS})", "", "MiB/s", "calls/s", "CPU us/call");
    for case in &cases {
        let mut samples =
            [TransferCalls::IoUring, TransferCalls::PreadPwrite].map(|calls| (calls, Vec::new()));
        for round in 0..ROUNDS {
            for (calls, samples) in &mut samples {
                let options = FileOptions { bytes: Some(BYTES), calls: *calls, ..FileOptions::default() };
                let device = FileDevice::open(&path, &options).expect("a file for the benchmark");
                if round == 0 && case.name == cases[0].name {
                    fill(&device);
                    println!("{}", device.description());
                }
                samples.push(sample(&device, case, round as u64));
            }
        }
        for (calls, samples) in &samples {
            let median = |of: fn(&Sample) -> f64| {
                let mut values: Vec<f64> = samples.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let name = format!("{}, {calls:?}", case.name);
            let (mib, calls) = (median(|sample| sample.mib_per_s), median(|sample| sample.calls_per_s));
            println!("{name:42} {mib:10.0} {calls:10.0} {:12.1}", median(|sample| sample.cpu_us_per_call));
        }
    }
    drop(std::fs::remove_file(&path));
}

fn cases() -> Vec<Case<'static>> {
    let mut cases = Vec::new();
    for (mib, registered) in [(1, true), (4, true), (16, true), (16, false), (64, true), (64, false)] {
        let work: Work<'_> = Box::new(move |device, random, buffer| {
            let bytes = mib * MIB;
            let slot = random.random_range(0..BYTES / bytes as u64);
            device.write(slot * bytes as u64, &buffer[..bytes]).expect("a write");
            bytes
        });
        let memory = if registered { "" } else { ", other memory" };
        cases.push(Case { name: format!("write {mib} MiB{memory}"), threads: 1, registered, work });
    }
    for kib in [4, 32] {
        for threads in [1, 8] {
            let bytes = kib * 1024;
            let one: Work<'_> = Box::new(move |device, random, buffer| {
                let slot = random.random_range(0..BYTES / bytes as u64);
                device.read(slot * bytes as u64, &mut buffer[..bytes]).expect("a read");
                bytes
            });
            let name = format!("read {kib} KiB, {threads} threads");
            cases.push(Case { name, threads, registered: true, work: one });
            for count in [1, 32] {
                let many: Work<'_> = Box::new(move |device, random, buffer| {
                    let places = || random.random_range(0..BYTES / bytes as u64) * bytes as u64;
                    let places = std::iter::repeat_with(places);
                    let mut reads: Vec<_> = places.zip(buffer[..count * bytes].chunks_mut(bytes)).collect();
                    device.read_many(&mut reads).expect("reads");
                    count * bytes
                });
                let name = format!("read_many {count} x {kib} KiB, {threads} threads");
                cases.push(Case { name, threads, registered: true, work: many });
            }
        }
    }
    cases
}

fn fill(device: &FileDevice) {
    let mut buffer = AlignedBuffer::new(64 * MIB);
    SmallRng::seed_from_u64(1).fill(&mut buffer[..]);
    for place in (0..BYTES).step_by(64 * MIB) {
        device.write(place, &buffer).expect("a write");
    }
}

fn sample(device: &FileDevice, case: &Case<'_>, seed: u64) -> Sample {
    let pool = device.buffers(64 * MIB, case.threads);
    let buffer = || if case.registered { pool.take() } else { AlignedBuffer::new(64 * MIB) };
    let buffers: Vec<AlignedBuffer> = (0..case.threads).map(|_| buffer()).collect();
    let (begun, cpu) = (Instant::now(), cpu());
    let work = |thread: u64, mut buffer: AlignedBuffer| {
        let mut random = SmallRng::seed_from_u64(seed << 8 | thread);
        let (mut calls, mut bytes) = (0, 0);
        while begun.elapsed() < ROUND {
            bytes += (case.work)(device, &mut random, &mut buffer);
            calls += 1;
        }
        (calls, bytes)
    };
    let done: Vec<(u64, usize)> = std::thread::scope(|scope| {
        let work = &work;
        let start = |(thread, buffer)| scope.spawn(move || work(thread, buffer));
        let threads: Vec<_> = (0..).zip(buffers).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let calls = done.iter().map(|(calls, _)| *calls as f64).sum::<f64>();
    let bytes = done.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>();
    Sample {
        mib_per_s: bytes / MIB as f64 / seconds,
        calls_per_s: calls / seconds,
        cpu_us_per_call: (self::cpu() - cpu).as_secs_f64() * 1e6 / calls,
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

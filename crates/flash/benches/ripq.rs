//! RIPQ's requests per second and CPU per request, on memory and in a file, and how long it takes to open. Not hit ratios.
//!
//! `cargo bench -p engine --bench ripq [-- FOLDER [GIB]]`: the file is created in FOLDER (the system's temporary one),
//! holds GIB (1) of objects of 32 KiB, and is removed.

#![expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]

use std::path::PathBuf;
use std::sync::Arc;

use flash::device::{Device, FileDevice, FileOptions, MemoryDevice};
use flash::ripq::{Ripq, RipqSettings};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

const VALUE_BYTES: usize = 32 << 10;

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Wall and CPU seconds of something.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, f64, T) {
    let (wall, cpu) = (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let result = work();
    (seconds(ClockId::Monotonic) - wall, seconds(ClockId::ProcessCPUTime) - cpu, result)
}

fn report(name: &str, requests: u64, (wall, cpu): (f64, f64)) {
    let count = requests as f64;
    println!("{name:36} {:>9.0} requests/s {:>8.2} us of CPU each", count / wall, cpu / count * 1e6);
}

/// Requests for objects that are there, from so many threads.
fn read(ripq: &Ripq, objects: u64, threads: u64, requests: u64) -> u64 {
    let one = |seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        let hit = |_: &u64| {
            let key = random.random_range(0..objects).to_le_bytes();
            ripq.get(&key).expect("healthy").is_some()
        };
        (0..requests / threads).filter(hit).count() as u64
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|seed| scope.spawn(move || one(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

fn run(name: &str, device: &Arc<dyn Device>, bytes: u64, block_bytes: u64) {
    let settings = RipqSettings { block_bytes, identity: 1, ..RipqSettings::default() };
    let ripq = Ripq::create(Arc::clone(device), settings.clone()).expect("an empty device");
    let objects = bytes / VALUE_BYTES as u64 * 9 / 10;
    let value = vec![7; VALUE_BYTES];
    println!("\n{name}, blocks of {} KiB: {}", block_bytes >> 10, device.description());
    let insert = |from: u64, to: u64| {
        for key in from..to {
            ripq.insert(&key.to_le_bytes(), &value).expect("healthy");
        }
    };
    let (wall, cpu, ()) = timed(|| insert(0, objects));
    report("insert, cache not full", objects, (wall, cpu));
    for threads in [1, 8] {
        let requests = 40_000;
        let reads = device.counts().reads;
        let (wall, cpu, hits) = timed(|| read(&ripq, objects, threads, requests));
        report(&format!("get, {threads} threads"), requests, (wall, cpu));
        let reads = (device.counts().reads - reads) as f64 / requests as f64;
        println!("  {:.1} % hits, {reads:.2} reads each", hits as f64 / requests as f64 * 100.0);
    }
    let (wall, cpu, ()) = timed(|| insert(objects, objects * 3 / 2));
    report("insert with eviction", objects / 2, (wall, cpu));
    let (contents, statistics) = (ripq.contents(), ripq.statistics());
    let memory = contents.memory;
    println!(
        "  per object: {:.1} bytes of index, {:.1} of queue; buffers {} MiB; write amplification {:.3}",
        memory.index_bytes as f64 / contents.objects as f64,
        memory.queue_bytes as f64 / contents.objects as f64,
        memory.buffers_bytes >> 20,
        statistics.write_amplification().unwrap_or(0.0),
    );
    let (wall, _, closed) = timed(|| ripq.close());
    closed.expect("healthy");
    println!("  close {wall:.3} s");
    let (wall, _, ripq) = timed(|| Ripq::open(Arc::clone(device), settings).expect("it was closed"));
    println!("  open {wall:.3} s, {} objects", ripq.contents().objects);
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let folder = arguments.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let gib: u64 = arguments.get(1).map_or(1, |gib| gib.parse().expect("GIB is a number"));
    let bytes = gib << 30;
    for block_bytes in [256 << 10, 4 << 20] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 30).expect("whole sectors"));
        run("memory", &device, 1 << 30, block_bytes);
        let path = folder.join(format!("ripq-bench-{}", std::process::id()));
        let file = FileDevice::open(&path, &FileOptions { bytes: Some(bytes), ..FileOptions::default() });
        let device: Arc<dyn Device> = Arc::new(file.expect("room for the file"));
        run("file", &device, bytes, block_bytes);
        drop(device);
        std::fs::remove_file(&path).expect("it was created");
    }
}

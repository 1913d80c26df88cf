//! How fast eviction policies are simulated, against a pass over the same trace through a hash map. Not a test: it prints.
//!
//! `cargo bench -p study --bench policies` runs every policy on caffeine/orm-busy with a cache of 8,000 objects, and on five
//! million requests with sizes. Rounds are interleaved and medians taken, so that what else the machine does hits all alike.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::collections::HashMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use engine::policy::{NEVER, Objects, Request, Spec};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ROUNDS: usize = 7;
/// The ratios that are asked of each policy on the first trace, at least.
const POLICIES: [(&str, f64); 17] = [
    ("fifo", 1.5),
    ("sieve", 1.5),
    ("lru", 1.0),
    ("s4lru", 0.7),
    ("arc", 0.7),
    ("s3fifo", 0.6),
    ("lfu", 0.5),
    ("clairvoyant", 0.3),
    ("wtinylfu", 0.25),
    ("gdsf", 0.12),
    ("gdsf:3", 0.0),
    ("s4lru-fill", 0.0),
    ("infinite", 0.0),
    ("random", 0.0),
    ("clock", 0.0),
    ("lirs", 0.0),
    ("2q", 0.0),
];

struct Decoded {
    ids: Vec<u64>,
    requests: Vec<Request>,
    objects: usize,
}

fn main() {
    // Cargo also runs benchmarks as tests, without this flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let busy = traces().join("caffeine/orm-busy.trace.xz");
    if busy.exists() {
        let accesses = trace::open(&busy, None).expect("the trace opens");
        let pairs =
            accesses.map(|access| access.expect("the trace is whole")).map(|access| (access.object, 1));
        compare("caffeine/orm-busy, 8,000 objects", &decode(pairs), 8_000);
    } else {
        println!("skipped: {} is not there", busy.display());
    }
    let sized = decode(generated());
    let mut seen = vec![false; sized.objects];
    let first = |request: &&Request| !std::mem::replace(&mut seen[request.object as usize], true);
    let working_set: u64 = sized.requests.iter().filter(first).map(|request| u64::from(request.bytes)).sum();
    compare("5 million requests with sizes, a tenth of the working set", &sized, working_set / 10);
}

fn traces() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("DISTCACHE_TRACES").map_or_else(beside, PathBuf::from)
}

/// Zipf 0.8 over a million objects, of which about 450,000 are requested; sizes from 2 to 512 KiB.
fn generated() -> impl Iterator<Item = (u64, u32)> {
    let mut random = SmallRng::seed_from_u64(1);
    let zipf = rand_distr::Zipf::new(1e6, 0.8).expect("a distribution");
    (0..5_000_000).map(move |_| {
        let object = random.sample(zipf) as u64;
        let mut own = SmallRng::seed_from_u64(object);
        (object, 2048 << own.random_range(0..8) | own.random_range(0..2048))
    })
}

fn decode(pairs: impl Iterator<Item = (u64, u32)>) -> Decoded {
    let mut objects = Objects::default();
    let (mut ids, mut requests) = (Vec::new(), Vec::new());
    for (id, bytes) in pairs {
        let object = objects.number(id).expect("few objects");
        ids.push(id);
        requests.push(Request { object, bytes, next: NEVER });
    }
    let mut coming = vec![NEVER; objects.count()];
    for (number, request) in requests.iter_mut().enumerate().rev() {
        request.next = std::mem::replace(&mut coming[request.object as usize], number as u64 + 1);
    }
    Decoded { ids, requests, objects: objects.count() }
}

fn compare(name: &str, trace: &Decoded, capacity: u64) {
    let map: HashMap<u64, u64> = trace.ids.iter().map(|id| (*id, 1)).collect();
    let mut pass = Vec::new();
    let mut times = vec![Vec::new(); POLICIES.len()];
    let mut misses = [0; POLICIES.len()];
    for _ in 0..ROUNDS {
        pass.push(seconds(|| {
            black_box(trace.ids.iter().filter_map(|id| map.get(id)).sum::<u64>());
        }));
        for (index, (policy, _)) in POLICIES.iter().enumerate() {
            let mut simulation = policy.parse::<Spec>().expect("a policy").simulation(capacity);
            times[index].push(seconds(|| {
                simulation.reserve(trace.objects);
                misses[index] = simulation.run(&trace.requests).requests;
            }));
        }
    }
    let requests = trace.requests.len() as f64;
    let pass = median(&mut pass);
    println!("\n{name}: {requests} requests, {} objects", trace.objects);
    println!("hash map: {:.1} million requests/s", requests / pass / 1e6);
    println!("policy       million/s   ratio  asked  miss ratio");
    for (index, (policy, asked)) in POLICIES.iter().enumerate() {
        let time = median(&mut times[index]);
        let (speed, ratio, missed) = (requests / time / 1e6, pass / time, misses[index] as f64 / requests);
        println!("{policy:12} {speed:9.1} {ratio:7.2} {asked:6.2} {missed:11.4}");
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

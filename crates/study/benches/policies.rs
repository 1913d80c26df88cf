//! How fast eviction policies are simulated, against a pass over the same trace through a hash map. Not a test: it prints.
//!
//! `cargo bench -p study --bench policies` runs every policy on caffeine/orm-busy with a cache of 8,000 objects, and on five
//! million requests with sizes. Rounds are interleaved and medians taken, so that what else the machine does hits all alike.

#![expect(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "../tests/at_hand/mod.rs"]
mod at_hand;

use std::collections::HashMap;
use std::hint::black_box;

use at_hand::Trace;
use policies::PolicySpec;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

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

fn main() {
    // Cargo also runs benchmarks as tests, without this flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    if let Some(mut busy) = at_hand::read(at_hand::TRACES[1], usize::MAX) {
        busy.requests.iter_mut().for_each(|request| request.bytes = 1);
        compare("caffeine/orm-busy, 8,000 objects", &busy, 8_000);
    }
    let sized = at_hand::decode(generated());
    compare("5 million requests with sizes, a tenth of the working set", &sized, sized.working_set / 10);
}

/// Zipf 0.8 over half a million objects, of which about 450,000 are requested; sizes from 2 to 512 KiB.
fn generated() -> impl Iterator<Item = (u64, u64)> {
    let mut random = SmallRng::seed_from_u64(1);
    let zipf = rand_distr::Zipf::new(5e5, 0.8).expect("a distribution");
    (0..5_000_000).map(move |_| {
        let object = random.sample(zipf) as u64;
        let mut own = SmallRng::seed_from_u64(object);
        (object, 2048 << own.random_range(0..8) | own.random_range(0..2048))
    })
}

fn compare(name: &str, trace: &Trace, capacity: u64) {
    let ids: Vec<u64> = trace.requests.iter().map(|request| u64::from(request.object)).collect();
    let map: HashMap<u64, u64> = ids.iter().map(|id| (*id, 1)).collect();
    let mut pass = Vec::new();
    let mut times = vec![Vec::new(); POLICIES.len()];
    let (mut misses, mut memory) = ([0; POLICIES.len()], [0; POLICIES.len()]);
    for _ in 0..ROUNDS {
        pass.push(seconds(|| {
            black_box(ids.iter().filter_map(|id| map.get(id)).sum::<u64>());
        }));
        for (index, (policy, _)) in POLICIES.iter().enumerate() {
            let mut simulation = policy.parse::<PolicySpec>().expect("a policy").simulation(capacity);
            times[index].push(seconds(|| {
                simulation.reserve(trace.objects);
                misses[index] = simulation.run(&trace.requests).requests;
            }));
            memory[index] = simulation.memory();
        }
    }
    let requests = trace.requests.len() as f64;
    let pass = median(&mut pass);
    println!("\n{name}: {requests} requests, {} objects", trace.objects);
    println!("hash map: {:.1} million requests/s", requests / pass / 1e6);
    println!("policy       million/s   ratio  asked  miss ratio       bytes");
    for (index, (policy, asked)) in POLICIES.iter().enumerate() {
        let time = median(&mut times[index]);
        let (speed, ratio, missed) = (requests / time / 1e6, pass / time, misses[index] as f64 / requests);
        println!("{policy:12} {speed:9.1} {ratio:7.2} {asked:6.2} {missed:11.4} {:11}", memory[index]);
    }
}

/// Time of this thread on a processor, whatever else the machine does.
fn seconds(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let begun = now();
    work();
    now() - begun
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

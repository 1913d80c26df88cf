//! The whole of every trace at hand through policies and their naive twins: the misses must be the same. Not a measurement.
//!
//! `cargo bench -p study --bench twins` takes a few minutes; the tests do the same with the beginning of each trace.

#![expect(clippy::print_stdout, reason = "it shows how far it is")]

#[path = "../tests/at_hand/mod.rs"]
mod at_hand;
#[path = "../../policies/tests/twins/mod.rs"]
mod twins;

use policies::PolicySpec;

fn main() {
    // Cargo also runs benchmarks as tests, without this flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for name in at_hand::TRACES {
        let Some(trace) = at_hand::read(name, usize::MAX) else { continue };
        for policy in ["fifo", "lru", "lfu", "gdsf", "gdsf:3", "clairvoyant", "sieve"] {
            let spec: PolicySpec = policy.parse().unwrap();
            for capacity in [trace.working_set / 100, trace.working_set / 10] {
                let mut simulation = spec.simulation(capacity);
                simulation.reserve(trace.objects);
                let ours = simulation.run(&trace.requests).requests;
                let mut twin = twins::twin(spec, capacity).unwrap();
                let theirs = trace.requests.iter().filter(|request| !twin.request(request)).count() as u64;
                println!("{name} {policy} {capacity}: {ours} misses, {theirs} of the twin");
                assert_eq!(ours, theirs);
            }
        }
    }
}

//! Eviction policies on the traces at hand: against libCacheSim's published numbers, against their naive twins, and against
//! pinned miss counts. Skipped where the traces are absent.

#![expect(clippy::print_stdout, reason = "whoever runs the tests should see what is skipped")]

mod at_hand;
#[path = "../../policies/tests/twins/mod.rs"]
mod twins;

use std::fmt::Write;

use at_hand::{TRACES, Trace, read};
use policies::{Insertion, Misses, PolicySpec, Simulation, Slru};
use study::what_if::{GridOutcome, GridSetting};
use twins::twin;

fn run(mut simulation: Box<dyn Simulation>, trace: &Trace) -> Misses {
    simulation.reserve(trace.objects);
    simulation.run(&trace.requests)
}

fn spec(name: &str) -> PolicySpec {
    name.parse().unwrap()
}

/// What libCacheSim's own tests (`test/test_evictionAlgo.c`) expect of cloudPhysicsIO in caches of 128 MiB, 256 MiB and so
/// on to 1 GiB: requests and bytes that miss.
#[rustfmt::skip]
const PUBLISHED: [(&str, [u64; 8], [u64; 8]); 10] = [
    ("fifo", [93403, 89386, 84387, 84025, 72498, 72228, 72182, 72140],
     [4213112832, 4052646400, 3829170176, 3807412736, 3093146112, 3079525888, 3079210496, 3077547520]),
    ("lru", [93374, 89783, 83572, 81722, 72494, 72104, 71972, 71704],
     [4214303232, 4061242368, 3778040320, 3660569600, 3100927488, 3078128640, 3075403776, 3061662720]),
    ("clock", [93313, 89775, 83411, 81328, 74815, 72283, 71927, 64456],
     [4213887488, 4064512000, 3762650624, 3644467200, 3256760832, 3091688448, 3074241024, 2697378816]),
    ("clairvoyant", [79256, 70724, 65481, 61594, 59645, 57599, 50873, 48974],
     [3472532480, 2995165696, 2726689792, 2537648128, 2403427840, 2269212672, 2134992896, 2029769728]),
    ("lfu", [91699, 86720, 78578, 76707, 69945, 66221, 64445, 64376],
     [4158632960, 3917211648, 3536227840, 3455379968, 3035580416, 2801699328, 2699456000, 2696345600]),
    ("sieve", [91699, 86720, 78578, 76707, 69945, 66221, 64445, 64376],
     [4158632960, 3917211648, 3536227840, 3455379968, 3035580416, 2801699328, 2699456000, 2696345600]),
    ("gdsf", [89070, 84750, 74850, 70490, 67923, 64180, 61027, 58721],
     [4210726912, 4057058816, 3719176192, 3436855296, 3271648256, 3029728768, 2828456448, 2677800448]),
    ("arc", [90252, 85861, 78168, 74297, 67381, 65685, 64439, 64772],
     [4068098560, 3821026816, 3525644800, 3296890368, 2868538880, 2771180032, 2699484672, 2712971264]),
    // There it is S3-FIFOv0, as in the paper.
    ("s3fifo", [89307, 82387, 77041, 76791, 71300, 70343, 70455, 70355],
     [4040718336, 3703628800, 3353047552, 3282235904, 3038256128, 2980646912, 2984458752, 2979649536]),
    // SLRU with five segments.
    (FILLING, [89624, 86725, 82781, 80203, 75388, 65645, 59035, 56063],
     [4123085312, 3915534848, 3690704896, 3493027840, 3174708736, 2661464064, 2507604992, 2439981056]),
];
/// As s4lru-fill, with another number of segments.
const FILLING: &str = "5 segments, filled";

#[test]
fn misses_are_those_that_libcachesim_publishes() {
    let Some(trace) = read(TRACES[0], usize::MAX) else { return };
    for (name, requests, bytes) in PUBLISHED {
        for (step, misses) in (1..).zip(std::iter::zip(requests, bytes)) {
            let capacity = step * (128 << 20);
            let simulation: Box<dyn Simulation> = if name == FILLING {
                Box::new(Slru::new(capacity, 5, Insertion::LowestWithRoom))
            } else {
                spec(name).simulation(capacity)
            };
            let ours = run(simulation, &trace);
            assert_eq!((ours.requests, ours.bytes), misses, "{name}, {capacity} bytes");
        }
    }
}

/// LIRS follows its paper where libCacheSim lowers a LIR object at every hit in the queue; the difference is small.
#[test]
fn lirs_is_close_to_what_libcachesim_publishes() {
    let Some(trace) = read(TRACES[0], usize::MAX) else { return };
    for (step, published) in (1..).zip([89819, 79237, 73143, 70363, 68405, 64494, 58640, 53924_u64]) {
        let ours = run(spec("lirs").simulation(step * (128 << 20)), &trace).requests;
        assert!(ours.abs_diff(published) * 100 <= published, "{ours} and {published}, step {step}");
    }
}

/// The whole traces are compared by `cargo bench -p study --bench twins`.
#[test]
fn policies_do_what_their_twins_do_on_real_traces() {
    for name in TRACES {
        let Some(trace) = read(name, 60_000) else { continue };
        for policy in ["fifo", "lru", "lfu", "gdsf", "gdsf:3", "clairvoyant", "sieve"] {
            let capacity = trace.working_set / 10;
            let mut twin = twin(spec(policy), capacity).unwrap();
            let theirs = trace.requests.iter().filter(|request| !twin.request(request)).count() as u64;
            assert_eq!(run(spec(policy).simulation(capacity), &trace).requests, theirs, "{policy} on {name}");
        }
    }
}

/// Prints the table that should be in `pinned.txt` if it is another one.
#[test]
fn misses_on_the_traces_at_hand_are_pinned() {
    let (mut pinned, mut ours) = (String::new(), String::new());
    for (name, sizes) in
        at_hand::TRACES.into_iter().zip(["0.01ws 0.1ws", "1000 8000", "100 1000", "0.01ws 0.1ws"])
    {
        let Some(path) = at_hand::find(name) else { continue };
        let opened = || Ok(trace::open(&path, None)?.take(1_000_000));
        let outcomes = setting(sizes).simulate(opened).unwrap();
        for GridOutcome { policy, size, requests, misses, .. } in outcomes {
            writeln!(ours, "{name} {policy} {size} {requests} {} {}", misses.requests, misses.bytes).unwrap();
        }
        let mine = include_str!("pinned.txt").lines().filter(|line| line.starts_with(name));
        pinned.extend(mine.flat_map(|line| [line, "\n"]));
    }
    assert!(ours == pinned, "should be in pinned.txt:\n{ours}");
}

fn setting(sizes: &str) -> GridSetting {
    let policies = "fifo lru lfu s4lru s4lru-fill slru:2 slru:3 slru-borrow:3 gdsf gdsf:1 gdsf:3 clairvoyant infinite \
                    random clock arc lirs 2q s3fifo sieve wtinylfu";
    GridSetting {
        policies: policies.split_whitespace().map(spec).collect(),
        sizes: sizes.split_whitespace().map(|size| size.parse().unwrap()).collect(),
        ignore_size: false,
        warmup: 0.0,
        threads: 2,
    }
}

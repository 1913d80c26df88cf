//! RIPQ against the exact policies, on traces and at equal bytes (dissertation, section 4.5.2). Not its speed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::device::{Device, MemoryDevice, SECTOR};
use engine::policy::{Request, Spec};
use engine::ripq::{Ripq, Settings, Statistics};

struct Trace {
    requests: Vec<Request>,
    objects: usize,
    working_set_bytes: u64,
}

/// Bytes of an object's record: 16, key, value, rounded up to 16. Both caches count these.
fn record_bytes(value_bytes: u32) -> u32 {
    (16 + 4 + value_bytes).next_multiple_of(16)
}

/// An oracleGeneral trace: 24 bytes each of time, object, size, next access.
fn trace(bytes: &[u8]) -> Trace {
    let mut numbers = BTreeMap::new();
    let mut working_set_bytes = 0;
    let request = |line: &[u8]| {
        let field = |range: std::ops::Range<usize>| {
            line[range].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        };
        let bytes = record_bytes(field(12..16) as u32);
        let next = numbers.len() as u32;
        let object = *numbers.entry(field(4..12)).or_insert_with(|| {
            working_set_bytes += u64::from(bytes);
            next
        });
        Request { bytes, ..Request::of(object) }
    };
    let requests = bytes.chunks_exact(24).map(request).collect();
    Trace { requests, objects: numbers.len(), working_set_bytes }
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn file(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("DISTCACHE_TRACES").map_or(root, PathBuf::from);
    let found = std::fs::read(folder.join(name)).ok();
    if found.is_none() {
        eprintln!("skipped: {name} is not in {}", folder.display());
    }
    found
}

/// Hit ratios in percent, the exact policy's first, and what RIPQ did.
fn compare(trace: &Trace, policy: &str, alpha: f64) -> (f64, f64, Statistics) {
    let capacity = trace.working_set_bytes / 10;
    let mut exact = policy.parse::<Spec>().expect("a policy").simulation(capacity);
    exact.reserve(trace.objects);
    let exact_misses = exact.run(&trace.requests).requests;
    let settings = Settings {
        policy: policy.parse().expect("a policy"),
        block_bytes: 256 << 10,
        alpha,
        capacity_bytes: Some(capacity),
        identity: 1,
        ..Settings::default()
    };
    let device_bytes = (capacity * 3 / 2 + (4 << 20)).next_multiple_of(SECTOR as u64);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(device_bytes).expect("whole sectors"));
    let ripq = Ripq::create(device, settings).expect("an empty device");
    let zeros = vec![0; 1 << 20];
    for request in &trace.requests {
        let key = request.object.to_le_bytes();
        if ripq.get(&key).expect("healthy").is_none() {
            ripq.insert(&key, &zeros[..request.bytes as usize - 20]).expect("healthy");
        }
    }
    ripq.verify().expect("consistent");
    assert!(ripq.contents().bytes <= capacity, "buffers and all");
    let percent = |hits: u64| 100.0 * hits as f64 / trace.requests.len() as f64;
    let statistics = ripq.statistics();
    (percent(trace.requests.len() as u64 - exact_misses), percent(statistics.hits), statistics)
}

/// Less than this is lost; more than the exact policy finds is no fault, where it leaves room in its segments empty.
fn check(trace: &Trace, policy: &str, alpha: f64, lost_max: f64) -> Statistics {
    let (exact, ripq, statistics) = compare(trace, policy, alpha);
    assert!(exact - ripq <= lost_max, "{policy}: {ripq} % instead of {exact} %");
    statistics
}

/// Section 4.5.2: "its hit ratio reduction values are below 0.2%" for the SLRU family, with 20 sections.
#[test]
fn segmented_lru_loses_less_than_a_fifth_of_a_point() {
    let Some(bytes) = file("libcachesim/cloudPhysicsIO.oracleGeneral.bin") else { return };
    let trace = trace(&bytes);
    for policy in ["slru:1", "slru:2", "slru:3"] {
        let statistics = check(&trace, policy, 0.05, 0.2);
        let written = statistics.write_amplification().expect("objects were inserted");
        assert!(written <= 1.25, "{policy}: {written} bytes written for each inserted");
    }
    let (exact, ripq, _) = compare(&trace, "slru:1", 0.05);
    assert!((exact - ripq).abs() < 0.2, "{ripq} % instead of {exact} %");
}

/// Section 4.5.2: RIPQ-GDSF incurs "a 1% reduction in object-wise hit ratio". Most objects of this trace have one of a
/// few sizes, so it takes more sections to tell them apart.
#[test]
fn gdsf_loses_less_than_a_point() {
    let Some(bytes) = file("libcachesim/cloudPhysicsIO.oracleGeneral.bin") else { return };
    let trace = trace(&bytes);
    for policy in ["gdsf:1", "gdsf:2", "gdsf:3", "gdsf"] {
        let (exact, ripq, _) = compare(&trace, policy, 0.02);
        assert!((exact - ripq).abs() < 1.0, "{policy}: {ripq} % instead of {exact} %");
    }
}

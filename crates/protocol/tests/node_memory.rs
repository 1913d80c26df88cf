//! What an object takes of a process, beside what its node says that it holds.

#[path = "world/full_node.rs"]
mod full_node;

use full_node::{VALUE, full_node, lose_session};

const KEY_BYTES: u64 = 16;

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process knows itself");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// No other test runs in this process.
#[test]
fn a_small_object_takes_less_than_250_bytes_and_counts_for_what_it_takes() {
    const KEYS: u64 = 300_000;
    // What the process needs once, whatever it holds.
    drop(full_node(10_000, 10_000));
    let before = resident_bytes();
    let (mut node, now) = full_node(KEYS as usize, KEYS);
    let taken = resident_bytes() - before;
    let counted = node.measured(now);
    let objects = counted.objects;
    assert!(objects > KEYS * 95 / 100, "all but those that the sketch of heat takes for others: {objects}");
    assert!(counted.hits >= objects, "each was there when it was asked for again");
    assert!(counted.bytes > objects * (KEY_BYTES + VALUE.len() as u64));
    let (of_each, ratio) = (taken / objects, taken as f64 / counted.bytes as f64);
    assert!(of_each <= 250, "{of_each} bytes for each object");
    lose_session(&mut node, now);
    assert_eq!((node.measured(now).bytes, node.objects(), node.is_consistent()), (0, 0, true));
    assert!((0.9..=1.1).contains(&ratio), "{taken} bytes taken, {} counted", counted.bytes);
}

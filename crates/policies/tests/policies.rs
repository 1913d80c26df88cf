//! Every policy against its naive twin on random requests, and what all policies have in common. Not on real traces: those
//! are the business of crate `study`, which can read them.

mod twins;

use std::collections::HashMap;

use policies::{NEVER, ObjectRequest, PolicySpec};
use proptest::prelude::*;
use twins::twin;

const ALL: [&str; 23] = [
    "fifo",
    "lru",
    "lfu",
    "s4lru",
    "s4lru-fill",
    "slru:1",
    "slru:2",
    "slru:3",
    "slru-borrow:1",
    "slru-borrow:3",
    "gdsf",
    "gdsf:1",
    "gdsf:3",
    "clairvoyant",
    "infinite",
    "random",
    "clock",
    "arc",
    "lirs",
    "2q",
    "s3fifo",
    "sieve",
    "wtinylfu",
];

fn specs() -> impl Iterator<Item = PolicySpec> {
    ALL.iter().map(|name| name.parse().unwrap())
}

/// Fills in what each request has as next.
fn with_future(mut requests: Vec<ObjectRequest>) -> Vec<ObjectRequest> {
    let mut coming = HashMap::new();
    for number in (0..requests.len()).rev() {
        let request = &mut requests[number];
        request.next = coming.insert(request.object, number as u64 + 1).unwrap_or(NEVER);
    }
    requests
}

/// Sizes change from request to request now and then, and objects may be larger than the cache.
fn requests() -> impl Strategy<Value = Vec<ObjectRequest>> {
    let few = (0_u32..12, 1_u32..4);
    let popular = (0_u32..1000, 1_u32..40).prop_map(|(rank, bytes)| (1000 / (rank + 1), bytes));
    let size_by_object = (0_u32..200).prop_map(|object| (object, object % 17 + 1));
    let unit = (0_u32..100).prop_map(|object| (object, 1));
    let one = prop_oneof![few.boxed(), popular.boxed(), size_by_object.boxed(), unit.boxed()];
    let mixed = proptest::collection::vec(one, 0..1500);
    let all_unit = proptest::collection::vec(
        prop_oneof![(0_u32..60).boxed(), (0_u32..1000).prop_map(|rank| 2000 / (rank + 1)).boxed()]
            .prop_map(|object| (object, 1)),
        0..1500,
    );
    prop_oneof![mixed.boxed(), all_unit.boxed()].prop_map(|pairs| {
        let request = |(object, bytes)| ObjectRequest { object, bytes, next: NEVER };
        with_future(pairs.into_iter().map(request).collect())
    })
}

/// Most of them far too small for what is asked for.
fn capacity() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..30, 30_u64..400]
}

fn objects(requests: &[ObjectRequest]) -> usize {
    requests.iter().map(|request| request.object as usize + 1).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(cases::proptest(150))]

    #[test]
    fn policies_do_what_their_naive_twins_do(requests in requests(), capacity in capacity()) {
        for spec in specs() {
            let Some(mut twin) = twin(spec, capacity) else { continue };
            let mut policy = spec.simulation(capacity);
            policy.reserve(objects(&requests));
            for (number, request) in requests.iter().enumerate() {
                let missed = policy.run(std::slice::from_ref(request)).requests == 1;
                prop_assert_eq!(!missed, twin.request(request), "{} of {}: request {}", spec, capacity, number);
            }
        }
    }

    /// A file may be wrong about the future, and sizes may be anything: it is simulated somehow, and comes to an end.
    #[test]
    fn requests_without_sense_do_no_harm(
        wild in proptest::collection::vec((0_u32..30, prop_oneof![Just(0), 1_u32..20, Just(u32::MAX)], 0_u64..100), 0..800),
        capacity in 0_u64..60,
    ) {
        let request = |(object, bytes, next)| ObjectRequest { object, bytes, next: if next == 0 { NEVER } else { next - 1 } };
        let requests: Vec<ObjectRequest> = wild.into_iter().map(request).collect();
        for spec in specs() {
            let mut policy = spec.simulation(capacity);
            policy.reserve(30);
            prop_assert!(policy.run(&requests).requests <= requests.len() as u64);
        }
    }

    /// Objects that become known later, and requests in runs of any length, change nothing.
    #[test]
    fn runs_and_reserves_may_be_of_any_length(requests in requests(), capacity in capacity(), length in 1_usize..300) {
        for spec in specs() {
            let mut whole = spec.simulation(capacity);
            whole.reserve(objects(&requests));
            let expected = whole.run(&requests);
            let mut parts = spec.simulation(capacity);
            let (mut known, mut misses) = (0, policies::Misses::default());
            for part in requests.chunks(length) {
                known = known.max(objects(part));
                parts.reserve(known);
                misses += parts.run(part);
            }
            prop_assert_eq!(misses, expected, "{}", spec);
        }
    }

    /// With sizes of 1, nobody who lets every object in misses less than the clairvoyant, nor that one less than an
    /// infinite cache.
    #[test]
    fn no_policy_beats_the_future(keys in proptest::collection::vec(0_u32..60, 0..1000), capacity in 1_u64..80) {
        let requests = with_future(keys.into_iter().map(ObjectRequest::of).collect());
        let misses = |spec: PolicySpec| {
            let mut policy = spec.simulation(capacity);
            policy.reserve(60);
            policy.run(&requests).requests
        };
        let least = misses(PolicySpec::Clairvoyant);
        prop_assert!(misses(PolicySpec::Infinite) <= least);
        for spec in specs().filter(|spec| !matches!(spec, PolicySpec::Infinite | PolicySpec::Gdsf { .. })) {
            prop_assert!(least <= misses(spec), "{}", spec);
        }
    }
}

#[test]
fn an_object_keeps_its_first_size_and_one_that_is_too_large_stays_out() {
    for spec in specs().filter(|spec| *spec != PolicySpec::Infinite) {
        let mut policy = spec.simulation(1000);
        policy.reserve(3);
        let request = |object, bytes| ObjectRequest { object, bytes, next: 1 };
        let missed = policy.run(&[
            request(0, 100),
            request(0, 1001),
            request(1, 1001),
            request(1, 1001),
            request(0, 1),
        ]);
        assert_eq!((missed.requests, missed.bytes), (3, 2102), "{spec}");
    }
}

/// Requests over ever more objects, none of them twice: what is remembered must not grow beyond the arrays by object.
#[test]
fn a_scan_does_not_make_what_is_remembered_grow() {
    for spec in specs().filter(|spec| *spec != PolicySpec::Infinite) {
        let mut policy = spec.simulation(1000);
        policy.reserve(1_000_000);
        let scan: Vec<ObjectRequest> = (0..1_000_000).map(ObjectRequest::of).collect();
        policy.run(&scan[..10_000]);
        let early = policy.memory();
        policy.run(&scan[10_000..]);
        assert!(policy.memory() <= early + 64 * 1000, "{spec}: {} after {early}", policy.memory());
    }
}

#[test]
fn lru_takes_at_most_48_bytes_for_each_cached_object() {
    // A fourth of all is cached, or all, or a tenth of objects without a size.
    let tenth = (1, 8_000, 76_349);
    let all = 100_000;
    let cases = [(1, 25_000, all), (1, all, all), (1000, 25_000, all), (1000, all, all), tenth];
    for (bytes, cached, objects) in cases {
        let mut lru = PolicySpec::Lru.simulation(u64::from(cached * bytes));
        lru.reserve(objects as usize);
        let request = |object| ObjectRequest { object, bytes, next: NEVER };
        // The last ones are hits: they leave stale places in the queue.
        let all_twice = (0..objects).chain(0..objects);
        let requests: Vec<ObjectRequest> = all_twice.chain(objects - cached..objects).map(request).collect();
        lru.run(&requests);
        let each = lru.memory() as f64 / f64::from(cached);
        assert!(each <= 48.0, "{each} bytes for each of {cached} of {bytes} bytes, of {objects} objects");
    }
}

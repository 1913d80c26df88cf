//! Grids of policies and sizes over a trace: what is counted, and what must be known beforehand. Not what one
//! policy does.

use policies::PolicySpec;
use proptest::prelude::*;
use study::what_if::{GridOutcome, GridSetting, WhatIfError};
use trace::{Access, AccessOperation, NextAccess, TraceError};

const ALL: &str = "fifo lru lfu s4lru s4lru-fill slru:2 slru:3 slru-borrow:3 gdsf gdsf:1 gdsf:3 clairvoyant infinite random \
                   clock arc lirs 2q s3fifo sieve wtinylfu";

fn setting(policies: &str, sizes: &str) -> GridSetting {
    GridSetting {
        policies: policies.split_whitespace().map(|name| name.parse().unwrap()).collect(),
        sizes: sizes.split_whitespace().map(|size| size.parse().unwrap()).collect(),
        ignore_size: false,
        warmup: 0.0,
        threads: 2,
    }
}

fn access(object: u64, bytes: u64) -> Access {
    Access { time: 0, object, bytes, next: NextAccess::Unknown, operation: AccessOperation::Read }
}

/// With the next access of each, as oracleGeneral has it.
fn with_next(mut accesses: Vec<Access>) -> Vec<Access> {
    let mut coming = std::collections::HashMap::new();
    for (index, access) in accesses.iter_mut().enumerate().rev() {
        let next = coming.insert(access.object, index as u64 + 1);
        access.next = next.map_or(NextAccess::Never, NextAccess::Known);
    }
    accesses
}

fn simulate(setting: &GridSetting, accesses: &[Access]) -> Result<Vec<GridOutcome>, WhatIfError> {
    setting.simulate(|| Ok::<_, TraceError>(accesses.iter().copied().map(Ok)))
}

fn counts(outcomes: &[GridOutcome]) -> Vec<(PolicySpec, u64, u64, u64, u64, u64)> {
    let counts = |outcome: &GridOutcome| {
        let GridOutcome { policy, size, requests, bytes, misses, .. } = *outcome;
        (policy, size, requests, bytes, misses.requests, misses.bytes)
    };
    outcomes.iter().map(counts).collect()
}

proptest! {
    #![proptest_config(cases::proptest(30))]

    #[test]
    fn threads_and_a_computed_future_change_nothing(
        keys in proptest::collection::vec((0_u64..200, 1_u64..50), 1..3000),
        warmup in 0.0..0.9,
    ) {
        let blind: Vec<Access> = keys.iter().map(|(object, bytes)| access(*object << 40, *bytes)).collect();
        let seeing = with_next(blind.clone());
        let mut setting = GridSetting { warmup, ..setting(ALL, "100 0.1ws 0.5ws") };
        let expected = counts(&simulate(&setting, &seeing).unwrap());
        for threads in [1, 2, 7] {
            setting.threads = threads;
            prop_assert_eq!(&counts(&simulate(&setting, &seeing).unwrap()), &expected);
            prop_assert_eq!(&counts(&simulate(&setting, &blind).unwrap()), &expected);
        }
    }
}

#[test]
fn what_comes_first_is_not_counted() {
    let accesses: Vec<Access> = [1, 2, 3, 1, 1, 2, 4, 1].map(|object| access(object, 10)).into();
    let counted = |warmup| {
        let outcome = simulate(&GridSetting { warmup, ..setting("lru", "1000") }, &accesses).unwrap()[0];
        (outcome.requests, outcome.bytes, outcome.misses.requests, outcome.misses.bytes, outcome.objects)
    };
    assert_eq!(counted(0.0), (8, 80, 4, 40, 4));
    assert_eq!(counted(0.25), (6, 60, 2, 20, 4));
    assert_eq!(counted(0.99), (1, 10, 0, 0, 4));
}

#[test]
fn sizes_may_be_shares_and_may_be_ignored() {
    let accesses = [access(1, 30), access(2, 70), access(1, 500)];
    let mut setting = setting("lru", "0.5ws 100 1ws");
    let outcomes = simulate(&setting, &accesses).unwrap();
    assert_eq!(outcomes.iter().map(|outcome| outcome.size).collect::<Vec<_>>(), [50, 100, 100]);
    assert_eq!(outcomes.iter().map(|outcome| outcome.misses.requests).collect::<Vec<_>>(), [2, 2, 2]);
    setting.ignore_size = true;
    let outcomes = simulate(&setting, &accesses).unwrap();
    assert_eq!(outcomes.iter().map(|outcome| outcome.size).collect::<Vec<_>>(), [1, 100, 2]);
    assert_eq!(outcomes.iter().map(|outcome| outcome.misses.bytes).collect::<Vec<_>>(), [3, 2, 2]);
}

#[test]
fn what_cannot_be_simulated_is_an_error() {
    let error =
        |setting: &GridSetting, accesses: &[Access]| simulate(setting, accesses).unwrap_err().to_string();
    let plain = setting("lru clairvoyant", "10");
    assert_eq!(error(&plain, &[]), "the trace has no requests");
    let large = [access(1, 10), access(1, u64::from(u32::MAX) + 1)];
    assert_eq!(
        error(&plain, &large),
        "request 2: an object of 4294967296 bytes; at most 4294967295 can be simulated"
    );
    assert!(simulate(&GridSetting { ignore_size: true, ..plain.clone() }, &large).is_ok());
    for warmup in [-0.1, 1.0, f64::NAN] {
        let error = error(&GridSetting { warmup, ..plain.clone() }, &large);
        assert!(error.ends_with("write a share of the trace from 0 to less than 1"), "{error}");
    }
}

#[test]
fn next_requests_that_are_not_true_are_refused() {
    use NextAccess::{Known, Never, Unknown};
    let trace = |rows: &[(u64, NextAccess)]| -> Vec<Access> {
        rows.iter().map(|(object, next)| Access { next: *next, ..access(*object, 1) }).collect()
    };
    let clairvoyant = setting("lru clairvoyant", "10");
    let hint = "`distcache trace convert` to oracle-general writes the right next requests";
    for (rows, expected) in [
        (
            vec![(7, Never), (8, Never), (7, Never)],
            "request 3 is for object 7, whose last one announced no other",
        ),
        (
            vec![(7, Known(4)), (8, Never), (7, Never)],
            "request 3 is for object 7, whose last one announced request 4",
        ),
        (
            vec![(7, Known(2)), (8, Never), (7, Never)],
            "request 3 is for object 7, whose last one announced request 2",
        ),
        (
            vec![(7, Known(3)), (8, Never), (9, Never)],
            "request 3 is not for object 7, as the trace announced",
        ),
    ] {
        let rows = trace(&rows);
        assert_eq!(simulate(&clairvoyant, &rows).unwrap_err().to_string(), format!("{expected}; {hint}"));
        let warm = GridSetting { warmup: 0.5, ..clairvoyant.clone() };
        assert!(simulate(&warm, &rows).is_err());
        assert!(simulate(&setting("lru", "10"), &rows).is_ok(), "who does not look is not deceived");
    }
    let cut = trace(&[(7, Known(3)), (8, Known(900)), (7, Known(1000))]);
    assert!(simulate(&clairvoyant, &cut).is_ok());
    let partly = trace(&[(7, Unknown), (8, Known(3)), (8, Never), (7, Known(5)), (7, Unknown)]);
    assert!(simulate(&clairvoyant, &partly).is_ok());
}

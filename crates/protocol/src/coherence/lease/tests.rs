//! Leases at both ends as messages come, are late and are lost. Not what a shim does when one lapses.

use super::{
    EarlierIncarnations, HelloAnswer, LeaseBounds, LeaseLimits, LeaseTerms, NodeSession, Renewed,
    ShimSession, Unrecorded,
};
use crate::time::Time;
use std::time::Duration;
use wire::message::{Grant, Hello, Leave, Reject, Welcome};

const TERMS: LeaseTerms = LeaseTerms { duration: Duration::from_secs(1), guard: Duration::from_millis(10) };

const L: Duration = TERMS.duration;
const PROCESS: u64 = 5;

/// A process says HELLO without knowing what another one of the same id holds.
#[test]
fn another_process_waits_until_the_lease_is_over() {
    let (_, mut shim) = open(1);
    let end = shim.end().expect("it is open");
    let hello = |number, process| Hello { number, nonce: 3, process };
    let rejected = HelloAnswer::Reject(Reject { last: 1, nonce: 3 });
    assert_eq!(shim.hello(Time(0), &hello(1, 6)), rejected);
    assert_eq!(shim.hello(Time(end.0 - 1), &hello(2, 6)), HelloAnswer::Silence);
    assert_eq!(shim.clone().hello(end, &hello(2, 6)), HelloAnswer::Open);
    assert_eq!(shim.hello(Time(0), &hello(2, PROCESS)), HelloAnswer::Open, "it has dropped what it held");
    shim.close();
    assert_eq!(shim.hello(Time(0), &hello(3, 6)), HelloAnswer::Open);
}

fn open(number: u64) -> (NodeSession, ShimSession) {
    let (mut node, mut shim) = (NodeSession::new(), ShimSession::default());
    let hello = node.hello(Time(0), 7, PROCESS);
    assert_eq!(hello, Hello { number, nonce: 7, process: PROCESS });
    assert_eq!(shim.hello(Time(0), &hello), HelloAnswer::Open);
    assert!(node.welcome(&welcome(99, 7)));
    shim.open(Time(0), 99, PROCESS, &TERMS);
    (node, shim)
}

fn bounds(invalidate_oldest: Option<Time>, storage_proof: Time) -> LeaseBounds {
    LeaseBounds { invalidate_oldest, storage_proof, duration_max: L, leave_max: Duration::ZERO }
}

fn grant(session: u64, sent: u64, duration: Duration) -> Grant {
    Grant { session, sent, duration: micros(duration), guard: micros(TERMS.guard), leave: None }
}

fn welcome(session: u64, nonce: u64) -> Welcome {
    Welcome { session, nonce, lease: micros(TERMS.duration), guard: micros(TERMS.guard) }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

/// Real time runs as `ticks`; the two clocks differ by up to 1 % in rate, and messages take up to 200 ms.
#[test]
fn the_node_stops_before_the_shim_thinks_so_at_any_clock_rate() {
    for (node_rate, shim_rate) in [(100u64, 100u64), (99, 100), (100, 101), (101, 100), (100, 99)] {
        let (mut node, mut shim) = open(1);
        let clock = |real_us: u64, rate: u64| Time(real_us * rate / 100);
        let mut random = 12_345u64;
        let mut real_us = 0;
        let mut grants = 0;
        for _ in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let sent = clock(real_us, node_rate);
            real_us += random % 100_000;
            if let Some(Renewed { lease: duration, .. }) =
                shim.renew(clock(real_us, shim_rate), 99, bounds(None, clock(real_us, shim_rate)), &TERMS)
            {
                real_us += random % 90_000;
                node.grant(clock(real_us, node_rate), &grant(99, sent.0, duration));
                grants += 1;
            }
            real_us += random % 400_000;
            for ahead_us in (0..2_000_000).step_by(1_000) {
                let at = real_us + ahead_us;
                if node.holds(clock(at, node_rate)) {
                    assert!(!shim.lapsed(clock(at, shim_rate)), "rates {node_rate}:{shim_rate}, {at} us");
                }
            }
        }
        assert!(grants > 100, "the lease must have been renewed for this to say anything");
    }
}

#[test]
fn an_unacknowledged_inv_bounds_the_lease_however_often_it_is_renewed() {
    let (_, mut shim) = open(1);
    let invalidate = Time(400_000);
    let mut now = Time(0);
    while !shim.lapsed(now) {
        let oldest = (now >= invalidate).then_some(invalidate);
        shim.renew(now, 99, bounds(oldest, now), &TERMS);
        now = now.after(Duration::from_millis(10));
    }
    assert!(now <= invalidate.after(TERMS.duration + Duration::from_millis(10)), "{now:?}");
}

#[test]
fn without_storage_proof_nothing_is_granted_beyond_a_lease_after_the_last_one() {
    let (_, mut shim) = open(1);
    let proof = Time(300_000);
    let renewed = |ms| Some(Renewed { lease: Duration::from_millis(ms), leave: Duration::ZERO });
    assert_eq!(shim.renew(Time(800_000), 99, bounds(None, proof), &TERMS), renewed(500));
    assert_eq!(shim.renew(Time(1_290_000), 99, bounds(None, proof), &TERMS), renewed(10));
    assert!(shim.lapsed(Time(1_300_000)));
    assert_eq!(shim.renew(Time(1_300_000), 99, bounds(None, proof), &TERMS), None);
}

#[test]
fn a_grant_after_the_lapse_and_one_for_another_session_are_ignored() {
    let (mut node, _) = open(1);
    node.grant(Time(10), &grant(98, 0, TERMS.duration));
    assert!(!node.holds(Time(10)));
    node.grant(Time(10), &grant(99, 0, TERMS.duration));
    assert!(node.holds(Time(979_999)));
    assert!(node.lapsed(Time(980_000)), "1 s less 1 % less 10 ms");
    node.grant(Time(980_000), &grant(99, 970_000, TERMS.duration));
    assert!(node.lapsed(Time(980_000)));
}

/// Leave goes on where the lease ends, for as long as rules allow, and not a moment longer on either side.
#[test]
fn leave_outlives_the_lease_and_is_bounded_like_it() {
    let (mut node, mut shim) = open(1);
    node.grant(Time(0), &grant(99, 0, L));
    let silent = LeaseBounds { leave_max: L, duration_max: Duration::ZERO, ..bounds(None, Time(0)) };
    let renewed = shim.renew(Time(900_000), 99, silent, &TERMS);
    assert_eq!(renewed, Some(Renewed { lease: Duration::ZERO, leave: L }));
    assert_eq!(shim.end(), Some(Time(1_900_000)));
    let leave = Leave { duration: micros(L), unheard: 700_000 };
    node.grant(Time(950_000), &Grant { leave: Some(leave), ..grant(99, 900_000, Duration::ZERO) });
    assert!(node.holds(Time(979_999)) && !node.holds(Time(980_000)), "the lease is what it was");
    let given = node.leave().expect("it was given");
    let stale_max = Duration::from_secs(30);
    assert!(given.covers(Time(1_879_999), stale_max) && !given.covers(Time(1_880_000), stale_max));
    // Of the second that a rule allows 700 ms were over when it was asked for.
    assert!(given.covers(Time(1_189_999), L) && !given.covers(Time(1_190_000), L));
    assert!(!given.covers(Time(900_000), Duration::from_millis(700)));
    assert!(!node.lapsed(Time(1_879_999)) && node.lapsed(Time(1_880_000)));
    // Who owes an answer gets less of it.
    let owing = LeaseBounds { invalidate_oldest: Some(Time(1_400_000)), ..silent };
    let renewed = shim.renew(Time(1_800_000), 99, owing, &TERMS).expect("it is live");
    assert_eq!(renewed.leave, Duration::from_millis(600));
    // A GRANT without it ends it, one that was sent before it does not.
    node.grant(Time(1_000_000), &grant(99, 800_000, Duration::ZERO));
    assert_eq!(node.leave(), Some(given));
    node.grant(Time(1_000_000), &grant(99, 950_000, L));
    assert!(node.leave().is_none() && node.holds(Time(1_929_999)));
}

/// A successor waits for whatever may be granted before it, whoever has granted it.
#[test]
fn no_lease_outlives_the_wait_of_any_successor() {
    let limits = LeaseLimits::default();
    let ms = Duration::from_millis;
    let check = |earlier, absent: Option<u64>, expected: u64| {
        assert_eq!(limits.wait(earlier, absent.map(ms)), ms(expected));
    };
    let after = |wait, unrecorded| EarlierIncarnations {
        recorded: ms(wait),
        ..EarlierIncarnations::unrecorded(unrecorded)
    };
    let unrecorded = |wait| after(wait, Unrecorded::Unknown);
    let within = |governed| after(203, Unrecorded::Within(ms(governed)));
    check(EarlierIncarnations::NONE, None, 0);
    check(EarlierIncarnations::recorded(ms(5051)), None, 5051);
    check(unrecorded(0), None, 60_600);
    // It was there until a moment ago: no other can have granted more than a short one since.
    check(unrecorded(0), Some(300), 1010);
    check(unrecorded(7000), Some(300), 7000);
    // Somebody else may have governed for ten minutes, or for longer; but no lease is longer than one.
    check(unrecorded(0), Some(600_000), 10_100);
    check(unrecorded(0), Some(36_000_000), 60_600);
    // The record is so old.
    check(within(0), None, 1010);
    check(within(600_000), None, 10_100);
    check(within(600_000), Some(120_000), 2020);
    check(within(600_000), Some(36_000_000), 10_100);
    check(after(7000, Unrecorded::Within(ms(60_000))), None, 7000);
    for governed in [0, 1, 59_999, 60_000, 90_000, 3_599_999, 3_600_000, 1 << 40] {
        let lease = limits.lease_max(ms(governed)).min(LeaseTerms::DURATION_MAX);
        let wait = limits.wait(unrecorded(0), Some(ms(governed + 1)));
        assert!(wait >= lease + lease / 100, "{governed}: {lease:?}, {wait:?}");
    }
}

#[test]
fn terms_hold_as_the_shim_has_told_them() {
    let mut node = NodeSession::new();
    node.hello(Time(0), 7, PROCESS);
    let told = Welcome { session: 99, nonce: 7, lease: 40_000, guard: 5_000 };
    assert!(node.welcome(&told));
    assert!(node.renew_due(Time(0)) && !node.renew_due(Time(9_999)) && node.renew_due(Time(10_000)));
    node.grant(Time(10), &Grant { session: 99, sent: 0, duration: 40_000, guard: 5_000, leave: None });
    assert!(node.holds(Time(34_599)) && !node.holds(Time(34_600)), "40 ms less 1 % less 5 ms");
    // The shim has governed for longer, so its leases have grown, and need not be renewed as often.
    node.grant(
        Time(20_000),
        &Grant { session: 99, sent: 10_000, duration: 80_000, guard: 5_000, leave: None },
    );
    assert!(node.holds(Time(84_199)) && !node.holds(Time(84_200)), "80 ms less 1 % less 5 ms");
    assert!(!node.renew_due(Time(29_999)) && node.renew_due(Time(30_000)));
}

#[test]
fn only_the_answer_to_the_latest_hello_opens_a_session() {
    let mut node = NodeSession::new();
    node.hello(Time(0), 1, PROCESS);
    node.hello(Time(5), 2, PROCESS);
    assert!(!node.welcome(&welcome(50, 1)));
    assert!(node.welcome(&welcome(51, 2)));
    assert!(!node.welcome(&welcome(52, 2)));
    assert_eq!(node.id(), Some(51));
}

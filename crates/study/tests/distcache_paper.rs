//! What the paper says of its figures 9 to 11, in the model of its section 6 at its scale. Not its lemmas.
//!
//! Accounting A, under which every request counts at the nodes it crosses, is the testbed's: its switches are limited
//! in packets. What does not hold under every accounting is said where it is checked.

use study::PopularitySpec;
use study::capacity::{Accounting, Bottleneck, CapacityMetric, CapacityModel, Mechanism};

const NO_CACHE: Mechanism = Mechanism::NoCache;
const PARTITION: Mechanism = Mechanism::PartitionLeaf;
const REPLICATION: Mechanism = Mechanism::ReplicationDistinct;
const DISTCACHE: Mechanism = Mechanism::DistCache;
const ACCOUNTINGS: [Accounting; 3] = [Accounting::A, Accounting::B, Accounting::C];

fn throughput(model: &CapacityModel, mechanism: Mechanism) -> f64 {
    CapacityModel { mechanism, ..model.clone() }.evaluate().expect("a model").throughput
}

fn zipf(exponent: f64) -> PopularitySpec {
    PopularitySpec::Law(trace::Distribution::Zipf(exponent))
}

fn paper(accounting: Accounting) -> CapacityModel {
    CapacityModel { accounting, seeds: 2, ..CapacityModel::default() }
}

/// Two accountings would do; B lies between them.
fn slots(accounting: Accounting, slots: u64) -> CapacityModel {
    CapacityModel { slots_leaf: slots, slots_spine: slots, ..paper(accounting) }
}

fn scaled(accounting: Accounting, racks: u32) -> CapacityModel {
    CapacityModel { racks, spines: racks, ..paper(accounting) }
}

/// D1: "Under the uniform workload, the four mechanisms have the same throughput" (section 6.2).
#[test]
fn all_mechanisms_are_alike_when_objects_are() {
    for accounting in ACCOUNTINGS {
        let model = CapacityModel {
            popularity: PopularitySpec::Law(trace::Distribution::Uniform),
            ..paper(accounting)
        };
        let none = throughput(&model, NO_CACHE);
        assert!(none > 0.98 * model.ideal() && none < model.ideal());
        for mechanism in [PARTITION, Mechanism::PartitionSpine, REPLICATION, DISTCACHE] {
            let ratio = throughput(&model, mechanism) / none;
            assert!((ratio - 1.0).abs() < 0.002, "{mechanism:?}, {accounting:?}: {ratio}");
        }
    }
}

/// D2: "The more skewed the workload is, the lower throughput NoCache achieves. CachePartition performs better [..].
/// DistCache provides comparable throughput to CacheReplication" (section 6.2).
#[test]
fn distcache_keeps_up_with_replication_under_skew_and_partitions_do_not() {
    let mut none_before = f64::INFINITY;
    for exponent in [0.9, 0.95, 0.99] {
        for accounting in [Accounting::A, Accounting::C] {
            let model = CapacityModel { popularity: zipf(exponent), ..paper(accounting) };
            let none = throughput(&model, NO_CACHE);
            let partition = throughput(&model, PARTITION);
            let spine_first = throughput(&model, Mechanism::PartitionSpine);
            let distcache = throughput(&model, DISTCACHE);
            let replication = throughput(&model, REPLICATION);
            assert!(none < none_before || accounting == Accounting::C);
            none_before = none;
            assert!(4.0 * none < partition.min(spine_first), "{none}, {partition}, {spine_first}");
            // At 0.9, the hottest objects hardly overload a node.
            let more = if exponent == 0.9 { 1.0 } else { 1.15 };
            assert!(
                more * partition.max(spine_first) < distcache * (1.0 + 1e-9),
                "{partition}, {spine_first}, {distcache}"
            );
            // Where hits alone count, replication goes far beyond what the servers were built for.
            if accounting == Accounting::A {
                assert!(distcache > 0.9 * replication, "{distcache}, {replication}");
                assert!(distcache > 0.9 * model.ideal(), "{distcache}");
            }
        }
    }
}

/// D3: "CacheReplication and DistCache gain big improvements by caching more objects [..]. The curves [..] become flat";
/// for CachePartition "the throughput improvement is small" (section 6.2).
#[test]
fn more_cache_helps_distcache_until_it_is_saturated_and_partitions_little() {
    let at = |count, mechanism| throughput(&slots(Accounting::A, count), mechanism);
    for mechanism in [DISTCACHE, REPLICATION] {
        let (few, more, many) = (at(1, mechanism), at(20, mechanism), at(100, mechanism));
        assert!(2.0 * few < more, "{mechanism:?}: {few}, {more}");
        assert!((at(200, mechanism) / many - 1.0).abs() < 0.03, "{mechanism:?}");
    }
    assert!(at(200, PARTITION) < 1.1 * at(5, PARTITION));
}

/// D4: NoCache "stops to improve after a few hundred servers", CachePartition "stops to grow", DistCache "scales out
/// linearly" like CacheReplication (section 6.2). So it does up to the paper's 1024 servers; see the next test.
#[test]
fn only_distcache_and_replication_scale_linearly() {
    let at = |racks, mechanism| throughput(&scaled(Accounting::A, racks), mechanism);
    assert!(at(64, NO_CACHE) < 1.4 * at(8, NO_CACHE));
    assert!(at(64, PARTITION) < 2.0 * at(16, PARTITION));
    for mechanism in [DISTCACHE, REPLICATION] {
        for racks in [4, 16, 32] {
            let part = at(racks, mechanism) / scaled(Accounting::A, racks).ideal();
            assert!(part > 0.9 && part < 1.0 + 1e-9, "{mechanism:?}, {racks} racks: {part}");
        }
    }
}

/// Theorem 1: more is promised only as long as the hottest object asks for no more than half a node.
#[test]
fn one_object_limits_distcache_far_beyond_the_scale_of_the_paper() {
    let plain = CapacityModel { popularity: zipf(1.2), seeds: 1, ..scaled(Accounting::C, 64) };
    let outcome = plain.evaluate().expect("a model");
    assert_eq!(outcome.binding, Bottleneck::Object);
    let hottest = plain.popularity.popularity(plain.objects).expect("a law").of(0);
    assert!((outcome.throughput * hottest / 64.0 - 1.0).abs() < 0.1, "{}", outcome.throughput);
    let elastic = CapacityModel { elastic: true, ..plain }.evaluate().expect("a model");
    assert!(elastic.throughput > 0.99 * elastic.bound, "{} of {}", elastic.throughput, elastic.bound);
    assert!(elastic.throughput > 2.0 * elastic.ideal, "{}", elastic.throughput);
}

/// D5: "The performance of CacheReplication drops very quickly [..]. DistCache [..] reduces slowly [..]. The three caching
/// mechanisms eventually become smaller than that of NoCache" (section 6.3).
#[test]
fn writes_cost_replication_most_and_caching_in_the_end() {
    for (exponent, count) in [(0.9, 10), (0.99, 100)] {
        let at = |write_ratio, mechanism| {
            let model =
                CapacityModel { popularity: zipf(exponent), write_ratio, ..slots(Accounting::A, count) };
            throughput(&model, mechanism)
        };
        let (distcache, replication) = (at(0.0, DISTCACHE), at(0.0, REPLICATION));
        assert!(at(0.02, REPLICATION) < 0.1 * replication, "{exponent}");
        assert!(at(0.02, DISTCACHE) > 0.25 * distcache, "{exponent}");
        assert!(at(0.1, DISTCACHE) > 8.0 * at(0.1, REPLICATION), "{exponent}");
        let none = at(1.0, NO_CACHE);
        assert!((none / at(0.0, NO_CACHE) - 1.0).abs() < 1e-9);
        for mechanism in [PARTITION, REPLICATION, DISTCACHE] {
            assert!(at(1.0, mechanism) < none, "{mechanism:?}, {exponent}");
        }
    }
}

/// D6: four spines of 32 that fail leave "about 87.5%"; at half the maximum "after the failure recovery, the throughput
/// can increase to the original one" (section 6.4).
#[test]
fn four_failed_spines_cost_an_eighth_until_partitions_move() {
    let base = CapacityModel { popularity: zipf(0.9), ..paper(Accounting::A) };
    let maximum = throughput(&base, DISTCACHE);
    let failed = CapacityModel { failed_spines: 4, ..base };
    let part = throughput(&CapacityModel { remap: true, ..failed.clone() }, DISTCACHE) / maximum;
    assert!((part - 0.875).abs() < 0.01, "{part}");
    let half = CapacityModel { metric: CapacityMetric::Goodput, offered: Some(maximum / 2.0), ..failed };
    let part = |remap| throughput(&CapacityModel { remap, ..half.clone() }, DISTCACHE) / (maximum / 2.0);
    assert!((part(false) - 0.875).abs() < 1e-3, "{}", part(false));
    assert!((part(true) - 1.0).abs() < 1e-9);
}

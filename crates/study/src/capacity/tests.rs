//! The model against what can be said of it by hand, and pinned numbers. Not the paper's claims, which have a test of
//! their own.

use trace::Distribution;

use super::*;

/// A small cluster with few objects, all of which are placed one by one.
fn small() -> CapacityModel {
    CapacityModel {
        racks: 4,
        spines: 4,
        servers_per_rack: 4,
        objects: 5_000,
        slots_leaf: 8,
        slots_spine: 8,
        ..few()
    }
}

fn few() -> CapacityModel {
    CapacityModel { leaf_rate: 4.0, spine_rate: 4.0, seeds: 4, ..CapacityModel::default() }
}

fn adversary(keys: u64) -> PopularitySpec {
    PopularitySpec::Law(Distribution::Adversary(keys))
}

fn base(model: &CapacityModel) -> elastic::ElasticDegrees {
    elastic::ElasticDegrees::at(model, 0.0)
}

fn close(own: f64, due: f64) {
    assert!((own - due).abs() <= 1e-9 * due.abs().max(1.0), "{own}, not {due}");
}

#[test]
fn one_hot_object_gets_what_its_copies_can_serve() {
    let check = |mechanism, throughput, binding| {
        let outcome = CapacityModel { mechanism, popularity: adversary(1), ..small() }.evaluate().unwrap();
        close(outcome.throughput, throughput);
        assert_eq!(outcome.binding, binding, "{mechanism:?}");
        close(outcome.throughput_max, outcome.throughput_min);
    };
    check(Mechanism::NoCache, 1.0, Bottleneck::Server);
    check(Mechanism::PartitionLeaf, 4.0, Bottleneck::Object);
    check(Mechanism::PartitionSpine, 4.0, Bottleneck::Object);
    check(Mechanism::DistCache, 8.0, Bottleneck::Object);
    check(Mechanism::ReplicationSlots, 20.0, Bottleneck::Object);
    let elastic = CapacityModel { elastic: true, popularity: adversary(1), ..small() }.evaluate().unwrap();
    // More than all eight nodes' rate would take more than these, and then it is nodes that lack.
    assert_eq!((elastic.degree_max, elastic.copies, elastic.copies_extra), (8, 8.0, 6.0));
    close(elastic.throughput, 32.0);
    close(elastic.bound, 32.0);
    assert_eq!(elastic.binding, Bottleneck::Leaf);
    // Wherever its own spine is, it has the seven nodes that are left.
    let failed = CapacityModel { elastic: true, popularity: adversary(1), failed_spines: 1, ..small() };
    for remap in [false, true] {
        let failed = CapacityModel { remap, seeds: 16, ..failed.clone() }.evaluate().unwrap();
        assert_eq!((failed.copies, failed.throughput_min), (7.0, 28.0));
    }
}

/// Two places for each half of a node, as the theorem needs. With one for each the first of these has 0.94 of its bound, and
/// with places for the servers' own rate 0.90.
#[test]
fn elastic_copies_use_all_nodes_at_any_skew() {
    let law = |exponent| PopularitySpec::Law(Distribution::Zipf(exponent));
    for (popularity, racks, hottest) in [
        (law(1.2), 16, 32),
        (law(1.2), 64, 128),
        (law(1.5), 16, 32),
        (adversary(1), 16, 32),
        (adversary(7), 16, 24),
    ] {
        let model = CapacityModel {
            racks,
            spines: racks,
            popularity,
            elastic: true,
            seeds: 2,
            ..CapacityModel::default()
        };
        let outcome = model.evaluate().unwrap();
        let share = outcome.throughput / outcome.bound;
        assert!((0.98..1.0 + 1e-9).contains(&share), "{share} of the bound: {:?}, {racks}", model.popularity);
        assert_eq!(outcome.degree_max, hottest, "{:?}, {racks}", model.popularity);
        // At most four for each node that an object takes, and half more for the steps.
        assert!(outcome.copies_extra <= 6.0 * f64::from(model.nodes_live()), "{}", outcome.copies_extra);
    }
}

/// A rate at which one object takes so much of a node, and the places that it has.
#[test]
fn places_follow_from_the_rate_the_writes_and_the_nodes() {
    let model = CapacityModel { elastic: true, leaf_rate: 10.0, spine_rate: 8.0, ..small() };
    let check = |write_ratio: f64, rate, due| {
        let model = CapacityModel { write_ratio, server_rate: 1e9, ..model.clone() };
        assert_eq!(elastic::ElasticDegrees::at(&model, rate).of(0.5), due, "{write_ratio}, {rate}");
    };
    check(0.0, 8.0, 2);
    check(0.0, 8.01, 4);
    check(0.0, 16.0, 4);
    check(0.0, 16.01, 6);
    check(0.0, 24.01, 8);
    check(0.0, 1000.0, 8);
    check(0.5, 16.0, 2);
    check(0.04, 1000.0, 6);
    check(0.05, 1000.0, 4);
    check(0.1, 1000.0, 2);
    check(1.0, 1000.0, 2);
    // Half of its server is there for its invalidations.
    let model = CapacityModel { write_ratio: 0.01, server_rate: 160.0, ..model };
    assert_eq!(elastic::ElasticDegrees::at(&model, 2000.0).of(0.5), 8);
    assert_eq!(elastic::ElasticDegrees::at(&model, 2001.0).of(0.5), 6);
    let plain = CapacityModel { elastic: false, ..model };
    assert_eq!(elastic::ElasticDegrees::at(&plain, 1000.0).of(0.5), 2);
}

/// The copies are those for the throughput that comes out, unless with a step more it carries less than it was made for.
#[test]
fn the_throughput_agrees_with_its_own_copies() {
    for case in cases::seeds(40) {
        let seed = case.seed;
        let slots = 1 + seed % 13;
        let model = CapacityModel {
            elastic: true,
            popularity: PopularitySpec::Law(Distribution::Zipf(0.8 + 0.1 * (seed % 7) as f64)),
            write_ratio: 0.01 * (seed % 3) as f64,
            slots_leaf: slots,
            slots_spine: slots,
            ..small()
        };
        let popularity = model.popularity.popularity(model.objects).unwrap();
        let throughput = model.run(&popularity, seed).unwrap().throughput;
        let with_copies_for = |rate| {
            let model = CapacityModel { offered: Some(rate), ..model.clone() };
            model.run(&popularity, seed).unwrap().throughput
        };
        let own = with_copies_for(throughput);
        assert!(own >= throughput * (1.0 - 1e-9), "{own} with the copies for {throughput}");
        let more = throughput * 1.0011;
        assert!(own <= throughput * (1.0 + 1e-9) || with_copies_for(more) < more, "{throughput}, {own}");
    }
}

#[test]
fn writes_cost_the_server_what_their_unit_says() {
    let check = |mechanism, coherence_unit, elastic, cost: f64| {
        let popularity = adversary(1);
        let model = CapacityModel {
            mechanism,
            coherence_unit,
            elastic,
            popularity,
            write_ratio: 1.0,
            coherence_cost: 0.5,
            ..small()
        };
        let outcome = model.evaluate().unwrap();
        close(outcome.write_cost, cost);
        close(outcome.throughput, 1.0 / cost);
        assert_eq!((outcome.hit_ratio_leaf, outcome.hit_ratio_spine), (0.0, 0.0));
    };
    for unit in [CoherenceUnit::Copy, CoherenceUnit::Path] {
        check(Mechanism::NoCache, unit, false, 1.0);
        check(Mechanism::PartitionLeaf, unit, false, 1.5);
        let path = unit == CoherenceUnit::Path;
        check(Mechanism::DistCache, unit, false, if path { 1.5 } else { 2.0 });
        check(Mechanism::ReplicationSlots, unit, false, if path { 3.0 } else { 3.5 });
        // Nothing is read, so nothing needs more copies.
        check(Mechanism::DistCache, unit, true, if path { 1.5 } else { 2.0 });
    }
}

#[test]
fn without_overload_everything_gets_through() {
    for mechanism in MECHANISMS {
        for accounting in [Accounting::A, Accounting::B, Accounting::C] {
            let model = CapacityModel { mechanism, accounting, write_ratio: 0.1, ..small() };
            let popularity = model.popularity.popularity(model.objects).unwrap();
            for case in cases::seeds(3) {
                let seed = case.seed;
                let saturated = model.run(&popularity, seed).unwrap();
                let at = |share: f64| {
                    let offered = share * saturated.throughput;
                    let metric = CapacityMetric::Goodput;
                    let model = CapacityModel { metric, offered: Some(offered), ..model.clone() };
                    model.run(&popularity, seed).unwrap().throughput / offered
                };
                close(at(0.5), 1.0);
                close(at(1.0 - 1e-9), 1.0);
                assert!(at(1.001) < 1.0 && at(2.0) < at(1.001), "{mechanism:?}, {accounting:?}");
            }
        }
    }
}

const MECHANISMS: [Mechanism; 6] = [
    Mechanism::NoCache,
    Mechanism::PartitionLeaf,
    Mechanism::PartitionSpine,
    Mechanism::ReplicationSlots,
    Mechanism::ReplicationDistinct,
    Mechanism::DistCache,
];

#[test]
fn a_stricter_accounting_never_allows_more() {
    for mechanism in MECHANISMS {
        let throughput = |accounting| {
            let model = CapacityModel { mechanism, accounting, leaf_rate: 3.0, spine_rate: 3.0, ..small() };
            model.evaluate().unwrap().throughput
        };
        let (a, b, c) = (throughput(Accounting::A), throughput(Accounting::B), throughput(Accounting::C));
        assert!(a <= b && b <= c, "{mechanism:?}: {a}, {b}, {c}");
        assert!(mechanism == Mechanism::NoCache || b <= 12.0 + 1e-9, "{b}");
    }
}

#[test]
fn failed_spines_cost_their_part_until_they_are_remapped() {
    let model = CapacityModel {
        metric: CapacityMetric::Goodput,
        accounting: Accounting::A,
        offered: Some(4.0),
        failed_spines: 1,
        ..small()
    };
    close(CapacityModel { failed_spines: 0, ..model.clone() }.evaluate().unwrap().throughput, 4.0);
    close(model.evaluate().unwrap().throughput, 3.0);
    close(CapacityModel { remap: true, ..model.clone() }.evaluate().unwrap().throughput, 4.0);
    // Under accounting C a read is lost when it goes to a copy that failed.
    let all = CapacityModel { accounting: Accounting::C, mechanism: Mechanism::ReplicationSlots, ..model };
    let all = CapacityModel { popularity: adversary(1), slots_leaf: 0, ..all };
    close(all.evaluate().unwrap().throughput, 3.0);
    close(CapacityModel { slots_leaf: 1, ..all.clone() }.evaluate().unwrap().throughput, 3.2);
    close(CapacityModel { remap: true, ..all.clone() }.evaluate().unwrap().throughput, 4.0);
    let saturated = CapacityModel { metric: CapacityMetric::Saturation, ..all }.evaluate().unwrap();
    close(saturated.throughput, 12.0);
}

#[test]
fn an_object_whose_only_copy_failed_is_read_from_its_server() {
    // Three spines of four have failed, so that some seed has the object on one of them.
    let model = CapacityModel {
        popularity: adversary(1),
        slots_leaf: 0,
        slots_spine: 1,
        failed_spines: 3,
        ..small()
    };
    let goodput = CapacityModel {
        metric: CapacityMetric::Goodput,
        accounting: Accounting::C,
        offered: Some(0.5),
        ..model.clone()
    };
    let popularity = model.popularity.popularity(model.objects).unwrap();
    let mut seen = [false; 2];
    for case in cases::seeds(60000) {
        let seed = case.seed;
        let layout = model.layout(&popularity, seed).unwrap();
        let failed = layout.places(&layout.objects[0]).is_empty();
        seen[usize::from(failed)] = true;
        close(model.run(&popularity, seed).unwrap().throughput, if failed { 1.0 } else { 4.0 });
        close(goodput.run(&popularity, seed).unwrap().throughput, if failed { 0.0 } else { 0.5 });
    }
    assert!(cases::alone() || seen == [true; 2], "{seen:?}");
}

#[test]
fn every_node_has_the_hottest_of_its_partition() {
    let model = small();
    let popularity = model.popularity.popularity(model.objects).unwrap();
    let places = CapacityPlaces::new(&model, 9).unwrap();
    let layout = CopyLayout::new(&model, &popularity, &places, &base(&model), layout::listed(&model));
    let mut nodes = vec![Vec::new(); 8];
    for object in &layout.objects {
        layout.places(object).iter().for_each(|node| nodes[*node as usize].push(object.popularity));
    }
    for (node, cached) in nodes.iter().enumerate() {
        let own = |rank: &u64| match node {
            leaf @ 0..4 => places.server(*rank) / 4 == leaf as u32,
            spine => places.spine(*rank) + 4 == spine as u32,
        };
        let due: Vec<f64> = (0..5_000).filter(own).take(8).map(|rank| popularity.of(rank)).collect();
        assert_eq!(*cached, due);
    }
    let whole: f64 = layout.uncached.iter().chain(&layout.cached).sum();
    close(whole, 1.0);
}

/// The same places, with all objects placed one by one and with as few as possible.
#[test]
fn the_rest_without_a_list_is_as_good_as_a_full_enumeration() {
    let model = CapacityModel { objects: 12_000, seeds: 1, ..small() };
    let popularity = model.popularity.popularity(model.objects).unwrap();
    for mechanism in [Mechanism::NoCache, Mechanism::DistCache] {
        let model = CapacityModel { mechanism, ..model.clone() };
        let throughput = |listed: u64| {
            let run = |seed| {
                let places = CapacityPlaces::new(&model, seed).unwrap();
                let layout = CopyLayout::new(&model, &popularity, &places, &base(&model), listed);
                saturation::saturate(&model, &layout).throughput
            };
            seeds::each(1, 400, run).into_iter().sum::<f64>() / 400.0
        };
        let (own, due) = (throughput(16 * 128), throughput(model.objects));
        assert!((own / due - 1.0).abs() < 0.001, "{mechanism:?}: {own}, not {due}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_the_name_of_its_flag() {
    let check = |model: CapacityModel, flag: &str| {
        let error = model.evaluate().unwrap_err().to_string();
        assert!(error.starts_with(&format!("--{flag}")), "{error}");
    };
    check(CapacityModel { racks: 0, ..small() }, "racks 0");
    check(CapacityModel { spines: 0, ..small() }, "spines 0");
    check(CapacityModel { servers_per_rack: 0, ..small() }, "servers-per-rack 0");
    check(CapacityModel { racks: 60_000, servers_per_rack: 60_000, ..small() }, "racks");
    check(CapacityModel { server_rate: -1.0, ..small() }, "server-rate -1");
    check(CapacityModel { leaf_rate: f64::NAN, ..small() }, "leaf-rate NaN");
    check(CapacityModel { spine_rate: 0.0, ..small() }, "spine-rate 0");
    check(CapacityModel { offered: Some(0.0), ..small() }, "offered 0");
    check(CapacityModel { write_ratio: 1.5, ..small() }, "write-ratio 1.5");
    check(CapacityModel { coherence_cost: -0.1, ..small() }, "coherence-cost -0.1");
    check(CapacityModel { failed_spines: 4, ..small() }, "fail-spines 4");
    check(CapacityModel { elastic: true, mechanism: Mechanism::NoCache, ..small() }, "elastic");
    check(CapacityModel { seeds: 0, ..small() }, "seeds 0");
    check(CapacityModel { objects: 1 << 40, slots_leaf: 1 << 40, ..small() }, "slots-leaf");
    check(CapacityModel { racks: 40_000, placing: CapacityPlacing::Ring, ..small() }, "placement ring");
    assert!(
        CapacityModel { objects: 0, ..small() }.evaluate().unwrap_err().to_string().contains("0 objects")
    );
}

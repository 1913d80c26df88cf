//! Small clusters: nothing is lost or counted twice, and loads are those that follow from where objects are.

use std::collections::BTreeMap;

use super::cluster::ScaleCluster;
use super::workload::ScaleWorkload;
use super::{
    Binding, Layers, Placing, Population, Routing, ScalePopularity, ScaleTurn, Scenario, Tail, closed_loop,
    goodput, saturation, series,
};

/// The object of rank r is asked for in proportion to 1/r.
fn harmonic(objects: u32) -> ScalePopularity {
    let weights: Vec<f64> = (1..=objects).map(|rank| 1.0 / f64::from(rank)).collect();
    let whole: f64 = weights.iter().sum();
    ScalePopularity { head: weights.iter().map(|weight| weight / whole).collect(), tail: None }
}

fn one_object() -> ScalePopularity {
    ScalePopularity { head: vec![1.0], tail: None }
}

fn scenario() -> Scenario {
    Scenario {
        racks: 4,
        spines: 4,
        servers_per_rack: 4,
        leaf_rate: 4.0,
        spine_rate: 4.0,
        layers: Layers::Both,
        slots: 10,
        popularity: harmonic(2000),
        placing: Placing::Ring,
        write_ratio: 0.0,
        coherence_cost: 1.0,
        spines_failed: 0,
        remap: false,
        silent: false,
        routing: Routing::OnPath,
        population: Population::Given,
        elastic: false,
        routers: 4,
        server_rate: 100,
        seconds: 4,
        seed: 3,
    }
}

/// What is asked of each server altogether, of each one beside what its leaf holds, and of each leaf, object by object.
fn shares(scenario: &Scenario) -> [Vec<f64>; 3] {
    let cluster = ScaleCluster::new(scenario);
    let mut all = vec![0.0; scenario.servers()];
    let (mut uncached, mut leaves) = (all.clone(), vec![0.0; usize::from(scenario.racks)]);
    let mut free = vec![scenario.slots; leaves.len()];
    for (rank, probability) in scenario.popularity.head.iter().enumerate() {
        let key = cluster.placement.key(0, cluster.workload.head_name(rank));
        let server = usize::from(cluster.placement.shim(&key).0);
        let rack = server / usize::from(scenario.servers_per_rack);
        all[server] += probability;
        if free[rack] > 0 {
            free[rack] -= 1;
            leaves[rack] += probability;
        } else {
            uncached[server] += probability;
        }
    }
    [all, uncached, leaves]
}

fn most(shares: &[f64]) -> f64 {
    shares.iter().copied().fold(0.0, f64::max)
}

fn close(own: f64, due: f64, tolerance: f64) {
    assert!((own / due - 1.0).abs() < tolerance, "{own}, not {due}");
}

#[test]
fn without_caches_the_busiest_server_decides() {
    for placing in [Placing::Ring, Placing::Slots] {
        let scenario = Scenario { layers: Layers::None, placing, ..scenario() };
        let found = saturation(&scenario).unwrap();
        close(found.throughput, 1.0 / most(&shares(&scenario)[0]), 0.015);
        assert_eq!((found.binding, found.distinct_objects), (Binding::Server, 0));
        let written = saturation(&Scenario { write_ratio: 0.3, ..scenario }).unwrap();
        close(written.throughput, found.throughput, 0.015);
    }
}

#[test]
fn a_layer_of_leaves_serves_what_it_holds_and_no_more() {
    for seed in 1..4 {
        let scenario = Scenario { layers: Layers::Leaf, seed, ..scenario() };
        let found = saturation(&scenario).unwrap();
        let [_, uncached, leaves] = shares(&scenario);
        let due = (1.0 / most(&uncached)).min(scenario.leaf_rate / most(&leaves));
        close(found.throughput, due, 0.015);
        close(found.hit_ratio_leaf, leaves.iter().sum(), 0.005);
        assert_eq!((found.distinct_objects, found.hit_ratio_spine), (40, 0.0));
    }
}

#[test]
fn one_object_is_served_by_its_two_places_and_by_the_one_that_is_left() {
    let one = Scenario { popularity: one_object(), ..scenario() };
    let whole = saturation(&one).unwrap();
    close(whole.throughput, 8.0, 0.02);
    assert_eq!(whole.binding, Binding::Object);
    // All spines but one, so that the object's is among them in all but a quarter of the cases.
    let failed = saturation(&Scenario { spines_failed: 3, seed: 4, ..one.clone() }).unwrap();
    close(failed.throughput, 4.0, 0.02);
    let remapped = saturation(&Scenario { spines_failed: 3, seed: 4, remap: true, ..one }).unwrap();
    close(remapped.throughput, 8.0, 0.02);
}

#[test]
fn a_write_costs_its_server_one_and_each_copy_as_much_as_was_said() {
    for (write_ratio, coherence_cost, due) in
        [(0.5, 1.0, 1.0 / 1.5), (0.25, 0.5, 2.0), (0.25, 0.0, 4.0), (0.1, 2.0, 2.0)]
    {
        let (popularity, seconds) = (one_object(), 20);
        let one = Scenario { popularity, write_ratio, coherence_cost, seconds, ..scenario() };
        let found = saturation(&one).unwrap();
        close(found.throughput, due, 0.03);
        assert_eq!(found.binding, Binding::Server);
    }
}

#[test]
fn every_request_is_answered_once_even_under_overload() {
    for (write_ratio, routing) in [(0.0, Routing::OnPath), (0.2, Routing::OnPath), (0.1, Routing::Learned)] {
        let scenario = Scenario { write_ratio, routing, population: Population::Found, ..scenario() };
        let mut cluster = ScaleCluster::new(&scenario);
        cluster.populate(30.0);
        cluster.limit(true);
        cluster.offer(30.0);
        for _ in 0..20 {
            cluster.run_for(200_000);
            let in_flight: u64 = cluster.fronts.iter().map(|front| front.in_flight()).sum();
            let totals = cluster.totals;
            assert_eq!(totals.offered, totals.served + totals.refused + in_flight);
        }
        assert_eq!(cluster.totals.offered, 12_000, "30 rates of 100 per second for four seconds");
        assert!(cluster.totals.refused > 0 && cluster.totals.served > 4_000, "{:?}", cluster.totals);
        cluster.offer(0.0);
        cluster.run_for(3_000_000);
        assert_eq!(cluster.totals.offered, cluster.totals.served + cluster.totals.refused);
        let hits: u64 = cluster.nodes.iter().map(|own| own.hits()).sum();
        assert!(hits > 1_000, "{hits}");
    }
}

/// Zipf's law of this exponent over so many objects.
fn zipf(exponent: f64, objects: u32) -> ScalePopularity {
    let weights: Vec<f64> = (1..=objects).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let whole: f64 = weights.iter().sum();
    ScalePopularity { head: weights.iter().map(|weight| weight / whole).collect(), tail: None }
}

/// All that nodes can do together is served of keys that are all cached, whatever the skew; with two places for each key it is a
/// quarter of that for one key.
#[test]
fn elastic_copies_let_any_skew_use_all_nodes() {
    for routing in [Routing::OnPath, Routing::Learned] {
        for (popularity, plain_most) in [(one_object(), 8.1), (zipf(1.2, 150), 29.0)] {
            let population = Population::Found;
            let elastic =
                Scenario { elastic: true, slots: 100, routing, popularity, population, ..scenario() };
            let served = closed_loop(&elastic, 400).unwrap();
            assert!(served.throughput > 0.97 * 32.0 && served.refused == 0.0, "{routing:?}: {served:?}");
            let plain = closed_loop(&Scenario { elastic: false, ..elastic }, 400).unwrap();
            assert!(plain.throughput < plain_most, "{routing:?}: {plain:?}");
        }
    }
}

/// When everybody has gone, a key has two copies again within a minute, and as many as before when they are back.
#[test]
fn copies_go_with_the_heat() {
    let population = Population::Found;
    let scenario = Scenario { elastic: true, popularity: one_object(), population, ..scenario() };
    let mut cluster = ScaleCluster::new(&scenario);
    cluster.limit(true);
    let holders = |cluster: &ScaleCluster| {
        let copies = cluster.servers.iter().map(|server| server.shim.copies()).sum::<usize>();
        let objects: usize = cluster.nodes.iter().map(|own| own.node.objects()).sum();
        assert_eq!(copies, objects, "the directory knows exactly who holds copies");
        copies
    };
    for _ in 0..2 {
        cluster.offer(30.0);
        cluster.run_for(8_000_000);
        assert_eq!(holders(&cluster), 8);
        cluster.offer(1.0);
        cluster.run_for(60_000_000);
        assert_eq!(holders(&cluster), 2);
    }
    let lowered: u64 = cluster.servers.iter().map(|own| own.shim.statistics().lowerings).sum();
    assert!((2..=4).contains(&lowered), "{lowered}");
}

/// Heat that comes and goes every second moves nothing once it has been seen.
#[test]
fn flapping_heat_moves_no_copies() {
    let population = Population::Found;
    let scenario = Scenario { elastic: true, popularity: one_object(), population, ..scenario() };
    let mut cluster = ScaleCluster::new(&scenario);
    cluster.limit(true);
    let changes = |cluster: &ScaleCluster| -> u64 {
        let statistics = cluster.servers.iter().map(|own| own.shim.statistics());
        statistics.map(|counted| counted.raises + counted.lowerings).sum()
    };
    for second in 0..60 {
        cluster.offer(if second % 2 == 0 { 30.0 } else { 1.0 });
        cluster.run_for(1_000_000);
        if second == 9 {
            assert!(changes(&cluster) <= 4, "{}", changes(&cluster));
        }
    }
    assert!(changes(&cluster) <= 5, "{}", changes(&cluster));
}

/// Each copy answers four reads at least for each time that it is invalidated: what is written half as often as it is read has
/// no more copies than layers.
#[test]
fn writes_bound_the_copies() {
    for (write_ratio, copies) in [(0.5, 2..=2), (0.02, 3..=8), (0.0, 8..=8)] {
        let (popularity, population) = (one_object(), Population::Found);
        let scenario = Scenario {
            elastic: true,
            coherence_cost: 0.0,
            write_ratio,
            popularity,
            population,
            ..scenario()
        };
        let mut cluster = ScaleCluster::new(&scenario);
        cluster.closed = true;
        cluster.limit(true);
        cluster.begin_clients(400);
        let mut most = 0;
        for _ in 0..20 {
            cluster.run_for(1_000_000);
            most = cluster.servers.iter().map(|own| own.shim.copies()).sum::<usize>().max(most);
        }
        assert!(copies.contains(&most), "{write_ratio}: {most} copies");
    }
}

#[test]
fn no_member_does_more_than_it_can() {
    let scenario = Scenario { popularity: one_object(), layers: Layers::None, ..scenario() };
    let served = goodput(&scenario, 5.0).unwrap();
    assert_eq!(served.binding, Binding::Server);
    close(served.throughput, 1.0, 0.02);
    close(served.load_max, 1.0, 0.02);
    close(served.throughput + served.refused, served.offered, 0.05);
    let cached = goodput(&Scenario { layers: Layers::Both, ..scenario }, 5.0).unwrap();
    assert_eq!((cached.throughput, cached.refused), (5.0, 0.0));
}

#[test]
fn runs_repeat_to_the_last_bit() {
    let run = |seed| saturation(&Scenario { seed, ..scenario() }).unwrap();
    let first = run(3);
    assert_eq!(first, run(3));
    assert_ne!(first.throughput, run(4).throughput);
}

#[test]
fn spines_fail_and_return_and_half_the_load_is_served_all_the_time_after_a_remap() {
    let turns = [(2, ScaleTurn::Fail), (4, ScaleTurn::Fail), (6, ScaleTurn::Remap), (9, ScaleTurn::Return)];
    let scenario = Scenario { seconds: 20, silent: true, ..scenario() };
    let half = saturation(&scenario).unwrap().throughput / 2.0;
    let mut told = Vec::new();
    let seconds = series(&scenario, half, &turns, |second| told.push(second)).unwrap();
    assert_eq!(seconds, told);
    assert_eq!(seconds.len(), 20);
    let lost = |range: std::ops::Range<usize>| -> f64 {
        seconds[range].iter().map(|second| second.offered - second.throughput).sum::<f64>() / half
    };
    assert!(lost(0..2).abs() < 0.02, "{}", lost(0..2));
    assert!(lost(7..9).abs() < 0.02, "{}", lost(7..9));
    assert!(lost(16..20).abs() < 0.02, "{}", lost(16..20));
    assert!(lost(0..20).abs() < 0.5, "{seconds:?}");
}

#[test]
fn draws_are_as_many_as_are_due() {
    let tail = Tail { probability: 0.4, ranks: vec![8, 20, 100, 1000] };
    let head: Vec<f64> = harmonic(8).head.iter().map(|probability| probability * 0.6).collect();
    let popularity = ScalePopularity { head: head.clone(), tail: Some(tail) };
    for placing in [Placing::Slots, Placing::Ring] {
        let scenario = Scenario { popularity: popularity.clone(), placing, ..scenario() };
        let placement = scenario.placement(scenario.map());
        let mut workload = ScaleWorkload::new(&popularity, 0.25, &placement, 1);
        let (mut reads, mut writes) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..40_000 {
            let command = workload.draw();
            let counts = if command.name() == b"SET" { &mut writes } else { &mut reads };
            *counts.entry(command.arg_bytes(1)).or_insert(0u32) += 1;
        }
        for (rank, probability) in head.iter().enumerate() {
            let name = workload.head_name(rank);
            let due = 40_000.0 * probability;
            assert!((f64::from(reads.remove(&name).unwrap()) - 0.75 * due).abs() < 4.0, "rank {rank}");
            assert!((f64::from(writes.remove(&name).unwrap()) - 0.25 * due).abs() < 4.0, "rank {rank}");
        }
        let rest: u32 = reads.values().sum();
        assert!((f64::from(rest) - 12_000.0).abs() < 40.0, "{rest}");
        let mut servers = vec![0.0; scenario.servers()];
        for (name, count) in &reads {
            let text = std::str::from_utf8(name).unwrap();
            let rank = u64::from_str_radix(&text[18..], 16).unwrap();
            assert!((8..1_016).contains(&(rank + 8)), "{text}");
            let shim = placement.shim(&placement.key(0, name.clone()));
            assert_eq!(rank % scenario.servers() as u64, u64::from(shim.0), "{text}");
            servers[usize::from(shim.0)] += f64::from(*count);
        }
        assert!(placing == Placing::Ring || servers.iter().all(|count| (count - 750.0).abs() < 5.0));
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_reason() {
    let check = |change: fn(&mut Scenario), part: &str| {
        let mut wrong = scenario();
        change(&mut wrong);
        let error = saturation(&wrong).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    check(|wrong| wrong.racks = 0, "0 servers");
    check(|wrong| (wrong.racks, wrong.servers_per_rack) = (1024, 1024), "1048576 servers");
    check(|wrong| wrong.spines = 0, "without nodes");
    check(|wrong| wrong.spines_failed = 4, "one must be left");
    check(|wrong| wrong.write_ratio = 1.0, "write ratio");
    check(|wrong| wrong.leaf_rate = f64::NAN, "leaf rate");
    check(|wrong| wrong.coherence_cost = -1.0, "coherence cost");
    check(|wrong| wrong.popularity = ScalePopularity { head: vec![0.0], tail: None }, "without objects");
    check(|wrong| wrong.routers = 0, "above 0");
}

//! Plans for clusters whose numbers can be told by hand, and for many others.

use proptest::prelude::*;

use super::*;

fn facts() -> OperatorFacts {
    OperatorFacts {
        servers: 64,
        racks: None,
        server_rate: 10_000.0,
        node_rate: 160_000.0,
        popularity: Some("zipf:0.9".parse().unwrap()),
        objects: 10_000_000,
        write_ratio: 0.0,
        value_bytes: 1024,
        headroom: 0.0,
    }
}

fn plan(facts: &OperatorFacts) -> ClusterPlan {
    facts.plan().unwrap()
}

#[test]
fn layers_carry_what_the_servers_can_do() {
    let plan = plan(&facts());
    let sizes: Vec<_> = plan.shape.layers.iter().map(|layer| (layer.name, layer.nodes)).collect();
    assert_eq!(sizes, [("leaf", 4), ("spine", 4)]);
    assert_eq!((plan.shape.racks, plan.shape.leaves_per_rack), (4, 1));
    // 8 x 64 ln 64 + 1, a fourth of it with the spread of Eq. 6.
    assert_eq!(plan.shape.cached, 2131.0);
    assert_eq!(plan.shape.layers[0].objects_per_node, 610);
    assert_eq!(plan.object_bytes, 152 + 80 + 1024);
    assert_eq!(plan.memory_bytes, (15 << 20) + 610 * 1256);
    assert_eq!(plan.target, 640_000.0);
    assert!((plan.bound / (640_000.0 / 1.207_1) - 1.0).abs() < 1e-3, "{}", plan.bound);
}

#[test]
fn slow_nodes_share_a_rack_and_one_fast_node_is_a_layer_of_its_own() {
    let slow = plan(&OperatorFacts { racks: Some(8), node_rate: 30_000.0, ..facts() });
    assert_eq!((slow.shape.racks, slow.shape.leaves_per_rack), (8, 3));
    assert_eq!(slow.shape.layers.iter().map(|layer| layer.nodes).collect::<Vec<_>>(), [24, 22]);
    let fast = plan(&OperatorFacts { node_rate: 640_000.0, ..facts() });
    assert_eq!((fast.shape.layers.len(), fast.shape.layers[0].nodes, fast.degree), (1, 1, 1));
    assert_eq!(fast.shape.layers[0].objects_per_node, 2131);
    assert!(fast.warnings.iter().any(|warning| warning.contains("one node carries all")), "{fast:?}");
    assert!(["server", "spine"].contains(&fast.limit));
    let reserved = plan(&OperatorFacts { node_rate: 640_000.0, headroom: 0.5, ..facts() });
    assert_eq!(reserved.shape.layers.len(), 1, "headroom is the same for servers and nodes");
    assert!((reserved.throughput / fast.throughput - 0.5).abs() < 1e-6);
}

/// Zipf 0.9 over 10,000,000 objects gives the hottest about 2.5 % of 640,000 requests/s, well below half a node's.
#[test]
fn the_condition_decides_the_degree() {
    let even = plan(&facts());
    assert!(even.hottest * even.target < 80_000.0 && even.degree == 2, "{even:?}");
    assert!(even.warnings.is_empty(), "{even:?}");
    // Sixteen and sixteen nodes: each of sixteen keys takes two nodes, of which each half has two copies.
    let some =
        OperatorFacts { node_rate: 40_000.0, popularity: Some("adversary:16".parse().unwrap()), ..facts() };
    let some = plan(&some);
    assert_eq!((some.degree, some.limit), (8, "leaf"));
    assert!((some.throughput / (32.0 * 40_000.0) - 1.0).abs() < 1e-6, "{some:?}");
    let one = plan(&OperatorFacts { popularity: Some("adversary:1".parse().unwrap()), ..facts() });
    assert_eq!((one.hottest, one.degree, one.limit), (1.0, 8, "leaf"), "all nodes");
    assert!((one.throughput / (8.0 * 160_000.0) - 1.0).abs() < 1e-6, "{one:?}");
    assert!(one.warnings.is_empty() && some.warnings.is_empty(), "nodes suffice: {one:?}, {some:?}");
}

/// Invalidations of the copies take half of their server at most, or a copy answers four reads per write: so many copies that
/// what they serve does not exceed the rate up to which there may be so many.
#[test]
fn writes_bound_the_copies() {
    let popularity = Some("adversary:1".parse().unwrap());
    let facts = OperatorFacts { servers: 4, server_rate: 1e5, node_rate: 1e5, popularity, ..facts() };
    for (write_ratio, degree, limit) in [
        (0.005, 8, "leaf"),
        (0.02, 6, "object"),
        (0.03, 4, "object"),
        (0.06, 3, "object"),
        (0.08, 2, "object"),
    ] {
        let written = plan(&OperatorFacts { write_ratio, ..facts.clone() });
        assert_eq!((written.degree, written.limit), (degree, limit), "{write_ratio}: {written:?}");
        let with_copies = |copies: u32| {
            let served = 1e5 * f64::from(copies) / (1.0 - write_ratio);
            if copies == 2 { served } else { served.min(0.5e5 / (write_ratio * f64::from(copies))) }
        };
        let best = [2, 3, 4, 6, 8].map(with_copies).into_iter().fold(0.0, f64::max);
        assert!((written.throughput / best - 1.0).abs() < 2e-3, "{write_ratio}: {best}, {written:?}");
        let expected = format!("writes allow no more than {degree}:");
        assert_eq!(written.warnings.iter().any(|text| text.contains(&expected)), limit == "object");
        assert_eq!(written.write_ratio_max, 1.0 / 3.0, "further copies end before");
    }
}

/// By how much the parts of rings matter, and that very large clusters are told that they are left out.
#[test]
fn servers_have_the_parts_that_the_product_gives_them() {
    let plan = plan(&facts());
    assert_eq!(plan.placing, CapacityPlacing::Ring);
    let shape = ClusterShape::new(&facts(), 10_000_000).unwrap();
    let popularity = facts().popularity.unwrap().popularity(10_000_000).unwrap();
    let equal = CapacityModel { placing: CapacityPlacing::Uniform, ..facts().model(&shape) };
    let equal = equal.evaluate_for(&popularity).unwrap().throughput;
    assert!((0.85..0.99).contains(&(plan.throughput / equal)), "{} of {equal}", plan.throughput);
    let large = OperatorFacts { servers: 5000, node_rate: 6e6, ..facts() }.plan().unwrap();
    assert!(large.warnings.iter().any(|warning| warning.contains("equal parts")), "{large:?}");
}

#[test]
fn what_is_unknown_is_an_adversary_s() {
    let unknown = plan(&OperatorFacts { popularity: None, ..facts() });
    assert_eq!((unknown.hottest, unknown.degree, unknown.is_bound), (1.0, 8, true), "{unknown:?}");
    assert!(unknown.worst_x > Some(2131), "more keys than are cached: {unknown:?}");
    assert!((unknown.throughput - unknown.bound).abs() < 1.0, "the servers' bound: {unknown:?}");
    assert!(unknown.warnings.is_empty(), "{unknown:?}");
    let alone = plan(&OperatorFacts { popularity: None, node_rate: 640_000.0, ..facts() });
    assert_eq!(alone.limit, "server");
    assert!((alone.throughput - alone.bound).abs() < 1.0, "{alone:?}");
}

/// The formula against the model: with a tenth fewer writes caches help, with a tenth more they do not.
#[test]
fn caching_stops_paying_where_the_formula_says() {
    let base = OperatorFacts {
        popularity: Some("zipf:1.2".parse().unwrap()),
        node_rate: 1e9,
        servers: 100,
        ..facts()
    };
    let limit = plan(&base).write_ratio_max;
    assert_eq!(limit, 0.5, "one layer, one copy");
    for (factor, pays) in [(0.9, true), (1.1, false)] {
        let facts = OperatorFacts { write_ratio: limit * factor, ..base.clone() };
        let popularity = facts.popularity.as_ref().unwrap().popularity(facts.objects).unwrap();
        let shape = ClusterShape::new(&facts, facts.objects).unwrap();
        let cached = facts.model(&shape).evaluate_for(&popularity).unwrap().throughput;
        let without = CapacityModel { mechanism: Mechanism::NoCache, ..facts.model(&shape) };
        let plain = without.evaluate_for(&popularity).unwrap().throughput;
        assert_eq!(cached > plain, pays, "at {}: {cached}, {plain} without", facts.write_ratio);
    }
    let heavy = plan(&OperatorFacts { write_ratio: 0.5, ..facts() });
    assert!(
        heavy.warnings.iter().any(|warning| warning.contains("above 33.3 % each copy costs")),
        "{heavy:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (facts, expected) in [
        (OperatorFacts { servers: 0, ..facts() }, "--servers 0"),
        (OperatorFacts { racks: Some(65), ..facts() }, "--racks 65"),
        (OperatorFacts { server_rate: -1.0, ..facts() }, "--server-rate -1"),
        (OperatorFacts { node_rate: f64::NAN, ..facts() }, "--node-rate NaN"),
        (OperatorFacts { node_rate: 1.0, ..facts() }, "--node-rate 1"),
        (OperatorFacts { write_ratio: 1.1, ..facts() }, "--write-ratio 1.1"),
        (OperatorFacts { headroom: 1.0, ..facts() }, "--headroom 1"),
        (OperatorFacts { objects: 0, ..facts() }, "0 objects"),
    ] {
        let error = facts.plan().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #![proptest_config(cases::proptest(24))]

    #[test]
    fn plans_of_all_kinds_hold_together(
        servers in 1u32..64, racks in proptest::option::of(1u32..20), ratio in 0.5..300.0f64,
        write_ratio in 0.0..1.0f64, headroom in 0.0..0.9f64, known: bool,
    ) {
        let facts = OperatorFacts {
            servers, racks: racks.map(|racks| racks.min(servers)), node_rate: 10_000.0 * ratio, write_ratio,
            headroom, objects: 100_000, popularity: known.then(|| "zipf:0.99".parse().unwrap()), ..facts()
        };
        let plan = facts.plan().unwrap();
        for layer in &plan.shape.layers {
            let carried = f64::from(layer.nodes) * facts.node_rate * (1.0 - headroom);
            prop_assert!(carried >= plan.target * (1.0 - 1e-9), "{layer:?}");
            prop_assert!((1..=100_000).contains(&layer.objects_per_node));
            let room = f64::from(layer.nodes) * layer.objects_per_node as f64;
            prop_assert!(room >= plan.shape.cached.min(100_000.0));
        }
        prop_assert!(plan.throughput > 0.0);
        prop_assert!(plan.degree >= 1 && plan.degree <= plan.shape.nodes());
        prop_assert!(plan.warnings.iter().all(|warning| !warning.contains('\n')));
    }
}

//! The search against every set of nodes and against a linear program. Not its speed.

use proptest::collection::vec;
use proptest::prelude::*;
use rand::RngExt;

use super::{FlowScale, Graph};
use crate::seeds;

type Objects = Vec<(Vec<u32>, f64)>;

fn graph(capacities: &[f64], objects: &Objects) -> Graph {
    let mut graph = Graph::new(capacities.to_vec());
    objects.iter().for_each(|(places, rate)| graph.add(places, *rate));
    graph
}

/// The smallest capacity by rate of all sets of nodes.
fn scale_by_subsets(capacities: &[f64], objects: &Objects) -> f64 {
    let ratio = |set: u32| {
        let inside = |place: &u32| set >> place & 1 == 1;
        let rate: f64 =
            objects.iter().filter(|(places, _)| places.iter().all(inside)).map(|(_, rate)| rate).sum();
        let capacity: f64 =
            (0..capacities.len()).filter(|node| set >> node & 1 == 1).map(|node| capacities[node]).sum();
        if rate > 0.0 { capacity / rate } else { f64::INFINITY }
    };
    (1..1u32 << capacities.len()).map(ratio).fold(f64::INFINITY, f64::min)
}

/// Maximises the sum of what objects have at places by the simplex method, in Bland's order.
fn carried_by_simplex(capacities: &[f64], objects: &Objects, scale: f64) -> f64 {
    let columns: Vec<(usize, usize)> = (0..objects.len())
        .flat_map(|object| objects[object].0.iter().map(move |&place| (object, place as usize)))
        .collect();
    let rows = objects.len() + capacities.len();
    let width = columns.len() + rows + 1;
    let mut table = vec![vec![0.0; width]; rows + 1];
    for (column, &(object, place)) in columns.iter().enumerate() {
        table[object][column] = 1.0;
        table[objects.len() + place][column] = 1.0;
        table[rows][column] = -1.0;
    }
    let limits = objects.iter().map(|(_, rate)| rate * scale).chain(capacities.iter().copied());
    for (row, limit) in limits.enumerate() {
        table[row][columns.len() + row] = 1.0;
        table[row][width - 1] = limit;
    }
    let mut basis: Vec<usize> = (columns.len()..width - 1).collect();
    while let Some(column) = (0..width - 1).find(|&column| table[rows][column] < -1e-12) {
        let bound = |row: usize| table[row][width - 1] / table[row][column];
        let row = (0..rows)
            .filter(|&row| table[row][column] > 1e-12)
            .min_by(|&a, &b| bound(a).total_cmp(&bound(b)).then(basis[a].cmp(&basis[b])))
            .expect("what is carried is bounded");
        pivot(&mut table, row, column);
        basis[row] = column;
    }
    table[rows][width - 1]
}

fn pivot(table: &mut [Vec<f64>], row: usize, column: usize) {
    let by = table[row][column];
    table[row].iter_mut().for_each(|value| *value /= by);
    let pivot = table[row].clone();
    for other in (0..table.len()).filter(|&other| other != row) {
        let times = table[other][column];
        table[other].iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= times * pivot);
    }
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

fn cases() -> impl Strategy<Value = (Vec<f64>, Objects)> {
    (1usize..8).prop_flat_map(|nodes| {
        let capacity = prop_oneof![4 => 0.01..3.0f64, 2 => Just(1.0), 1 => Just(0.0), 1 => 50.0..1000.0f64];
        let rate = prop_oneof![4 => 0.01..2.0f64, 3 => Just(0.5), 1 => Just(0.0), 1 => 1e-6..1e-3f64];
        let places = vec(0..nodes as u32, 1..5);
        (vec(capacity, nodes), vec((places, rate), 0..14))
    })
}

proptest! {
    #![proptest_config(cases::proptest(2000))]

    #[test]
    fn the_largest_factor_is_that_of_the_tightest_set((capacities, objects) in cases()) {
        let FlowScale { factor, binding } = graph(&capacities, &objects).max_scale();
        let due = scale_by_subsets(&capacities, &objects);
        prop_assert!(close(factor, due), "{factor}, not {due}");
        prop_assert_eq!(binding.is_empty(), factor.is_infinite());
        if factor.is_finite() {
            let inside: Objects = objects.iter().filter(|(places, _)| {
                places.iter().all(|place| binding.contains(place))
            }).cloned().collect();
            let rate: f64 = inside.iter().map(|(_, rate)| rate).sum();
            let capacity: f64 = binding.iter().map(|&node| capacities[node as usize]).sum();
            prop_assert!(close(factor, capacity / rate), "{binding:?} does not bind");
            prop_assert!(binding.is_sorted());
        }
    }

    #[test]
    fn what_is_carried_is_what_a_linear_program_carries((capacities, objects) in cases(), scale in 0.0..4.0f64) {
        let mut graph = graph(&capacities, &objects);
        if scale > 2.0 {
            graph.max_scale();
        }
        let flow = graph.max_flow(scale);
        let due = carried_by_simplex(&capacities, &objects, scale);
        prop_assert!(close(flow.carried, due), "{}, not {due}", flow.carried);
        prop_assert!(close(flow.carried, flow.loads.iter().sum()));
        for (load, capacity) in flow.loads.iter().zip(&capacities) {
            prop_assert!(*load >= 0.0 && *load <= capacity * (1.0 + 1e-9), "{load} on {capacity}");
        }
    }
}

#[test]
fn known_cases() {
    let check = |capacities: &[f64], objects: &[(&[u32], f64)], factor: f64, binding: &[u32]| {
        let objects: Objects = objects.iter().map(|(places, rate)| (places.to_vec(), *rate)).collect();
        let scale = graph(capacities, &objects).max_scale();
        assert_eq!((scale.factor, &scale.binding[..]), (factor, binding), "{capacities:?} {objects:?}");
    };
    check(&[1.0, 1.0], &[], f64::INFINITY, &[]);
    check(&[1.0, 1.0], &[(&[0, 1], 0.0)], f64::INFINITY, &[]);
    check(&[1.0, 1.0], &[(&[0, 1], 1.0)], 2.0, &[0, 1]);
    check(&[1.0, 1.0], &[(&[1, 1, 1], 4.0)], 0.25, &[1]);
    check(&[0.0, 1.0], &[(&[0], 1.0), (&[1], 1.0)], 0.0, &[0]);
    // Three objects on two nodes, and one that is alone.
    check(&[1.0; 4], &[(&[0, 1], 1.0), (&[1, 0], 1.0), (&[0, 1], 1.0), (&[2, 3], 1.0)], 2.0 / 3.0, &[0, 1]);
    // One object is hotter than all its places.
    check(&[1.0; 3], &[(&[0, 1], 8.0), (&[1, 2], 0.5)], 0.25, &[0, 1]);
    // A path of three nodes and two objects, limited as a whole.
    check(&[1.0; 3], &[(&[0, 1], 2.0), (&[1, 2], 2.0)], 0.75, &[0, 1, 2]);
}

#[test]
fn a_larger_graph_is_carried_just_up_to_its_factor() {
    for case in cases::seeds(1) {
        carried_just_up_to_its_factor(case.seed);
    }
}

fn carried_just_up_to_its_factor(seed: u64) {
    const NODES: u32 = 256;
    let mut random = seeds::random(seed, 0);
    let mut graph = Graph::new(vec![1.0; 2 * NODES as usize]);
    let mut whole = 0.0;
    for rank in 1..=20_000 {
        let places = [random.random_range(0..NODES), NODES + random.random_range(0..NODES)];
        let rate = f64::from(rank).powf(-0.6);
        whole += rate;
        graph.add(&places, rate);
    }
    let scale = graph.max_scale();
    let carried = |graph: &mut Graph, factor: f64| graph.max_flow(factor).carried / (whole * factor);
    assert!(close(carried(&mut graph, scale.factor), 1.0));
    assert!(carried(&mut graph, scale.factor * 0.5) > 1.0 - 1e-12);
    let beyond = carried(&mut graph, scale.factor * 1.001);
    assert!(beyond < 1.0 - 1e-9, "{beyond}");
    assert_eq!(scale, graph.max_scale(), "what was asked in between changes nothing");
}

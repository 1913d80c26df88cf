//! Capacities against a linear program that knows every spine and every request in transit. Not where objects are.

use proptest::prelude::*;
use study::capacity::{Accounting, CapacityMetric, CapacityModel, CoherenceUnit, CopyLayout, Mechanism};
use study::{Popularity, PopularitySpec};
use trace::Distribution;

/// Rows of coefficients and their bounds: what each row adds up to is at most its bound, and no variable is negative.
struct Program {
    variables: usize,
    rows: Vec<(Vec<f64>, f64)>,
}

impl Program {
    fn row(&mut self, bound: f64, coefficients: impl IntoIterator<Item = (usize, f64)>) {
        let mut row = vec![0.0; self.variables];
        coefficients.into_iter().for_each(|(variable, coefficient)| row[variable] += coefficient);
        self.rows.push((row, bound));
    }

    /// The largest value of the sum of `goal`, by the simplex method in Bland's order; bounds are not negative.
    fn maximise(&self, goal: impl IntoIterator<Item = usize>) -> f64 {
        let (columns, rows) = (self.variables, self.rows.len());
        let width = columns + rows + 1;
        let mut table: Vec<Vec<f64>> = Vec::new();
        for (index, (coefficients, bound)) in self.rows.iter().enumerate() {
            let mut row = coefficients.clone();
            row.extend((0..rows).map(|slack| f64::from(u8::from(slack == index))));
            row.push(*bound);
            table.push(row);
        }
        table.push(vec![0.0; width]);
        goal.into_iter().for_each(|variable| table[rows][variable] = -1.0);
        let mut basis: Vec<usize> = (columns..width - 1).collect();
        while let Some(column) = (0..width - 1).find(|&column| table[rows][column] < -1e-11) {
            let bound = |row: usize| table[row][width - 1] / table[row][column];
            let row = (0..rows)
                .filter(|&row| table[row][column] > 1e-11)
                .min_by(|&a, &b| bound(a).total_cmp(&bound(b)).then(basis[a].cmp(&basis[b])))
                .expect("a bounded program");
            let by = table[row][column];
            table[row].iter_mut().for_each(|value| *value /= by);
            let pivot = table[row].clone();
            for other in (0..=rows).filter(|&other| other != row) {
                let times = table[other][column];
                table[other].iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= times * pivot);
            }
            basis[row] = column;
        }
        table[rows][width - 1]
    }
}

/// The places of each cached object with every spine by itself, and its popularity.
fn places(model: &CapacityModel, layout: &CopyLayout) -> Vec<(Vec<u32>, f64)> {
    let pooled = matches!(model.mechanism, Mechanism::ReplicationSlots | Mechanism::ReplicationDistinct);
    let spines = model.spines - model.failed_spines;
    let expand = |place: &u32| match *place {
        pool if pooled && pool == model.racks => (pool..pool + spines).collect(),
        place => vec![place],
    };
    let object = |object| layout.places(object).iter().flat_map(expand).collect();
    layout.objects.iter().map(|cached| (object(cached), cached.popularity)).collect()
}

/// Variable 0 is the rate of all requests, the next ones what each object gets at each place, the last ones what
/// crosses each live spine in transit.
fn program(model: &CapacityModel, layout: &CopyLayout) -> Program {
    let objects = places(model, layout);
    let reads = 1.0 - model.write_ratio;
    let (racks, live) = (model.racks as usize, (model.spines - model.failed_spines) as usize);
    let pairs: Vec<(usize, usize)> = (0..objects.len())
        .flat_map(|object| objects[object].0.iter().map(move |place| (object, *place as usize)))
        .collect();
    let transit = 1 + pairs.len();
    let mut program = Program { variables: transit + live, rows: Vec::new() };
    let mine = |object: usize| pairs.iter().zip(1..).filter(move |(pair, _)| pair.0 == object);
    let here = |node: usize| pairs.iter().zip(1..).filter(move |(pair, _)| pair.1 == node);
    let live_ones = objects.iter().enumerate().filter(|(_, (places, _))| !places.is_empty());
    for (object, (_, popularity)) in live_ones {
        let served = mine(object).map(|(_, variable)| (variable, -1.0));
        program.row(0.0, served.chain([(0, reads * popularity)]));
    }
    let mut missed = vec![0.0; racks];
    for server in 0..layout.uncached.len() {
        let stranded = layout.objects.iter().zip(&objects);
        let stranded =
            stranded.filter(|(cached, (places, _))| places.is_empty() && cached.server as usize == server);
        let stranded: f64 = stranded.map(|(_, (_, popularity))| reads * popularity).sum();
        let cost = layout.uncached[server] + stranded + model.write_ratio * layout.write_cost[server];
        program.row(model.server_rate, [(0, cost)]);
        missed[server / model.servers_per_rack as usize] +=
            layout.uncached[server] + stranded + model.write_ratio * layout.cached[server];
    }
    let cached = model.mechanism != Mechanism::NoCache;
    for (rack, missed) in missed.iter().enumerate() {
        let missed = if cached && model.accounting == Accounting::A { *missed } else { 0.0 };
        program.row(model.leaf_rate, here(rack).map(|(_, variable)| (variable, 1.0)).chain([(0, missed)]));
    }
    for spine in 0..live {
        let hits = here(racks + spine).map(|(_, variable)| (variable, 1.0));
        program.row(model.spine_rate, hits.chain([(transit + spine, 1.0)]));
    }
    if cached && model.accounting != Accounting::C {
        let served = pairs.iter().zip(1..).filter(|(pair, _)| pair.1 >= racks);
        let served = served.map(|(_, variable)| (variable, -1.0));
        program.row(0.0, served.chain((0..live).map(|spine| (transit + spine, -1.0))).chain([(0, 1.0)]));
    }
    program
}

fn models() -> impl Strategy<Value = (CapacityModel, u64)> {
    let mechanism = prop_oneof![
        1 => Just(Mechanism::NoCache),
        1 => Just(Mechanism::PartitionLeaf),
        1 => Just(Mechanism::PartitionSpine),
        2 => Just(Mechanism::ReplicationSlots),
        2 => Just(Mechanism::ReplicationDistinct),
        5 => Just(Mechanism::DistCache),
    ];
    let accounting = prop_oneof![Just(Accounting::A), Just(Accounting::B), Just(Accounting::C)];
    let law = prop_oneof![
        3 => (0.5..1.6f64).prop_map(Distribution::Zipf),
        1 => (1..30u64).prop_map(Distribution::Adversary),
        1 => Just(Distribution::Uniform),
    ];
    let shape = (1..4u32, 1..4u32, 1..3u32, (0.5..5.0f64, 0.5..5.0f64), (0..4u64, 0..4u64));
    let load = (law, prop_oneof![2 => Just(0.0), 1 => 0.0..0.9f64], 0.0..2.0f64, any::<bool>());
    let rest = (0..3u32, any::<bool>(), any::<bool>(), any::<bool>(), 0..1_000_000u64);
    (mechanism, accounting, shape, load, rest).prop_map(|(mechanism, accounting, shape, load, rest)| {
        let (failed, remap, elastic, path, seed) = rest;
        let model = CapacityModel {
            racks: shape.0,
            spines: shape.1,
            servers_per_rack: shape.2,
            leaf_rate: shape.3.0,
            spine_rate: shape.3.1,
            slots_leaf: shape.4.0,
            slots_spine: shape.4.1,
            objects: 40,
            popularity: PopularitySpec::Law(load.0),
            write_ratio: load.1,
            coherence_cost: load.2,
            coherence_unit: if path { CoherenceUnit::Path } else { CoherenceUnit::Copy },
            mechanism,
            accounting,
            failed_spines: if load.3 { failed.min(shape.1 - 1) } else { 0 },
            remap,
            elastic: elastic && mechanism == Mechanism::DistCache,
            ..CapacityModel::default()
        };
        (model, seed)
    })
}

fn popularity(model: &CapacityModel) -> Popularity {
    model.popularity.popularity(model.objects).expect("a law and objects")
}

fn close(own: f64, due: f64) -> bool {
    (own - due).abs() <= 1e-9 * due.abs().max(1e-9)
}

proptest! {
    #![proptest_config(cases::proptest(1000))]

    #[test]
    fn saturation_is_what_a_linear_program_finds((model, seed) in models(), offered in 0.1..30.0f64) {
        let popularity = popularity(&model);
        // Of elastic copies as many as for one rate: for their own throughput it may lie between two steps.
        let model = CapacityModel { offered: Some(offered), ..model };
        let own = model.run(&popularity, seed).expect("a model").throughput;
        let due = program(&model, &model.layout(&popularity, seed).expect("a model")).maximise([0]);
        prop_assert!(close(own, due), "{own}, not {due}");
    }

    #[test]
    fn goodput_of_hits_is_what_a_linear_program_carries((model, seed) in models(), offered in 0.1..30.0f64) {
        let accounting = Accounting::C;
        let model = CapacityModel { accounting, remap: true, offered: Some(offered), metric: CapacityMetric::Goodput, ..model };
        let popularity = popularity(&model);
        let layout = model.layout(&popularity, seed).expect("a model");
        let objects = places(&model, &layout);
        let ends: Vec<usize> = objects
            .iter()
            .scan(0, |end, (places, _)| { *end += places.len(); Some(*end) })
            .collect();
        let variables = ends.last().copied().unwrap_or(0);
        let mut program = Program { variables, rows: Vec::new() };
        for ((places, popularity), end) in objects.iter().zip(&ends) {
            let rate = offered * (1.0 - model.write_ratio) * popularity;
            program.row(rate, (end - places.len()..*end).map(|variable| (variable, 1.0)));
        }
        let all: Vec<u32> = objects.iter().flat_map(|(places, _)| places.clone()).collect();
        for node in 0..model.racks + model.spines {
            let here = (0..variables).filter(|variable| all[*variable] == node);
            let rate = if node < model.racks { model.leaf_rate } else { model.spine_rate };
            program.row(rate, here.map(|variable| (variable, 1.0)));
        }
        let mut due = if variables > 0 { program.maximise(0..variables) } else { 0.0 };
        for server in 0..layout.uncached.len() {
            let requests = offered * (layout.uncached[server] + model.write_ratio * layout.cached[server]);
            let cost = offered * (layout.uncached[server] + model.write_ratio * layout.write_cost[server]);
            due += requests * (model.server_rate / cost).min(1.0);
        }
        let own = model.run(&popularity, seed).expect("a model").throughput;
        prop_assert!(close(own, due), "{own}, not {due}");
    }
}

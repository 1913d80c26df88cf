//! The paper's claims about balance (sections 3.1, 3.2 and 4.2), tested on placement and load in a closed loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bytes::Bytes;
use protocol::load::{LoadMeter, LoadTable};
use protocol::placement::{Placement, Places, Secret};
use protocol::time::Time;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::{
    ClusterMap, LayerMap, NodeId, NodeMember, Partition, RackId, SHARE_WHOLE, Sharding, ShimId, ShimMember,
};

/// One leaf node per rack, numbered from zero, and spine nodes behind them.
fn leaf_and_spine(racks: u16, spines: u16, shims_per_rack: u16) -> ClusterMap {
    let node = |id, rack| NodeMember { id: NodeId(id), rack, capacity: 1000, share: SHARE_WHOLE };
    let leaf = LayerMap {
        name: "leaf".to_owned(),
        partition: Partition::Rack,
        nodes: (0..racks).map(|id| node(id, Some(RackId(id)))).collect(),
    };
    let spine = LayerMap {
        name: "spine".to_owned(),
        partition: Partition::Hash,
        nodes: (racks..racks + spines).map(|id| node(id, None)).collect(),
    };
    let shims = (0..racks * shims_per_rack)
        .map(|id| ShimMember::new(ShimId(id), RackId(id / shims_per_rack)))
        .collect();
    ClusterMap { epoch: 1, level: 1, sharding: Sharding::Ring, layers: vec![leaf, spine], shims }
}

/// How a node measures the load that it stamps into replies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Telemetry {
    /// As DistCache does it.
    Sliding,
    /// The count of the last whole second, as a switch does that resets its counter.
    CompletedSecond,
}

struct SimulatedNode {
    meter: LoadMeter,
    capacity: u32,
    second: u64,
    this_second: u32,
    last_second: u32,
    served: u32,
}

impl SimulatedNode {
    fn serve(&mut self, now: Time, telemetry: Telemetry) -> u32 {
        self.served += 1;
        self.meter.record(now);
        let second = now.0 / 1_000_000;
        if second != self.second {
            self.last_second = if second == self.second + 1 { self.this_second } else { 0 };
            (self.second, self.this_second) = (second, 0);
        }
        self.this_second += 1;
        match telemetry {
            Telemetry::Sliding => self.meter.load(now, self.capacity),
            Telemetry::CompletedSecond => self.last_second,
        }
    }
}

/// Objects with their rates and places, closed-loop clients, routers that know loads only from replies.
struct Simulation {
    telemetry: Telemetry,
    routers: usize,
    clients: usize,
    capacities: Vec<u32>,
    /// Cumulative rate and candidates of each object.
    objects: Vec<(f64, Vec<NodeId>)>,
}

/// What is measured after a warm-up.
struct Outcome {
    served: Vec<u32>,
    /// Average over windows of 100 ms of the most loaded node's requests, relative to the average.
    worst_over_average: f64,
}

/// When something happens, to which client, at which node, and the load on its way back if it is a reply.
type Events = BinaryHeap<Reverse<(u64, usize, u16, Option<u32>)>>;

const WARMUP_US: u64 = 4_000_000;
const WINDOW_US: u64 = 100_000;
const END_US: u64 = 10_000_000;

impl Simulation {
    fn new(nodes: usize, rates: &[f64], places: impl Iterator<Item = Places>) -> Simulation {
        let mut sum = 0.0;
        let objects = rates
            .iter()
            .zip(places)
            .map(|(rate, places)| {
                sum += rate;
                (sum, places.iter().flatten().copied().collect())
            })
            .collect();
        let capacities = vec![1000; nodes];
        Simulation { telemetry: Telemetry::Sliding, routers: 4, clients: 32, capacities, objects }
    }

    /// Every request takes half a millisecond to a node and half a millisecond back, give or take a fifth.
    fn run(&self) -> Outcome {
        let mut random = SmallRng::seed_from_u64(2019);
        let mut tables = vec![LoadTable::new(self.capacities.len()); self.routers];
        let mut nodes: Vec<SimulatedNode> =
            self.capacities.iter().map(|&capacity| new_node(capacity)).collect();
        let mut events = Events::new();
        let mut outcome = Outcome { served: vec![0; nodes.len()], worst_over_average: 0.0 };
        let mut window_end = WARMUP_US;
        for client in 0..self.clients {
            self.send(client, client as u64 * 17, &mut tables, &mut random, &mut events);
        }
        while let Some(Reverse((now, client, node, load))) = events.pop() {
            if now >= END_US {
                break;
            }
            if now >= window_end {
                outcome.add_window(&mut nodes, window_end > WARMUP_US);
                window_end += WINDOW_US;
            }
            match load {
                None => {
                    let load = nodes[usize::from(node)].serve(Time(now), self.telemetry);
                    events.push(Reverse((now + random.random_range(400..600), client, node, Some(load))));
                }
                Some(load) => {
                    tables[client % self.routers].report(Time(now), NodeId(node), load);
                    self.send(client, now, &mut tables, &mut random, &mut events);
                }
            }
        }
        outcome.worst_over_average /= ((END_US - WARMUP_US) / WINDOW_US - 1) as f64;
        outcome
    }

    fn send(
        &self,
        client: usize,
        now: u64,
        tables: &mut [LoadTable],
        random: &mut SmallRng,
        events: &mut Events,
    ) {
        let total = self.objects.last().expect("objects").0;
        let point = random.random_range(0.0..total);
        let object = self.objects.partition_point(|(sum, _)| *sum <= point);
        let table = &mut tables[client % self.routers];
        let chosen =
            table.choose(Time(now), &self.objects[object].1, random.random()).expect("all are reachable");
        table.sent(Time(now), chosen);
        events.push(Reverse((now + random.random_range(400..600), client, chosen.0, None)));
    }
}

fn new_node(capacity: u32) -> SimulatedNode {
    let meter = LoadMeter::new(Duration::from_secs(1));
    SimulatedNode { meter, capacity, second: 0, this_second: 0, last_second: 0, served: 0 }
}

impl Outcome {
    fn add_window(&mut self, nodes: &mut [SimulatedNode], counted: bool) {
        let served: Vec<u32> = nodes.iter_mut().map(|node| std::mem::take(&mut node.served)).collect();
        if counted {
            self.worst_over_average += max_over_average(&served);
            self.served.iter_mut().zip(&served).for_each(|(sum, count)| *sum += count);
        }
    }
}

fn max_over_average(counts: &[u32]) -> f64 {
    let sum: u32 = counts.iter().sum();
    f64::from(*counts.iter().max().expect("nodes")) * counts.len() as f64 / f64::from(sum)
}

/// 4 racks of 2 servers, 4 leaf and 4 spine nodes, 1,000 hot objects at Zipf 0.99.
fn zipf_cluster() -> Simulation {
    let secret = Secret(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
    let placement = Placement::new(secret, leaf_and_spine(4, 4, 2)).expect("a map");
    let rates: Vec<f64> = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).collect();
    let places = (0..1000).map(|n| placement.places(&placement.key(0, Bytes::from(format!("key:{n:012}")))));
    Simulation::new(8, &rates, places)
}

/// From one router, which hears of a node only when it sends there itself, to many.
#[test]
fn two_choices_over_a_sliding_second_balance_a_skewed_load() {
    for routers in [1, 4, 16] {
        let outcome = Simulation { routers, ..zipf_cluster() }.run();
        let total = max_over_average(&outcome.served);
        assert!(total <= 1.02, "{routers} routers: {total} over the whole run, {:?}", outcome.served);
        assert!(
            outcome.worst_over_average <= 1.10,
            "{routers} routers: {} in 100 ms",
            outcome.worst_over_average
        );
    }
}

/// One choice, of either layer, is what partitioning alone gives.
#[test]
fn without_the_choice_the_same_load_is_unbalanced() {
    for layer in 0..2 {
        let mut simulation = zipf_cluster();
        simulation.objects.iter_mut().for_each(|(_, places)| *places = vec![places[layer]]);
        let outcome = simulation.run();
        let nodes = &outcome.served[4 * layer..4 * layer + 4];
        assert!(max_over_average(nodes) >= 1.2, "layer {layer}: {nodes:?}");
    }
}

/// Why the load is that of the sliding last second: a count that stands still for a second sends every router to
/// the same side for that second.
#[test]
fn the_last_completed_second_herds() {
    let herding = Simulation { telemetry: Telemetry::CompletedSecond, ..zipf_cluster() }.run();
    assert!(herding.worst_over_average >= 1.4, "{} in 100 ms", herding.worst_over_average);
}

/// An adversary's single key has one place per layer, and both take half, in every tenth of a second. This is the
/// hardest case for telemetry: all that a router knows of the node it does not use is an old report.
#[test]
fn one_key_is_shared_equally_by_its_two_nodes() {
    for routers in [1, 4, 16] {
        let mut simulation = Simulation { routers, ..zipf_cluster() };
        simulation.objects.truncate(1);
        let outcome = simulation.run();
        let busy: Vec<u32> = outcome.served.iter().copied().filter(|&served| served > 0).collect();
        assert_eq!(busy.len(), 2, "{:?}", outcome.served);
        assert!(max_over_average(&busy) <= 1.02, "{routers} routers: {busy:?}");
        let in_windows = outcome.worst_over_average * 2.0 / 8.0;
        assert!(in_windows <= 1.10, "{routers} routers: {in_windows} in 100 ms");
    }
}

/// Loads are per capacity, so nodes of one key share it in proportion.
#[test]
fn unequal_nodes_share_in_proportion_to_capacity() {
    let mut simulation = zipf_cluster();
    simulation.objects.truncate(1);
    let nodes = simulation.objects[0].1.clone();
    simulation.capacities[usize::from(nodes[0].0)] = 3000;
    let outcome = simulation.run();
    let [strong, weak] = [0, 1].map(|index| f64::from(outcome.served[usize::from(nodes[index].0)]));
    assert!((strong / weak / 3.0 - 1.0).abs() < 0.03, "{strong} and {weak}");
}

/// Three and four layers (section 3.1, "recursively"): the power of k choices.
#[test]
fn more_layers_balance_as_well() {
    let secret = Secret(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes());
    for layers in 3..=4u16 {
        let mut map = leaf_and_spine(4, 4, 2);
        for index in 2..layers {
            let mut layer = map.layers[1].clone();
            layer.name = format!("layer {index}");
            layer.nodes.iter_mut().for_each(|node| node.id.0 += 4 * (index - 1));
            map.layers.push(layer);
        }
        let placement = Placement::new(secret, map).expect("a map");
        let rates: Vec<f64> = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).collect();
        let places =
            (0..1000).map(|n| placement.places(&placement.key(0, Bytes::from(format!("key:{n:012}")))));
        let outcome = Simulation::new(placement.nodes_count(), &rates, places).run();
        let total = max_over_average(&outcome.served);
        assert!(total <= 1.02, "{layers} layers: {total}, {:?}", outcome.served);
    }
}

/// Figures 3 and 4: six hot objects, lower-layer nodes C3 to C5, upper-layer nodes C0 to C2, all rates equal. C3 holds
/// A, B and C; the upper layer spreads them; the matching is A at C1, B at C0, C at C3, D at C4, E at C2, F at C5.
/// Nodes are numbered from the lower layer here: n0 to n2 are C3 to C5, n3 to n5 are C0 to C2.
#[test]
fn figure_3_the_upper_layer_spreads_what_overloads_a_lower_node() {
    let secret = Secret(FIGURE_3_SECRET.to_be_bytes());
    let placement = Placement::new(secret, leaf_and_spine(3, 3, 1)).expect("a map");
    let names = ["C3", "C4", "C5", "C0", "C1", "C2"];
    let places = || {
        ["A", "B", "C", "D", "E", "F"]
            .map(|name| placement.places(&placement.key(0, Bytes::from_static(name.as_bytes()))))
    };
    let mut transcript = String::new();
    for (name, places) in ["A", "B", "C", "D", "E", "F"].iter().zip(places()) {
        let [lower, upper] = [0, 1].map(|layer| names[usize::from(places[layer].expect("all are up").0)]);
        transcript += &format!("{name}: lower {lower}, upper {upper}\n");
    }
    assert_eq!(
        transcript,
        "A: lower C3, upper C1\nB: lower C3, upper C0\nC: lower C3, upper C2\n\
         D: lower C4, upper C1\nE: lower C4, upper C2\nF: lower C5, upper C0\n"
    );

    let mut simulation = Simulation::new(6, &[1.0; 6], places().into_iter());
    let outcome = simulation.run();
    assert!(max_over_average(&outcome.served) <= 1.05, "two choices find the matching: {:?}", outcome.served);

    simulation.objects.iter_mut().for_each(|(_, places)| places.truncate(1));
    let lower = simulation.run().served;
    assert!(max_over_average(&lower[..3]) >= 1.45, "C3 alone has half of everything: {lower:?}");
}

/// Found by trying numbers until the layout came out as in the figure.
const FIGURE_3_SECRET: u128 = 0x0000_0000_0000_0000_0000_0000_0001_fc91;

//! One run of the queues from empty. Not what routers know, nor whether what is observed grows.

use protocol::time::Time;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use wire::NodeId;

use super::alias::{Alias, exponential};
use super::overload::ModelDemand;
use super::telemetry::Knowledge;
use super::{StabilityRun, StabilitySettings, growth};
use crate::matching::RoutingPolicy;
use crate::seeds;

/// Keeps the random numbers of events apart from those of placement.
const EVENTS: u64 = 2;

struct Queues<'a> {
    settings: &'a StabilitySettings,
    /// The candidates of each object, as many for each.
    places: Vec<NodeId>,
    per_object: usize,
    objects: Alias,
    nodes: Alias,
    lengths: Vec<u32>,
    /// By node, the sum of what was observed.
    backlog: Vec<f64>,
    knowledge: Knowledge,
    random: Xoshiro256PlusPlus,
    waiting: u64,
    served: u64,
    drops: u64,
    longest: u32,
}

pub(super) fn simulate(settings: &StabilitySettings, rates: &[f64], seed: u64) -> StabilityRun {
    let capacities = settings.model.capacities();
    let places = settings.model.places(settings.policy, seed);
    let mut queues = Queues {
        settings,
        places: places.into_iter().map(|place| NodeId(place as u16)).collect(),
        per_object: settings.model.places_count(settings.policy),
        objects: Alias::new(rates),
        nodes: Alias::new(&capacities),
        lengths: vec![0; capacities.len()],
        backlog: vec![0.0; capacities.len()],
        knowledge: Knowledge::new(settings),
        random: seeds::random(seed, EVENTS),
        waiting: 0,
        served: 0,
        drops: 0,
        longest: 0,
    };
    let arrivals = rates.iter().sum::<f64>() * settings.node_rate;
    let services = capacities.iter().sum::<f64>() * settings.node_rate;
    let observed = queues.run(arrivals, services);
    let demand =
        ModelDemand { policy: settings.policy, rates, places: &queues.places, capacities: &capacities };
    StabilityRun { stationary: observed.stationary && !demand.overloads(&queues.backlog), ..observed }
}

impl Queues<'_> {
    fn run(&mut self, arrivals: f64, services: f64) -> StabilityRun {
        let (all, arrival) = (arrivals + services, arrivals / (arrivals + services));
        let (half, end) = (self.settings.seconds / 2.0, self.settings.seconds);
        let step = half / growth::STEPS as f64;
        let mut observed = Vec::with_capacity(growth::STEPS + 1);
        let (mut now, mut due) = (0.0, half);
        // Requests times seconds, and requests served, in the second half.
        let (mut area, mut served) = (0.0, 0);
        while observed.len() <= growth::STEPS {
            let next = now + exponential(&mut self.random) / all;
            while next >= due && observed.len() <= growth::STEPS {
                if observed.is_empty() {
                    served = self.served;
                }
                observed.push((self.waiting + self.drops) as f64);
                self.backlog
                    .iter_mut()
                    .zip(&self.lengths)
                    .for_each(|(sum, length)| *sum += f64::from(*length));
                due = half + step * observed.len() as f64;
            }
            area += (next.min(end) - now.max(half)).max(0.0) * self.waiting as f64;
            now = next;
            // What falls on the last observation is too late.
            if now < end {
                self.event(Time((now * 1e6) as u64), arrival);
            }
        }
        let (growth, stationary) = growth::drift(&observed);
        StabilityRun {
            growth_per_s: growth / step,
            goodput: (self.served - served) as f64 / half,
            drops: self.drops,
            queue_max: self.longest,
            queue_mean: area / half,
            stationary,
        }
    }

    fn event(&mut self, now: Time, arrival: f64) {
        if self.random.random::<f64>() < arrival {
            self.arrive(now);
            return;
        }
        let node = self.nodes.draw(&mut self.random);
        if self.lengths[node] > 0 {
            self.lengths[node] -= 1;
            self.waiting -= 1;
            self.served += 1;
            self.knowledge.served(now, NodeId(node as u16), self.lengths[node]);
        }
    }

    fn arrive(&mut self, now: Time) {
        let object = self.objects.draw(&mut self.random);
        let candidates = &self.places[object * self.per_object..][..self.per_object];
        let router = match self.settings.routers {
            1 => 0,
            routers => self.random.random_range(0..routers as u16),
        };
        let node = match self.settings.policy {
            RoutingPolicy::TwoChoices => self.knowledge.choose(now, router, candidates, self.random.random()),
            RoutingPolicy::RandomOfTwo => {
                candidates[self.random.random_range(0..candidates.len() as u32) as usize]
            }
            RoutingPolicy::OneHash | RoutingPolicy::OneHashOverAll => candidates[0],
            RoutingPolicy::Matching => unreachable!("refused before"),
        };
        let length = &mut self.lengths[usize::from(node.0)];
        let joined = *length < self.settings.queue_max;
        if joined {
            *length += 1;
            self.longest = self.longest.max(*length);
            self.waiting += 1;
        } else {
            self.drops += 1;
        }
        self.knowledge.sent(now, router, node, *length, joined);
    }
}

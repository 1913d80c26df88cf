//! Whether the nodes that are always busy are asked for more than they can serve, by rates that are known. Not whether
//! queues were seen to grow, which noise hides for long where the overload is small.
//!
//! What nodes have to serve that are never idle needs no estimate: whatever the routers do, they get all requests for
//! objects that have no place elsewhere. If that is as much as they can serve, their queues grow (the easy half of lemma
//! 2), so no stationary system is ever called overloaded. Which nodes those are the simulation tells: from the longest
//! queue on, each one after the other is taken in.

use wire::NodeId;

use crate::matching::RoutingPolicy;

/// At the limit itself queues grow, if ever more slowly; rounding shall not hide it.
const FULL: f64 = 1.0 - 1e-9;

/// The objects of a model, their places and the nodes' rates.
pub(super) struct ModelDemand<'a> {
    pub(super) policy: RoutingPolicy,
    pub(super) rates: &'a [f64],
    /// As many for each object.
    pub(super) places: &'a [NodeId],
    pub(super) capacities: &'a [f64],
}

impl ModelDemand<'_> {
    /// `queues`: how long each node's is, in any measure.
    pub(super) fn overloads(&self, queues: &[f64]) -> bool {
        match self.policy {
            RoutingPolicy::TwoChoices | RoutingPolicy::Matching => self.overloads_first_of(queues),
            RoutingPolicy::RandomOfTwo | RoutingPolicy::OneHash | RoutingPolicy::OneHashOverAll => {
                self.overloads_one()
            }
        }
    }

    fn objects(&self) -> impl Iterator<Item = (&f64, &[NodeId])> {
        self.rates.iter().zip(self.places.chunks(self.places.len() / self.rates.len()))
    }

    fn overloads_first_of(&self, queues: &[f64]) -> bool {
        let mut order: Vec<usize> = (0..queues.len()).collect();
        order.sort_by(|a, b| queues[*b].total_cmp(&queues[*a]));
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, node)| position[*node] = place);
        // By the last of its places that is taken in.
        let mut asked = vec![0.0; order.len()];
        for (rate, places) in self.objects() {
            let last = places.iter().map(|node| position[usize::from(node.0)]).max();
            asked[last.expect("every object has a place")] += rate;
        }
        let (mut sum, mut capacity) = (0.0, 0.0);
        order.iter().zip(asked).any(|(node, asked)| {
            (sum, capacity) = (sum + asked, capacity + self.capacities[*node]);
            sum >= capacity * FULL
        })
    }

    /// Each node's part is known where nobody looks at queues.
    fn overloads_one(&self) -> bool {
        let mut asked = vec![0.0; self.capacities.len()];
        for (rate, places) in self.objects() {
            places.iter().for_each(|node| asked[usize::from(node.0)] += rate / places.len() as f64);
        }
        asked.iter().zip(self.capacities).any(|(asked, capacity)| *asked >= capacity * FULL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [NodeId; 6] = [NodeId(0), NodeId(2), NodeId(0), NodeId(2), NodeId(1), NodeId(3)];

    fn overloads(policy: RoutingPolicy, rates: [f64; 3], queues: [f64; 4]) -> bool {
        let capacities = [1.0; 4];
        ModelDemand { policy, rates: &rates, places: &PLACES, capacities: &capacities }.overloads(&queues)
    }

    #[test]
    fn two_nodes_share_what_is_theirs_alone() {
        let queues = [7.0, 1.0, 8.0, 0.0];
        assert!(!overloads(RoutingPolicy::TwoChoices, [1.0, 0.99, 1.5], queues));
        assert!(overloads(RoutingPolicy::TwoChoices, [1.0, 1.0, 1.5], queues), "at the limit");
        assert!(overloads(RoutingPolicy::TwoChoices, [1.0, 1.01, 0.0], queues));
        assert!(overloads(RoutingPolicy::TwoChoices, [1.0, 1.0, 2.5], [0.0; 4]), "all of them together");
        assert!(
            !overloads(RoutingPolicy::TwoChoices, [1.0, 1.01, 0.0], [7.0, 8.0, 1.0, 0.0]),
            "others are busy"
        );
    }

    #[test]
    fn without_a_choice_one_node_decides() {
        assert!(!overloads(RoutingPolicy::RandomOfTwo, [1.0, 0.99, 1.9], [0.0; 4]));
        assert!(overloads(RoutingPolicy::RandomOfTwo, [0.1, 0.1, 2.0], [0.0; 4]));
    }
}

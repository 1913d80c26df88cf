//! Maximum flow by pushing what is too much for a node to places nearer to free capacity. Not what the flow means.
//!
//! The first phase of push-relabel: nodes are vertices, and a step between two of them is a share of an object that
//! both are places of. What cannot reach free capacity stays where it is, and is not carried.

use std::collections::VecDeque;

use super::network::FlowNetwork;

/// After this many looks at slots per slot, heights are computed anew: more often costs time, less often lets nodes
/// climb in small steps towards capacity that is not there.
const LOOKS: usize = 4;

struct PathSearch {
    /// A lower bound of the number of steps to free capacity; at least the number of nodes if there is no way.
    heights: Vec<u32>,
    /// Nodes of each height.
    counts: Vec<u32>,
    /// Where the next look for a step starts, as an offset into the node's slots.
    next: Vec<u32>,
    queue: VecDeque<u32>,
    queued: Vec<bool>,
    looks: usize,
}

/// Moves shares until nothing that is too much can go anywhere.
pub(super) fn run(network: &mut FlowNetwork) {
    let nodes = network.nodes();
    let mut search = PathSearch {
        heights: vec![0; nodes],
        counts: vec![0; nodes + 1],
        next: vec![0; nodes],
        queue: VecDeque::new(),
        queued: vec![false; nodes],
        looks: 0,
    };
    search.measure(network);
    for node in 0..nodes {
        search.enqueue(network, node);
    }
    let patience = LOOKS * network.shares.len() + nodes;
    while let Some(node) = search.queue.pop_front() {
        search.queued[node as usize] = false;
        search.discharge(network, node as usize);
        if search.looks > patience {
            search.measure(network);
        }
    }
}

impl PathSearch {
    fn enqueue(&mut self, network: &FlowNetwork, node: usize) {
        let able = (self.heights[node] as usize) < network.nodes();
        if able && !self.queued[node] && network.excess(node) > 0 {
            self.queued[node] = true;
            self.queue.push_back(node as u32);
        }
    }

    /// Exact heights, backwards from the nodes with free capacity.
    fn measure(&mut self, network: &FlowNetwork) {
        let nodes = network.nodes();
        self.looks = 0;
        self.next.fill(0);
        self.heights.fill(nodes as u32);
        let mut reached: Vec<u32> =
            (0..nodes as u32).filter(|&node| network.excess(node as usize) < 0).collect();
        reached.iter().for_each(|&node| self.heights[node as usize] = 0);
        let mut done = 0;
        while done < reached.len() && reached.len() < nodes {
            let node = reached[done] as usize;
            done += 1;
            for index in network.slots_of(node) {
                for slot in network.siblings(network.slot(index)) {
                    let from = network.place(slot);
                    if network.shares[slot] > 0 && self.heights[from] == nodes as u32 {
                        self.heights[from] = self.heights[node] + 1;
                        reached.push(from as u32);
                    }
                }
            }
        }
        self.counts.fill(0);
        self.heights.iter().for_each(|&height| self.counts[height as usize] += 1);
    }

    fn discharge(&mut self, network: &mut FlowNetwork, node: usize) {
        while network.excess(node) > 0 && (self.heights[node] as usize) < network.nodes() {
            let range = network.slots_of(node);
            let Some(index) = (range.start + self.next[node] as usize..range.end)
                .find(|&index| self.push(network, node, network.slot(index)))
            else {
                self.looks += range.len();
                self.lift(network, node);
                continue;
            };
            self.next[node] = (index - range.start) as u32;
        }
    }

    /// Gives of one slot to those of its siblings that are one step nearer; true once nothing is too much.
    fn push(&mut self, network: &mut FlowNetwork, node: usize, slot: usize) -> bool {
        if network.shares[slot] == 0 {
            return false;
        }
        for sibling in network.siblings(slot) {
            let to = network.place(sibling);
            if self.heights[to] + 1 != self.heights[node] {
                continue;
            }
            let moved = network.excess(node).min(network.shares[slot]);
            network.shift(slot, sibling, moved);
            self.enqueue(network, to);
            if network.excess(node) == 0 {
                return true;
            }
            if network.shares[slot] == 0 {
                return false;
            }
        }
        false
    }

    /// One above the lowest node that it can give to. A height that nobody is left at cuts off all above it.
    fn lift(&mut self, network: &FlowNetwork, node: usize) {
        let nodes = network.nodes() as u32;
        let old = self.heights[node];
        let mut lowest = nodes;
        'slots: for index in network.slots_of(node) {
            let slot = network.slot(index);
            if network.shares[slot] == 0 {
                continue;
            }
            for sibling in network.siblings(slot) {
                let to = network.place(sibling);
                if to != node && self.heights[to] < lowest {
                    lowest = self.heights[to];
                    if lowest <= old {
                        break 'slots;
                    }
                }
            }
        }
        self.next[node] = 0;
        self.set_height(node, (lowest + 1).min(nodes));
        if self.counts[old as usize] == 0 {
            for node in 0..nodes as usize {
                if self.heights[node] > old {
                    self.set_height(node, nodes);
                }
            }
        }
    }

    fn set_height(&mut self, node: usize, height: u32) {
        self.counts[self.heights[node] as usize] -= 1;
        self.heights[node] = height;
        self.counts[height as usize] += 1;
    }
}

/// After `run`: the nodes, from the fullest on, with all that their objects could go to instead, as long as that makes
/// capacity by rate smaller. None if everything is carried.
pub(super) fn tightest(network: &FlowNetwork) -> Option<Vec<u32>> {
    let full = |node: usize| network.loads[node] as f64 / network.capacities[node] as f64;
    let mut seeds: Vec<usize> = (0..network.nodes()).filter(|&node| network.excess(node) > 0).collect();
    seeds.sort_by(|&a, &b| full(b).total_cmp(&full(a)));
    let mut seen = vec![false; network.nodes()];
    let mut set: Vec<u32> = Vec::new();
    let (mut capacity, mut load) = (0i128, 0i128);
    let (mut best, mut best_len) = (f64::INFINITY, 0);
    for seed in seeds {
        let mut done = set.len();
        if !std::mem::replace(&mut seen[seed], true) {
            set.push(seed as u32);
        }
        while done < set.len() {
            let node = set[done] as usize;
            done += 1;
            capacity += i128::from(network.capacities[node]);
            load += i128::from(network.loads[node]);
            let given = network.slots_of(node).map(|index| network.slot(index));
            for slot in given.filter(|&slot| network.shares[slot] > 0).flat_map(|slot| network.siblings(slot))
            {
                let to = network.place(slot);
                if !std::mem::replace(&mut seen[to], true) {
                    set.push(to as u32);
                }
            }
        }
        let ratio = capacity as f64 / load as f64;
        if ratio < best {
            (best, best_len) = (ratio, set.len());
        }
    }
    set.truncate(best_len);
    set.sort_unstable();
    (!set.is_empty()).then_some(set)
}

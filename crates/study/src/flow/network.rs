//! Objects with equal places merged, in whole numbers, with the share of each that every place has. Not the search.

/// All rates together, in units.
const WHOLE: f64 = (1u64 << 60) as f64;
/// Rounds in which each object evens out its own places. Few, because the search puts right what is left.
const ROUNDS: usize = 12;

#[derive(Clone, Debug)]
pub(super) struct FlowNetwork {
    /// The places of object `o` are `places[starts[o]..starts[o + 1]]`; a position in there is a slot.
    starts: Vec<u32>,
    places: Vec<u32>,
    pub(super) rates: Vec<f64>,
    pub(super) whole: f64,
    /// Units per unit of rate.
    pub(super) units: f64,
    /// What each slot has of its object.
    pub(super) shares: Vec<i64>,
    /// The object of each slot.
    owners: Vec<u32>,
    /// The slots of node `n` are `slots[firsts[n]..firsts[n + 1]]`.
    firsts: Vec<u32>,
    slots: Vec<u32>,
    pub(super) loads: Vec<i64>,
    pub(super) capacities: Vec<i64>,
}

impl FlowNetwork {
    pub(super) fn new(nodes: usize, places: &[u32], ends: &[usize], rates: &[f64]) -> FlowNetwork {
        let whole: f64 = rates.iter().sum();
        let units = if whole > 0.0 { WHOLE / whole } else { 0.0 };
        let mut network = FlowNetwork {
            starts: vec![0],
            places: Vec::new(),
            rates: Vec::new(),
            whole,
            units,
            shares: Vec::new(),
            owners: Vec::new(),
            firsts: vec![0; nodes + 1],
            slots: Vec::new(),
            loads: vec![0; nodes],
            capacities: vec![0; nodes],
        };
        network.merge(places, ends, rates);
        network.index(nodes);
        network
    }

    /// Objects with the same places become one.
    fn merge(&mut self, places: &[u32], ends: &[usize], rates: &[f64]) {
        let of = |object: u32| {
            let object = object as usize;
            &places[object.checked_sub(1).map_or(0, |before| ends[before])..ends[object]]
        };
        // The first two places decide in nearly all comparisons.
        let first = |object: u32| {
            let places = of(object);
            u64::from(places[0]) << 32 | places.get(1).map_or(0, |&second| u64::from(second) + 1)
        };
        let mut order: Vec<(u64, u32)> =
            (0..ends.len() as u32).map(|object| (first(object), object)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| of(a.1).cmp(of(b.1))).then(a.1.cmp(&b.1)));
        for (_, object) in order {
            let rate = rates[object as usize];
            if rate == 0.0 {
                continue;
            }
            let last = self.objects().checked_sub(1);
            if let Some(last) = last.filter(|&last| self.places(last) == of(object)) {
                self.rates[last] += rate;
                continue;
            }
            self.places.extend_from_slice(of(object));
            self.starts.push(u32::try_from(self.places.len()).expect("fewer places than 2^32"));
            self.rates.push(rate);
        }
    }

    /// Which slots each node has, and every object whole at its first place.
    fn index(&mut self, nodes: usize) {
        for &place in &self.places {
            self.firsts[place as usize + 1] += 1;
        }
        for node in 0..nodes {
            self.firsts[node + 1] += self.firsts[node];
        }
        let mut next = self.firsts.clone();
        self.slots = vec![0; self.places.len()];
        self.shares = vec![0; self.places.len()];
        for object in 0..self.objects() {
            let range = self.range(object);
            let share = (self.rates[object] * self.units).round() as i64;
            self.shares[range.start] = share;
            self.loads[self.places[range.start] as usize] += share;
            for slot in range {
                let node = self.places[slot] as usize;
                self.owners.push(object as u32);
                self.slots[next[node] as usize] = slot as u32;
                next[node] += 1;
            }
        }
    }

    pub(super) fn objects(&self) -> usize {
        self.rates.len()
    }

    pub(super) fn nodes(&self) -> usize {
        self.loads.len()
    }

    fn range(&self, object: usize) -> std::ops::Range<usize> {
        self.starts[object] as usize..self.starts[object + 1] as usize
    }

    pub(super) fn places(&self, object: usize) -> &[u32] {
        &self.places[self.range(object)]
    }

    /// Positions for `slot`.
    pub(super) fn slots_of(&self, node: usize) -> std::ops::Range<usize> {
        self.firsts[node] as usize..self.firsts[node + 1] as usize
    }

    pub(super) fn slot(&self, index: usize) -> usize {
        self.slots[index] as usize
    }

    /// All slots of the object that has this one.
    pub(super) fn siblings(&self, slot: usize) -> std::ops::Range<usize> {
        self.range(self.owners[slot] as usize)
    }

    pub(super) fn place(&self, slot: usize) -> usize {
        self.places[slot] as usize
    }

    pub(super) fn excess(&self, node: usize) -> i64 {
        self.loads[node] - self.capacities[node]
    }

    /// Rates stay as they are: rates times `scale` against capacities is the same as rates against this part of them.
    pub(super) fn set_capacities(&mut self, capacities: &[f64], scale: f64) {
        for (own, capacity) in self.capacities.iter_mut().zip(capacities) {
            *own = (capacity / scale * self.units).min(2.0 * WHOLE).round() as i64;
        }
    }

    /// Evens out loads by capacity, so that little is left for the search.
    pub(super) fn balance(&mut self, capacities: &[f64]) {
        for _ in 0..ROUNDS {
            for object in 0..self.objects() {
                let range = self.range(object);
                for slot in range.start + 1..range.end {
                    self.level(range.start, slot, capacities);
                }
            }
        }
    }

    /// Moves as much between two slots of one object as makes their nodes equally full.
    fn level(&mut self, a: usize, b: usize, capacities: &[f64]) {
        let (at, bt) = (self.place(a), self.place(b));
        let (ca, cb) = (capacities[at], capacities[bt]);
        if ca + cb == 0.0 {
            return;
        }
        let (la, lb) = (self.loads[at] as f64, self.loads[bt] as f64);
        let moved = ((la * cb - lb * ca) / (ca + cb)) as i64;
        let moved = moved.clamp(-self.shares[b], self.shares[a]);
        self.shift(a, b, moved);
    }

    pub(super) fn shift(&mut self, from: usize, to: usize, moved: i64) {
        self.shares[from] -= moved;
        self.shares[to] += moved;
        let (from, to) = (self.place(from), self.place(to));
        self.loads[from] -= moved;
        self.loads[to] += moved;
    }
}

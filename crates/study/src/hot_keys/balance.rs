//! The loads of servers, how even they are, and what makes them more even. Not where keys are.

use super::HotKeysSetting;
use super::keys::KeyServers;

/// Replicas beyond so many for each server are no remedy any more.
const ADDED_MAX: u64 = 1000;

/// Shares of all requests, by server.
#[derive(Clone, Debug)]
pub(super) struct ServerLoads {
    /// Loads by keys with one place.
    single: Vec<f64>,
    /// Loads by each group's hot keys, on each of its servers.
    copied: Vec<f64>,
}

impl ServerLoads {
    /// Every key where it is at home.
    pub(super) fn plain(setting: &HotKeysSetting, mut keys: KeyServers) -> ServerLoads {
        let mut single = vec![0.0; setting.servers as usize];
        let rates = (0..setting.popularity.objects()).map(|rank| setting.popularity.of(rank));
        rates.for_each(|rate| single[keys.next_server()] += rate);
        ServerLoads { single, copied: vec![0.0; setting.groups as usize] }
    }

    /// The next hot key leaves its server and is duplicated on all servers of the group with the least load of
    /// hot keys (section IV-D).
    pub(super) fn copy(&mut self, server: usize, rate: f64) {
        self.single[server] -= rate;
        let group = least(&self.copied);
        self.copied[group] += rate / self.size(group) as f64;
    }

    pub(super) fn take(&mut self, server: usize, rate: f64) {
        self.single[server] -= rate;
    }

    /// To the server with the least load.
    pub(super) fn give(&mut self, rate: f64) {
        let server = least(&self.single);
        self.single[server] += rate;
    }

    fn group(&self, server: usize) -> usize {
        server * self.copied.len() / self.single.len()
    }

    /// The servers of a group.
    fn size(&self, group: usize) -> usize {
        let first = |group: usize| (group * self.single.len()).div_ceil(self.copied.len());
        first(group + 1) - first(group)
    }

    /// By server.
    pub(super) fn each(&self) -> impl ExactSizeIterator<Item = f64> {
        self.single.iter().enumerate().map(|(server, single)| single + self.copied[self.group(server)])
    }

    pub(super) fn factor(&self) -> f64 {
        mean(self.each()) / self.largest()
    }

    pub(super) fn jain(&self) -> f64 {
        let square: f64 = self.each().map(|load| load * load).sum();
        self.each().sum::<f64>().powi(2) / (self.single.len() as f64 * square)
    }

    pub(super) fn cv(&self) -> f64 {
        let mean_load = mean(self.each());
        mean(self.each().map(|load| (load - mean_load).powi(2))).sqrt() / mean_load
    }

    /// How many replicas of the then busiest servers give an imbalance factor of at least `wanted` (section III-A).
    pub(super) fn servers_to_add_for_factor(&self, wanted: f64) -> Option<u64> {
        let whole: f64 = self.each().sum();
        self.replicas(|servers, largest| whole / servers / largest >= wanted - 1e-12)
    }

    /// How many replicas of the then busiest servers leave none busier than `largest`.
    pub(super) fn servers_to_add(&self, largest: f64) -> Option<u64> {
        self.replicas(|_, own| own <= largest * (1.0 + 1e-12))
    }

    pub(super) fn largest(&self) -> f64 {
        self.each().fold(0.0, f64::max)
    }

    /// The fewest replicas, each of the server that is busiest then, that are enough for so many servers and load.
    fn replicas(&self, enough: impl Fn(f64, f64) -> bool) -> Option<u64> {
        let loads: Vec<f64> = self.each().collect();
        let mut replicas = vec![1u32; loads.len()];
        for added in 0..ADDED_MAX * loads.len() as u64 {
            let each = |server: usize| loads[server] / f64::from(replicas[server]);
            let busiest = (0..loads.len()).max_by(|&a, &b| each(a).total_cmp(&each(b)))?;
            if enough((loads.len() as u64 + added) as f64, each(busiest)) {
                return Some(added);
            }
            replicas[busiest] += 1;
        }
        None
    }
}

fn least(loads: &[f64]) -> usize {
    (0..loads.len()).min_by(|&a, &b| loads[a].total_cmp(&loads[b])).expect("there is at least one")
}

pub(super) fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

//! What goes wrong during a run, and when: episodes of one to three faults, drawn from the seed. Not how it is done
//! to processes and links.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;

use crate::cluster::proxy::{Fate, Kind, Rule, Weather};
use crate::cluster::{Cluster, Namespace, Process, Role};

/// Faults of one episode.
const TOGETHER_MAX: usize = 3;

/// How long a shim's successor serves alone: long enough, mostly, to write and to grant copies.
const HEAD_START_MS_MAX: u64 = 1500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    KillNode,
    KillShim,
    /// Killed and started again at once: leases of its former life still run.
    BounceShim,
    /// Stopped, replaced by another process, and only then going on.
    ReplaceShim,
    KillRouter,
    BounceRouter,
    KillController,
    StopNode,
    PauseNode,
    PauseShim,
    PauseRouter,
    PauseStorage,
    Delay,
    CutOneWay,
    Cut,
    Reset,
    SlowLine,
    Drop,
    Duplicate,
    Reorder,
    SilentNode,
    /// The cable of a network namespace is pulled: packets are lost, and nobody is told.
    PullCable,
}

/// By the names that `--faults` takes.
pub(super) const FAULTS: [(&str, Fault); 22] = [
    ("kill-node", Fault::KillNode),
    ("kill-shim", Fault::KillShim),
    ("bounce-shim", Fault::BounceShim),
    ("replace-shim", Fault::ReplaceShim),
    ("kill-router", Fault::KillRouter),
    ("bounce-router", Fault::BounceRouter),
    ("kill-controller", Fault::KillController),
    ("stop-node", Fault::StopNode),
    ("pause-node", Fault::PauseNode),
    ("pause-shim", Fault::PauseShim),
    ("pause-router", Fault::PauseRouter),
    ("pause-storage", Fault::PauseStorage),
    ("delay", Fault::Delay),
    ("cut-one-way", Fault::CutOneWay),
    ("cut", Fault::Cut),
    ("reset", Fault::Reset),
    ("slow-line", Fault::SlowLine),
    ("drop", Fault::Drop),
    ("duplicate", Fault::Duplicate),
    ("reorder", Fault::Reorder),
    ("silent-node", Fault::SilentNode),
    ("pull-cable", Fault::PullCable),
];

impl Fault {
    pub(super) fn parse(name: &str) -> anyhow::Result<Fault> {
        let found = FAULTS.iter().find(|(known, _)| *known == name);
        found.map(|(_, fault)| *fault).with_context(|| {
            let names = FAULTS.map(|(name, _)| name).join(", ");
            format!("{name:?} is no fault; there are: {names}")
        })
    }

    pub(super) fn name(self) -> &'static str {
        FAULTS.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }

    /// The kinds of members that it happens to.
    fn victims(self) -> &'static [Role] {
        match self {
            Fault::KillNode | Fault::StopNode | Fault::PauseNode | Fault::SilentNode => &[Role::Node],
            Fault::KillShim | Fault::BounceShim | Fault::ReplaceShim | Fault::PauseShim => &[Role::Shim],
            Fault::KillRouter | Fault::BounceRouter | Fault::PauseRouter => &[Role::Router],
            Fault::KillController => &[Role::Controller],
            Fault::PauseStorage => &[Role::Redis],
            Fault::Delay | Fault::CutOneWay | Fault::Cut | Fault::Reset | Fault::SlowLine => {
                &[Role::Node, Role::Shim, Role::Redis, Role::Router]
            }
            Fault::Drop | Fault::Duplicate | Fault::Reorder | Fault::PullCable => &[],
        }
    }
}

/// A fault that lasts.
struct Active {
    fault: Fault,
    victim: Option<String>,
}

pub(super) struct Faults {
    kinds: Vec<Fault>,
    /// The rest of the current turn through all kinds.
    turn: Vec<Fault>,
    random: SmallRng,
    active: Vec<Active>,
    /// Processes that were replaced and go on all the same.
    predecessors: Vec<Process>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub(super) fn new(kinds: Vec<Fault>, seed: u64) -> Faults {
        let random = SmallRng::seed_from_u64(seed ^ 0xfa17);
        Faults {
            kinds,
            turn: Vec::new(),
            random,
            active: Vec::new(),
            predecessors: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Begins an episode; says how long it lasts, and what happens in it.
    pub(super) fn begin(&mut self, cluster: &mut Cluster) -> anyhow::Result<(Duration, String)> {
        let together = [1, 1, 1, 2, 2, TOGETHER_MAX].choose(&mut self.random).copied().unwrap_or(1);
        let mut text = Vec::new();
        self.predecessors.clear();
        for _ in 0..together {
            if self.turn.is_empty() {
                self.turn = self.kinds.clone();
                self.turn.shuffle(&mut self.random);
            }
            let Some(fault) = self.turn.pop() else { break };
            let Some(active) = self.choose(cluster, fault) else { continue };
            let victim = active.victim.as_deref().unwrap_or("all links");
            text.push(format!("{} {victim}", fault.name()));
            self.inflict(cluster, &active).with_context(|| format!("{} {victim}", fault.name()))?;
            *self.counts.entry(fault.name()).or_default() += 1;
            self.active.push(active);
        }
        // Mostly longer than the lease, sometimes not much.
        let lasts = match self.random.random_bool(0.4) {
            true => self.random.random_range(50..250),
            false => self.random.random_range(300..2200),
        };
        Ok((Duration::from_millis(lasts), text.join(", ")))
    }

    /// None if every member of its kind has another fault already.
    fn choose(&mut self, cluster: &Cluster, fault: Fault) -> Option<Active> {
        if fault.victims().is_empty() {
            return Some(Active { fault, victim: None });
        }
        let free = |id: &String| !self.active.iter().any(|active| active.victim.as_ref() == Some(id));
        let members = fault.victims().iter().flat_map(|role| cluster.ids(*role));
        let members: Vec<String> = members.filter(free).collect();
        let victim = members.choose(&mut self.random)?.clone();
        Some(Active { fault, victim: Some(victim) })
    }

    fn inflict(&mut self, cluster: &mut Cluster, active: &Active) -> anyhow::Result<()> {
        let victim = active.victim.as_deref().unwrap_or_default();
        match active.fault {
            Fault::KillNode | Fault::KillShim | Fault::KillRouter | Fault::KillController => {
                cluster.kill(victim)
            }
            Fault::BounceShim | Fault::BounceRouter => {
                cluster.kill(victim)?;
                cluster.run(victim)
            }
            Fault::StopNode => cluster.terminate(victim),
            Fault::ReplaceShim
            | Fault::PauseNode
            | Fault::PauseShim
            | Fault::PauseRouter
            | Fault::PauseStorage => cluster.pause(victim),
            Fault::Reset => cluster.proxy()?.reset(Some(victim), None),
            Fault::Delay | Fault::SlowLine | Fault::Cut => {
                let weather = self.weather(active.fault);
                cluster.proxy()?.weather(Some(victim), None, weather.clone())?;
                cluster.proxy()?.weather(None, Some(victim), weather)
            }
            Fault::CutOneWay => {
                let weather = self.weather(active.fault);
                match self.random.random_bool(0.5) {
                    true => cluster.proxy()?.weather(Some(victim), None, weather),
                    false => cluster.proxy()?.weather(None, Some(victim), weather),
                }
            }
            Fault::PullCable => Faults::cable(cluster)?.pull_the_cable(),
            Fault::SilentNode => {
                let rules = vec![Rule { kind: Some(Kind::Ack), chance: 1.0, fate: Fate::Drop }];
                cluster.proxy()?.weather(Some(victim), None, Weather { rules, ..Weather::default() })
            }
            Fault::Drop | Fault::Duplicate | Fault::Reorder => {
                let weather = self.weather(active.fault);
                cluster.proxy()?.weather(None, None, weather)
            }
        }
    }

    fn cable(cluster: &Cluster) -> anyhow::Result<&Namespace> {
        let (namespace, _) = cluster.namespace().context("no node has a network namespace")?;
        Ok(namespace)
    }

    fn weather(&mut self, fault: Fault) -> Weather {
        let mut milliseconds = |range| Duration::from_millis(self.random.random_range(range));
        let (short, long) = (milliseconds(1..40), milliseconds(20..700));
        let mut rule = |fate| {
            let chance = self.random.random_range(0.05..0.4);
            Weather { rules: vec![Rule { kind: None, chance, fate }], ..Weather::default() }
        };
        match fault {
            Fault::Delay => Weather { delay: short, jitter: long / 4, ..Weather::default() },
            Fault::SlowLine => Weather { bytes_per_second: Some(40_000), ..Weather::default() },
            Fault::Drop => rule(Fate::Drop),
            Fault::Duplicate => rule(Fate::Duplicate(long)),
            Fault::Reorder => rule(Fate::Hold(long)),
            _ => Weather { cut: true, ..Weather::default() },
        }
    }

    /// Ends the episode: everything is started, goes on and is connected again.
    pub(super) fn end(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        cluster.proxy()?.clear()?;
        for Active { fault, victim } in std::mem::take(&mut self.active) {
            let victim = victim.unwrap_or_default();
            match fault {
                Fault::KillNode
                | Fault::KillShim
                | Fault::KillRouter
                | Fault::KillController
                | Fault::StopNode => cluster.run(&victim)?,
                Fault::PauseNode | Fault::PauseShim | Fault::PauseRouter | Fault::PauseStorage => {
                    cluster.resume(&victim)?;
                }
                Fault::PullCable => Faults::cable(cluster)?.plug_it_in()?,
                Fault::ReplaceShim => self.replace(cluster, &victim)?,
                Fault::Reset => cluster.proxy()?.reset(Some(&victim), None)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The predecessor goes on a while after its successor has begun to serve, with whatever it has read and queued
    /// and with its connections to storage, until the next episode.
    fn replace(&mut self, cluster: &mut Cluster, victim: &str) -> anyhow::Result<()> {
        let predecessor = cluster.replace(victim)?;
        for id in [Role::Router, Role::Node].into_iter().flat_map(|role| cluster.ids(role)) {
            cluster.proxy()?.reset(Some(&id), Some(victim))?;
        }
        let head_start = self.random.random_range(0..HEAD_START_MS_MAX);
        std::thread::sleep(Duration::from_millis(head_start));
        predecessor.signal(Signal::CONT)?;
        self.predecessors.push(predecessor);
        Ok(())
    }

    /// The pause between two episodes.
    pub(super) fn calm(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(200..900))
    }
}

#[cfg(test)]
mod tests {
    use super::{FAULTS, Fault};

    #[test]
    fn faults_have_names() {
        for (name, fault) in FAULTS {
            assert_eq!(Fault::parse(name).unwrap(), fault);
            assert_eq!(fault.name(), name);
        }
        assert!(Fault::parse("rain").unwrap_err().to_string().contains("slow-line"));
    }
}

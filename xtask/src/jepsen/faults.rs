//! What goes wrong during a run, and when: episodes of one to three faults, drawn from the seed. Not how it is done
//! to processes and links.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::Signal;

use super::calls::{CALLS, FailingCalls};
use crate::cluster::proxy::{MessageFate, Weather, WeatherKind, WeatherRule};
use crate::cluster::{
    LayoutRole, LayoutStorage, MemberProcess, Move, Namespace, ProcessCluster, without_shim,
};

/// Faults of one episode.
const TOGETHER_MAX: usize = 3;

/// How long a shim's successor serves alone: long enough, mostly, to write and to grant copies.
const HEAD_START_MS_MAX: u64 = 1500;
/// Keys of a slot that are moved, at most, before the servers are left alone with the rest.
const MOVED_AT_ONCE_MAX: usize = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InjectedFault {
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
    /// In order: who stands by for it, or its next life, finds nothing to wait for.
    StopShim,
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
    /// Killed and started again with its data; only where acknowledged writes outlive that.
    KillStorage,
    /// A hash slot goes to another primary, key by key, while it is served.
    MoveSlot,
    /// A replica takes its primary's place, in order.
    FailOver,
    /// The cable of a network namespace is pulled: packets are lost, and nobody is told.
    PullCable,
    /// Started again with a file by which keys are elsewhere.
    OtherFile,
    /// Killed and started again with other leases, as all its lives from then on until the next such change.
    OtherLease,
    /// System calls fail or take long.
    FailingCalls,
}

/// By the names that `--faults` takes.
pub(super) const FAULTS: [(&str, InjectedFault); 29] = [
    ("kill-node", InjectedFault::KillNode),
    ("kill-shim", InjectedFault::KillShim),
    ("bounce-shim", InjectedFault::BounceShim),
    ("replace-shim", InjectedFault::ReplaceShim),
    ("kill-router", InjectedFault::KillRouter),
    ("bounce-router", InjectedFault::BounceRouter),
    ("kill-controller", InjectedFault::KillController),
    ("stop-node", InjectedFault::StopNode),
    ("stop-shim", InjectedFault::StopShim),
    ("pause-node", InjectedFault::PauseNode),
    ("pause-shim", InjectedFault::PauseShim),
    ("pause-router", InjectedFault::PauseRouter),
    ("pause-storage", InjectedFault::PauseStorage),
    ("delay", InjectedFault::Delay),
    ("cut-one-way", InjectedFault::CutOneWay),
    ("cut", InjectedFault::Cut),
    ("reset", InjectedFault::Reset),
    ("slow-line", InjectedFault::SlowLine),
    ("drop", InjectedFault::Drop),
    ("duplicate", InjectedFault::Duplicate),
    ("reorder", InjectedFault::Reorder),
    ("silent-node", InjectedFault::SilentNode),
    ("kill-storage", InjectedFault::KillStorage),
    ("move-slot", InjectedFault::MoveSlot),
    ("fail-over", InjectedFault::FailOver),
    ("pull-cable", InjectedFault::PullCable),
    ("other-file", InjectedFault::OtherFile),
    ("other-lease", InjectedFault::OtherLease),
    ("failing-calls", InjectedFault::FailingCalls),
];

/// Changes of a file, each to one by which keys are elsewhere.
const OTHER_FILES: [fn(&str) -> String; 2] = [
    // A rack without a shim would be refused at once.
    |text| without_shim(text, "shim-1").replace("rack = \"r1\"", "rack = \"r0\""),
    |text| text.replace("secret = \"00", "secret = \"01"),
];
/// Leases of a shim's next life; memcached allows none that are longer.
const OTHER_LEASES_MS: [u64; 4] = [20, 60, 250, 1000];

impl InjectedFault {
    pub(super) fn parse(name: &str) -> anyhow::Result<InjectedFault> {
        let found = FAULTS.iter().find(|(known, _)| *known == name);
        found.map(|(_, fault)| *fault).with_context(|| {
            let names = FAULTS.map(|(name, _)| name).join(", ");
            format!("{name:?} is no fault; there are: {names}")
        })
    }

    pub(super) fn name(self) -> &'static str {
        FAULTS.iter().find(|(_, fault)| *fault == self).map_or("", |(name, _)| name)
    }

    /// Whether it can happen to a cluster over such storage.
    pub(super) fn befalls(self, storage: LayoutStorage) -> bool {
        match self {
            InjectedFault::MoveSlot | InjectedFault::FailOver => storage == LayoutStorage::RedisCluster,
            InjectedFault::KillStorage => {
                matches!(storage, LayoutStorage::DurableRedis | LayoutStorage::RedisCluster)
            }
            InjectedFault::PauseStorage => storage != LayoutStorage::Folder,
            // The folder is its predecessor's as long as that lives.
            InjectedFault::ReplaceShim => storage != LayoutStorage::Folder,
            _ => true,
        }
    }

    /// The kinds of members that it happens to.
    fn victims(self, storage: LayoutStorage) -> &'static [LayoutRole] {
        match self {
            InjectedFault::KillNode
            | InjectedFault::StopNode
            | InjectedFault::PauseNode
            | InjectedFault::SilentNode => &[LayoutRole::Node],
            InjectedFault::KillShim
            | InjectedFault::BounceShim
            | InjectedFault::ReplaceShim
            | InjectedFault::OtherLease
            | InjectedFault::StopShim
            | InjectedFault::PauseShim => &[LayoutRole::Shim, LayoutRole::Standby],
            InjectedFault::OtherFile => &[LayoutRole::Node, LayoutRole::Router],
            InjectedFault::KillRouter | InjectedFault::BounceRouter | InjectedFault::PauseRouter => {
                &[LayoutRole::Router]
            }
            InjectedFault::KillController => &[LayoutRole::Controller],
            InjectedFault::PauseStorage
            | InjectedFault::KillStorage
            | InjectedFault::MoveSlot
            | InjectedFault::FailOver => &[LayoutRole::Redis],
            // No proxy stands before a memcached.
            InjectedFault::Delay
            | InjectedFault::CutOneWay
            | InjectedFault::Cut
            | InjectedFault::Reset
            | InjectedFault::SlowLine
                if storage == LayoutStorage::Memcached =>
            {
                &[LayoutRole::Node, LayoutRole::Shim, LayoutRole::Standby, LayoutRole::Router]
            }
            InjectedFault::Delay
            | InjectedFault::CutOneWay
            | InjectedFault::Cut
            | InjectedFault::Reset
            | InjectedFault::SlowLine => &[
                LayoutRole::Node,
                LayoutRole::Shim,
                LayoutRole::Standby,
                LayoutRole::Redis,
                LayoutRole::Router,
            ],
            InjectedFault::FailingCalls => {
                &[LayoutRole::Node, LayoutRole::Shim, LayoutRole::Standby, LayoutRole::Router]
            }
            InjectedFault::Drop
            | InjectedFault::Duplicate
            | InjectedFault::Reorder
            | InjectedFault::PullCable => &[],
        }
    }
}

/// A fault that lasts.
struct Active {
    fault: InjectedFault,
    victim: Option<String>,
    /// The slot that moves away from the victim.
    part: Option<Move>,
}

impl Active {
    fn befalls(&self, id: &str) -> bool {
        let target = self.part.as_ref().map(|part| part.to.as_str());
        self.victim.as_deref() == Some(id) || target == Some(id)
    }
}

pub(super) struct Faults {
    kinds: Vec<InjectedFault>,
    /// The rest of the current turn through all kinds.
    turn: Vec<InjectedFault>,
    random: SmallRng,
    active: Vec<Active>,
    /// Processes that were replaced and go on all the same.
    predecessors: Vec<MemberProcess>,
    calls: Vec<FailingCalls>,
    /// Their own files of those that have another one.
    files: BTreeMap<String, String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub(super) fn new(kinds: Vec<InjectedFault>, seed: u64) -> Faults {
        let random = SmallRng::seed_from_u64(seed ^ 0xfa17);
        Faults {
            kinds,
            turn: Vec::new(),
            random,
            active: Vec::new(),
            predecessors: Vec::new(),
            calls: Vec::new(),
            files: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Begins an episode; says how long it lasts, and what happens in it.
    pub(super) fn begin(&mut self, cluster: &mut ProcessCluster) -> anyhow::Result<(Duration, String)> {
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
            if !self.inflict(cluster, &active).with_context(|| format!("{} {victim}", fault.name()))? {
                continue;
            }
            text.push(format!("{} {victim}", fault.name()));
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

    /// Chooses whom it strikes; `None` if every member of its kind has another fault already.
    fn choose(&mut self, cluster: &ProcessCluster, fault: InjectedFault) -> Option<Active> {
        let roles = fault.victims(cluster.layout.storage);
        if roles.is_empty() {
            return Some(Active { fault, victim: None, part: None });
        }
        let storage = cluster.redis_cluster().ok();
        let members: Vec<String> = match (fault, storage) {
            (InjectedFault::KillStorage | InjectedFault::MoveSlot, Some(storage)) => storage.primaries(),
            // Neither of the two may have a fault, or acknowledged writes could be lost between them.
            (InjectedFault::FailOver, Some(storage)) => {
                let pairs = storage.replicas().into_iter();
                pairs.filter(|(_, primary)| self.is_free(primary)).map(|(replica, _)| replica).collect()
            }
            _ => roles.iter().flat_map(|role| cluster.ids(*role)).collect(),
        };
        let members: Vec<String> = members.into_iter().filter(|id| self.is_free(id)).collect();
        let victim = members.choose(&mut self.random)?.clone();
        let mut part = None;
        if fault == InjectedFault::MoveSlot {
            let others: Vec<&String> = members.iter().filter(|id| **id != victim).collect();
            let to = (*others.choose(&mut self.random)?).clone();
            part = Some(Move { slot: storage?.slot_with_keys(&victim)?, from: victim.clone(), to });
        }
        Some(Active { fault, victim: Some(victim), part })
    }

    fn is_free(&self, id: &str) -> bool {
        !self.active.iter().any(|active| active.befalls(id))
    }

    /// False if it did not come about.
    fn inflict(&mut self, cluster: &mut ProcessCluster, active: &Active) -> anyhow::Result<bool> {
        let victim = active.victim.as_deref().unwrap_or_default();
        match active.fault {
            InjectedFault::KillNode
            | InjectedFault::KillShim
            | InjectedFault::KillRouter
            | InjectedFault::KillController
            | InjectedFault::KillStorage => cluster.kill(victim)?,
            InjectedFault::BounceShim | InjectedFault::BounceRouter => {
                cluster.restart(victim)?;
            }
            InjectedFault::OtherFile => {
                let change = OTHER_FILES.choose(&mut self.random).context("there are some")?;
                let own = cluster.file_text(victim)?;
                cluster.change_file(victim, change)?;
                self.files.insert(victim.to_owned(), own);
                cluster.restart(victim)?;
            }
            InjectedFault::OtherLease => {
                let lease_ms = OTHER_LEASES_MS.choose(&mut self.random).context("there are some")?;
                cluster.change_file(victim, |text| with_lease(text, *lease_ms))?;
                cluster.restart(victim)?;
            }
            InjectedFault::FailingCalls => {
                let calls = CALLS.choose(&mut self.random).context("there are some")?;
                self.calls.push(FailingCalls::begin(cluster.process(victim)?, calls)?);
            }
            InjectedFault::StopNode | InjectedFault::StopShim => cluster.terminate(victim)?,
            InjectedFault::ReplaceShim
            | InjectedFault::PauseNode
            | InjectedFault::PauseShim
            | InjectedFault::PauseRouter
            | InjectedFault::PauseStorage => cluster.pause(victim)?,
            InjectedFault::FailOver => return cluster.redis_cluster()?.fail_over(victim),
            InjectedFault::MoveSlot => {
                let part = active.part.as_ref().context("no slot was chosen")?;
                cluster.redis_cluster()?.begin_move(part)?;
                let count = self.random.random_range(1..MOVED_AT_ONCE_MAX);
                // What does not go now goes at the end.
                drop(cluster.redis_cluster()?.move_keys(part, count));
            }
            InjectedFault::PullCable => Faults::cable(cluster)?.pull_the_cable()?,
            _ => self.disturb_links(cluster, active.fault, victim)?,
        }
        Ok(true)
    }

    fn disturb_links(
        &mut self,
        cluster: &ProcessCluster,
        fault: InjectedFault,
        victim: &str,
    ) -> anyhow::Result<()> {
        match fault {
            InjectedFault::Reset => cluster.proxy()?.reset(Some(victim), None),
            InjectedFault::CutOneWay => {
                let weather = self.weather(fault);
                match self.random.random_bool(0.5) {
                    true => cluster.proxy()?.weather(Some(victim), None, weather),
                    false => cluster.proxy()?.weather(None, Some(victim), weather),
                }
            }
            InjectedFault::SilentNode => {
                let rules =
                    vec![WeatherRule { kind: Some(WeatherKind::Ack), chance: 1.0, fate: MessageFate::Drop }];
                cluster.proxy()?.weather(Some(victim), None, Weather { rules, ..Weather::default() })
            }
            InjectedFault::Drop | InjectedFault::Duplicate | InjectedFault::Reorder => {
                let weather = self.weather(fault);
                cluster.proxy()?.weather(None, None, weather)
            }
            _ => {
                let weather = self.weather(fault);
                cluster.proxy()?.weather(Some(victim), None, weather.clone())?;
                cluster.proxy()?.weather(None, Some(victim), weather)
            }
        }
    }

    fn cable(cluster: &ProcessCluster) -> anyhow::Result<&Namespace> {
        let (namespace, _) = cluster.namespace().context("no node has a network namespace")?;
        Ok(namespace)
    }

    fn weather(&mut self, fault: InjectedFault) -> Weather {
        let mut milliseconds = |range| Duration::from_millis(self.random.random_range(range));
        let (short, long) = (milliseconds(1..40), milliseconds(20..700));
        let mut rule = |fate| {
            let chance = self.random.random_range(0.05..0.4);
            Weather { rules: vec![WeatherRule { kind: None, chance, fate }], ..Weather::default() }
        };
        match fault {
            InjectedFault::Delay => Weather { delay: short, jitter: long / 4, ..Weather::default() },
            InjectedFault::SlowLine => Weather { bytes_per_second: Some(40_000), ..Weather::default() },
            InjectedFault::Drop => rule(MessageFate::Drop),
            InjectedFault::Duplicate => rule(MessageFate::Duplicate(long)),
            InjectedFault::Reorder => rule(MessageFate::Hold(long)),
            _ => Weather { cut: true, ..Weather::default() },
        }
    }

    /// Ends the episode: everything is started, goes on and is connected again.
    pub(super) fn end(&mut self, cluster: &mut ProcessCluster) -> anyhow::Result<()> {
        cluster.proxy()?.clear()?;
        self.calls.drain(..).try_for_each(FailingCalls::end)?;
        let mut parts = Vec::new();
        for Active { fault, victim, part } in std::mem::take(&mut self.active) {
            let victim = victim.unwrap_or_default();
            parts.extend(part);
            match fault {
                InjectedFault::KillNode
                | InjectedFault::KillShim
                | InjectedFault::KillRouter
                | InjectedFault::KillController
                | InjectedFault::KillStorage
                | InjectedFault::StopNode
                | InjectedFault::StopShim => cluster.run(&victim)?,
                InjectedFault::PauseNode
                | InjectedFault::PauseShim
                | InjectedFault::PauseRouter
                | InjectedFault::PauseStorage => {
                    cluster.resume(&victim)?;
                }
                InjectedFault::PullCable => Faults::cable(cluster)?.plug_it_in()?,
                InjectedFault::OtherFile => {
                    let own = self.files.remove(&victim).context("it had a file of its own")?;
                    cluster.change_file(&victim, |_| own)?;
                    cluster.restart(&victim)?;
                }
                InjectedFault::ReplaceShim => self.replace(cluster, &victim)?,
                InjectedFault::Reset => cluster.proxy()?.reset(Some(&victim), None)?,
                _ => {}
            }
        }
        // Only servers that run can hand a slot over.
        parts.iter().try_for_each(|part| cluster.redis_cluster()?.end_move(part))
    }

    /// The predecessor goes on a while after its successor has begun to serve, with whatever it has read and queued
    /// and with its connections to storage, until the next episode.
    fn replace(&mut self, cluster: &mut ProcessCluster, victim: &str) -> anyhow::Result<()> {
        let predecessor = cluster.replace(victim)?;
        for id in [LayoutRole::Router, LayoutRole::Node].into_iter().flat_map(|role| cluster.ids(role)) {
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

/// The file with other leases.
fn with_lease(text: &str, lease_ms: u64) -> String {
    let lines = text.lines().map(|line| match line.starts_with("lease_ms = ") {
        true => format!("lease_ms = {lease_ms}\n"),
        false => format!("{line}\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::{FAULTS, InjectedFault, with_lease};

    #[test]
    fn a_file_has_other_leases_and_nothing_else() {
        let text = "[cluster]\nlease_ms = 50\n[[controller]]\nmember_lease_ms = 9\n";
        assert_eq!(with_lease(text, 7), text.replace("50", "7"));
    }

    #[test]
    fn faults_have_names() {
        for (name, fault) in FAULTS {
            assert_eq!(InjectedFault::parse(name).unwrap(), fault);
            assert_eq!(fault.name(), name);
        }
        assert!(InjectedFault::parse("rain").unwrap_err().to_string().contains("slow-line"));
    }
}

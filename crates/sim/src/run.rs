//! One run: a cluster in trouble for a while, then at rest, then judged. Not many of them.

use std::collections::BTreeMap;
use std::time::Duration;

use linearize::HistoryVerdict;

use crate::cluster::Cluster;
use crate::commands::{DrawnCommand, StorageAnswers};
use crate::fault_kind::{FaultKind, FaultSet};

/// Below this many per simulated minute a run has shown nothing.
const OPERATIONS_PER_MINUTE_MIN: u64 = 1_000;
const FAULTS_PER_MINUTE_MIN: u64 = 5;
/// Time after the last fault within which everything must run again.
const HEAL_US_MAX: u64 = 20_000_000;
/// How often to look for something that is left over, a quarter of a lease apart.
const LEAK_LOOKS: usize = 12;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct SimSettings {
    /// Simulated seconds of traffic and trouble; coming to rest takes a few more.
    pub seconds: u64,
    /// `FaultSet::ALL` leaves the choice to the seed; anything else is switched on as it is.
    pub faults: FaultSet,
    /// Whether to keep a text of all events.
    pub with_text: bool,
}

/// What a run did and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimReport {
    pub seed: u64,
    pub trace_hash: u64,
    pub simulated: Duration,
    pub events: u64,
    /// Commands of clients.
    pub operations: u64,
    /// Reads that copies at nodes have answered, and copies at routers.
    pub hits: u64,
    pub near_hits: u64,
    /// The longest time from a write to its answer.
    pub stall_longest: Duration,
    pub faults: BTreeMap<&'static str, u64>,
    /// What the run did beside, for a look at whether it was worth it.
    pub counts: BTreeMap<&'static str, u64>,
    pub violations: Vec<String>,
}

/// Runs one seed. Also gives the text of its events, if that was asked for.
pub fn run(seed: u64, settings: &SimSettings) -> (SimReport, Option<String>) {
    let mut cluster = Cluster::new(seed, settings.faults, settings.with_text);
    cluster.begin();
    let seconds = settings.seconds.max(1);
    cluster.run_until(seconds * 1_000_000);
    if !cluster.world.has_failed() {
        cluster.check_activity(seconds);
    }
    cluster.come_to_rest();
    cluster.judge();
    let text = cluster.world.trace.text().map(str::to_owned);
    (cluster.report(seed), text)
}

/// Time within which the map is whole and everybody acts on it: leases, grace periods, every step of a node that returns,
/// and an operator who lets one return late.
const SETTLE_US_MAX: u64 = 30_000_000;

impl Cluster {
    fn check_activity(&mut self, seconds: u64) {
        let faults: u64 = self.watch.faults.values().sum();
        let operations = self.watch.operations;
        // Once a key has come to rest nothing is flushed any more.
        let rests = self.shape.trackers > 0;
        let lasting = self.shape.faults.without(|kind| rests && kind == FaultKind::Barrier);
        let few_faults = !lasting.is_empty() && faults * 60 < FAULTS_PER_MINUTE_MIN * seconds;
        if operations * 60 < OPERATIONS_PER_MINUTE_MIN * seconds || few_faults {
            self.world.fail(format!(
                "too little happened: {operations} operations, {faults} faults in {seconds} s"
            ));
        }
    }

    /// Nothing more goes wrong; clients go on until all is whole again, fall silent, and get their last answers.
    fn come_to_rest(&mut self) {
        self.calm = true;
        let trouble = self.watch.disturbances.iter().map(|other| other.until).max().unwrap_or(0);
        self.run_until(trouble.max(self.world.now()));
        let limit = self.world.now() + HEAL_US_MAX;
        while !self.world.has_failed() && self.missing().is_some() && self.world.now() < limit {
            self.run_until(self.world.now() + self.shape.lease / 4);
        }
        if let (true, Some(missing)) = (!self.world.has_failed(), self.missing()) {
            return self.world.fail(format!("the cluster does not come together again: {missing}"));
        }
        // A while of traffic without trouble.
        self.run_until(self.world.now() + self.shape.lease);
        self.quiet = true;
        self.run_until(self.world.now() + self.shape.stall_max() + self.slack() + self.drain_wait());
        if !self.world.has_failed() {
            self.check_answered();
        }
    }

    /// Final reads of everything, then what must hold of the whole run and of what is left.
    fn judge(&mut self) {
        if !self.world.has_failed() {
            self.check_kept();
        }
        if !self.world.has_failed() {
            self.probe();
            self.run_until(self.world.now() + 2 * self.shape.stall_max() + self.slack() + self.drain_wait());
        }
        for check in
            [Cluster::check_answered, Cluster::check_leaks, Cluster::check_stalls, Cluster::check_load]
        {
            if !self.world.has_failed() {
                check(self);
            }
        }
        if !self.world.has_failed() && !self.may_lose_messages() {
            self.check_phantoms();
        }
        if !self.world.has_failed() {
            self.check_maps();
        }
        (0..self.hosts.len()).for_each(|host| self.count_up(host));
        if !self.world.has_failed() {
            self.check_alarms();
        }
        self.settle_unknown();
        for key in 0..self.keys.len() {
            if self.world.has_failed() {
                return;
            }
            self.check_reads(key);
            // Others' writes are no operations of clients.
            if self.shape.has_outsiders() || self.world.has_failed() {
                continue;
            }
            let failure = match linearize::check(&self.history.keys[key], self.keys[key].initial()) {
                HistoryVerdict::Linearizable => continue,
                HistoryVerdict::Violation(one) => format!("no order explains these replies:\n{}", one.report),
                HistoryVerdict::Undecided(one) => {
                    format!("whether an order explains these replies was not found out:\n{}", one.report)
                }
            };
            self.world.fail(format!("key {:?}: {failure}", self.keys[key].key.bytes));
        }
    }

    fn check_leaks(&mut self) {
        for _ in 0..LEAK_LOOKS {
            if self.leak().is_none() {
                return;
            }
            self.run_until(self.world.now() + self.shape.lease / 4);
        }
        if let (true, Some(leak)) = (!self.world.has_failed(), self.leak()) {
            self.world.fail(leak);
        }
    }

    /// Where no EVICT can have been lost, the directory knows of no copy that its node does not, but for as long as an
    /// EVICT is on its way or a lease has ended at the node alone.
    fn check_phantoms(&mut self) {
        let before = self.phantoms();
        if before.is_empty() {
            return;
        }
        self.run_until(self.world.now() + self.shape.stall_max() + self.slack());
        let after = self.phantoms();
        if let Some((node, key)) = before.into_iter().find(|phantom| after.contains(phantom)) {
            let key = &self.keys[key].key.bytes;
            self.world.fail(format!("the directory has holder {node} for {key:?}, which does not have it"));
        }
    }

    /// Lets time pass until everybody acts on the store's map, in which every node owns its whole partition.
    fn check_maps(&mut self) {
        let limit = self.world.now() + SETTLE_US_MAX;
        while !self.world.has_failed() && self.unsettled().is_some() && self.world.now() < limit {
            self.run_until(self.world.now() + self.registry.heartbeat_interval());
        }
        if let (true, Some(unsettled)) = (!self.world.has_failed(), self.unsettled()) {
            self.world.fail(format!("the map does not settle: {unsettled}"));
        }
    }

    /// Every router is asked for every key.
    fn probe(&mut self) {
        for client in 0..self.shape.routers {
            if !self.connect(client) {
                return self.world.fail("a router takes no client in the end".to_owned());
            }
            for key in 0..self.keys.len() {
                for form in self.keys[key].reads.clone() {
                    let effects = vec![(key, form.what)];
                    let (command, answers) = (form.command, StorageAnswers::All);
                    let drawn = DrawnCommand { command, effects, answers, blocks: false };
                    let ready = self.hosts[self.clients[client].router].router();
                    if ready.is_some_and(|router| router.ready(self.clients[client].id())) {
                        self.ask(client, drawn, &mut Vec::new());
                    }
                }
            }
        }
    }

    /// Storage knows what became of writes that nobody vouches for, and that none happened twice.
    fn settle_unknown(&mut self) {
        for key in 0..self.keys.len() {
            let server = usize::from(self.placement.shim(&self.keys[key].key).0);
            if let Err(failure) = self.history.settle(key, &self.servers[server].executed) {
                return self.world.fail(failure);
            }
        }
    }

    /// Whether an EVICT can have got lost, and with it the word that a copy is gone, or a node knows so before its shim.
    fn may_lose_messages(&self) -> bool {
        let faults = self.shape.faults;
        let lossy = [
            FaultKind::Loss,
            FaultKind::Reset,
            FaultKind::Reorder,
            FaultKind::CrashNode,
            FaultKind::CrashShim,
            FaultKind::Replace,
            FaultKind::HandOver,
            FaultKind::Drain,
        ];
        // In mode bounded leases end of themselves, at the node first.
        self.shape.bounded.is_some() || lossy.into_iter().any(|kind| faults.contains(kind))
    }

    pub(crate) fn report(&self, seed: u64) -> SimReport {
        let watch = &self.watch;
        let late_writes = self.servers.iter().map(|server| server.late_writes).sum();
        let counts = [
            ("fills", watch.fills),
            ("commits", watch.commits),
            ("poisoned", watch.poisoned),
            ("lease_lapses", watch.lapses),
            ("stale_hits", watch.stale_hits),
            ("invalidations", watch.invalidations),
            ("breakers", watch.breakers),
            ("unknown", watch.unknown),
            ("refused", watch.refused),
            ("late_writes", late_writes),
            ("unfenced", u64::from(self.shape.is_unfenced())),
            ("storage_downs", watch.storage_downs),
            ("messages_lost", watch.messages_lost),
            ("maps", watch.maps),
            ("outside_writes", watch.outside),
            ("foreign_writes", watch.foreign_writes),
            ("raises", watch.raises),
            ("lowerings", watch.lowerings),
            ("reports", watch.reports),
            ("kept", watch.kept),
            ("pushes", watch.pushes),
            ("purges", self.births.purged),
        ];
        SimReport {
            seed,
            trace_hash: self.world.trace.hash(),
            simulated: Duration::from_micros(self.world.now()),
            events: self.world.trace.events(),
            operations: watch.operations,
            hits: watch.hits,
            near_hits: watch.near_hits,
            stall_longest: Duration::from_micros(watch.stall_longest),
            faults: watch.faults.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
            counts: counts.into_iter().collect(),
            violations: self.world.violations().to_vec(),
        }
    }
}

//! Which shims have keys, while keys are divided anew: when one stage of it follows another. Not what shims do in each.
//!
//! A stage is a map. The next one comes once every member that lives acts on the last, because no two shims have a key in two maps that
//! follow each other (`Placement::custody`), and in others they may. A member that is cut off from the controllers acts on an old one: as
//! a router or a node it is refused, as a new owner it waits, and an old one is waited for. Before the first stage each shim to which
//! keys come says that its storage has nothing left of them.

use std::collections::BTreeMap;

use wire::{ClusterMap, Peer, Relocation, Sharding, ShimId, ShimMember, ShimState};

use super::partitions::Liveness;
use crate::shim::ReshardingPhase;

/// What the store keeps of a shim, in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShimPart {
    pub state: ShimState,
    pub relocation: Relocation,
}

impl ShimPart {
    /// The shim with this part.
    pub fn of(self, shim: &ShimMember) -> ShimMember {
        ShimMember { state: self.state, relocation: self.relocation, ..*shim }
    }
}

impl From<&ShimMember> for ShimPart {
    fn from(shim: &ShimMember) -> ShimPart {
        ShimPart { state: shim.state, relocation: shim.relocation }
    }
}

/// Why keys are not divided anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReshardingRefusal {
    #[error("there is no such shim")]
    Unknown,
    #[error("keys are divided anew only where they are by DistCache's own ring")]
    Sharding,
    #[error("keys are being moved already; one change follows the other")]
    UnderWay,
    #[error("it has keys already")]
    IsOwner,
    #[error("it has no keys")]
    IsNoOwner,
    #[error("it is the last one that has keys")]
    IsLast,
}

/// How far a shim is with keys that leave it, as the process says that is it just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshardingReport {
    pub shim: ShimId,
    pub phase: ReshardingPhase,
}

/// What members have said of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    /// The epoch that each acts on, also one that stands by.
    epochs: BTreeMap<Peer, u32>,
    /// Who speaks for each shim, and what was said.
    phases: BTreeMap<ShimId, (Peer, ReshardingPhase)>,
}

/// Lets keys go to a shim that has none, or all keys of one to the others.
pub(super) fn begin(map: &mut ClusterMap, shim: ShimId, joins: bool) -> Result<(), ReshardingRefusal> {
    let known = map.shims.get(usize::from(shim.0));
    let state = known.ok_or(ReshardingRefusal::Unknown)?.state;
    let owners = map.shims.iter().filter(|shim| shim.is_owner()).count();
    match (joins, state) {
        _ if map.sharding != Sharding::Ring => return Err(ReshardingRefusal::Sharding),
        _ if map.is_changing() => return Err(ReshardingRefusal::UnderWay),
        (true, ShimState::Normal) => return Err(ReshardingRefusal::IsOwner),
        (false, ShimState::Absent) => return Err(ReshardingRefusal::IsNoOwner),
        (false, _) if owners == 1 => return Err(ReshardingRefusal::IsLast),
        _ => {}
    }
    map.shims[usize::from(shim.0)].state = if joins { ShimState::Joining } else { ShimState::Leaving };
    map.shims.iter_mut().for_each(|shim| shim.relocation = Relocation::Moving);
    Ok(())
}

/// As the store has it. A shim that it does not list is new, unless it lists none, as a release before this one did.
pub(super) fn set_parts(map: &mut ClusterMap, parts: &[ShimPart]) {
    let owners =
        |owns: fn(&ShimMember) -> bool| map.shims.iter().zip(parts).any(|(shim, part)| owns(&part.of(shim)));
    let divides = map.sharding == Sharding::Ring;
    if !divides || !owners(ShimMember::is_owner) || !owners(ShimMember::will_be_owner) {
        return;
    }
    let absent = ShimPart { state: ShimState::Absent, ..ShimPart::default() };
    let parts = parts.iter().copied().chain(std::iter::repeat(absent));
    for (shim, part) in map.shims.iter_mut().zip(parts) {
        *shim = part.of(shim);
    }
}

impl Reports {
    /// For a shim speaks the process that is it, and no other that stands by.
    pub(super) fn hear(&mut self, member: Peer, epoch: u32, report: Option<ReshardingReport>) {
        self.epochs.insert(member, epoch);
        match report {
            Some(ReshardingReport { shim, phase }) => _ = self.phases.insert(shim, (member, phase)),
            None => self.hush(member),
        }
    }

    pub(super) fn forget(&mut self, member: Peer) {
        self.epochs.remove(&member);
        self.hush(member);
    }

    /// It speaks for no shim any more.
    fn hush(&mut self, member: Peer) {
        self.phases.retain(|_, (speaker, _)| *speaker != member);
    }

    /// Goes to the next stage if it is time. Whether it has.
    pub(super) fn advance(&self, map: &mut ClusterMap, members: &BTreeMap<Peer, Liveness>) -> bool {
        if !map.is_changing() {
            return false;
        }
        let epoch = map.epoch;
        let acts = |member: &Peer| self.epochs.get(member).is_some_and(|acts| *acts >= epoch);
        let mut living = members.iter().filter(|(_, liveness)| **liveness == Liveness::Up);
        let everybody = living.all(|(member, _)| acts(member));
        let is_at = |shim: &ShimId, phases: &[ReshardingPhase]| {
            let said = self.phases.get(shim);
            said.is_some_and(|(speaker, phase)| acts(speaker) && phases.contains(phase))
        };
        let of = |map: &ClusterMap, shim: &ShimId| map.shims[usize::from(shim.0)].relocation;
        let set = |map: &mut ClusterMap, shims: &[ShimId], relocation| {
            shims.iter().for_each(|shim| map.shims[usize::from(shim.0)].relocation = relocation);
            !shims.is_empty()
        };
        // Each can have what comes to it as soon as it says so, whatever others do.
        let unprepared =
            map.takers().filter(|shim| shim.relocation == Relocation::Moving).map(|shim| shim.id);
        let prepared: Vec<ShimId> =
            unprepared.filter(|shim| is_at(shim, &[ReshardingPhase::Prepared])).collect();
        if set(map, &prepared, Relocation::Announced) {
            return true;
        }
        let sources: Vec<ShimId> = map.givers().map(|shim| shim.id).collect();
        let stage = sources.iter().map(|shim| of(map, shim)).min().unwrap_or(Relocation::Gone);
        let gone =
            |shim: &&ShimId| of(map, shim) == Relocation::Closing && is_at(shim, &[ReshardingPhase::Ended]);
        let (moving, next): (Vec<ShimId>, Relocation) = match stage {
            Relocation::Moving => {
                let moved = sources.iter().all(|shim| is_at(shim, &[ReshardingPhase::Moved]));
                (if moved && everybody { sources } else { Vec::new() }, Relocation::Announced)
            }
            Relocation::Announced => (if everybody { sources } else { Vec::new() }, Relocation::Closing),
            Relocation::Closing => (sources.iter().filter(gone).copied().collect(), Relocation::Gone),
            Relocation::Gone if everybody => {
                settle(map);
                return true;
            }
            Relocation::Gone => return false,
        };
        set(map, &moving, next)
    }
}

/// Every key is at its new shim, as all act on it.
fn settle(map: &mut ClusterMap) {
    for shim in &mut map.shims {
        let owns = shim.will_be_owner();
        shim.state = if owns { ShimState::Normal } else { ShimState::Absent };
        shim.relocation = Relocation::Moving;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use wire::{ClusterMap, Peer, RackId, RouterId, Sharding, ShimId, ShimMember, ShimState};

    use super::{Reports, ReshardingRefusal, ReshardingReport, begin};
    use crate::controller::partitions::Liveness;
    use crate::shim::ReshardingPhase;

    const ROUTER: Peer = Peer::Router(RouterId(0));

    struct Cluster {
        map: ClusterMap,
        reports: Reports,
        members: BTreeMap<Peer, Liveness>,
        /// For which shim a process speaks, and what it says.
        says: BTreeMap<Peer, ReshardingReport>,
    }

    impl Cluster {
        /// Two shims with keys and one without, and a router.
        fn new() -> Cluster {
            let shims = (0..3).map(|id| ShimMember::new(ShimId(id), RackId(0)));
            let mut map = ClusterMap {
                epoch: 1,
                level: 1,
                sharding: Sharding::Ring,
                layers: Vec::new(),
                shims: shims.collect(),
            };
            map.shims[2].state = ShimState::Absent;
            let processes = (0..3).map(|id| Peer::Shim(ShimId(id)));
            let members = processes.clone().chain([ROUTER]).map(|peer| (peer, Liveness::Up)).collect();
            let mut cluster = Cluster { map, reports: Reports::default(), members, says: BTreeMap::new() };
            (0..3).for_each(|shim| cluster.says(shim, ReshardingPhase::Settled));
            cluster
        }

        fn begin(&mut self, shim: u16, joins: bool) -> Result<(), ReshardingRefusal> {
            begin(&mut self.map, ShimId(shim), joins)?;
            self.map.epoch += 1;
            Ok(())
        }

        /// Everybody but `late` acts on the map.
        fn all_act(&mut self, late: Option<Peer>) {
            for peer in self.members.keys().filter(|peer| Some(**peer) != late) {
                self.reports.hear(*peer, self.map.epoch, self.says.get(peer).copied());
            }
        }

        /// From its next heartbeat on.
        fn says(&mut self, shim: u16, phase: ReshardingPhase) {
            let shim = ShimId(shim);
            self.says.insert(Peer::Shim(shim), ReshardingReport { shim, phase });
        }

        /// What follows, in words: each shim's state and how far what leaves it is.
        fn advance(&mut self) -> String {
            if !self.reports.advance(&mut self.map, &self.members) {
                return "-".to_owned();
            }
            self.map.epoch += 1;
            let shims = self.map.shims.iter().map(|shim| format!("{:?} {:?}", shim.state, shim.relocation));
            shims.collect::<Vec<_>>().join(", ")
        }
    }

    #[test]
    fn each_stage_waits_until_all_act_on_the_last() {
        let mut cluster = Cluster::new();
        assert_eq!(cluster.begin(0, true), Err(ReshardingRefusal::IsOwner));
        assert_eq!(cluster.begin(2, false), Err(ReshardingRefusal::IsNoOwner));
        cluster.begin(2, true).expect("it has none");
        assert_eq!(cluster.begin(0, false), Err(ReshardingRefusal::UnderWay));
        for shim in [0, 1] {
            cluster.all_act(Some(ROUTER));
            assert_eq!(cluster.advance(), "-");
            cluster.says(shim, ReshardingPhase::Moved);
        }
        cluster.all_act(Some(ROUTER));
        assert_eq!(cluster.advance(), "-", "the router may not know yet that keys move");
        cluster.all_act(None);
        let stages = "Normal Announced, Normal Announced, Joining Moving";
        assert_eq!(cluster.advance(), stages);
        cluster.all_act(Some(ROUTER));
        assert_eq!(cluster.advance(), "-", "it may ask the old ones");
        cluster.members.insert(ROUTER, Liveness::Lost { since: crate::time::Time(0) });
        assert_eq!(
            cluster.advance(),
            "Normal Closing, Normal Closing, Joining Moving",
            "nobody waits for the dead"
        );
        cluster.says(1, ReshardingPhase::Ended);
        assert_eq!(cluster.advance(), "-", "it has not said so");
        cluster.all_act(Some(ROUTER));
        assert_eq!(cluster.advance(), "Normal Closing, Normal Gone, Joining Moving");
        cluster.says(0, ReshardingPhase::Ended);
        cluster.all_act(Some(ROUTER));
        cluster.reports.forget(Peer::Shim(ShimId(0)));
        assert_eq!(cluster.advance(), "-", "another process may be the shim");
        cluster.all_act(Some(ROUTER));
        assert_eq!(cluster.advance(), "Normal Gone, Normal Gone, Joining Moving");
        assert_eq!(cluster.advance(), "-");
        cluster.all_act(Some(ROUTER));
        assert_eq!(cluster.advance(), "Normal Moving, Normal Moving, Normal Moving");
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "-");
    }

    #[test]
    fn who_receives_keys_says_first_that_it_can_have_them() {
        let mut cluster = Cluster::new();
        cluster.begin(2, true).expect("it has none");
        // What another process has said, or of another map, counts for nothing.
        cluster.says(2, ReshardingPhase::Prepared);
        let report = cluster.says.get(&Peer::Shim(ShimId(2))).copied();
        cluster.reports.hear(Peer::Shim(ShimId(2)), cluster.map.epoch - 1, report);
        assert_eq!(cluster.advance(), "-");
        cluster.all_act(Some(ROUTER));
        assert_eq!(
            cluster.advance(),
            "Normal Moving, Normal Moving, Joining Announced",
            "routers do not matter"
        );
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "-", "it has been said");
        // Whose keys leave receives none.
        cluster.says(0, ReshardingPhase::Prepared);
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "-");
    }

    #[test]
    fn only_the_one_that_leaves_is_waited_for() {
        let mut cluster = Cluster::new();
        cluster.begin(0, false).expect("there is another");
        cluster.says(1, ReshardingPhase::Prepared);
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "Leaving Moving, Normal Announced, Absent Moving");
        cluster.says(0, ReshardingPhase::Moved);
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "Leaving Announced, Normal Announced, Absent Moving");
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "Leaving Closing, Normal Announced, Absent Moving");
        cluster.says(0, ReshardingPhase::Ended);
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "Leaving Gone, Normal Announced, Absent Moving");
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "Absent Moving, Normal Moving, Absent Moving");
        assert_eq!(cluster.begin(1, false), Err(ReshardingRefusal::IsLast));
    }

    /// Another process that may be the first shim.
    const STANDBY: Peer = Peer::Shim(ShimId(1000));

    #[test]
    fn who_stands_by_acts_on_maps_and_speaks_for_a_shim_only_once_it_is_it() {
        let mut cluster = Cluster::new();
        cluster.members.insert(STANDBY, Liveness::Up);
        cluster.begin(2, true).expect("it has none");
        (0..2).for_each(|shim| cluster.says(shim, ReshardingPhase::Moved));
        cluster.all_act(Some(STANDBY));
        assert_eq!(cluster.advance(), "-", "it may become the shim with an old map");
        let said = cluster.says.remove(&Peer::Shim(ShimId(0))).expect("it has spoken");
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "-", "nobody speaks for the shim");
        cluster.says.insert(STANDBY, ReshardingReport { phase: ReshardingPhase::Moving, ..said });
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "-", "what the one before has said counts no more");
        cluster.says.insert(STANDBY, said);
        cluster.all_act(None);
        assert_eq!(cluster.advance(), "Normal Announced, Normal Announced, Joining Moving");
    }
}

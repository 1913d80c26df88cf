//! Whether members can serve, and what they lack. Not whether their process lives.

use serde::Serialize;

use crate::status::{LinksStatus, MemberStatus, NodeStatus, RouterStatus, ShimStatus, StatusCell};

/// Something that a member lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Ailment {
    pub(crate) id: String,
    pub(crate) what: String,
}

/// What an admin port says about its members: whether they can serve, and everything that they lack even so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    pub(crate) lacking: Vec<Ailment>,
}

pub(crate) fn hangs(member: &StatusCell) -> Option<Ailment> {
    let id = || member.get().id().to_owned();
    (!member.is_fresh()).then(|| Ailment { id: id(), what: "does not respond".to_owned() })
}

/// Clients come to routers: where a process has some, they decide, and the others are only told of.
pub(crate) fn of(members: &[StatusCell], leaving: bool, strict: bool) -> Readiness {
    let leaves =
        |member: &StatusCell| Ailment { id: member.get().id().to_owned(), what: "is stopping".to_owned() };
    if leaving {
        return Readiness { ready: false, lacking: members.iter().map(leaves).collect() };
    }
    let statuses: Vec<MemberStatus> = members.iter().map(|member| with_neighbours(member, members)).collect();
    let lacks = |(member, status): (&StatusCell, &MemberStatus)| {
        let what = hangs(member).map(|ailment| ailment.what).or_else(|| lacks(status));
        what.map(|what| Ailment { id: status.id().to_owned(), what })
    };
    let lacking: Vec<Ailment> = members.iter().zip(&statuses).filter_map(lacks).collect();
    let serving: Vec<bool> = {
        let serves = |(member, status): (&StatusCell, &MemberStatus)| member.is_fresh() && serves(status);
        let is_router = |status: &MemberStatus| matches!(status, MemberStatus::Router(_));
        let routers_only = statuses.iter().any(is_router);
        let deciding = members.iter().zip(&statuses).filter(|(_, status)| !routers_only || is_router(status));
        deciding.map(serves).collect()
    };
    let ready = if strict { lacking.is_empty() } else { !serving.contains(&false) };
    Readiness { ready, lacking }
}

/// A router knows whether it is linked to a shim; whether that has its storage it learns here from those of its process.
fn with_neighbours(member: &StatusCell, members: &[StatusCell]) -> MemberStatus {
    let mut status = member.get();
    if let MemberStatus::Router(router) = &mut status {
        for shim in members.iter().map(StatusCell::get) {
            let missing = router.shims_missing.iter().any(|id| id == shim.id());
            if matches!(&shim, MemberStatus::Shim(shim) if !shim.serves()) && !missing {
                router.shims_missing.push(shim.id().to_owned());
                router.shims_linked = router.shims_linked.saturating_sub(1);
            }
        }
    }
    status
}

fn serves(status: &MemberStatus) -> bool {
    match status {
        MemberStatus::Controller(controller) => controller.store_up,
        MemberStatus::Shim(shim) => shim.serves(),
        MemberStatus::Node(node) => node.serves(),
        MemberStatus::Router(router) => router.serves(),
    }
}

impl RouterStatus {
    /// It has a map and reaches as many shims as `ready_shims` asks for.
    pub fn serves(&self) -> bool {
        self.epoch > 0 && self.shims_linked >= self.shims_needed
    }
}

impl NodeStatus {
    /// It has a map and a shim whose keys it may cache.
    pub fn serves(&self) -> bool {
        self.epoch > 0 && (self.shims_linked > 0 || self.shims_missing.is_empty())
    }
}

impl ShimStatus {
    /// It is the shim, or is there to become it.
    pub fn serves(&self) -> bool {
        let does_its_part = if self.standing_by { self.replaceable } else { self.storage_up };
        self.epoch > 0 && does_its_part
    }
}

/// Everything that is missing, whether the member can do without or not.
fn lacks(status: &MemberStatus) -> Option<String> {
    let no_shims = |missing: &[String], links: &LinksStatus| {
        // One refusal says why; the status has all of them.
        let refused =
            links.links_refused.first().map(|why| format!("; refused by {why}")).unwrap_or_default();
        (!missing.is_empty()).then(|| format!("does not reach {}{refused}", missing.join(", ")))
    };
    match status {
        MemberStatus::Controller(controller) if !controller.store_up => Some("has no store".to_owned()),
        MemberStatus::Controller(_) => None,
        status if status.epoch() == 0 => Some("has no cluster map yet".to_owned()),
        MemberStatus::Shim(shim) if shim.standing_by => Some("stands by for another process".to_owned()),
        MemberStatus::Shim(shim) if !shim.storage_up => Some("storage is down".to_owned()),
        MemberStatus::Shim(_) => None,
        MemberStatus::Node(node) => no_shims(&node.shims_missing, &node.links),
        MemberStatus::Router(router) => no_shims(&router.shims_missing, &router.links),
    }
}

#[cfg(test)]
mod tests {
    use super::{Ailment, of};
    use crate::status::{ControllerStatus, MemberStatus, NodeStatus, RouterStatus, ShimStatus, StatusCell};

    /// Whether a process with these members is ready, also when asked strictly, and what it lacks.
    fn check(members: &[MemberStatus], ready: bool, strictly: bool, lacking: &[(&str, &str)]) {
        let cells: Vec<StatusCell> = members.iter().cloned().map(StatusCell::new).collect();
        let ailment = |(id, what): &(&str, &str)| Ailment { id: (*id).to_owned(), what: (*what).to_owned() };
        let lacking: Vec<Ailment> = lacking.iter().map(ailment).collect();
        for (strict, ready) in [(false, ready), (true, strictly)] {
            let found = of(&cells, false, strict);
            assert_eq!((found.ready, &found.lacking), (ready, &lacking), "{strict} {members:?}");
        }
        assert!(!of(&cells, true, false).ready, "who is leaving is not ready");
    }

    fn shim(id: &str, storage_up: bool, standing_by: bool) -> MemberStatus {
        let id = id.to_owned();
        MemberStatus::Shim(ShimStatus { id, epoch: 1, storage_up, standing_by, ..ShimStatus::default() })
    }

    fn router(linked: u64, needed: u64, missing: &[&str]) -> MemberStatus {
        MemberStatus::Router(RouterStatus {
            id: "x".to_owned(),
            epoch: 1,
            shims_linked: linked,
            shims_needed: needed,
            shims_missing: missing.iter().map(|id| (*id).to_owned()).collect(),
            ..RouterStatus::default()
        })
    }

    #[test]
    fn members_without_routers_are_ready_when_they_can_do_their_work() {
        check(&[shim("s", true, false)], true, true, &[]);
        check(&[shim("s", false, false)], false, false, &[("s", "storage is down")]);
        check(&[shim("s", false, true)], false, false, &[("s", "stands by for another process")]);
        let MemberStatus::Shim(meant) = shim("s", false, true) else { unreachable!() };
        let meant = MemberStatus::Shim(ShimStatus { replaceable: true, ..meant });
        check(&[meant], true, false, &[("s", "stands by for another process")]);
        let node = |linked, missing: &[&str]| {
            let missing = missing.iter().map(|id| (*id).to_owned()).collect();
            let shims = NodeStatus { shims_linked: linked, shims_missing: missing, ..NodeStatus::default() };
            MemberStatus::Node(NodeStatus { id: "n".to_owned(), epoch: 1, ..shims })
        };
        check(&[node(2, &[])], true, true, &[]);
        check(&[node(1, &["s1"])], true, false, &[("n", "does not reach s1")]);
        check(&[node(0, &["s0", "s1"])], false, false, &[("n", "does not reach s0, s1")]);
        let controller = |store_up| {
            MemberStatus::Controller(ControllerStatus { id: "c".to_owned(), store_up, ..Default::default() })
        };
        check(&[controller(true)], true, true, &[]);
        check(&[controller(false)], false, false, &[("c", "has no store")]);
    }

    #[test]
    fn a_router_is_ready_when_it_has_a_map_and_reaches_enough_shims() {
        check(&[router(2, 1, &[])], true, true, &[]);
        check(&[router(1, 1, &["s1"])], true, false, &[("x", "does not reach s1")]);
        check(&[router(0, 1, &["s0", "s1"])], false, false, &[("x", "does not reach s0, s1")]);
        check(&[router(1, 2, &["s1"])], false, false, &[("x", "does not reach s1")]);
        let MemberStatus::Router(mut odd) = router(0, 1, &["s0", "s1"]) else { unreachable!() };
        odd.links.links_refused =
            vec!["shim 0: the proof is wrong".to_owned(), "shim 1: so it is".to_owned()];
        let why = "does not reach s0, s1; refused by shim 0: the proof is wrong";
        check(&[MemberStatus::Router(odd)], false, false, &[("x", why)]);
        let mapless = MemberStatus::Router(RouterStatus { id: "x".to_owned(), ..RouterStatus::default() });
        check(&[mapless], false, false, &[("x", "has no cluster map yet")]);
    }

    #[test]
    fn a_shim_of_the_same_process_without_storage_is_not_reached() {
        let (up, down) = (shim("s0", true, false), shim("s1", false, false));
        let lacking = [("x", "does not reach s1"), ("s1", "storage is down")];
        check(&[router(2, 1, &[]), up, down.clone()], true, false, &lacking);
        check(&[router(1, 1, &[]), down], false, false, &lacking);
    }
}

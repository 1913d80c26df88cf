//! Whether members can serve, and what they lack. Not whether their process lives.

use serde::Serialize;

use crate::status::{MemberStatus, StatusCell};

/// Something that a member lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ailment {
    pub(super) id: String,
    pub(super) what: String,
}

pub(super) fn hangs(member: &StatusCell) -> Option<Ailment> {
    let id = || member.get().id().to_owned();
    (!member.is_fresh()).then(|| Ailment { id: id(), what: "does not respond".to_owned() })
}

pub(super) fn lacks(member: &StatusCell) -> Option<Ailment> {
    if let Some(hangs) = hangs(member) {
        return Some(hangs);
    }
    let status = member.get();
    let no_shims = |missing: &[String]| match missing {
        [] => None,
        missing => Some(format!("is not linked to {}", missing.join(", "))),
    };
    let what = match &status {
        MemberStatus::Controller(controller) if !controller.store_up => Some("has no store".to_owned()),
        MemberStatus::Controller(_) => None,
        status if status.epoch() == 0 => Some("has no cluster map yet".to_owned()),
        MemberStatus::Shim(shim) if shim.standing_by => Some("stands by for another process".to_owned()),
        MemberStatus::Shim(shim) if !shim.storage_up => Some("storage is down".to_owned()),
        MemberStatus::Shim(_) => None,
        MemberStatus::Node(node) => no_shims(&node.shims_missing),
        MemberStatus::Router(router) => no_shims(&router.shims_missing),
    };
    what.map(|what| Ailment { id: status.id().to_owned(), what })
}

#[cfg(test)]
mod tests {
    use super::lacks;
    use crate::status::{ControllerStatus, MemberStatus, NodeStatus, RouterStatus, ShimStatus, StatusCell};

    fn check(status: MemberStatus, expected: Option<&str>) {
        assert_eq!(
            lacks(&StatusCell::new(status.clone())).map(|ailment| ailment.what).as_deref(),
            expected,
            "{status:?}"
        );
    }

    #[test]
    fn a_member_is_ready_when_it_lacks_nothing() {
        let shim = |storage_up, standing_by| {
            MemberStatus::Shim(ShimStatus { epoch: 1, storage_up, standing_by, ..ShimStatus::default() })
        };
        check(shim(true, false), None);
        check(shim(false, false), Some("storage is down"));
        check(shim(false, true), Some("stands by for another process"));
        let missing = vec!["s0".to_owned(), "s1".to_owned()];
        let router = RouterStatus { epoch: 1, ..RouterStatus::default() };
        check(MemberStatus::Router(router.clone()), None);
        check(MemberStatus::Router(RouterStatus::default()), Some("has no cluster map yet"));
        let cut_off = RouterStatus { shims_missing: missing.clone(), ..router };
        check(MemberStatus::Router(cut_off), Some("is not linked to s0, s1"));
        let node = NodeStatus { epoch: 1, shims_missing: missing, ..NodeStatus::default() };
        check(MemberStatus::Node(node), Some("is not linked to s0, s1"));
        let controller =
            |store_up| MemberStatus::Controller(ControllerStatus { store_up, ..Default::default() });
        check(controller(true), None);
        check(controller(false), Some("has no store"));
    }
}

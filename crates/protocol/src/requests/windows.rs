//! How many requests each router may have under way at a member, and when it is told. Not what a router does with it.
//!
//! The members' share is divided evenly among the routers that have asked for something of late; the others get what they
//! would get if all asked. A window may be lost on its way, so it is told again.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::{Peer, RouterId};

use crate::time::Time;

/// A window smaller than this makes round trips the limit.
pub(crate) const WINDOW_MIN: u32 = 16;
/// A router that has not asked for anything for so long leaves its part to the others.
const ACTIVE: Duration = Duration::from_secs(1);
/// What has not changed is told again after this.
const REPEAT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct RouterWindow {
    asked: Option<Time>,
    told: Option<(u32, Time)>,
}

/// The routers that are linked.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouterWindows {
    routers: BTreeMap<RouterId, RouterWindow>,
}

impl RouterWindows {
    /// A router that is linked anew knows no window.
    pub(crate) fn linked(&mut self, router: RouterId) {
        self.routers.insert(router, RouterWindow::default());
    }

    pub(crate) fn unlinked(&mut self, router: RouterId) {
        self.routers.remove(&router);
    }

    /// The peer has sent a request.
    pub(crate) fn asked(&mut self, now: Time, from: Peer) {
        if let Peer::Router(router) = from
            && let Some(window) = self.routers.get_mut(&router)
        {
            window.asked = Some(now);
        }
    }

    /// Divides `total` and hands every router's window that is due to `tell`. A change of less than an eighth can wait.
    /// `total`: of all routers; `None`: no limit. `all`: nobody's can wait.
    pub(crate) fn tell(
        &mut self,
        now: Time,
        total: Option<u32>,
        all: bool,
        mut tell: impl FnMut(RouterId, u32),
    ) {
        let active = |router: &RouterWindow| router.asked.is_some_and(|asked| now.since(asked) < ACTIVE);
        let active_count = self.routers.values().filter(|router| active(router)).count() as u32;
        let (busy, idle) = match total {
            None => (u32::MAX, u32::MAX),
            Some(total) => {
                let part = |of: u32| (total / of.max(1)).max(WINDOW_MIN);
                (part(active_count), part(self.routers.len() as u32))
            }
        };
        for (id, router) in &mut self.routers {
            let window = if active(router) { busy } else { idle };
            let due = router
                .told
                .is_none_or(|(told, at)| window.abs_diff(told) > told / 8 || now.since(at) >= REPEAT);
            if due || all {
                router.told = Some((window, now));
                tell(*id, window);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(windows: &mut RouterWindows, ms: u64, total: Option<u32>) -> Vec<(u16, u32)> {
        let mut told = Vec::new();
        windows.tell(Time(ms * 1000), total, false, |router, window| told.push((router.0, window)));
        told
    }

    #[test]
    fn those_who_ask_share_what_there_is_and_changes_are_told() {
        let mut windows = RouterWindows::default();
        for router in 0..4 {
            windows.linked(RouterId(router));
        }
        windows.asked(Time(0), Peer::Router(RouterId(1)));
        assert_eq!(told(&mut windows, 0, Some(800)), [(0, 200), (1, 800), (2, 200), (3, 200)]);
        assert_eq!(told(&mut windows, 10, Some(820)), []);
        windows.asked(Time(20_000), Peer::Router(RouterId(2)));
        assert_eq!(told(&mut windows, 20, Some(800)), [(1, 400), (2, 400)]);
        windows.unlinked(RouterId(2));
        assert_eq!(told(&mut windows, 30, Some(800)), [(0, 266), (1, 800), (3, 266)]);
        assert_eq!(told(&mut windows, 1030, Some(800)), [(0, 266), (1, 266), (3, 266)], "repeated");
    }

    #[test]
    fn no_window_is_so_small_that_round_trips_limit() {
        let mut windows = RouterWindows::default();
        windows.linked(RouterId(0));
        assert_eq!(told(&mut windows, 0, Some(1)), [(0, WINDOW_MIN)]);
        assert_eq!(told(&mut windows, 10, None), [(0, u32::MAX)]);
    }
}

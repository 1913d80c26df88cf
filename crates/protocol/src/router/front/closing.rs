//! Which clients have to go: those that hold too much, do not read, idle, or do not show who they are. Not what they are
//! told, and not what their connections hold.

use std::cmp::Reverse;
use std::time::Duration;

use crate::router::effect::{ClientId, CloseReason, Effect};
use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::time::Time;

/// A client that is not read any more, and reads nothing itself for so long, waits for ever. Shorter, and one that is
/// only slow is lost; longer, and it costs others the memory.
const STUCK: Duration = Duration::from_secs(10);

/// What a client's connection holds, besides what the machine has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub client: ClientId,
    /// Commands that have come and that the machine has not got: bytes of memory.
    pub kept_bytes: u64,
    /// The connection's buffers: bytes of memory.
    pub buffer_bytes: u64,
    /// Bytes of replies that the client has not taken.
    pub unread_bytes: u64,
    /// Too much is kept to read on, and nothing goes on before the client reads.
    pub waits_for_client: bool,
    /// When something came last.
    pub seen: Time,
}

impl Front {
    /// Closes the clients that have to go, each once.
    pub(crate) fn close_clients(&mut self, desk: &mut Desk<'_>, all: &[Holdings], elsewhere_bytes: u64) {
        let (mut closed, mut left) = (Vec::new(), Vec::with_capacity(all.len()));
        for held in all {
            match self.unread(desk, held).or_else(|| self.overstayed(desk, held)) {
                Some(reason) => closed.push((held.client, reason)),
                None => left.push((self.bytes_of(desk, held), held)),
            }
        }
        closed.extend(largest(desk, left, elsewhere_bytes));
        let counters = &mut desk.step.counters;
        for (client, reason) in closed {
            match reason {
                CloseReason::Memory { .. } => counters.closed_for_memory += 1,
                CloseReason::Unread { .. } => counters.closed_unread += 1,
                CloseReason::Unauthenticated => counters.closed_unauthenticated += 1,
                CloseReason::Answered | CloseReason::Idle => {}
            }
            desk.step.effects.push(Effect::Close { client, reason });
        }
    }

    /// Whether it does not read, so that nobody would ever go on.
    fn unread(&mut self, desk: &Desk<'_>, held: &Holdings) -> Option<CloseReason> {
        let (now, session) = (desk.now(), self.sessions.get_mut(held.client.0)?);
        if !held.waits_for_client {
            session.stuck = None;
            return None;
        }
        let (least, since) = session.stuck.unwrap_or((u64::MAX, now));
        if held.unread_bytes < least {
            session.stuck = Some((held.unread_bytes, now));
            return None;
        }
        let tells = !desk.flow.streams(held.client.0);
        let Holdings { kept_bytes, unread_bytes, .. } = *held;
        (now.since(since) > STUCK).then_some(CloseReason::Unread {
            kept_bytes,
            unread_bytes,
            waited: STUCK,
            tells,
        })
    }

    /// Whether it has done nothing for too long.
    fn overstayed(&self, desk: &Desk<'_>, held: &Holdings) -> Option<CloseReason> {
        let over =
            |since: Time, most: Option<Duration>| most.is_some_and(|most| desk.now().since(since) > most);
        let limits = &desk.step.config.settings.client_limits;
        let unauthenticated = self.unauthenticated_since(held.client.0);
        if unauthenticated.is_some_and(|since| over(since, limits.unauthenticated_max)) {
            return Some(CloseReason::Unauthenticated);
        }
        let session = self.sessions.get(held.client.0)?;
        let waits = held.kept_bytes > 0 || desk.flow.len(held.client.0) > 0 || session.subscribed.is_some();
        (!waits && over(held.seen, limits.idle_max)).then_some(CloseReason::Idle)
    }

    fn bytes_of(&self, desk: &Desk<'_>, held: &Holdings) -> u64 {
        let queued = self.sessions.get(held.client.0).map_or(0, |session| session.queued_bytes());
        let here = desk.flow.held_bytes(held.client.0) + queued;
        held.buffer_bytes + held.kept_bytes + here as u64
    }
}

/// Clients that hold the most, until the others hold no more than they may. A thread has its part whatever others hold, so
/// that not all of them close clients for the same bytes.
fn largest(
    desk: &Desk<'_>,
    mut all: Vec<(u64, &Holdings)>,
    elsewhere_bytes: u64,
) -> Vec<(ClientId, CloseReason)> {
    let bytes_max = desk.step.config.settings.client_limits.held_bytes_max;
    let part = bytes_max / u64::from(desk.step.config.place.count);
    let own_bytes: u64 = all.iter().map(|(bytes, _)| bytes).sum();
    let all_bytes = own_bytes.saturating_add(elsewhere_bytes);
    let mut excess = own_bytes.saturating_sub(bytes_max.saturating_sub(elsewhere_bytes).max(part));
    if excess == 0 {
        return Vec::new();
    }
    all.sort_unstable_by_key(|(bytes, held)| (Reverse(*bytes), held.client));
    let mut largest = Vec::new();
    for (bytes, held) in all {
        let tells = held.unread_bytes <= bytes / 2 && !desk.flow.streams(held.client.0);
        largest.push((held.client, CloseReason::Memory { all_bytes, bytes_max, bytes, tells }));
        excess = excess.saturating_sub(bytes);
        if excess == 0 {
            break;
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{ClientLimits, Input, Router, RouterConfig, RouterSettings};

    const SECOND: u64 = 1_000_000;

    fn router(client_limits: ClientLimits, clients: u32) -> Router {
        let mut router = Router::new(RouterConfig {
            settings: RouterSettings { client_limits, ..RouterSettings::default() },
            ..RouterConfig::default()
        });
        for client in 0..clients {
            router.step(Time(0), Input::Opened { client: ClientId(client) }, &mut Vec::new());
        }
        router
    }

    fn held(client: u32) -> Holdings {
        Holdings {
            client: ClientId(client),
            kept_bytes: 0,
            buffer_bytes: 0,
            unread_bytes: 0,
            waits_for_client: false,
            seen: Time(0),
        }
    }

    fn closed(router: &mut Router, now: u64, all: &[Holdings]) -> Vec<(u32, CloseReason)> {
        let mut effects = Vec::new();
        router.step(Time(now), Input::Held { clients: all.to_vec(), elsewhere_bytes: 0 }, &mut effects);
        let close = |effect: Effect| match effect {
            Effect::Close { client, reason } => (client.0, reason),
            other => panic!("{other:?}"),
        };
        effects.into_iter().map(close).collect()
    }

    #[test]
    fn the_largest_go_until_the_others_have_room() {
        let limits = ClientLimits { held_bytes_max: 100, ..ClientLimits::default() };
        let mut router = router(limits, 4);
        let holds = |client, kept_bytes, buffer_bytes, unread_bytes| Holdings {
            kept_bytes,
            buffer_bytes,
            unread_bytes,
            ..held(client)
        };
        let all = [holds(0, 10, 10, 0), holds(1, 30, 20, 10), holds(2, 5, 60, 60), holds(3, 0, 15, 0)];
        let memory = |bytes, tells| CloseReason::Memory { all_bytes: 150, bytes_max: 100, bytes, tells };
        assert_eq!(closed(&mut router, 1, &all), [(2, memory(65, false))]);
        assert_eq!(router.statistics().closed_for_memory, 1);
        let less = [all[0], all[1], all[3]];
        assert_eq!(closed(&mut router, 2, &less), []);
        let tight = [all[0], all[1], holds(2, 65, 0, 0), holds(3, 0, 90, 0)];
        let memory = |bytes, tells| CloseReason::Memory { all_bytes: 225, bytes_max: 100, bytes, tells };
        assert_eq!(closed(&mut router, 3, &tight), [(3, memory(90, true)), (2, memory(65, true))]);
    }

    #[test]
    fn who_reads_a_little_stays_and_who_reads_nothing_goes() {
        let mut router = router(ClientLimits::default(), 2);
        let waits = |client, unread_bytes| Holdings {
            kept_bytes: 7,
            unread_bytes,
            waits_for_client: true,
            ..held(client)
        };
        for second in 0..=10 {
            let all = [waits(0, 50), waits(1, 50 - second)];
            assert_eq!(closed(&mut router, second * SECOND, &all), [], "{second}");
        }
        let all = [waits(0, 60), waits(1, 40)];
        let reason = CloseReason::Unread { kept_bytes: 7, unread_bytes: 60, waited: STUCK, tells: true };
        assert_eq!(closed(&mut router, 10 * SECOND + 1, &all), [(0, reason)]);
        // One that was waited for meanwhile begins anew.
        assert_eq!(closed(&mut router, 19 * SECOND, &[held(1)]), []);
        assert_eq!(closed(&mut router, 25 * SECOND, &[waits(1, 40)]), []);
        assert_eq!(closed(&mut router, 35 * SECOND, &[waits(1, 40)]), []);
        assert_eq!(closed(&mut router, 35 * SECOND + 1, &[waits(1, 40)]).len(), 1);
        assert_eq!(router.statistics().closed_unread, 2);
    }

    #[test]
    fn who_asks_for_nothing_goes_unless_something_of_it_waits() {
        let limits = ClientLimits { idle_max: Some(Duration::from_secs(5)), ..ClientLimits::default() };
        let mut router = router(limits, 3);
        let all =
            [held(0), Holdings { seen: Time(SECOND), ..held(1) }, Holdings { kept_bytes: 1, ..held(2) }];
        assert_eq!(closed(&mut router, 5 * SECOND, &all), []);
        assert_eq!(closed(&mut router, 5 * SECOND + 1, &all), [(0, CloseReason::Idle)]);
        assert_eq!(closed(&mut router, 6 * SECOND + 1, &all[1..]), [(1, CloseReason::Idle)]);
    }

    #[test]
    fn nobody_is_closed_twice() {
        let limits = ClientLimits {
            held_bytes_max: 1,
            idle_max: Some(Duration::from_secs(5)),
            ..ClientLimits::default()
        };
        let mut router = router(limits, 1);
        let all = [Holdings { buffer_bytes: 10, ..held(0) }];
        assert_eq!(closed(&mut router, 6 * SECOND, &all), [(0, CloseReason::Idle)]);
    }
}

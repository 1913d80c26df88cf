//! What a node may answer with, under the lease or, if storage is gone, under leave. Not when there is leave.

use bytes::Bytes;
use wire::{Status, View};

use super::ShimLink;
use super::object::Object;
use crate::policy::Policies;
use crate::time::Time;

/// A reply that a copy has.
pub(super) struct FoundReply {
    pub(super) status: Status,
    pub(super) value: Bytes,
    /// A change of it might have been missed for longer than usual.
    pub(super) stale: bool,
}

impl ShimLink {
    /// The reply that may be served at `now`.
    #[inline]
    pub(super) fn found(
        &self,
        now: Time,
        object: &Object,
        view: View,
        policies: &Policies,
    ) -> Option<FoundReply> {
        let whole = self.spared == 0 || !policies.of(object.key_bytes()).stale_if_error.is_zero();
        let fresh = (whole && self.session.holds(now)).then(|| object.reply(now, view)).flatten();
        match fresh {
            Some((status, value)) => Some(FoundReply { status, value, stale: false }),
            None => self.stale(now, object, view, policies),
        }
    }

    fn stale(&self, now: Time, object: &Object, view: View, policies: &Policies) -> Option<FoundReply> {
        let leave = self.session.leave()?;
        let allowed = leave.covers(now, policies.of(object.key_bytes()).stale_if_error);
        let (status, value) = object.stale_reply(now, view).filter(|_| allowed)?;
        Some(FoundReply { status, value, stale: true })
    }
}

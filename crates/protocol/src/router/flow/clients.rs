//! What the front asks about one client: how much it has under way, and what of that is due. Not how it got there.

use bytes::Bytes;

use crate::router::flow::Flow;
use crate::router::flow::pipeline::ClientOperation;
use crate::router::flow::request::RequestOrigin;
use crate::router::step::RouterStep;

impl Flow {
    /// The client's next reply, in its order, with its operation, which goes with `told`.
    #[inline]
    pub(crate) fn next_answered(
        &mut self,
        step: &mut RouterStep<'_>,
        client: u32,
    ) -> Option<(&mut ClientOperation, Bytes)> {
        self.callers.get_mut(client)?.next_answered(step, client)
    }

    /// The client has been told what was given last, a reply of so many bytes.
    #[inline]
    pub(crate) fn told(&mut self, step: &RouterStep<'_>, client: u32, reply_bytes: usize) {
        if let Some(caller) = self.callers.get_mut(client) {
            caller.told(reply_bytes, step.config);
        }
    }

    /// Whether the client had to stop and has room again.
    pub(crate) fn has_room_again(&self, step: &RouterStep<'_>, client: u32) -> bool {
        self.callers.get(client).is_some_and(|caller| caller.stalled && caller.has_drained(step.config))
    }

    pub(crate) fn is_stalled(&self, client: u32) -> bool {
        self.callers.get(client).is_some_and(|caller| caller.stalled)
    }

    /// Nothing more is taken from the client, or it goes on.
    pub(crate) fn set_stalled(&mut self, client: u32, stalled: bool) {
        if let Some(caller) = self.callers.get_mut(client) {
            caller.stalled = stalled;
        }
    }

    /// A copy may not do for what the client reads.
    pub(crate) fn set_reads_at_shims(&mut self, client: u32, reads_at_shims: bool) {
        if let Some(caller) = self.callers.get_mut(client) {
            caller.reads_at_shims = reads_at_shims;
        }
    }

    /// Commands without a reply.
    pub(crate) fn len(&self, client: u32) -> usize {
        self.callers.get(client).map_or(0, |caller| caller.pipeline.len())
    }

    /// Bytes of commands without a reply, and of replies that wait for earlier ones.
    pub(crate) fn held_bytes(&self, client: u32) -> usize {
        self.callers.get(client).map_or(0, |caller| caller.pipeline.held_bytes())
    }

    /// Whether the next reply goes to the client in parts.
    pub(crate) fn streams(&self, client: u32) -> bool {
        self.callers.get(client).is_some_and(|caller| caller.pipeline.streams())
    }

    /// Whether the client's next command comes while keys are watched.
    pub(crate) fn is_watching(&self, client: u32) -> bool {
        let watches = self.callers.get(client);
        watches.is_some_and(|caller| caller.pipeline.will_watch().unwrap_or(caller.watch.is_some()))
    }

    /// The place of the client's next command.
    pub(crate) fn next_place(&self, client: u32, resp3: bool) -> Option<RequestOrigin> {
        let sequence = self.callers.get(client)?.pipeline.next();
        Some(RequestOrigin { client, part: 0, sequence, resp3, waited_ms: 0 })
    }

    /// The sequence number of the client's oldest command without a reply.
    pub(crate) fn first(&self, client: u32) -> u64 {
        self.callers.get(client).map_or(0, |caller| caller.pipeline.first())
    }

    /// The sequence number of the client's last command, if it has no reply.
    pub(crate) fn last(&self, client: u32) -> Option<u64> {
        let pipeline = &self.callers.get(client)?.pipeline;
        pipeline.next().checked_sub(1).filter(|last| *last >= pipeline.first())
    }

    /// The same among those about any of these keys, each by the low half of its digest.
    pub(crate) fn last_about(&self, client: u32, digests: &[u64]) -> Option<u64> {
        self.callers.get(client)?.pipeline.last_about(digests)
    }

    pub(crate) fn last_operation(&mut self, client: u32) -> Option<&mut ClientOperation> {
        self.callers.get_mut(client)?.pipeline.last_mut()
    }

    /// The client is closed behind the reply to its last command. False if it waits for none.
    pub(crate) fn close_behind_last(&mut self, client: u32) -> bool {
        let last = self.last_operation(client);
        last.map(|operation| operation.manner.closes = true).is_some()
    }
}

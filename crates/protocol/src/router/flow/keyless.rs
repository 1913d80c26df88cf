//! Commands without a key: to every shim, to any, or through them one by one. Not how replies are merged.

use bytes::Bytes;
use rand::seq::SliceRandom;
use smallvec::SmallVec;
use wire::ShimId;
use wire::resp::Command;

use crate::router::flow::gather::Merge;
use crate::router::flow::launch::Launch;
use crate::router::flow::pipeline::{FanPart, OperationProgress};
use crate::router::flow::plan::CommandPlan;
use crate::router::flow::refusal::channel_too_long;
use crate::router::flow::send::Outgoing;
use crate::router::replies;
use commands::CommandKind;

/// The question to one server after the other.
pub(crate) const RANDOMKEY: Bytes = Bytes::from_static(b"*1\r\n$9\r\nRANDOMKEY\r\n");

impl Launch<'_, '_> {
    /// Only once the client's pipeline has drained.
    pub(crate) fn keyless(&mut self, plan: CommandPlan) -> OperationProgress {
        let shims: SmallVec<[ShimId; 8]> = self.job.placement.shims_with_keys().collect();
        if self.over_limit(shims.len()) {
            return self.busy();
        }
        let frame = self.job.command.frame();
        match plan {
            CommandPlan::Everywhere(merge) if shims.len() > 1 => self.everywhere(&shims, merge),
            CommandPlan::Scan if self.job.placement.map().shims.len() > 1 => self.scan(),
            CommandPlan::RandomKey if shims.len() > 1 => self.random_key(&shims),
            CommandPlan::Users => self.everywhere(&shims, Merge::Users),
            CommandPlan::Anywhere => {
                let linked = shims.iter().find(|shim| self.traffic.members.shim_linked(**shim));
                self.at(*linked.unwrap_or(&shims[0]), frame)
            }
            _ => self.at(shims[0], frame),
        }
    }

    fn at(&mut self, shim: ShimId, frame: &Bytes) -> OperationProgress {
        if !self.traffic.members.shim_linked(shim) {
            return self.unavailable(shim);
        }
        OperationProgress::Sent(self.execute(0, Outgoing::keyless(self.job.classified.kind, shim, frame)))
    }

    fn everywhere(&mut self, shims: &[ShimId], merge: Merge) -> OperationProgress {
        if let Some(missing) = shims.iter().find(|shim| !self.traffic.members.shim_linked(**shim)) {
            return self.unavailable(*missing);
        }
        let (kind, frame) = (self.job.classified.kind, self.job.command.frame());
        let mut parts = Vec::with_capacity(shims.len());
        for (part, shim) in shims.iter().enumerate() {
            parts.push(FanPart::alone(self.execute(part as u32, Outgoing::keyless(kind, *shim, frame))));
        }
        OperationProgress::fan(parts, merge)
    }

    /// Cursors say which shim is next, of all that the map has: they mean the same when keys are divided anew. Those without keys are
    /// passed over.
    fn scan(&mut self) -> OperationProgress {
        let command = self.job.command;
        let placement = self.job.placement;
        let cursor = std::str::from_utf8(command.arg(1)).ok().and_then(|text| text.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return OperationProgress::Done(replies::error("ERR invalid cursor"));
        };
        let count = placement.map().shims.len() as u64;
        let asked = cursor % count;
        let mut following = placement.shims_with_keys().filter(|shim| u64::from(shim.0) >= asked);
        let Some(shim) = following.next() else { return OperationProgress::Done(replies::scan_end()) };
        let index = u64::from(shim.0);
        let own = if index == asked { cursor / count } else { 0 }.to_string();
        let mut arguments: Vec<&[u8]> = (0..command.len()).map(|index| command.arg(index)).collect();
        arguments[1] = own.as_bytes();
        let narrowed = Command::from_args(&arguments);
        match self.at(shim, narrowed.frame()) {
            OperationProgress::Sent(sent) => {
                OperationProgress::fan(vec![FanPart::alone(sent)], Merge::Scan { index, shims: count })
            }
            failed => failed,
        }
    }

    fn random_key(&mut self, shims: &[ShimId]) -> OperationProgress {
        let linked = |shim: &ShimId| self.traffic.members.shim_linked(*shim);
        let mut left: Vec<ShimId> = shims.iter().copied().filter(linked).collect();
        left.shuffle(&mut self.traffic.random);
        let Some(first) = left.pop() else { return self.unavailable(shims[0]) };
        let frame = RANDOMKEY;
        let sent = self.execute(0, Outgoing::keyless(CommandKind::Keyless, first, &frame));
        OperationProgress::fan(vec![FanPart::alone(sent)], Merge::RandomKey { left })
    }

    /// PUBLISH and SPUBLISH: to the server of their channel.
    pub(crate) fn publish(&mut self) -> OperationProgress {
        let bytes = self.job.command.arg_bytes(1);
        if bytes.len() > self.step.config.settings.key_bytes_max {
            return OperationProgress::Done(channel_too_long(self.step, bytes.len()));
        }
        let channel = self.job.placement.key(0, bytes);
        let shim = self.job.placement.shim(&channel);
        if !self.traffic.members.shim_linked(shim) {
            return self.unavailable(shim);
        }
        if self.over_limit(1) {
            return self.busy();
        }
        let outgoing = Outgoing::keyless(CommandKind::Publish, shim, self.job.command.frame());
        OperationProgress::Sent(self.execute(0, Outgoing { key: channel, ..outgoing }))
    }
}

//! Commands without a key: to every shim, to any, or through them one by one. Not how replies are merged.

use bytes::Bytes;
use rand::seq::SliceRandom;
use smallvec::SmallVec;
use wire::resp::Command;
use wire::{Key, Peer, ShimId};

use crate::placement::Placement;
use crate::router::flow::dispatch::{Job, Origin, fan};
use crate::router::flow::gather::Merge;
use crate::router::flow::pipeline::{Part, Progress, Sent};
use crate::router::flow::plan::Plan;
use crate::router::flow::route::Route;
use crate::router::flow::storage_info;
use crate::router::front::info;
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::CommandKind;

const RANDOMKEY: &[u8] = b"*1\r\n$9\r\nRANDOMKEY\r\n";

impl Router {
    /// Only once the client's pipeline has drained.
    pub(crate) fn launch_keyless(
        &mut self,
        now: Time,
        placement: &Placement,
        job: &Job<'_>,
        plan: Plan,
        effects: &mut Vec<Effect>,
    ) -> Progress {
        let shims: SmallVec<[ShimId; 8]> = placement.map().shims.iter().map(|shim| shim.id).collect();
        if self.over_limit(shims.len()) {
            return self.busy();
        }
        let frame = job.command.frame();
        match plan {
            Plan::Everywhere(merge) if shims.len() > 1 => self.launch_everywhere(job, &shims, merge, effects),
            Plan::Scan if shims.len() > 1 => self.launch_scan(job, &shims, effects),
            Plan::RandomKey if shims.len() > 1 => self.launch_random_key(job, &shims, effects),
            Plan::Users => self.launch_everywhere(job, &shims, Merge::Users { told: None }, effects),
            Plan::Info => self.launch_info(now, job, &shims, effects),
            Plan::Anywhere => {
                let linked = shims.iter().find(|shim| self.shim_linked(**shim));
                self.launch_at(job, *linked.unwrap_or(&shims[0]), frame, effects)
            }
            _ => self.launch_at(job, shims[0], frame, effects),
        }
    }

    fn launch_at(
        &mut self,
        job: &Job<'_>,
        shim: ShimId,
        frame: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Progress {
        if !self.shim_linked(shim) {
            return self.unavailable(shim);
        }
        Progress::Sent(self.send_keyless(job.origin(0), job.classified.kind, shim, frame, effects))
    }

    fn launch_everywhere(
        &mut self,
        job: &Job<'_>,
        shims: &[ShimId],
        merge: Merge,
        effects: &mut Vec<Effect>,
    ) -> Progress {
        if let Some(missing) = shims.iter().find(|shim| !self.shim_linked(**shim)) {
            return self.unavailable(*missing);
        }
        let mut parts = Vec::with_capacity(shims.len());
        for (part, shim) in shims.iter().enumerate() {
            let origin = job.origin(part as u32);
            let sent = self.send_keyless(origin, job.classified.kind, *shim, job.command.frame(), effects);
            parts.push(alone(sent));
        }
        fan(parts, merge)
    }

    fn launch_scan(&mut self, job: &Job<'_>, shims: &[ShimId], effects: &mut Vec<Effect>) -> Progress {
        let cursor = std::str::from_utf8(job.command.arg(1)).ok().and_then(|text| text.parse::<u64>().ok());
        let Some(cursor) = cursor else {
            return Progress::Done(replies::error("ERR invalid cursor"));
        };
        let count = shims.len() as u64;
        let index = cursor % count;
        let own = (cursor / count).to_string();
        let mut arguments: Vec<&[u8]> = (0..job.command.len()).map(|index| job.command.arg(index)).collect();
        arguments[1] = own.as_bytes();
        let narrowed = Command::from_args(&arguments);
        match self.launch_at(job, shims[index as usize], narrowed.frame(), effects) {
            Progress::Sent(sent) => fan(vec![alone(sent)], Merge::Scan { index, shims: count }),
            failed => failed,
        }
    }

    /// Leaves out servers that cannot be reached: INFO is asked to learn how things are.
    fn launch_info(
        &mut self,
        now: Time,
        job: &Job<'_>,
        shims: &[ShimId],
        effects: &mut Vec<Effect>,
    ) -> Progress {
        let own = info::text(self, now, job.command);
        let mut arguments: Vec<&[u8]> = vec![b"INFO"];
        arguments.extend(storage_info::wanted(job.command).map(str::as_bytes));
        let command = Command::from_args(&arguments);
        let mut parts = Vec::with_capacity(shims.len());
        for shim in shims.iter().filter(|shim| self.shim_linked(**shim)).copied().collect::<Vec<_>>() {
            let origin = job.origin(parts.len() as u32);
            parts.push(alone(self.send_keyless(
                origin,
                CommandKind::Keyless,
                shim,
                command.frame(),
                effects,
            )));
        }
        if parts.is_empty() {
            return Progress::Done(replies::verbatim(&own, job.resp3));
        }
        fan(parts, Merge::Info { own })
    }

    fn launch_random_key(&mut self, job: &Job<'_>, shims: &[ShimId], effects: &mut Vec<Effect>) -> Progress {
        let mut left: Vec<ShimId> = shims.iter().copied().filter(|shim| self.shim_linked(*shim)).collect();
        left.shuffle(&mut self.random);
        let Some(first) = left.pop() else { return self.unavailable(shims[0]) };
        let sent = self.send_random_key(job.origin(0), first, effects);
        fan(vec![alone(sent)], Merge::RandomKey { left })
    }

    pub(crate) fn send_random_key(
        &mut self,
        origin: Origin,
        shim: ShimId,
        effects: &mut Vec<Effect>,
    ) -> Sent {
        self.send_keyless(origin, CommandKind::Keyless, shim, &Bytes::from_static(RANDOMKEY), effects)
    }

    pub(crate) fn send_keyless(
        &mut self,
        origin: Origin,
        kind: CommandKind,
        shim: ShimId,
        frame: &Bytes,
        effects: &mut Vec<Effect>,
    ) -> Sent {
        let route = Route { peer: Peer::Shim(shim), ordered: false };
        self.send_execute(origin, kind, route, Key::default(), frame, effects)
    }
}

fn alone(sent: Sent) -> Part {
    Part { sent, touch: SmallVec::new(), reply: None }
}

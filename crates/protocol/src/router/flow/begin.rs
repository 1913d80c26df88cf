//! A command's way in: a place in its client's pipeline, sent at once or held back until its order allows it. Not where it
//! goes.

use std::time::Duration;

use bytes::Bytes;

use crate::router::flow::Flow;
use crate::router::flow::event::Event;
use crate::router::flow::gather::Merge;
use crate::router::flow::launch::{Hold, Job, Launch};
use crate::router::flow::pipeline::{Freed, Operation, Part, Progress, Touch, Turn};
use crate::router::flow::ran::Ran;
use crate::router::flow::request::{Manner, Origin, Request, Routed, Way, keys_of, low, runs_alone};
use crate::router::replies;
use crate::router::step::Step;
use commands::CommandKind;

const ELSEWHERE: &str = "CROSSSLOT DistCache: a script without keys runs on another storage server than the keys of \
                         this transaction; nothing was executed";

impl Flow {
    /// A command of a client, in its turn. Only once there is a map.
    pub(crate) fn begin(&mut self, step: &mut Step<'_>, client: u32, request: Request) {
        let Request { routed, manner } = request;
        let (Some(placement), Some(caller)) = (self.traffic.placement.clone(), self.callers.get(client))
        else {
            return;
        };
        let sequence = caller.pipeline.next();
        let Routed { command, classified, way, kept } = &routed;
        let keys = keys_of(&placement, command, classified);
        let (touch, held_bytes) = (Touch::of(classified, &keys), command.frame().len());
        let mut ran = Ran::new(step.now, classified);
        let job = Job {
            client,
            sequence,
            resp3: manner.resp3,
            placement: &placement,
            command,
            classified,
            keys: &keys,
            kept: kept.among(&keys),
            dealt: None,
            waited_ms: 0,
        };
        let first = placement.map().shims[0].id;
        let elsewhere = matches!(way, Way::Transaction { watched: false, .. })
            && classified.kind == CommandKind::Barrier
            && keys.iter().any(|key| placement.shim(key) != first);
        let launched = match elsewhere {
            true => Ok(Progress::Done(replies::error(ELSEWHERE))),
            false => self.launch(step, &job, way),
        };
        let script = classified.script;
        let progress = match launched {
            Ok(progress) => {
                ran.launched(step.now, routed.command);
                progress
            }
            Err(Hold::Front) => {
                ran.launched(step.now, routed.command.clone());
                let origin = Origin { client, part: 0, sequence, resp3: manner.resp3, waited_ms: 0 };
                self.todos.tell(Event::Turn { origin, routed: Box::new(routed) });
                Progress::Handed
            }
            Err(Hold::Order) => {
                step.counters.ordered_waits += 1;
                Progress::Waiting(Box::new(routed))
            }
            Err(Hold::Turn(peer)) => {
                step.counters.turns_awaited += 1;
                if let Some(caller) = self.callers.get_mut(client) {
                    let turn = Turn { sequence, peer, since: step.now };
                    self.traffic.windows.wait(client, caller, turn);
                }
                Progress::Waiting(Box::new(routed))
            }
        };
        let operation =
            Operation { held_bytes, script, manner, ran, ..Operation::new(step.now, touch, progress) };
        self.enqueue(step, client, operation);
    }

    /// What the front answers itself, in its turn.
    pub(crate) fn answer(&mut self, step: &mut Step<'_>, client: u32, manner: Manner, bytes: Bytes) {
        let (held_bytes, progress) = (bytes.len(), Progress::Done(bytes));
        let operation =
            Operation { held_bytes, manner, ..Operation::new(step.now, Touch::Nothing, progress) };
        self.enqueue(step, client, operation);
    }

    /// Requests that were sent already, and whose replies the client has to wait for: the first of them is its answer, or an
    /// error.
    pub(crate) fn await_parts(&mut self, step: &mut Step<'_>, client: u32, manner: Manner, parts: Vec<Part>) {
        let progress = Progress::fan(parts, Merge::First);
        let operation = Operation { manner, ..Operation::new(step.now, Touch::Nothing, progress) };
        self.enqueue(step, client, operation);
    }

    /// UNWATCH, DISCARD, RESET or an EXEC that does nothing: nothing is watched any more, in its turn.
    pub(crate) fn end_watch(&mut self, step: &mut Step<'_>, client: u32, request: Request) {
        let Request { routed, manner } = request;
        let Some(caller) = self.callers.get_mut(client) else { return };
        let progress = match routed.way {
            Way::EndsWatch(told) if caller.pipeline.next() == caller.pipeline.first() => {
                if let Some(watch) = caller.watch.take() {
                    watch.end(step);
                }
                Progress::Done(told)
            }
            way => Progress::Waiting(Box::new(Routed { way, ..routed })),
        };
        let operation = Operation { manner, ..Operation::new(step.now, Touch::All, progress) };
        self.enqueue(step, client, operation);
    }

    fn enqueue(&mut self, step: &mut Step<'_>, client: u32, operation: Operation) {
        let Some(caller) = self.callers.get_mut(client) else { return };
        let done = operation.answered();
        caller.pipeline.push(operation);
        caller.stalled |= caller.is_full(step.config);
        if done {
            self.todos.advance(client, Freed::Nothing);
        }
    }

    /// Tries again what had to wait; `turn`: there is room where it waited for it. Returns whether it still has to.
    pub(crate) fn relaunch(
        &mut self,
        step: &mut Step<'_>,
        client: u32,
        sequence: u64,
        turn: Option<Turn>,
    ) -> bool {
        let Some(placement) = self.traffic.placement.clone() else { return true };
        let Some(caller) = self.callers.get_mut(client) else { return true };
        let Some(resp3) = caller.pipeline.get(sequence).map(|operation| operation.manner.resp3) else {
            return true;
        };
        let Some((routed, left)) = caller.pipeline.take_waiting(sequence) else { return true };
        left.iter().for_each(|turn| self.traffic.windows.left(turn.peer));
        let Routed { command, classified, way, kept } = &*routed;
        let keys = keys_of(&placement, command, classified);
        let kept = kept.among(&keys);
        let dealt = turn.map(|turn| turn.peer);
        let waited = turn.map_or(Duration::ZERO, |turn| step.now.since(turn.since));
        let waited_ms = u16::try_from(waited.as_millis()).unwrap_or(u16::MAX);
        let job = Job {
            client,
            sequence,
            resp3,
            placement: &placement,
            command,
            classified,
            keys: &keys,
            kept,
            dealt,
            waited_ms,
        };
        let launched = self.launch(step, &job, way);
        let Some(caller) = self.callers.get_mut(client) else { return true };
        let (progress, command) = match launched {
            Ok(progress) => (progress, routed.command),
            Err(Hold::Front) => {
                let command = routed.command.clone();
                let origin = Origin { client, part: 0, sequence, resp3, waited_ms };
                self.todos.tell(Event::Turn { origin, routed });
                (Progress::Handed, command)
            }
            Err(hold) => {
                caller.pipeline.settle(sequence, Progress::Waiting(routed));
                if let Hold::Turn(peer) = hold {
                    if turn.is_none() {
                        step.counters.turns_awaited += 1;
                    }
                    let since = turn.map_or(step.now, |turn| turn.since);
                    self.traffic.windows.wait(client, caller, Turn { sequence, peer, since });
                }
                return true;
            }
        };
        caller.pipeline.settle(sequence, progress);
        if let Some(operation) = caller.pipeline.get_mut(sequence) {
            operation.ran.launched(step.now, command);
        }
        false
    }

    /// Sends a command if its order allows and there is room.
    fn launch(&mut self, step: &mut Step<'_>, job: &Job<'_>, way: &Way) -> Result<Progress, Hold> {
        let Flow { callers, traffic, todos, pause, .. } = self;
        let Some(caller) = callers.get_mut(job.client) else { return Err(Hold::Order) };
        if pause.is_some_and(|pause| pause.holds(step.now, job.classified.kind)) {
            return Err(Hold::Order);
        }
        let first = caller.pipeline.first() == job.sequence;
        let mut launch = Launch { step, traffic, caller, todos, job };
        let progress = match way {
            Way::Transaction { watched: true, .. } => launch.watched(),
            _ if runs_alone(job.classified) && !first => return Err(Hold::Order),
            Way::EndsWatch(told) => {
                launch.drop_watch();
                Ok(Progress::Done(told.clone()))
            }
            Way::Plain | Way::Transaction { .. } => launch.planned(),
        }?;
        let Progress::Sent(sent) = progress else { return Ok(progress) };
        let watched = matches!(way, Way::Transaction { watched: true, .. });
        if job.classified.script && !watched {
            traffic.pending.set_script(sent.request);
        }
        Ok(match way {
            Way::Transaction { own, .. } if !own.is_empty() => {
                let touch = job.keys.iter().map(low).collect();
                let part = Part { sent, touch, reply: None };
                Progress::fan(vec![part], Merge::Transaction { own: own.clone() })
            }
            _ => progress,
        })
    }
}

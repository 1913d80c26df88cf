//! A command's way in: a place in its client's pipeline, sent at once or held back until its order allows it. Not where it
//! goes.

use std::time::Duration;

use bytes::Bytes;

use crate::router::flow::Flow;
use crate::router::flow::event::FlowEvent;
use crate::router::flow::gather::Merge;
use crate::router::flow::launch::{Hold, Launch, LaunchJob};
use crate::router::flow::pipeline::{ClientOperation, FanPart, HeldCommand, OperationProgress, RoomTurn};
use crate::router::flow::ran::Ran;
use crate::router::flow::request::{
    ClientRequest, CommandKeys, CommandWay, Manner, RequestOrigin, Routed, keys_of, low, runs_alone,
};
use crate::router::flow::touch::{Freed, Touch};
use crate::router::replies;
use crate::router::step::RouterStep;
use commands::CommandKind;

const ELSEWHERE: &str = "CROSSSLOT DistCache: a script without keys runs on another storage server than the keys of \
                         this transaction; nothing was executed";

/// Whether a transaction with a script that names no keys names keys of another server than the one where such scripts run.
fn is_elsewhere(job: &LaunchJob<'_>, way: &CommandWay) -> bool {
    let LaunchJob { placement, classified, keys, .. } = *job;
    matches!(way, CommandWay::Transaction { watched: false, .. })
        && classified.kind == CommandKind::Barrier
        && keys.iter().any(|key| placement.shim(key) != placement.first_shim())
}

impl Flow {
    /// A command of a client, in its turn. Only once there is a map. The reply is given back if it is bare and here already, with
    /// nothing before it.
    pub(crate) fn begin(
        &mut self,
        step: &mut RouterStep<'_>,
        client: u32,
        request: ClientRequest,
    ) -> Option<Bytes> {
        let ClientRequest { routed, manner, bare } = request;
        let placement = self.traffic.placement.clone()?;
        let caller = self.callers.get(client)?;
        let sequence = caller.pipeline.next();
        let Routed { command, classified, way, kept } = &routed;
        let keys = keys_of(&placement, command, classified);
        let job = LaunchJob {
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
        let launched = match is_elsewhere(&job, way) {
            true => Ok(OperationProgress::Done(replies::error(ELSEWHERE))),
            false => self.launch(step, &job, way),
        };
        if let Ok(OperationProgress::Done(bytes)) = &launched
            && bare
            && let Some(caller) = self.callers.get_mut(client).filter(|caller| caller.is_idle())
        {
            caller.replied(bytes.len(), step.config);
            return Some(bytes.clone());
        }
        let (touch, held_bytes) = (Touch::of(classified, &keys), command.frame().len());
        let mut ran = Ran::new(step.now, classified);
        let script = classified.script;
        let progress = match launched {
            Ok(progress) => {
                ran.launched(step.now, routed.command);
                progress
            }
            Err(Hold::Front) => {
                ran.launched(step.now, routed.command.clone());
                let origin = RequestOrigin { client, part: 0, sequence, resp3: manner.resp3, waited_ms: 0 };
                self.todos.tell(FlowEvent::Turn { origin, routed: Box::new(routed) });
                OperationProgress::Handed
            }
            Err(Hold::Order) => {
                step.counters.ordered_waits += 1;
                OperationProgress::Waiting(Box::new(HeldCommand { routed, keys }))
            }
            Err(Hold::Turn(peer)) => {
                self.wait_for_room(step, client, RoomTurn { sequence, peer, since: step.now });
                OperationProgress::Waiting(Box::new(HeldCommand { routed, keys }))
            }
        };
        let operation = ClientOperation {
            held_bytes,
            script,
            manner,
            ran,
            ..ClientOperation::new(step.now, touch, progress)
        };
        self.enqueue(step, client, operation);
        None
    }

    /// A command that was not sent before has to wait for room.
    fn wait_for_room(&mut self, step: &mut RouterStep<'_>, client: u32, turn: RoomTurn) {
        step.counters.waited += 1;
        if let Some(caller) = self.callers.get_mut(client) {
            self.traffic.windows.wait(client, caller, turn);
        }
    }

    /// What the front answers itself, in its turn.
    pub(crate) fn answer(&mut self, step: &mut RouterStep<'_>, client: u32, manner: Manner, bytes: Bytes) {
        let (held_bytes, progress) = (bytes.len(), OperationProgress::Done(bytes));
        let operation = ClientOperation {
            held_bytes,
            manner,
            ..ClientOperation::new(step.now, Touch::Nothing, progress)
        };
        self.enqueue(step, client, operation);
    }

    /// What the front answers later, with `Flow::finish` at this place.
    pub(crate) fn hand(&mut self, step: &mut RouterStep<'_>, client: u32, manner: Manner) {
        let progress = OperationProgress::Handed;
        let operation =
            ClientOperation { manner, ..ClientOperation::new(step.now, Touch::Nothing, progress) };
        self.enqueue(step, client, operation);
    }

    /// UNWATCH, DISCARD, RESET or an EXEC that does nothing: nothing is watched any more, in its turn.
    pub(crate) fn end_watch(&mut self, step: &mut RouterStep<'_>, client: u32, request: ClientRequest) {
        let ClientRequest { routed, manner, .. } = request;
        let Some(caller) = self.callers.get_mut(client) else { return };
        let progress = match routed.way {
            CommandWay::EndsWatch(told) if caller.pipeline.next() == caller.pipeline.first() => {
                if let Some(watch) = caller.watch.take() {
                    watch.end(step);
                }
                OperationProgress::Done(told)
            }
            way => {
                let (routed, keys) = (Routed { way, ..routed }, CommandKeys::new());
                OperationProgress::Waiting(Box::new(HeldCommand { routed, keys }))
            }
        };
        let operation = ClientOperation { manner, ..ClientOperation::new(step.now, Touch::All, progress) };
        self.enqueue(step, client, operation);
    }

    fn enqueue(&mut self, step: &mut RouterStep<'_>, client: u32, operation: ClientOperation) {
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
        step: &mut RouterStep<'_>,
        client: u32,
        sequence: u64,
        turn: Option<RoomTurn>,
    ) -> bool {
        let Some(placement) = self.traffic.placement.clone() else { return true };
        let Some(caller) = self.callers.get_mut(client) else { return true };
        let Some(resp3) = caller.pipeline.get(sequence).map(|operation| operation.manner.resp3) else {
            return true;
        };
        let Some((held, left)) = caller.pipeline.take_waiting(sequence) else { return true };
        left.iter().for_each(|turn| self.traffic.windows.left(turn.peer));
        let HeldCommand { routed: Routed { command, classified, way, kept }, keys } = &*held;
        let kept = kept.among(keys);
        let dealt = turn.map(|turn| turn.peer);
        let waited = turn.map_or(Duration::ZERO, |turn| step.now.since(turn.since));
        let waited_ms = u16::try_from(waited.as_millis()).unwrap_or(u16::MAX);
        let job = LaunchJob {
            client,
            sequence,
            resp3,
            placement: &placement,
            command,
            classified,
            keys,
            kept,
            dealt,
            waited_ms,
        };
        let launched = self.launch(step, &job, way);
        let Some(caller) = self.callers.get_mut(client) else { return true };
        let (progress, command) = match launched {
            Ok(progress) => (progress, held.routed.command),
            Err(Hold::Front) => {
                let command = held.routed.command.clone();
                let origin = RequestOrigin { client, part: 0, sequence, resp3, waited_ms };
                self.todos.tell(FlowEvent::Turn { origin, routed: Box::new(held.routed) });
                (OperationProgress::Handed, command)
            }
            Err(hold) => {
                caller.pipeline.settle(sequence, OperationProgress::Waiting(held));
                if let Hold::Turn(peer) = hold {
                    if turn.is_none() {
                        step.counters.waited += 1;
                    }
                    let since = turn.map_or(step.now, |turn| turn.since);
                    self.traffic.windows.wait(client, caller, RoomTurn { sequence, peer, since });
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
    fn launch(
        &mut self,
        step: &mut RouterStep<'_>,
        job: &LaunchJob<'_>,
        way: &CommandWay,
    ) -> Result<OperationProgress, Hold> {
        let Flow { callers, traffic, todos, pause, .. } = self;
        let Some(caller) = callers.get_mut(job.client) else { return Err(Hold::Order) };
        if pause.is_some_and(|pause| pause.holds(step.now, job.classified.kind)) {
            return Err(Hold::Order);
        }
        let first = caller.pipeline.first() == job.sequence;
        let mut launch = Launch { step, traffic, caller, todos, job };
        let progress = match way {
            CommandWay::Transaction { watched: true, .. } => launch.watched(),
            _ if runs_alone(job.classified) && !first => return Err(Hold::Order),
            CommandWay::EndsWatch(told) => {
                launch.drop_watch();
                Ok(OperationProgress::Done(told.clone()))
            }
            CommandWay::Plain | CommandWay::Transaction { .. } => launch.planned(),
        }?;
        let OperationProgress::Sent(sent) = progress else { return Ok(progress) };
        let watched = matches!(way, CommandWay::Transaction { watched: true, .. });
        if job.classified.script && !watched {
            traffic.pending.set_script(sent.request);
        }
        Ok(match way {
            CommandWay::Transaction { own, .. } if !own.is_empty() => {
                let touch = job.keys.iter().map(low).collect();
                let part = FanPart { sent, touch, reply: None };
                OperationProgress::fan(vec![part], Merge::Transaction { own: own.clone() })
            }
            _ => progress,
        })
    }
}

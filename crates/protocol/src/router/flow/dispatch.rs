//! A command's way in: classified, put in order behind the earlier ones, sent in one part or several.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use wire::resp::{Command, ProtocolError};
use wire::{Key, Peer, ShimId, View};

use crate::placement::Placement;
use crate::router::flow::answer::Freed;
use crate::router::flow::gather::Merge;
use crate::router::flow::pending::{PendingRead, Tried};
use crate::router::flow::pipeline::{Fan, Lane, Operation, Order, Part, Progress, Touch, Turn, Waiting};
use crate::router::flow::plan::{self, Plan};
use crate::router::flow::ran::Ran;
use crate::router::flow::route::{Route, Unroutable};
use crate::router::flow::storage_info;
use crate::router::front::client::Client;
use crate::router::front::storage_users::changes_users;
use crate::router::front::{connection, pubsub, slow_log, transaction};
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::{Classified, CommandKind};

const UNNAMED_KEYS: &str = "CROSSSLOT DistCache: SORT with BY or GET patterns reads keys that may live on other \
                            storage servers; put the key's hash tag before the *, as in {user1}.weight_*";

pub(crate) type Keys = SmallVec<[Key; 1]>;

/// Which part of which operation a request belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) client: u32,
    pub(crate) part: u32,
    pub(crate) sequence: u64,
    pub(crate) resp3: bool,
    pub(crate) waited_ms: u16,
}

/// What is being sent for which operation.
pub(crate) struct Job<'a> {
    pub(crate) client: u32,
    pub(crate) sequence: u64,
    pub(crate) resp3: bool,
    pub(crate) command: &'a Command,
    pub(crate) classified: &'a Classified,
    pub(crate) keys: &'a [Key],
    /// Keys of which the client keeps what it reads.
    pub(crate) tracked: &'a [Key],
    /// The member for which it has waited last, if it has its turn there.
    pub(crate) dealt: Option<Peer>,
    pub(crate) waited_ms: u16,
}

/// Why a command is not sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Others come first, or a pause.
    Order,
    /// There is no room at this member.
    Turn(Peer),
}

impl Job<'_> {
    pub(crate) fn lane(&self) -> Lane {
        Lane { resp3: self.resp3, script: self.classified.script }
    }

    pub(crate) fn origin(&self, part: u32) -> Origin {
        let Job { client, sequence, resp3, waited_ms, .. } = *self;
        Origin { client, part, sequence, resp3, waited_ms }
    }
}

impl Router {
    pub(crate) fn command(&mut self, now: Time, client: u32, command: Command, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get(client).filter(|client| !client.closing) else { return };
        self.counters.requests += 1;
        let (checked, queues) = (state.identity.checked, state.transaction.is_some());
        if checked && !self.permits(now, client, &command, effects) {
            return;
        }
        if queues {
            return self.queue(now, client, &command, effects);
        }
        let mut classified = match commands::classify(&command) {
            Ok(classified) => {
                if let Some(state) = self.clients.get_mut(client) {
                    (state.seen, state.last) = (now, classified.spec.name);
                }
                classified
            }
            Err(refusal) => {
                self.counters.refusals += 1;
                return self.respond(now, client, transaction::refused(&command, &refusal), effects);
            }
        };
        if self.clients.get(client).is_some_and(Client::only_listens)
            && let Some(error) = pubsub::misplaced(&classified)
        {
            self.counters.refusals += 1;
            return self.respond(now, client, error, effects);
        }
        if classified.kind == CommandKind::Keyless
            && matches!(classified.spec.name, "config|get" | "config|set")
        {
            let resp3 = self.clients.get(client).is_some_and(|state| state.resp3);
            if let Some(bytes) = slow_log::configuration(self, resp3, &command) {
                return self.respond(now, client, bytes, effects);
            }
            if classified.spec.name == "config|set" {
                self.limit_tracking(&command);
            }
        }
        if classified.kind == CommandKind::Connection {
            if !self.asks_storage(client, &command) {
                return connection::answer(self, now, client, &command, effects);
            }
            classified.kind = CommandKind::Keyless;
        }
        let Some(placement) = self.placement.clone() else {
            let error = replies::error("LOADING DistCache: this router has no cluster map yet");
            return self.respond(now, client, error, effects);
        };
        if let Some(error) = self.key_too_long(&command, &classified) {
            return self.respond(now, client, error, effects);
        }
        self.begin(now, client, &placement, (command, classified), effects);
    }

    /// A command with a place in its client's pipeline: sent, or held back until its order allows it.
    fn begin(
        &mut self,
        now: Time,
        client: u32,
        placement: &Arc<Placement>,
        (command, classified): (Command, Classified),
        effects: &mut Vec<Effect>,
    ) {
        let keys = keys_of(placement, &command, &classified);
        let Some(state) = self.clients.get_mut(client) else { return };
        let tracks = Router::take_caching(state) && classified.spec.is_tracked();
        // Confirmations are pushes, which CLIENT REPLY does not keep back.
        let silent = state.take_silence() && classified.kind != CommandKind::Subscription;
        let (sequence, resp3) = (state.pipeline.next(), state.resp3);
        let (touch, held_bytes) = (touch(&classified, &keys), command.frame().len());
        let script = classified.script;
        let mut ran = Ran::new(now, &classified);
        let tracked = if tracks { &keys[..] } else { &[] };
        let (dealt, waited_ms) = (None, 0);
        let job = Job {
            client,
            sequence,
            resp3,
            command: &command,
            classified: &classified,
            keys: &keys,
            tracked,
            dealt,
            waited_ms,
        };
        let launched = self.launch(now, placement, &job, effects);
        if classified.kind == CommandKind::Subscription && !matches!(launched, Ok(Progress::Done(_))) {
            self.hold_client(client);
        }
        let turn = match launched {
            Err(Hold::Turn(peer)) => Some(peer),
            _ => None,
        };
        let progress = match launched {
            Ok(progress) => {
                ran.launched(now, command);
                progress
            }
            Err(_) => {
                self.counters.ordered_waits += u64::from(turn.is_none());
                let (own_replies, tracked) = (Vec::new(), if tracks { keys } else { Keys::new() });
                Progress::Waiting(Box::new(Waiting {
                    command,
                    classified,
                    own_replies,
                    watched: false,
                    tracked,
                }))
            }
        };
        let operation =
            Operation { held_bytes, resp3, script, silent, ran, ..Operation::new(now, touch, progress) };
        if let Some(peer) = turn {
            self.await_turn(now, client, sequence, peer, None);
        }
        self.enqueue(now, client, operation, effects);
    }

    /// Whether storage has a part in the answer to a command of kind `Connection`.
    fn asks_storage(&self, client: u32, command: &Command) -> bool {
        match command.arg(0) {
            name if name.eq_ignore_ascii_case(b"INFO") => {
                self.placement.is_some() && storage_info::wanted(command).next().is_some()
            }
            name if name.eq_ignore_ascii_case(b"CLIENT") => plan::is(command, 1, "HELP"),
            name if name.eq_ignore_ascii_case(b"PING") => self.asks_who_runs_a_script(client),
            name if name.eq_ignore_ascii_case(b"ACL") => self.asks_for_users() && changes_users(command),
            name => name.eq_ignore_ascii_case(b"COMMAND"),
        }
    }

    /// While a script runs at the only server, a client that asks whether the server is there hears it from the server.
    fn asks_who_runs_a_script(&self, client: u32) -> bool {
        self.pending.scripts() > 0
            && self.placement.as_ref().is_some_and(|placement| placement.map().shims.len() == 1)
            && !self.clients.get(client).is_some_and(Client::only_listens)
    }

    /// The error about a key that is over the limit.
    pub(crate) fn key_too_long(&mut self, command: &Command, classified: &Classified) -> Option<Bytes> {
        let bytes_max = self.config.key_bytes_max;
        let key = classified.keys.iter().find(|key| command.arg(**key).len() > bytes_max)?;
        self.counters.refusals += 1;
        let bytes = command.arg(*key).len();
        Some(replies::error(&format!(
            "ERR DistCache: a key of {bytes} bytes is over the limit of {bytes_max}"
        )))
    }

    pub(crate) fn malformed(
        &mut self,
        now: Time,
        client: u32,
        error: &ProtocolError,
        effects: &mut Vec<Effect>,
    ) {
        self.counters.refusals += 1;
        let bytes = replies::error(&format!("ERR {error}"));
        self.respond_and_close(now, client, bytes, effects);
    }

    /// An operation that the router answers itself, in its turn.
    pub(crate) fn respond(&mut self, now: Time, client: u32, bytes: Bytes, effects: &mut Vec<Effect>) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let silent = state.take_silence();
        self.enqueue(now, client, answered(now, bytes, silent, false), effects);
    }

    pub(crate) fn respond_and_close(
        &mut self,
        now: Time,
        client: u32,
        bytes: Bytes,
        effects: &mut Vec<Effect>,
    ) {
        let Some(state) = self.clients.get_mut(client).filter(|state| !state.closing) else { return };
        let silent = state.take_silence();
        state.closing = true;
        self.enqueue(now, client, answered(now, bytes, silent, true), effects);
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        client: u32,
        mut operation: Operation,
        effects: &mut Vec<Effect>,
    ) {
        let (pipeline_max, bytes_max) = (self.config.pipeline_max, self.config.pipeline_bytes_max);
        let Some(state) = self.clients.get_mut(client) else { return };
        if let Some(front) = &mut state.memcached {
            operation.shape = front.next.take();
        }
        let done = operation.answered();
        state.pipeline.push(operation);
        if self.sampler.is_due() {
            self.sampler.follow(&mut self.random, state);
        }
        state.stalled |= state.is_full(pipeline_max, bytes_max);
        if done {
            self.advance(now, client, Freed::Nothing, effects);
        }
    }

    /// Tries again what had to wait; `turn`: there is room where it waited for it. Returns whether it still has to.
    pub(crate) fn relaunch(
        &mut self,
        now: Time,
        client: u32,
        sequence: u64,
        turn: Option<Turn>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(placement) = self.placement.clone() else { return true };
        let Some(state) = self.clients.get_mut(client) else { return true };
        let Some(resp3) = state.pipeline.get(sequence).map(|operation| operation.resp3) else { return true };
        let Some((waiting, left)) = state.pipeline.take_waiting(sequence) else { return true };
        left.iter().for_each(|turn| self.windows.left(turn.peer));
        let keys = keys_of(&placement, &waiting.command, &waiting.classified);
        let (command, classified) = (&waiting.command, &waiting.classified);
        let tracked = &waiting.tracked;
        let dealt = turn.map(|turn| turn.peer);
        let waited = turn.map_or(Duration::ZERO, |turn| now.since(turn.since));
        let waited_ms = u16::try_from(waited.as_millis()).unwrap_or(u16::MAX);
        let job =
            Job { client, sequence, resp3, command, classified, keys: &keys, tracked, dealt, waited_ms };
        let launched = match waiting.watched {
            true if self.is_paused(now, classified.kind) => Err(Hold::Order),
            true => self.launch_watched(&placement, &job, effects).ok_or(Hold::Order),
            false => self.launch(now, &placement, &job, effects),
        };
        let progress = match launched {
            Ok(progress) => progress,
            Err(hold) => {
                if let Some(state) = self.clients.get_mut(client) {
                    state.pipeline.settle(sequence, Progress::Waiting(waiting));
                }
                if let Hold::Turn(peer) = hold {
                    self.await_turn(now, client, sequence, peer, turn.map(|turn| turn.since));
                }
                return true;
            }
        };
        let progress = transaction::interleaved(progress, &keys, &waiting.own_replies);
        if let Some(state) = self.clients.get_mut(client) {
            state.pipeline.settle(sequence, progress);
            if let Some(operation) = state.pipeline.get_mut(sequence) {
                operation.ran.launched(now, waiting.command);
            }
        }
        false
    }

    /// Sends a command if its order allows and there is room.
    pub(crate) fn launch(
        &mut self,
        now: Time,
        placement: &Arc<Placement>,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Progress, Hold> {
        let first = self.clients.get(job.client).map(|state| state.pipeline.first());
        let alone = runs_alone(job.classified);
        if self.is_paused(now, job.classified.kind) || alone && first != Some(job.sequence) {
            return Err(Hold::Order);
        }
        let progress = self.launch_planned(now, placement, job, effects);
        if job.classified.script
            && let Ok(Progress::Sent(sent)) = &progress
        {
            self.pending.set_script(sent.request);
        }
        progress
    }

    fn launch_planned(
        &mut self,
        now: Time,
        placement: &Arc<Placement>,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Progress, Hold> {
        let launched = match plan::plan(job.command, job.classified) {
            Plan::Read => self.launch_read(now, placement, job, effects),
            Plan::Each => self.launch_each(now, placement, job, effects),
            Plan::Whole => self.launch_groups(placement, job, None, effects),
            Plan::Grouped(merge) => self.launch_groups(placement, job, Some(merge), effects),
            Plan::Subscription => return Ok(self.launch_subscription(placement, job, effects)),
            Plan::Publish => return Ok(self.launch_publish(placement, job, effects)),
            Plan::Watch => self.launch_watch(placement, job, effects),
            keyless => return Ok(self.launch_keyless(now, placement, job, keyless, effects)),
        };
        match launched {
            Ok(progress) => Ok(progress),
            Err(Unroutable::Wait) => Err(Hold::Order),
            Err(Unroutable::Full(peer)) => Err(Hold::Turn(peer)),
            Err(Unroutable::Unavailable(shim)) => Ok(self.unavailable(shim)),
        }
    }

    fn launch_read(
        &mut self,
        now: Time,
        placement: &Placement,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Progress, Unroutable> {
        let key = &job.keys[0];
        let view = commands::view(placement.view_hash(), job.command, job.classified, job.resp3);
        let route = self.route_tracked(now, placement, job, key, view)?;
        self.room_for(job, std::iter::once(route.peer))?;
        if self.over_limit(1) {
            return Ok(self.busy());
        }
        if !job.tracked.is_empty() {
            self.track_all(placement, job, effects);
        }
        let frame = if view == View::GET { Bytes::new() } else { job.command.frame().clone() };
        let (streams, tried) = (self.config.streams, Tried::default());
        let read = PendingRead { key: key.clone(), view, command: frame, streams, tried };
        self.budget.earn();
        let sent = self.send_read(now, job.origin(0), route, read, effects);
        if !job.tracked.is_empty() {
            self.confirm_later(key, sent);
        }
        Ok(Progress::Sent(sent))
    }

    fn launch_each(
        &mut self,
        now: Time,
        placement: &Placement,
        job: &Job<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Progress, Unroutable> {
        let routes = job
            .keys
            .iter()
            .map(|key| self.route_tracked(now, placement, job, key, View::GET))
            .collect::<Result<Vec<Route>, Unroutable>>()?;
        self.room_for(job, routes.iter().map(|route| route.peer))?;
        if self.over_limit(routes.len()) {
            return Ok(self.busy());
        }
        if !job.tracked.is_empty() {
            self.track_all(placement, job, effects);
        }
        let mut parts = Vec::with_capacity(routes.len());
        for (index, (key, route)) in job.keys.iter().zip(routes).enumerate() {
            let tried = Tried::default();
            let (view, command) = (View::GET, Bytes::new());
            let read = PendingRead { key: key.clone(), view, command, streams: false, tried };
            self.budget.earn();
            let sent = self.send_read(now, job.origin(index as u32), route, read, effects);
            if !job.tracked.is_empty() {
                self.confirm_later(key, sent);
            }
            parts.push(Part { sent, touch: SmallVec::from_slice(&[low(key)]), reply: None });
        }
        Ok(fan(parts, Merge::Values))
    }

    /// Sends a command to the shims of its keys: to one as it is, to several in groups if it can be merged.
    fn launch_groups(
        &mut self,
        placement: &Placement,
        job: &Job<'_>,
        merge: Option<Merge>,
        effects: &mut Vec<Effect>,
    ) -> Result<Progress, Unroutable> {
        let kind = job.classified.kind;
        let groups = plan::groups(job.keys, |key| placement.home(key));
        if groups.len() > 1 && merge.is_none() {
            self.counters.refusals += 1;
            return Ok(Progress::Done(cross_shim(job.command)));
        }
        if job.classified.reads_unnamed_keys && placement.map().shims.len() > 1 {
            self.counters.refusals += 1;
            return Ok(Progress::Done(replies::error(UNNAMED_KEYS)));
        }
        let mut routes: SmallVec<[Route; 1]> = SmallVec::new();
        for group in &groups {
            let mut route = self.route_to_shim(group.home.shim, Order::Free)?;
            for &member in &group.members {
                let order = self.order(job, &job.keys[member]);
                route.ordered |= self.route_to_shim(group.home.shim, order)?.ordered;
            }
            routes.push(route);
        }
        if !matches!(kind, CommandKind::BlockingWrite | CommandKind::BlockingQuery) {
            self.room_for(job, routes.iter().map(|route| route.peer))?;
        }
        if self.over_limit(groups.len()) {
            return Ok(self.busy());
        }
        if !job.tracked.is_empty() {
            self.track_all(placement, job, effects);
        }
        let Some(merge) = merge.filter(|_| groups.len() > 1) else {
            let (key, frame) = (job.keys[0].clone(), job.command.frame());
            return Ok(Progress::Sent(self.send_execute(
                job.origin(0),
                kind,
                routes[0],
                key,
                frame,
                effects,
            )));
        };
        let mut parts = Vec::with_capacity(groups.len());
        for (index, (group, route)) in groups.iter().zip(routes).enumerate() {
            let narrowed = plan::narrowed(job.command, job.classified, group);
            let (origin, key) = (job.origin(index as u32), job.keys[group.members[0]].clone());
            let sent = self.send_execute(origin, kind, route, key, narrowed.frame(), effects);
            let touch = group.members.iter().map(|&member| low(&job.keys[member])).collect();
            parts.push(Part { sent, touch, reply: None });
        }
        Ok(fan(parts, merge))
    }

    pub(crate) fn order(&self, job: &Job<'_>, key: &Key) -> Order {
        if runs_alone(job.classified) {
            return Order::Free;
        }
        let client = self.clients.get(job.client);
        client.map_or(Order::Free, |client| client.pipeline.order(job.sequence, low(key), job.lane()))
    }

    /// Whether there is room wherever the job's requests go.
    fn room_for(&self, job: &Job<'_>, peers: impl Iterator<Item = Peer>) -> Result<(), Unroutable> {
        match self.without_window(job, peers) {
            Some(peer) => Err(Unroutable::Full(peer)),
            None => Ok(()),
        }
    }

    pub(crate) fn over_limit(&self, more: usize) -> bool {
        self.pending.len() + more > self.config.pending_max
    }

    pub(crate) fn busy(&mut self) -> Progress {
        self.counters.sheds += 1;
        Progress::Done(replies::error(
            "BUSY DistCache: too many commands are in flight in this router; try again",
        ))
    }

    pub(crate) fn unavailable(&mut self, shim: ShimId) -> Progress {
        self.counters.unavailable += 1;
        let name = self.shim_name(shim);
        Progress::Done(replies::error(&format!(
            "ERR DistCache: shim {name} is not reachable; the command was not executed"
        )))
    }

    pub(crate) fn shim_name(&self, shim: ShimId) -> String {
        let known = self.config.shim_names.get(usize::from(shim.0));
        known.cloned().unwrap_or_else(|| format!("number {}", shim.0))
    }
}

/// Half a digest, by which operations are kept in order.
pub(crate) fn low(key: &Key) -> u64 {
    key.digest.0 as u64
}

pub(crate) fn fan(parts: Vec<Part>, merge: Merge) -> Progress {
    Progress::Fan(Box::new(Fan { outstanding: parts.len(), parts, merge }))
}

pub(crate) fn answered(now: Time, bytes: Bytes, silent: bool, closes: bool) -> Operation {
    let (touch, held_bytes, progress) = (Touch::Nothing, bytes.len(), Progress::Done(bytes));
    Operation { held_bytes, silent, closes, ..Operation::new(now, touch, progress) }
}

pub(crate) fn keys_of(placement: &Placement, command: &Command, classified: &Classified) -> Keys {
    classified.keys.iter().map(|&index| placement.key(0, command.arg_bytes(index))).collect()
}

/// Commands whose keys are unknown, and those that hold their client up while they block.
pub(crate) fn runs_alone(classified: &Classified) -> bool {
    classified.keys.is_empty()
        || matches!(
            classified.kind,
            CommandKind::Barrier
                | CommandKind::BlockingWrite
                | CommandKind::BlockingQuery
                | CommandKind::Watch
        )
}

pub(crate) fn touch(classified: &Classified, keys: &[Key]) -> Touch {
    match keys {
        _ if runs_alone(classified) => Touch::All,
        [key] => Touch::One(low(key)),
        several => Touch::Many(several.iter().map(low).collect()),
    }
}

pub(crate) fn cross_shim(command: &Command) -> Bytes {
    let name = String::from_utf8_lossy(command.name()).to_lowercase();
    replies::error(&format!(
        "CROSSSLOT DistCache: the keys of '{name}' live on different storage servers; \
         give them one hash tag, as in {{user1}}.a and {{user1}}.b"
    ))
}

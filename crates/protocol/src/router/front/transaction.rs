//! MULTI to EXEC at the router: what a client has queued, and how it becomes one operation. Not how storage runs it.

use bytes::Bytes;
use smallvec::SmallVec;
use wire::Key;
use wire::resp::Command;
use wire::resp::transaction::Transaction;

use crate::router::flow::dispatch::{Hold, Job, Keys, fan, keys_of, low, touch};
use crate::router::flow::gather::Merge;
use crate::router::flow::pipeline::{Operation, Part, Progress, Waiting};
use crate::router::flow::plan::{self, Plan};
use crate::router::flow::ran::Ran;
use crate::router::front::client_command;
use crate::router::front::connection::{self, Answer};
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::{Classified, CommandKind, CommandRefusal};

/// Most commands that one transaction may have. A reply of as many elements is no trouble to clients.
const COMMANDS_MAX: usize = 1 << 18;
/// Most bytes of their frames together.
const BYTES_MAX: usize = 64 << 20;

const QUEUED: &[u8] = b"+QUEUED\r\n";
pub(crate) const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";
const ELSEWHERE: &str = "CROSSSLOT DistCache: a script without keys runs on another storage server than the keys of \
                         this transaction; nothing was executed";

/// What a client has queued since MULTI.
#[derive(Debug)]
pub(crate) struct Queued {
    storage: Transaction,
    /// Commands that the router answers itself, by their place in the whole, and what storage need not be asked.
    own: Vec<(usize, Own)>,
    own_bytes: usize,
    kind: CommandKind,
    reads_unnamed_keys: bool,
    script: bool,
    /// Keys that commands read whose replies clients may keep.
    reads: Vec<Bytes>,
    /// A command was wrong, so that EXEC will do nothing.
    failed: bool,
}

#[derive(Debug)]
enum Own {
    Command(Command),
    /// Redis would find the mistake while it carries the command out.
    Error(Bytes),
}

impl Default for Queued {
    fn default() -> Queued {
        Queued {
            storage: Transaction::default(),
            own: Vec::new(),
            own_bytes: 0,
            kind: CommandKind::Keyless,
            reads_unnamed_keys: false,
            script: false,
            reads: Vec::new(),
            failed: false,
        }
    }
}

impl Queued {
    pub(crate) fn len(&self) -> usize {
        self.storage.len() + self.own.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.storage.bytes() + self.own_bytes
    }

    /// EXEC will do nothing, so nothing is kept.
    pub(crate) fn fail(&mut self) {
        *self = Queued { failed: true, ..Queued::default() };
    }

    fn is_full(&self, more: usize) -> bool {
        self.len() >= COMMANDS_MAX || self.bytes() + more > BYTES_MAX
    }

    fn push(&mut self, command: &Command, classified: &Classified) {
        // A channel is no key, but has a place as keys have.
        let channel = [1];
        let keys = if classified.kind == CommandKind::Publish { &channel[..] } else { &classified.keys[..] };
        self.storage.push(command, keys);
        self.kind = commands::transaction_kind(self.kind, classified.kind);
        self.reads_unnamed_keys |= classified.reads_unnamed_keys;
        self.script |= classified.script;
        if classified.spec.is_tracked() {
            let keys = classified.keys.iter();
            self.reads.extend(keys.map(|&index| Bytes::copy_from_slice(command.arg(index))));
        }
    }

    fn push_own(&mut self, own: Own) {
        self.own_bytes += match &own {
            Own::Command(command) => command.frame().len(),
            Own::Error(bytes) => bytes.len(),
        };
        self.own.push((self.len(), own));
    }
}

impl Router {
    /// A command of a client that is between MULTI and EXEC.
    pub(crate) fn queue(&mut self, now: Time, client: u32, command: &Command, effects: &mut Vec<Effect>) {
        let found = commands::classify(command);
        if let (Ok(classified), Some(state)) = (&found, self.clients.get_mut(client)) {
            (state.seen, state.last) = (now, classified.spec.name);
        }
        let answer = match found {
            Ok(classified)
                if classified.kind == CommandKind::Watch
                    || classified.kind == CommandKind::Connection && !plan::is(command, 0, "COMMAND") =>
            {
                return self.queue_own(now, client, command, effects);
            }
            Ok(classified) => match self.unfit(command, &classified) {
                Some(error) => Err(error),
                None => self.push(client, command, |queued| queued.push(command, &classified)),
            },
            Err(refusal) if refusal.is_of_execution(command) => {
                let error = replies::error(&refusal.to_string());
                self.push(client, command, |queued| queued.push_own(Own::Error(error)))
            }
            Err(refusal) => {
                if plan::is(command, 0, "EXEC")
                    && let Some(state) = self.clients.get_mut(client)
                {
                    state.transaction = None;
                }
                Err(refused(command, &refusal))
            }
        };
        self.queued(now, client, answer, effects);
    }

    /// Commands about the connection: some end the transaction, some are impossible in one, the others wait for EXEC.
    fn queue_own(&mut self, now: Time, client: u32, command: &Command, effects: &mut Vec<Effect>) {
        let name = plan::upper(command.name());
        let answer = match name.as_slice() {
            b"EXEC" => return self.exec(now, client, command, effects),
            b"DISCARD" => {
                if let Some(state) = self.clients.get_mut(client) {
                    state.transaction = None;
                }
                if self.is_watching(client) {
                    return self.end_watch(now, client, command.clone(), effects);
                }
                Ok(replies::OK)
            }
            b"MULTI" => Ok(replies::error("ERR MULTI calls can not be nested")),
            b"WATCH" => Ok(replies::error("ERR WATCH inside MULTI is not allowed")),
            b"QUIT" | b"RESET" => return connection::answer(self, now, client, command, effects),
            b"PING" | b"ECHO" | b"SLOWLOG" | b"SELECT" | b"AUTH" | b"INFO" | b"ACL" | b"UNWATCH"
            | b"READONLY" | b"READWRITE" | b"ASKING" => self.push_own(client, command),
            b"CLIENT" if !client_command::is_reply(command) => self.push_own(client, command),
            _ => Err(replies::error(&format!(
                "ERR DistCache: '{}' is not possible inside a transaction",
                String::from_utf8_lossy(&name).to_lowercase()
            ))),
        };
        self.queued(now, client, answer, effects);
    }

    /// Tells the client; an error makes EXEC do nothing.
    fn queued(&mut self, now: Time, client: u32, answer: Result<Bytes, Bytes>, effects: &mut Vec<Effect>) {
        let bytes = answer.unwrap_or_else(|error| {
            self.counters.refusals += 1;
            if let Some(queued) = self.clients.get_mut(client).and_then(|state| state.transaction.as_mut()) {
                queued.fail();
            }
            error
        });
        self.respond(now, client, bytes, effects);
    }

    fn push_own(&mut self, client: u32, command: &Command) -> Result<Bytes, Bytes> {
        // A copy, because a slice would keep the whole read buffer alive.
        let own = Own::Command(Command::from_args(&command.args().collect::<Vec<_>>()));
        self.push(client, command, |queued| queued.push_own(own))
    }

    fn push(
        &mut self,
        client: u32,
        command: &Command,
        push: impl FnOnce(&mut Queued),
    ) -> Result<Bytes, Bytes> {
        let state = self.clients.get_mut(client);
        let Some(queued) = state.and_then(|state| state.transaction.as_mut()) else {
            return Ok(Bytes::new());
        };
        if queued.is_full(command.frame().len()) {
            return Err(replies::error(&format!(
                "ERR DistCache: the transaction is too large: at most {COMMANDS_MAX} commands of {} MiB together may \
                 queue; split it",
                BYTES_MAX >> 20
            )));
        }
        if !queued.failed {
            push(queued);
        }
        Ok(Bytes::from_static(QUEUED))
    }

    /// Why a command cannot be part of a transaction.
    fn unfit(&mut self, command: &Command, classified: &Classified) -> Option<Bytes> {
        if let Some(error) = self.key_too_long(command, classified) {
            return Some(error);
        }
        let Some(placement) = &self.placement else {
            return Some(replies::error("LOADING DistCache: this router has no cluster map yet"));
        };
        if matches!(classified.kind, CommandKind::Subscription | CommandKind::Purge) {
            let name = classified.spec.name;
            let error = format!("ERR DistCache: '{name}' is not possible inside a transaction");
            return Some(replies::error(&error));
        }
        let everywhere =
            matches!(plan::plan(command, classified), Plan::Everywhere(_) | Plan::Scan | Plan::RandomKey);
        (everywhere && placement.map().shims.len() > 1).then(|| {
            let name = classified.spec.name;
            replies::error(&format!(
                "ERR DistCache: '{name}' is about all storage servers, and a transaction runs on one of them; send it \
                 outside of MULTI"
            ))
        })
    }

    fn exec(&mut self, now: Time, client: u32, command: &Command, effects: &mut Vec<Effect>) {
        let watched = self.is_watching(client);
        let state = self.clients.get_mut(client);
        let Some(queued) = state.and_then(|state| state.transaction.take()) else { return };
        if queued.failed {
            self.counters.refusals += 1;
            if watched {
                return self.end_watch(now, client, command.clone(), effects);
            }
            return self.respond(now, client, replies::error(ABORTED), effects);
        }
        let mut queued = *queued;
        let reads = std::mem::take(&mut queued.reads);
        let pause_before = self.pause;
        let (queued, own_replies) = self.carry_out_own(now, client, queued);
        let Queued { storage, kind, reads_unnamed_keys, script, .. } = queued;
        if storage.is_empty() && !watched {
            let mut out = Vec::new();
            replies::array_header(own_replies.len(), &mut out);
            own_replies.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
            return self.respond(now, client, out.into(), effects);
        }
        let command = storage.finish();
        let Some(spec) = commands::find(command.name()) else { return };
        let keys = (1..command.len()).collect();
        let classified = Classified { spec, kind, keys, reads_unnamed_keys, script };
        let tracked = match (self.clients.get_mut(client).map(Router::take_caching), &self.placement) {
            (Some(true), Some(placement)) => reads.into_iter().map(|key| placement.key(0, key)).collect(),
            _ => Keys::new(),
        };
        let waiting = Waiting { command, classified, own_replies, watched, tracked };
        // CLIENT PAUSE in a transaction holds back what comes after it, as in Redis, and not the transaction itself.
        let pause = std::mem::replace(&mut self.pause, pause_before);
        self.launch_transaction(now, client, waiting, effects);
        self.pause = pause;
    }

    /// Answers what the router answers itself, and checks the rest again if its client's rights are limited or change on
    /// the way, as they may have since.
    fn carry_out_own(&mut self, now: Time, client: u32, queued: Queued) -> (Queued, Vec<(usize, Bytes)>) {
        let is_auth = |own: &Own| matches!(own, Own::Command(command) if plan::is(command, 0, "AUTH"));
        let checked = self.clients.get(client).is_some_and(|state| state.identity.checked);
        let Queued { storage, mut own, kind, reads_unnamed_keys, script, .. } = queued;
        if !checked && !own.iter().any(|(_, own)| is_auth(own)) {
            let answer = |(place, own)| (place, self.own_reply(now, client, own));
            let replies = own.drain(..).map(answer).collect();
            return (Queued { storage, kind, reads_unnamed_keys, script, ..Queued::default() }, replies);
        }
        let (mut left, mut replies) = (Queued::default(), Vec::new());
        let whole = storage.finish();
        let commands = wire::resp::transaction::split(whole.frame()).unwrap_or_default();
        let (mut own, mut commands) = (own.into_iter().peekable(), commands.into_iter());
        for place in 0.. {
            if let Some((_, own)) = own.next_if(|(own_place, _)| *own_place == place) {
                let reply = match &own {
                    Own::Command(command) => self.denied_at_exec(now, client, command),
                    Own::Error(_) => None,
                };
                replies.push((place, reply.unwrap_or_else(|| self.own_reply(now, client, own))));
                continue;
            }
            let Some(command) = commands.next() else { break };
            match (self.denied_at_exec(now, client, &command), commands::classify(&command)) {
                (Some(error), _) => replies.push((place, error)),
                (None, Ok(classified)) => left.push(&command, &classified),
                (None, Err(refusal)) => replies.push((place, refused(&command, &refusal))),
            }
        }
        (left, replies)
    }

    fn own_reply(&mut self, now: Time, client: u32, own: Own) -> Bytes {
        match own {
            Own::Error(bytes) => bytes,
            Own::Command(command) => match connection::evaluate(self, now, client, &command) {
                Some(Answer::Reply(bytes) | Answer::ReplyAndClose(bytes)) => bytes,
                None => replies::error("ERR DistCache: the connection is closed"),
            },
        }
    }

    /// As any command from here on: the whole is one, with all keys of its parts.
    fn launch_transaction(&mut self, now: Time, client: u32, waiting: Waiting, effects: &mut Vec<Effect>) {
        let Some(placement) = self.placement.clone() else { return };
        let keys = keys_of(&placement, &waiting.command, &waiting.classified);
        let Some(state) = self.clients.get_mut(client) else { return };
        let silent = state.take_silence();
        let (sequence, resp3) = (state.pipeline.next(), state.resp3);
        let (command, classified) = (&waiting.command, &waiting.classified);
        let (held_bytes, script) = (command.frame().len(), classified.script);
        let touch = touch(classified, &keys);
        let first = placement.map().shims[0].id;
        let elsewhere =
            classified.kind == CommandKind::Barrier && keys.iter().any(|key| placement.shim(key) != first);
        let mut ran = Ran::new(now, classified);
        let tracked = &waiting.tracked;
        let (dealt, waited_ms) = (None, 0);
        let job =
            Job { client, sequence, resp3, command, classified, keys: &keys, tracked, dealt, waited_ms };
        let launched = match waiting.watched {
            true if self.is_paused(now, classified.kind) => Err(Hold::Order),
            true => self.launch_watched(&placement, &job, effects).ok_or(Hold::Order),
            false if elsewhere => Ok(Progress::Done(replies::error(ELSEWHERE))),
            false => self.launch(now, &placement, &job, effects),
        };
        let turn = match launched {
            Err(Hold::Turn(peer)) => Some(peer),
            _ => None,
        };
        let progress = match launched {
            Ok(progress) => {
                ran.launched(now, waiting.command);
                interleaved(progress, &keys, &waiting.own_replies)
            }
            Err(_) => {
                self.counters.ordered_waits += u64::from(turn.is_none());
                Progress::Waiting(Box::new(waiting))
            }
        };
        let operation =
            Operation { held_bytes, resp3, script, silent, ran, ..Operation::new(now, touch, progress) };
        if let Some(peer) = turn {
            self.await_turn(now, client, sequence, peer, None);
        }
        self.enqueue(now, client, operation, effects);
    }
}

/// What a client hears of a command that is not carried out. An EXEC that is wrong ends its transaction all the same.
pub(crate) fn refused(command: &Command, refusal: &CommandRefusal) -> Bytes {
    let text = refusal.to_string();
    match text.strip_prefix("ERR ").filter(|_| plan::is(command, 0, "EXEC")) {
        Some(reason) => replies::error(&format!("EXECABORT Transaction discarded because of: {reason}")),
        None => replies::error(&text),
    }
}

/// A transaction on its way, whose reply will be made whole with the router's own replies.
pub(crate) fn interleaved(progress: Progress, keys: &[Key], own: &[(usize, Bytes)]) -> Progress {
    match progress {
        Progress::Sent(sent) if !own.is_empty() => {
            let touch: SmallVec<[u64; 1]> = keys.iter().map(low).collect();
            fan(vec![Part { sent, touch, reply: None }], Merge::Transaction { own: own.to_vec() })
        }
        progress => progress,
    }
}

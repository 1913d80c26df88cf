//! MULTI to EXEC at the router: what a client may queue, and how it becomes one operation. Not how storage runs it.

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::plan::{self, CommandPlan};
use crate::router::flow::request::{ClientRequest, CommandWay, KeptKeys, Routed};
use crate::router::front::connection::{self, OwnAnswer};
use crate::router::front::desk::Desk;
use crate::router::front::queued::{Own, Queued};
use crate::router::front::reply::{ABORTED, key_too_long, refused};
use crate::router::front::{Front, client_command, whole};
use crate::router::{replies, words};
use commands::{Classified, CommandKind};

/// Most commands that one transaction may have. A reply of as many elements is no trouble to clients.
const COMMANDS_MAX: usize = 1 << 18;
const QUEUED: &[u8] = b"+QUEUED\r\n";

impl Front {
    /// A command of a client that is between MULTI and EXEC.
    pub(crate) fn queue(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) {
        let found = commands::classify(command);
        if let (Ok(classified), Some(session)) = (&found, self.sessions.get_mut(client)) {
            (session.seen, session.last) = (desk.now(), classified.spec.name);
        }
        let answer = match found {
            Ok(classified)
                if classified.kind == CommandKind::Watch
                    || classified.kind == CommandKind::Connection && !words::is(command, 0, "COMMAND") =>
            {
                return self.queue_own(desk, client, command);
            }
            Ok(classified) => match unfit(desk, command, &classified) {
                Some(error) => Err(error),
                None => self.push(desk, client, command, |queued| queued.push(command, &classified)),
            },
            Err(refusal) if refusal.is_of_execution(command) => {
                let error = replies::error(&refusal.to_string());
                self.push(desk, client, command, |queued| queued.push_own(Own::Error(error)))
            }
            Err(refusal) => {
                if words::is(command, 0, "EXEC")
                    && let Some(session) = self.sessions.get_mut(client)
                {
                    session.transaction = None;
                }
                Err(refused(command, &refusal))
            }
        };
        self.queued(desk, client, answer);
    }

    /// Commands about the connection: some end the transaction, some are impossible in one, the others wait for EXEC.
    fn queue_own(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) {
        let name = words::upper(command.name());
        let answer = match name.as_slice() {
            b"EXEC" => return self.exec(desk, client, command),
            b"DISCARD" => {
                if let Some(session) = self.sessions.get_mut(client) {
                    session.transaction = None;
                }
                if desk.flow.is_watching(client) {
                    return self.end_watch(desk, client, command);
                }
                Ok(replies::OK)
            }
            b"MULTI" => Ok(replies::error("ERR MULTI calls can not be nested")),
            b"WATCH" => Ok(replies::error("ERR WATCH inside MULTI is not allowed")),
            b"QUIT" | b"RESET" => return connection::answer(self, desk, client, command),
            b"PING" | b"ECHO" | b"SLOWLOG" | b"SELECT" | b"AUTH" | b"INFO" | b"ACL" | b"UNWATCH"
            | b"READONLY" | b"READWRITE" | b"ASKING" => self.push_own(desk, client, command),
            b"CLIENT" if !client_command::is_reply(command) => self.push_own(desk, client, command),
            _ => Err(replies::error(&format!(
                "ERR DistCache: '{}' is not possible inside a transaction",
                String::from_utf8_lossy(&name).to_lowercase()
            ))),
        };
        self.queued(desk, client, answer);
    }

    /// Tells the client; an error makes EXEC do nothing.
    fn queued(&mut self, desk: &mut Desk<'_>, client: u32, answer: Result<Bytes, Bytes>) {
        let bytes = answer.unwrap_or_else(|error| {
            desk.step.counters.refusals += 1;
            if let Some(queued) =
                self.sessions.get_mut(client).and_then(|session| session.transaction.as_mut())
            {
                queued.fail();
            }
            error
        });
        self.respond(desk, client, bytes);
    }

    fn push_own(&mut self, desk: &Desk<'_>, client: u32, command: &Command) -> Result<Bytes, Bytes> {
        // A copy, because a slice would keep the whole read buffer alive.
        let own = Own::Command(Command::from_args(&command.args().collect::<Vec<_>>()));
        self.push(desk, client, command, |queued| queued.push_own(own))
    }

    fn push(
        &mut self,
        desk: &Desk<'_>,
        client: u32,
        command: &Command,
        push: impl FnOnce(&mut Queued),
    ) -> Result<Bytes, Bytes> {
        let session = self.sessions.get_mut(client);
        let Some(queued) = session.and_then(|session| session.transaction.as_mut()) else {
            return Ok(Bytes::new());
        };
        let bytes_max = desk.step.config.settings.transaction_bytes_max;
        let bytes = queued.bytes() + command.frame().len();
        if queued.len() >= COMMANDS_MAX || bytes > bytes_max {
            return Err(replies::error(&format!(
                "ERR DistCache: the transaction is too large: at most {COMMANDS_MAX} commands and {bytes_max} bytes may \
                 queue; split it, or raise [limits] transaction_bytes_max"
            )));
        }
        if !queued.failed {
            push(queued);
        }
        Ok(Bytes::from_static(QUEUED))
    }

    fn exec(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) {
        let watched = desk.flow.is_watching(client);
        let session = self.sessions.get_mut(client);
        let Some(queued) = session.and_then(|session| session.transaction.take()) else { return };
        if queued.failed {
            desk.step.counters.refusals += 1;
            if watched {
                return self.end_watch(desk, client, command);
            }
            return self.respond(desk, client, replies::error(ABORTED));
        }
        let mut queued = *queued;
        let reads = std::mem::take(&mut queued.reads);
        let pause_before = desk.flow.paused();
        let (queued, own) = self.carry_out_own(desk, client, queued);
        let Queued { storage, kind, unnamed_keys, script, .. } = queued;
        if storage.is_empty() && !watched {
            let mut out = Vec::new();
            replies::array_header(own.len(), &mut out);
            own.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
            return self.respond(desk, client, out.into());
        }
        let command = storage.finish();
        let Some(spec) = commands::find(command.name()) else { return };
        let keys = (1..command.len()).collect();
        let classified = Classified { spec, kind, keys, unnamed_keys, script };
        let Some(session) = self.sessions.get_mut(client) else { return };
        let kept = match (session.take_caching(), desk.flow.placement()) {
            (true, Some(placement)) => {
                KeptKeys::These(reads.into_iter().map(|key| placement.key(0, key)).collect())
            }
            _ => KeptKeys::Nothing,
        };
        let routed = Routed { command, classified, way: CommandWay::Transaction { watched, own }, kept };
        let request = ClientRequest { routed, manner: session.manner(), bare: false };
        // CLIENT PAUSE in a transaction holds back what comes after it, as in Redis, and not the transaction itself.
        let pause = desk.flow.swap_pause(pause_before);
        self.begin(desk, client, request);
        desk.flow.swap_pause(pause);
    }

    /// Answers what the router answers itself, and checks the rest again if its client's rights are limited or change on
    /// the way, as they may have since.
    fn carry_out_own(
        &mut self,
        desk: &mut Desk<'_>,
        client: u32,
        queued: Queued,
    ) -> (Queued, Vec<(usize, Bytes)>) {
        let is_auth = |own: &Own| matches!(own, Own::Command(command) if words::is(command, 0, "AUTH"));
        let checked = self.sessions.get(client).is_some_and(|session| session.identity.checked);
        let Queued { storage, mut own, kind, unnamed_keys, script, .. } = queued;
        if !checked && !own.iter().any(|(_, own)| is_auth(own)) {
            let answer = |(place, own)| (place, self.own_reply(desk, client, own));
            let replies = own.drain(..).map(answer).collect();
            return (Queued { storage, kind, unnamed_keys, script, ..Queued::default() }, replies);
        }
        let (mut left, mut replies) = (Queued::default(), Vec::new());
        let whole = storage.finish();
        let commands = wire::resp::transaction::split(whole.frame()).unwrap_or_default();
        let (mut own, mut commands) = (own.into_iter().peekable(), commands.into_iter());
        for place in 0.. {
            if let Some((_, own)) = own.next_if(|(own_place, _)| *own_place == place) {
                let reply = match &own {
                    Own::Command(command) => self.denied_at_exec(desk, client, command),
                    Own::Error(_) => None,
                };
                replies.push((place, reply.unwrap_or_else(|| self.own_reply(desk, client, own))));
                continue;
            }
            let Some(command) = commands.next() else { break };
            match (self.denied_at_exec(desk, client, &command), commands::classify(&command)) {
                (Some(error), _) => replies.push((place, error)),
                (None, Ok(classified)) => left.push(&command, &classified),
                (None, Err(refusal)) => replies.push((place, refused(&command, &refusal))),
            }
        }
        (left, replies)
    }

    fn own_reply(&mut self, desk: &mut Desk<'_>, client: u32, own: Own) -> Bytes {
        match own {
            Own::Error(bytes) => bytes,
            Own::Command(command) if whole::is_whole(&command) => {
                self.answer_whole_at_once(desk, client, &command)
            }
            Own::Command(command) => match connection::evaluate(self, desk, client, &command) {
                Some(OwnAnswer::Reply(bytes) | OwnAnswer::ReplyAndClose(bytes)) => bytes,
                None => replies::error("ERR DistCache: the connection is closed"),
            },
        }
    }
}

/// Why a command cannot be part of a transaction.
fn unfit(desk: &mut Desk<'_>, command: &Command, classified: &Classified) -> Option<Bytes> {
    if let Some(error) = key_too_long(desk, command, classified) {
        return Some(error);
    }
    let Some(placement) = desk.flow.placement() else {
        return Some(replies::error("LOADING DistCache: this router has no cluster map yet"));
    };
    if matches!(classified.kind, CommandKind::Subscription | CommandKind::Purge) {
        let name = classified.spec.name;
        let error = format!("ERR DistCache: '{name}' is not possible inside a transaction");
        return Some(replies::error(&error));
    }
    let everywhere = matches!(
        plan::plan(command, classified),
        CommandPlan::Everywhere(_) | CommandPlan::Scan | CommandPlan::RandomKey
    );
    (everywhere && placement.map().shims.len() > 1).then(|| {
        let name = classified.spec.name;
        replies::error(&format!(
            "ERR DistCache: '{name}' is about all storage servers, and a transaction runs on one of them; send it \
             outside of MULTI"
        ))
    })
}

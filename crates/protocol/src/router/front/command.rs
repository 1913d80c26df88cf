//! A command's way in: checked, queued in a transaction, answered here or handed to the flow. Not how it goes on there.

use wire::resp::Command;

use crate::router::flow::plan::changes_users;
use crate::router::flow::request::{ClientRequest, CommandWay, KeptKeys, Routed};
use crate::router::flow::storage_info;
use crate::router::front::desk::Desk;
use crate::router::front::reply::{key_too_long, refused};
use crate::router::front::whole::ThreadShare;
use crate::router::front::{Front, connection, pubsub, slow_log, users};
use crate::router::{replies, words};
use commands::memcached::Dialect;
use commands::{Classified, CommandKind};

const NOT_REDIS: &str = "ERR DistCache: storage is memcached, which knows no Redis commands; speak memcached to a router \
                         with protocol = \"memcached\"";

impl Front {
    /// A Redis client's command, which a storage of memcached does not understand.
    pub(crate) fn redis_command(&mut self, desk: &mut Desk<'_>, client: u32, command: Command) {
        if desk.step.config.dialect == Dialect::Memcached {
            desk.step.counters.refusals += 1;
            return self.respond(desk, client, replies::error(NOT_REDIS));
        }
        self.command(desk, client, command);
    }

    pub(crate) fn command(&mut self, desk: &mut Desk<'_>, client: u32, command: Command) {
        let Some(session) = self.sessions.get(client).filter(|session| !session.closing) else { return };
        desk.step.counters.requests += 1;
        let (checked, queues) = (session.identity.checked, session.transaction.is_some());
        if checked && !self.permits(desk, client, &command) {
            return;
        }
        if queues {
            return self.queue(desk, client, &command);
        }
        let mut classified = match commands::classify(&command) {
            Ok(classified) => classified,
            Err(refusal) => {
                desk.step.counters.refusals += 1;
                return self.respond(desk, client, refused(&command, &refusal));
            }
        };
        let Some(session) = self.sessions.get_mut(client) else { return };
        (session.seen, session.last) = (desk.step.now, classified.spec.name);
        if session.only_listens()
            && let Some(error) = pubsub::misplaced(&classified)
        {
            desk.step.counters.refusals += 1;
            return self.respond(desk, client, error);
        }
        if is_configuration(&classified) && self.configures(desk, client, &command) {
            return;
        }
        if classified.kind == CommandKind::Connection {
            if !self.asks_storage(desk, client, &command) {
                return connection::answer(self, desk, client, &command);
            }
            classified.kind = CommandKind::Keyless;
        }
        if desk.flow.placement().is_none() {
            let error = replies::error("LOADING DistCache: this router has no cluster map yet");
            return self.respond(desk, client, error);
        }
        if let Some(error) = key_too_long(desk, &command, &classified) {
            return self.respond(desk, client, error);
        }
        self.route(
            desk,
            client,
            Routed { command, classified, way: CommandWay::Plain, kept: KeptKeys::Nothing },
        );
    }

    /// A command for members, with a place in its client's pipeline.
    fn route(&mut self, desk: &mut Desk<'_>, client: u32, mut routed: Routed) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        if session.take_caching() && routed.classified.spec.is_tracked() {
            routed.kept = KeptKeys::Named;
        }
        let subscribes = routed.classified.kind == CommandKind::Subscription;
        let mut manner = session.manner();
        // Confirmations are pushes, which CLIENT REPLY does not keep back.
        manner.silent &= !subscribes;
        // Notices for a client that tracks go behind a reply, and one of the sample is followed through the pipeline.
        let bare = manner.is_bare() && session.tracking.is_none() && !self.sampler.is_next();
        self.begin(desk, client, ClientRequest { routed, manner, bare });
        if subscribes && desk.flow.last_operation(client).is_some_and(|last| last.waiting()) {
            self.hold(desk, client);
        }
    }

    /// CONFIG GET and SET as far as they concern the router. Whether the client has its answer.
    fn configures(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) -> bool {
        let resp3 = self.sessions.get(client).is_some_and(|session| session.resp3);
        let sets = words::is(command, 1, "SET");
        if let Some(bytes) = slow_log::configuration(&mut self.slow_log, resp3, command) {
            match sets && !bytes.starts_with(b"-") {
                true => self.answer_shared(desk, client, command, ThreadShare::Done),
                false => self.respond(desk, client, bytes),
            }
            return true;
        }
        if sets && self.limit_tracking(desk, command) {
            self.ask_siblings(desk, command);
        }
        false
    }

    /// Whether storage has a part in the answer to a command of kind `Connection`.
    fn asks_storage(&self, desk: &Desk<'_>, client: u32, command: &Command) -> bool {
        match command.arg(0) {
            name if name.eq_ignore_ascii_case(b"INFO") => {
                desk.flow.placement().is_some() && storage_info::wanted(command).next().is_some()
            }
            name if name.eq_ignore_ascii_case(b"CLIENT") => words::is(command, 1, "HELP"),
            name if name.eq_ignore_ascii_case(b"PING") => self.asks_who_runs_a_script(desk, client),
            name if name.eq_ignore_ascii_case(b"ACL") => users::asks_storage(desk) && changes_users(command),
            name => name.eq_ignore_ascii_case(b"COMMAND"),
        }
    }

    /// While a script runs at the only server, a client that asks whether the server is there hears it from the server.
    fn asks_who_runs_a_script(&self, desk: &Desk<'_>, client: u32) -> bool {
        (desk.flow.runs_scripts() || self.scripts.run_elsewhere())
            && desk.flow.shims().len() == 1
            && !self.sessions.get(client).is_some_and(|session| session.only_listens())
    }
}

fn is_configuration(classified: &Classified) -> bool {
    classified.kind == CommandKind::Keyless && matches!(classified.spec.name, "config|get" | "config|set")
}

//! What a client is answered in its turn, by the front itself or through the flow. Not what.

use std::time::Duration;

use bytes::Bytes;
use wire::resp::Command;

use crate::router::flow::request::{ClientRequest, CommandWay, KeptKeys, Manner, Routed};
use crate::router::front::Front;
use crate::router::front::desk::Desk;
use crate::router::{replies, words};
use commands::{Classified, CommandKind, CommandRefusal};

pub(crate) const RESET: &[u8] = b"+RESET\r\n";
pub(crate) const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

impl Front {
    /// An operation that the router answers itself, in its turn.
    pub(crate) fn respond(&mut self, desk: &mut Desk<'_>, client: u32, bytes: Bytes) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let manner = session.manner();
        desk.flow.answer(&mut desk.step, client, manner, bytes);
        self.sample(desk, client);
    }

    /// The same, and nothing after it is taken.
    pub(crate) fn respond_and_close(&mut self, desk: &mut Desk<'_>, client: u32, bytes: Bytes) {
        let Some(session) = self.sessions.get_mut(client).filter(|session| !session.closing) else { return };
        session.closing = true;
        let manner = Manner { closes: true, ..session.manner() };
        desk.flow.answer(&mut desk.step, client, manner, bytes);
        self.sample(desk, client);
    }

    /// A command of the client goes to members.
    pub(crate) fn begin(&mut self, desk: &mut Desk<'_>, client: u32, request: ClientRequest) {
        if let Some(bytes) = desk.flow.begin(&mut desk.step, client, request) {
            self.latencies.record(Duration::ZERO);
            desk.step.reply(client, bytes);
        }
        self.sample(desk, client);
    }

    /// UNWATCH, DISCARD, RESET or an EXEC that does nothing, in its turn.
    pub(crate) fn end_watch(&mut self, desk: &mut Desk<'_>, client: u32, command: &Command) {
        let Some(spec) = commands::find(b"unwatch") else { return };
        let classified = Classified::without_keys(spec, CommandKind::Watch);
        let Some(session) = self.sessions.get_mut(client) else { return };
        let told = match command.name() {
            _ if words::is(command, 0, "RESET") => Bytes::from_static(RESET),
            _ if words::is(command, 0, "EXEC") => replies::error(ABORTED),
            _ => replies::OK,
        };
        let (command, way) = (command.clone(), CommandWay::EndsWatch(told));
        let routed = Routed { command, classified, way, kept: KeptKeys::Nothing };
        let request = ClientRequest { routed, manner: session.manner(), bare: false };
        desk.flow.end_watch(&mut desk.step, client, request);
        self.sample(desk, client);
    }

    /// Follows the client's last command if it is in the sample whose spans are told.
    #[inline]
    pub(crate) fn sample(&mut self, desk: &mut Desk<'_>, client: u32) {
        if self.sampler.is_due() {
            let last = self.sessions.get(client).map_or("", |session| session.last);
            self.sampler.follow(last, desk.flow.last_operation(client));
        }
    }
}

/// The error about a key that is over the limit.
pub(crate) fn key_too_long(desk: &mut Desk<'_>, command: &Command, classified: &Classified) -> Option<Bytes> {
    let bytes_max = desk.step.config.settings.key_bytes_max;
    let key = classified.keys.iter().find(|key| command.arg(**key).len() > bytes_max)?;
    desk.step.counters.refusals += 1;
    let bytes = command.arg(*key).len();
    Some(replies::error(&format!("ERR DistCache: a key of {bytes} bytes is over the limit of {bytes_max}")))
}

/// What a client hears of a command that is not carried out. An EXEC that is wrong ends its transaction all the same.
pub(crate) fn refused(command: &Command, refusal: &CommandRefusal) -> Bytes {
    let text = refusal.to_string();
    match text.strip_prefix("ERR ").filter(|_| words::is(command, 0, "EXEC")) {
        Some(reason) => replies::error(&format!("EXECABORT Transaction discarded because of: {reason}")),
        None => replies::error(&text),
    }
}

//! Commands about the connection itself, answered here as Redis answers them. CLIENT is in `client_command`.

use bytes::Bytes;
use wire::TopicKind;
use wire::resp::{Command, reply};

use crate::router::flow::plan;
use crate::router::front::client::{Client, Labels, Replies};
use crate::router::front::{acl_command, client_command, client_tracking, info, own_command, slow_log};
use crate::router::{Effect, Router, replies};
use crate::time::Time;
use commands::integer;

pub(crate) enum Answer {
    Reply(Bytes),
    ReplyAndClose(Bytes),
}

/// Answers one command of kind `Connection`, in its turn.
pub(crate) fn answer(
    router: &mut Router,
    now: Time,
    client: u32,
    command: &Command,
    effects: &mut Vec<Effect>,
) {
    if client_command::is_reply(command) {
        return client_command::set_replies(router, now, client, command, effects);
    }
    if client_tracking::is_tracking(command) {
        return client_tracking::set(router, now, client, command, effects);
    }
    if plan::is(command, 0, "RESET") && command.len() == 1 {
        router.set_tracking(client, None);
        router.follow(None, effects);
        let subscribed = router.clients.get_mut(client).and_then(|state| state.subscribed.take());
        router.leave_all(client, subscribed, None, effects);
    }
    if let Some(state) = router.clients.get_mut(client).filter(|_| !keeps_caching(command)) {
        // It spends what CLIENT CACHING said, and reads nothing that the client could keep.
        state.tracking.iter_mut().for_each(|tracking| tracking.caching = false);
    }
    let ends_watch = plan::is(command, 0, "UNWATCH") || plan::is(command, 0, "RESET");
    if ends_watch && command.len() == 1 && router.is_watching(client) {
        if plan::is(command, 0, "RESET") {
            let _ = evaluate(router, now, client, command);
        }
        return router.end_watch(now, client, command.clone(), effects);
    }
    let Some(answer) = evaluate(router, now, client, command) else { return };
    match answer {
        Answer::Reply(bytes) => {
            router.counters.refusals += u64::from(bytes.starts_with(b"-"));
            router.respond(now, client, bytes, effects);
        }
        Answer::ReplyAndClose(bytes) => router.respond_and_close(now, client, bytes, effects),
    }
}

/// CLIENT CACHING is about the next command, but for those of CLIENT; with MULTI it is about the whole transaction.
fn keeps_caching(command: &Command) -> bool {
    plan::is(command, 0, "CLIENT") || plan::is(command, 0, "MULTI")
}

/// What such a command does and answers, wherever its turn is. Not for CLIENT REPLY, which may have no answer.
pub(crate) fn evaluate(router: &mut Router, now: Time, client: u32, command: &Command) -> Option<Answer> {
    let name = plan::upper(command.name());
    Some(match name.as_slice() {
        b"SLOWLOG" => Answer::Reply(slow_log::answer(router, command)),
        b"DISTCACHE" => Answer::Reply(own_command::answer(router, client, command)),
        b"ACL" => Answer::Reply(acl_command::answer(router, now, client, command)?),
        b"AUTH" => Answer::Reply(router.auth(now, client, command)),
        b"HELLO" => Answer::Reply(router.hello(now, client, command)?),
        b"CLIENT" => Answer::Reply(client_command::answer(router, now, client, command)?),
        b"INFO" => {
            let text = info::text(router, now, command);
            let resp3 = router.clients.get(client).is_some_and(|state| state.resp3);
            Answer::Reply(replies::verbatim(&text, resp3))
        }
        _ => {
            if plan::is(command, 0, "RESET") && command.len() == 1 {
                router.forget_identity(client);
            }
            own(router.clients.get_mut(client)?, &name, command)
        }
    })
}

fn own(state: &mut Client, name: &[u8], command: &Command) -> Answer {
    Answer::Reply(match (name, command.len()) {
        (b"PING", 1 | 2) if state.only_listens() => {
            let mut out = b"*2\r\n$4\r\npong\r\n".to_vec();
            reply::bulk(command.get(1).unwrap_or_default(), &mut out);
            out.into()
        }
        (b"PING", 1) => Bytes::from_static(reply::PONG),
        (b"PING", 2) | (b"ECHO", 2) => replies::bulk_string(command.arg(1)),
        (b"SELECT", 2) => select(command.arg(1)),
        (b"READONLY" | b"READWRITE", 1) => replies::OK,
        (b"ASKING" | b"CLUSTER", _) => replies::error("ERR This instance has cluster support disabled"),
        (b"RESET", 1) => {
            state.resp3 = false;
            state.replies = Replies::On;
            state.labels = None;
            state.transaction = None;
            Bytes::from_static(b"+RESET\r\n")
        }
        (b"MULTI", 1) => {
            state.transaction = Some(Box::default());
            replies::OK
        }
        (b"EXEC" | b"DISCARD", 1) => {
            let name = String::from_utf8_lossy(name).into_owned();
            replies::error(&format!("ERR {name} without MULTI"))
        }
        (b"UNWATCH", 1) => replies::OK,
        (b"QUIT", _) => return Answer::ReplyAndClose(replies::OK),
        (b"PING" | b"ECHO" | b"SELECT" | b"READONLY" | b"READWRITE" | b"RESET", _) => arity(command),
        _ => replies::error(&format!(
            "ERR DistCache: '{}' is not supported here",
            String::from_utf8_lossy(command.name()).to_lowercase()
        )),
    })
}

pub(crate) fn arity(command: &Command) -> Bytes {
    let name = String::from_utf8_lossy(command.name()).to_lowercase();
    replies::error(&format!("ERR wrong number of arguments for '{name}' command"))
}

fn select(index: &[u8]) -> Bytes {
    match integer(index) {
        Some(0) => replies::OK,
        Some(index) if i32::try_from(index).is_err() => {
            replies::error("ERR value is out of range, value must between -2147483648 and 2147483647")
        }
        Some(_) => replies::error("ERR DB index is out of range"),
        None => replies::error("ERR value is not an integer or out of range"),
    }
}

pub(crate) const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// Redis' rule for names: printable and no blank, so that CLIENT LIST stays readable.
pub(crate) fn is_label(label: &[u8]) -> bool {
    label.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// In the order of Redis.
fn flags(state: &Client) -> String {
    let tracking = state.tracking.as_deref();
    let flags = [
        (state.subscribed.is_some(), 'P'),
        (state.transaction.is_some(), 'x'),
        (tracking.is_some(), 't'),
        (tracking.is_some_and(|own| own.broken), 'R'),
        (tracking.is_some_and(|own| own.prefixes.is_some()), 'B'),
    ];
    let set: String = flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}

/// One line of CLIENT LIST and CLIENT INFO.
pub(crate) fn line(state: &Client, now: Time) -> String {
    let none = Labels::default();
    let labels = state.labels.as_deref().unwrap_or(&none);
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let multi = state.transaction.as_ref().map_or(-1, |queued| queued.len() as i64);
    let (address, local_address) = state.addresses();
    let count = |kind| state.subscribed.as_ref().map_or(0, |own| own.count(kind));
    format!(
        "id={} addr={address} laddr={local_address} fd=-1 name={} age={} idle={} flags={} db=0 sub={} psub={} ssub={} multi={multi} qbuf=0 \
         qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem=0 tot-mem=0 events=r cmd={} \
         user={} redir={} resp={} lib-name={} lib-ver={}",
        state.number,
        text(&labels.name),
        now.since(state.opened).as_secs(),
        now.since(state.seen).as_secs(),
        flags(state),
        count(TopicKind::Channel),
        count(TopicKind::Pattern),
        count(TopicKind::ShardChannel),
        state.pipeline.len(),
        state.last,
        text(&state.identity.user.name),
        client_tracking::redirect(state),
        if state.resp3 { 3 } else { 2 },
        text(&labels.library),
        text(&labels.library_version),
    )
}

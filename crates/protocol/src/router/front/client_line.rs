//! How a client is shown in CLIENT LIST, and what it may be called there. Not which clients are.

use bytes::Bytes;
use wire::TopicKind;
use wire::resp::Command;

use crate::router::front::client_tracking;
use crate::router::front::session::{ClientLabels, Session};
use crate::router::replies;
use crate::time::Time;

pub(crate) fn arity(command: &Command) -> Bytes {
    let name = String::from_utf8_lossy(command.name()).to_lowercase();
    replies::error(&format!("ERR wrong number of arguments for '{name}' command"))
}

pub(crate) const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

/// Redis' rule for names: printable and no blank, so that CLIENT LIST stays readable.
pub(crate) fn is_label(label: &[u8]) -> bool {
    label.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// In the order of Redis.
fn flags(session: &Session) -> String {
    let tracking = session.tracking.as_deref();
    let flags = [
        (session.subscribed.is_some(), 'P'),
        (session.transaction.is_some(), 'x'),
        (tracking.is_some(), 't'),
        (tracking.is_some_and(|own| own.broken), 'R'),
        (tracking.is_some_and(|own| own.prefixes.is_some()), 'B'),
    ];
    let set: String = flags.into_iter().filter(|(set, _)| *set).map(|(_, flag)| flag).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}

/// One line of CLIENT LIST and CLIENT INFO; `commands`: how many it has under way.
pub(crate) fn line(session: &Session, commands: usize, now: Time) -> String {
    let none = ClientLabels::default();
    let labels = session.labels.as_deref().unwrap_or(&none);
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let multi = session.transaction.as_ref().map_or(-1, |queued| queued.len() as i64);
    let (address, local_address) = session.addresses();
    let count = |kind| session.subscribed.as_ref().map_or(0, |own| own.count(kind));
    format!(
        "id={} addr={address} laddr={local_address} fd=-1 name={} age={} idle={} flags={} db=0 sub={} psub={} ssub={} multi={multi} qbuf=0 \
         qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll={} omem=0 tot-mem=0 events=r cmd={} \
         user={} redir={} resp={} lib-name={} lib-ver={}",
        session.number,
        text(&labels.name),
        now.since(session.opened).as_secs(),
        now.since(session.seen).as_secs(),
        flags(session),
        count(TopicKind::Channel),
        count(TopicKind::Pattern),
        count(TopicKind::ShardChannel),
        commands,
        session.last,
        text(&session.identity.user.name),
        client_tracking::redirect(session.tracking.as_deref()),
        if session.resp3 { 3 } else { 2 },
        text(&labels.library),
        text(&labels.library_version),
    )
}

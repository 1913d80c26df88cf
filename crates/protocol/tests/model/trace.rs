//! A counterexample in words: what happened, and what the machines were left with.

use std::fmt::Write;

use stateright::Path;
use wire::{Message, Peer};

use super::explore::Action;
use super::network::Envelope;
use super::setup::Cluster;
use super::state::{SHIM, State, time};

pub(crate) fn tell(cluster: &Cluster, path: Path<State, Action>) -> String {
    let mut text = String::new();
    for (number, (state, action)) in path.into_vec().into_iter().enumerate() {
        let _ = writeln!(text, "        {}", state_line(cluster, &state));
        if let Some(action) = action {
            let _ = writeln!(text, "{number:>5}  {}", action_line(&action));
        }
    }
    text
}

fn state_line(cluster: &Cluster, state: &State) -> String {
    let mut line = format!("storage {}", state.storage.value);
    if !state.storage.late.is_empty() {
        let _ = write!(line, ", late {:?}", state.storage.late);
    }
    for (index, node) in state.nodes.iter().enumerate() {
        let _ = write!(line, "; n{index} at {}", node.tick - 1000);
        if let Some(session) = node.machine.leased(node.now(), SHIM) {
            let leases = node.machine.leases(node.now());
            let _ = write!(line, " leased {} {:?}", brief(session), leases[0].remaining);
        }
        let _ = write!(line, " map {}", node.stage);
        for view in cluster.views() {
            if let Some(copy) = node.machine.servable(node.now(), &cluster.key, view) {
                let _ = write!(line, " serves {}", shown(&copy));
            }
        }
    }
    for (index, shim) in state.shims.iter().enumerate() {
        let holders: Vec<Peer> = shim.machine.holders(&cluster.key).collect();
        let _ = write!(line, "; s{index} at {} map {} knows {holders:?}", shim.tick - 1000, shim.stage);
    }
    if let Some(broken) = &state.broken {
        let _ = write!(line, "; {broken:?}");
    }
    line
}

fn action_line(action: &Action) -> String {
    match action {
        Action::Deliver { envelope, to } => {
            let name = |peer| match peer {
                Peer::Node(node) => format!("n{}", node.0),
                Peer::Shim(_) => format!("s{to}"),
                Peer::Router(router) => format!("r{}", router.0),
            };
            format!("{} > {}  {}", name(envelope.from), name(envelope.to), message_line(envelope))
        }
        other => format!("{other:?}"),
    }
}

fn message_line(envelope: &Envelope) -> String {
    let since = |micros: u64| (micros - time(1000).0) / time(1).0;
    match &envelope.message {
        Message::Hello(hello) => format!("HELLO {} nonce {}", hello.number, hello.nonce % 1000),
        Message::Welcome(welcome) => {
            format!("WELCOME session {} nonce {}", brief(welcome.session), welcome.nonce % 1000)
        }
        Message::Renew(renew) => format!("RENEW session {} sent {}", brief(renew.session), since(renew.sent)),
        Message::Grant(grant) => {
            let (session, sent, micros) = (brief(grant.session), since(grant.sent), grant.duration);
            format!("GRANT session {session} sent {sent} for {micros} us")
        }
        Message::Fetch(fetch) => format!("FETCH session {} fill {}", brief(fetch.session), fetch.fill),
        Message::Fill(fill) => format!(
            "FILL session {} fill {} v{} {} granted: {}",
            brief(fill.session),
            fill.fill,
            fill.version,
            shown(&fill.value),
            fill.granted
        ),
        Message::Invalidate(invalidate) => {
            let value = invalidate.value.as_ref().map(|early| shown(&early.value));
            format!("INV session {} v{} {value:?}", brief(invalidate.session), invalidate.version)
        }
        Message::Ack(ack) => {
            format!(
                "ACK session {} v{} nothing held: {:?}",
                brief(ack.session),
                ack.version,
                ack.nothing_held
            )
        }
        Message::Commit(commit) => format!("COMMIT session {} v{}", brief(commit.session), commit.version),
        Message::Evict(evict) => format!("EVICT session {} fill {}", brief(evict.session), evict.fill),
        other => format!("{other:?}"),
    }
}

/// Incarnation and number of a session.
fn brief(session: u64) -> String {
    format!("{}.{}", session >> 32, session & 0xffff_ffff)
}

fn shown(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).replace("\r\n", " ").trim_end().to_owned()
}

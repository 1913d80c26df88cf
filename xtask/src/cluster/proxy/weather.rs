//! What the proxy does to one direction of one link. Not how it does it.

use std::time::Duration;

use wire::Message;

/// The default is fair: bytes pass as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) delay: Duration,
    /// Added at random on top of `delay`; the order of bytes stays.
    pub(crate) jitter: Duration,
    /// Nothing passes. What was sent meanwhile passes when the weather clears, as TCP would send it again.
    pub(crate) cut: bool,
    pub(crate) bytes_per_second: Option<u64>,
    /// For single messages on control connections; the first rule that applies decides.
    pub(crate) rules: Vec<Rule>,
}

/// What happens to some control messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Every kind of message, or only one.
    pub(crate) kind: Option<Kind>,
    /// From 0 for never to 1 for always.
    pub(crate) chance: f64,
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Drop,
    /// It comes again after this time.
    Duplicate(Duration),
    /// It comes this much later, behind others that were sent after it.
    Hold(Duration),
}

/// The kinds of control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hello,
    Welcome,
    Reject,
    Renew,
    Grant,
    Refuse,
    Invalidate,
    Ack,
    Commit,
    Evict,
    Revoke,
    Revoked,
    Window,
}

impl Kind {
    /// None for messages of the data channel.
    pub(crate) fn of(message: &Message) -> Option<Kind> {
        Some(match message {
            Message::Hello(_) => Kind::Hello,
            Message::Welcome(_) => Kind::Welcome,
            Message::Reject(_) => Kind::Reject,
            Message::Renew(_) => Kind::Renew,
            Message::Grant(_) => Kind::Grant,
            Message::Refuse(_) => Kind::Refuse,
            Message::Invalidate(_) => Kind::Invalidate,
            Message::Ack(_) => Kind::Ack,
            Message::Commit(_) => Kind::Commit,
            Message::Evict(_) => Kind::Evict,
            Message::Revoke(_) => Kind::Revoke,
            Message::Revoked(_) => Kind::Revoked,
            Message::Window(_) => Kind::Window,
            Message::Read(_)
            | Message::Reply(_)
            | Message::Execute(_)
            | Message::Cancel(_)
            | Message::Fetch(_)
            | Message::Fill(_)
            | Message::Offer(_)
            | Message::Subscribe(_)
            | Message::Subscribers(_)
            | Message::Deliver(_)
            | Message::Follow(_)
            | Message::Track(_)
            | Message::Changed(_)
            | Message::Part(_)
            | Message::Credit(_) => return None,
        })
    }
}

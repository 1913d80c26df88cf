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
    pub(crate) rules: Vec<WeatherRule>,
}

/// What happens to some control messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeatherRule {
    /// Every kind of message, or only one.
    pub(crate) kind: Option<WeatherKind>,
    /// From 0 for never to 1 for always.
    pub(crate) chance: f64,
    pub(crate) fate: MessageFate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageFate {
    Drop,
    /// It comes again after this time.
    Duplicate(Duration),
    /// It comes this much later, behind others that were sent after it.
    Hold(Duration),
}

/// The kinds of control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeatherKind {
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

impl WeatherKind {
    /// The kind of a message; `None` for those of the data channel.
    pub(crate) fn of(message: &Message) -> Option<WeatherKind> {
        Some(match message {
            Message::Hello(_) => WeatherKind::Hello,
            Message::Welcome(_) => WeatherKind::Welcome,
            Message::Reject(_) => WeatherKind::Reject,
            Message::Renew(_) => WeatherKind::Renew,
            Message::Grant(_) => WeatherKind::Grant,
            Message::Refuse(_) => WeatherKind::Refuse,
            Message::Invalidate(_) => WeatherKind::Invalidate,
            Message::Ack(_) => WeatherKind::Ack,
            Message::Commit(_) => WeatherKind::Commit,
            Message::Evict(_) => WeatherKind::Evict,
            Message::Revoke(_) => WeatherKind::Revoke,
            Message::Revoked(_) => WeatherKind::Revoked,
            // Hints, as windows are.
            Message::Window(_) | Message::Heat(_) | Message::SetDegree(_) | Message::Tenure(_) => {
                WeatherKind::Window
            }
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
            | Message::Credit(_)
            | Message::Handover(_)
            | Message::HandoverAck(_) => return None,
        })
    }
}
